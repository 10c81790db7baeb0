/* SPDX-License-Identifier: Apache-2.0
 *
 * A candidate without a tune: its source and key, its compile, and the gates of its cubin that need no GPU.
 */
#ifndef FA_ENGINE_CANDIDATE_H
#define FA_ENGINE_CANDIDATE_H

#include "session.h"

#include "compile_pool.h"
#include "cubin.h"
#include "nvrtc.h"

/* Renders a candidate of the tuner's task, or with NULL the operation's answer, into *ret, whose source is the caller's to
 * free. */
int fa_render_candidate(const fa_tuner *tuner, const fa_task *task, const fa_candidate *candidate,
                        const char *nvrtc_identity, fa_compile_task *ret, fa_diag *diag);
/* Why a cubin may not go on, or FA_STATUS_COMPILED. */
fa_status fa_gate_cubin(const fa_gpu *gpu, const fa_candidate *candidate, const fa_cubin_info *info,
                        const char *log, char *ret_reason, size_t size);

/* What a config is in the space of the problem that is asked for; reads the families, unless they are there. */
int fa_target_candidate(fa_tuner *tuner, const fa_target *target, const fa_config *config,
                        fa_candidate *ret_candidate, fa_diag *diag);
/* Sets the model's time of a config at the asked lengths, by the registers on record; false: it does not run there. */
bool fa_target_predict(fa_tuner *tuner, const fa_target *target, fa_trial *trial);
/* What a record's config is in today's space, and what it renders to with this NVRTC; the source is the caller's to free.
 * FA_ENOKERNEL: the config is not of today's space. */
int fa_record_render(fa_tuner *tuner, const fa_answer *record, const char *nvrtc,
                     fa_candidate *ret_candidate, fa_compile_task *ret, fa_diag *diag);
/* Whether the kernel that was measured is the one that its config means today. */
bool fa_record_holds(fa_tuner *tuner, const fa_answer *record);

/* A source that is compiled by itself. */
typedef struct fa_build {
    fa_compile_task task; /* its source NULL: it is not to be compiled, or has been */
    int rc;               /* of its compile, and the sentence */
    fa_diag diag;
    void *cubin; /* malloced; NULL: there is none */
    size_t size;
    char *log;
} fa_build;

/* A non-zero return cancels. */
typedef int fa_build_progress(void *context, int done, int count);
/* Compiles those that have a source, side by side; each has then its cubin or the compiler's error, or FA_EWORKER where its
 * worker died. `progress` may be NULL. `work` is held, but not while it waits. */
int fa_builds_run(fa_tuner *tuner, const fa_templates *templates, const fa_nvrtc_location *nvrtc,
                  fa_build *build, int count, fa_build_progress *progress, void *context,
                  fa_diag *diag);
void fa_builds_free(fa_build *build, int count); /* the array, too; NULL is allowed */

#endif
