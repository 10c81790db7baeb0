/* SPDX-License-Identifier: Apache-2.0
 *
 * What a service takes and gives, as JSON text: the one shape of an ask, an answer, a tune's progress, a
 * sweep and a failure. Part of fa_tune.h; `fa-tune serve` speaks through these, and `fa-tune … --json` prints answers
 * and sweeps so.
 *
 * Writers make one line of text without a line break in it, NUL-terminated, which the caller frees
 * with free(); numbers read back as the very same ones, and what is not known is null. Control bytes
 * and what is not UTF-8 in a sentence are replaced as they are written.
 *
 * Readers take text from anybody: length, depth, types, ranges, control bytes and UTF-8 are checked, and keys
 * that are not known are refused (a misspelt one would ask for something else). FA_EINVAL says what is wrong; outputs are set on
 * success only. null reads as 0.
 */
#ifndef FA_SERVICE_H
#define FA_SERVICE_H

#include "fa_sweep.h"

/* ---- the library as a client ----------------------------------------------------------------
 * With fa_options.server or FA_TUNE_SERVER fa_tune(), fa_get_best_kernel() and fa_answer_cubin() ask that server
 * first, for one kernel and its cubin; everything else is about the local store. FA_TUNE_TOKEN_FILE names a file
 * with the token for a TCP port.
 * - What the server answers is the answer, also FA_ENOTFOUND and the like. When it is gone, cannot do
 *   its part, does not understand or says what cannot be, a note says so once, and the local store
 *   and tuner are used; it is asked again a few seconds later, or, when it was waited for
 *   in vain, after ten times as long.
 * - A Unix socket must be this user's or root's. Nothing of the server's enters the local store.
 * - fa_get_best_kernel() launches without a proof of its own what a server on a Unix socket measured on
 *   this very GPU, or another of its silicon under this driver version, of the kernel that the
 *   templates here render too. Anything else is proved in a worker first, and so is all that comes
 *   from a TCP port, where a token says who asks and nothing of who answers; what the templates here
 *   launch otherwise is not launched. A hit in the process never waits for a server.
 * - A request without a GPU's name is for the device here, where there is one, else for the server's.
 *   What that is to measure is measured here where the server has neither such a device nor a winner.
 * - While the server tunes, progress() hears that something waits. Returning non-zero closes the connection,
 *   and the server cancels the tune. */

/* The server that is asked, or "": none is named, or it could not be used and has not answered since. */
FA_API const char *fa_server_location(const fa_tuner *tuner);

/* The longest text of each kind, in bytes. */
enum {
    FA_ASK_TEXT_MAX = 16384,
    FA_ANSWER_TEXT_MAX = 65536, /* also a progress, a sweep and a failure */
    FA_SWEEP_ASK_TEXT_MAX = 8 << 20
};

/* ---- one problem ----------------------------------------------------------------------------*/
/* {"problem": {"head_dim": 64, "batch": 4, "heads_q": 8, "seq_q": 512}, "gpu": "L4"}
 *
 * The problem needs these four. By default heads_kv is heads_q, seq_k is seq_q, dtype "fp16", causal
 * "none", layout "bhsd", lse and unaligned false; effort "measure"; the rest 0, false or empty. */
typedef struct fa_ask {
    fa_request request; /* as it is to be made, but for its gpu, whose name is here */
    char gpu[64];       /* catalogue name; "": a device of the server's */
    char uuid[48];      /* that device where the server has it, else the type `gpu` (FA_ENODEVICE where
                           that is ""); "": the type, or the device `ordinal` where that is "" too */
    char strategy[16];  /* the request's, as text; "": the default */
    int32_t timeout_ms; /* 0: the server's default */
} fa_ask;

FA_API int fa_ask_read(const char *text, size_t size, fa_ask *ret_ask, fa_diag *diag);

FA_API int fa_answer_write(const fa_answer *answer, char **ret_text, fa_diag *diag);

FA_API int fa_progress_write(const fa_progress *progress, char **ret_text, fa_diag *diag);

/* ---- sweeps ---------------------------------------------------------------------------------*/
/* {"items": [{"problem": {…}, "gpu": "L4"}, …], "plan": "…", "effort": "measure", "again": false,
 *  "exact": false, "restart": false, "ordinal": 0, "budget": {"seconds": 60, "trials": null, …},
 *  "strategy": "random", "evaluations": 1000, "seconds_each": 30}
 *
 * Only items are needed; a problem is as in fa_ask. */
typedef struct fa_sweep_ask {
    fa_sweep_request request; /* points into this struct, and to the items */
    fa_sweep_item *items;     /* the caller's to free() */
    char plan[512], strategy[16];
} fa_sweep_ask;

FA_API int fa_sweep_ask_read(const char *text, size_t size, fa_sweep_ask *ret_ask, fa_diag *diag);

FA_API int fa_sweep_write(const fa_sweep *sweep, char **ret_text, fa_diag *diag);

/* ---- the queue ------------------------------------------------------------------------------*/
/* {"sweeps": [{(a sweep), "pending": 3, "running": 1, "compiled": 2, "held":
 *  [{"index": 0, "problem": {…}, "gpu": "L4", "attempts": 1, "stage": "measure", "holder": "a:7"}, …]}, …]}. */
FA_API int fa_queue_write(fa_tuner *tuner, char **ret_text, fa_diag *diag);

/* ---- failures -------------------------------------------------------------------------------*/
/* {"error": {"code": "FA_ENOTFOUND", "message": "…"}} */
FA_API int fa_failure_write(int code, const char *message, char **ret_text, fa_diag *diag);

#endif
