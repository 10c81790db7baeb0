/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: what fa_open made, and what every part of the engine finds in it. And what each request begins with: checked
 * and completed; what is decided before it is looked up; its wait for a lock; and which answers are good enough for it.
 */
#ifndef FA_ENGINE_SESSION_H
#define FA_ENGINE_SESSION_H

#include "compile_pool.h"
#include "driver.h"
#include "fa_tune.h"
#include "kernel_table.h"
#include "manifest.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Alone; or before ",HASH", of a request with same_bits, for which the config of that hash is the default. */
#define FA_MEASURE_POLICY "measure-1"
#define FA_POLICY_IS_OURS(policy)              \
    (strcmp(policy, FA_MEASURE_POLICY) == 0 || \
     strncmp(policy, FA_MEASURE_POLICY ",", sizeof FA_MEASURE_POLICY) == 0)

enum {
    FA_FAILED_MAX = 64,
    FA_HOLD_NAME_MAX = 80,
    FA_COMPILE_TIMEOUT_MS = 30000,
    FA_TRIAL_TIMEOUT_MS = 20000
};

struct fa_source;
struct fa_service;

/* What a session saw fail and need not try again: a source that does not compile, or a cubin's proof that the store could
 * not keep. */
typedef struct fa_failed {
    char key[FA_HASH_HEX];         /* of the cubin */
    char silicon[FA_SILICON_MAX];  /* that it was proved on; "": it did not compile */
    char error[512];
    bool hopeless; /* no config of its family compiles */
} fa_failed;

/* The lock of a value of another tuner that this one is to make. */
typedef struct fa_hold {
    struct fa_hold *next;
    fa_lock *lock;
    char name[FA_HOLD_NAME_MAX];
} fa_hold;

struct fa_tuner {
    char store_path[FA_STORE_PATH_MAX]; /* as it is shown: an address without its password */
    char spare_path[FA_STORE_PATH_MAX]; /* the file in the place of a server */
    uint64_t server_gone_ns;            /* since when it has been waited for; 0: it serves */
    char worker_path[FA_STORE_PATH_MAX];
    fa_options options; /* after defaults; the texts are the caller's, NULL once it is open */
    int forks; /* of this process, when it was opened */
    fa_templates *templates;
    fa_family_list families;

    /* Guards the store, the driver handle and insertions into the table of kernels: one request at a
     * time looks up or writes. A tune lets go of it whenever it waits for its workers or for a lock
     * between processes, so what was read before such a wait may have changed after it. Readers walk
     * the table without a lock, because entries are published whole and never leave. */
    pthread_mutex_t work;
    fa_store *store;
    fa_hold *holds;
    struct fa_source *system;   /* asked after the store */
    struct fa_service *service; /* asked before all else; NULL: none is named */
    fa_driver *driver; /* opened by the first request that needs a device */
    fa_kernel_table kernels;

    /* Held by the one tune whose workers run, without `work` while it waits: a tune takes all cores. */
    pthread_mutex_t tuning;

    _Atomic(fa_driver *) launch_driver; /* = driver, for the readers */
    bool ignore_system; /* bundles, while the catalogue is predicted anew or a worker measures */
    fa_failed *failed; /* FA_FAILED_MAX, or NULL: none yet; the oldest gives way */
    unsigned failed_next;
    bool found_busy; /* by the last lookup of effort CACHED that needed the GPU */
};

/* The value of a call that is made with `work` held. */
#define FA_HELD(tuner, call)                  \
    __extension__({                           \
        pthread_mutex_lock(&(tuner)->work);   \
        const int of_call = (call);           \
        pthread_mutex_unlock(&(tuner)->work); \
        of_call;                              \
    })

void fa_note(fa_tuner *tuner, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fa_note_text(void *tuner, const char *sentence);
/* FA_EFORKED in a child of the process that opened the tuner. */
int fa_tuner_check(const fa_tuner *tuner, fa_diag *diag);
/* That, and FA_EINVAL where one of the named arguments is NULL. */
int fa_tuner_check_with(const fa_tuner *tuner, bool given, const char *names, fa_diag *diag);
int fa_tuner_driver(fa_tuner *tuner, fa_diag *diag); /* opens tuner->driver; `work` is held */

/* Of what it holds by that name, NULL: of all; `work` is held. */
void fa_tuner_let_go(fa_tuner *tuner, const char *name);

/* NULL: this has not failed in this session. `work` is held. */
fa_failed *fa_tuner_failed(fa_tuner *tuner, const char *key, const char *silicon);
void fa_tuner_keep_failed(fa_tuner *tuner, const char *key, const char *silicon, const char *error);

/* Loads tuner->families, which do not change afterwards; `work` is held. */
int fa_tuner_families(fa_tuner *tuner, fa_diag *diag);
/* What the problem's kernels are made of: its specification's, or the tuner's own. */
const fa_templates *fa_templates_for(const fa_tuner *tuner, const fa_problem *problem);
const fa_family_list *fa_families_for(const fa_tuner *tuner, const fa_problem *problem);
/* Its families are those of the problem. */
fa_task fa_task_for(const fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu);
/* fa_space_enumerate() of the problem's families, which a large space makes long: paused meanwhile. */
int fa_tuner_enumerate(fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu,
                       fa_space *ret_space, fa_diag *diag);
/* What nobody has measured is then measured, whatever a system bundle says. Takes
 * `work` itself. */
void fa_tuner_ignore_system(fa_tuner *tuner, bool ignore);

/* Sets tuner->service and tuner->system by the options, where they name any. */
typedef int fa_sources_maker(fa_tuner *tuner, const fa_options *options, fa_diag *diag);
/* fa_open() with these sources. */
int fa_session_open(const fa_options *options, fa_sources_maker *make, fa_tuner **ret_tuner,
                    fa_diag *diag);

/* ---- what options and environment say, without opening anything ------------------------------*/
int fa_options_copy(const fa_options *options, fa_options *ret_options, fa_diag *diag);
const char *fa_options_templates(const fa_options *options); /* NULL: built-in only */
int fa_options_worker(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
/* A file, or a server's address with its password. */
int fa_options_store(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);

/* Copies a caller's struct that begins with its size and may be of an older, shorter version; the rest of
 * *ret is 0. FA_EINVAL with the sentence `why`. */
int fa_copy_sized(void *ret, size_t size, const void *given, const char *why, fa_diag *diag);
/* Checks a caller's request and completes one of an older, shorter struct. */
int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag);
/* That, after fa_tuner_check_with(). */
int fa_request_take(const fa_tuner *tuner, bool given, const char *names, const fa_request *request,
                    fa_request *ret_request, fa_diag *diag);

/* The lock that all tunes into the store share, so that no cubin which one of them relies on is forgotten
 * meanwhile (fa_forget() acquires it). */
#define FA_TUNES_LOCK "tunes"
/* Waits for a lock beside the store; the request's progress may cancel. ret_waited may be NULL. `work` is held, but
 * not meanwhile. */
int fa_request_wait(fa_tuner *tuner, const fa_request *request, const char *name,
                    fa_lock **ret_lock, bool *ret_waited, fa_diag *diag);
/* Not where a file serves in its place. */
bool fa_tuner_is_on_server(const fa_tuner *tuner);
/* Whether a server's store is gone, or was lately, and is to be waited for; not for ever: then the file in its place
 * serves. `work` is held. */
bool fa_tuner_awaits_server(fa_tuner *tuner);
/* FA_EIO, with its sentence: the store is a server's that does not answer now. `work` is held. */
int fa_tuner_need_server(fa_tuner *tuner, fa_diag *diag);
/* Waits for it, as above, or until the request's progress cancels. */
void fa_request_server(fa_tuner *tuner, const fa_request *request);
/* Waits until no other tune of this tuner runs its workers; the caller unlocks `tuning`. As above. */
int fa_request_turn(fa_tuner *tuner, const fa_request *request, fa_diag *diag);
/* Calls the request's progress, if any; true: it cancels. `work` is held, but not meanwhile; locks that another tune
 * needs are. */
bool fa_request_report(fa_tuner *tuner, const fa_request *request, const fa_progress *progress);
/* FA_EBUSY inside of it: for tunes, and for what else waits for such locks. */
int fa_callback_check(fa_diag *diag);

/* Everything that is decided before a winner is looked up. */
typedef struct fa_target {
    fa_problem problem; /* to be tuned: the bucket, or the asked one itself */
    fa_problem asked;   /* made not empty */
    fa_gpu gpu;
    fa_scope scope; /* of `problem` */
    bool wants_bits; /* a winner must have those of the following config */
    fa_config same_bits;
} fa_target;

/* The problem that a request asks for, and the one that is tuned for it: the same where the very lengths or bits are asked for. */
void fa_target_problems(const fa_tuner *tuner, const fa_request *request, fa_problem *ret_asked,
                        fa_problem *ret_tuned);
/* Of the request only problem, gpu, ordinal, exact and same_bits count. `work` is held. */
int fa_target_resolve(fa_tuner *tuner, const fa_request *request, fa_target *ret_target,
                      fa_diag *diag);

/* ---- a config of a target, without a tune ----------------------------------------------------*/
/* Renders a candidate of the tuner's task, or with NULL the operation's answer, into *ret, whose source is the caller's to
 * free. */
int fa_render_candidate(const fa_tuner *tuner, const fa_task *task, const fa_candidate *candidate,
                        const char *nvrtc_identity, fa_compile_task *ret, fa_diag *diag);
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

/* Of a space too large to be tried whole, where nothing bounds them. */
enum { FA_SEARCH_EVALUATIONS = 500 };

/* Of the inputs that the caller gives for proofs of the problem; 0: none. */
int32_t fa_contents_of(const fa_problem *problem);
/* Whether an answer is as good as what is asked for; with first_contact, that of a race of the top few or of a smaller
 * search is. */
bool fa_answer_satisfies(const fa_answer *answer, const fa_request *request);
bool fa_origin_is_timed(fa_origin origin); /* somebody has measured it, here or elsewhere */

/* ---- where winners come from besides the local store -----------------------------------------*/
/* A service, and system bundles: the engine knows both by these tables alone; fa_open makes them. */
/* Not an error: the service cannot be used (a note has said so) or has no answer. */
enum { FA_SOURCE_NONE = 1 };

/* It answers in this machine's place; `work` is not held. Each returns 0, FA_SOURCE_NONE or the request's own failure.
 * FA_ENOTFOUND of a cubin: it may be here. The first member of its own state, which free() ends. */
typedef struct fa_service {
    int (*tune)(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
    int (*cubin)(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                 fa_diag *diag);
    /* For a device that is here: an answer for its architecture, driver and effort, with its cubin. */
    int (*kernel)(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                  fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                  fa_diag *diag);
    int (*give_up)(fa_tuner *tuner, const char *why); /* for a while; FA_SOURCE_NONE */
    bool believed;                                    /* whether what it measured is trusted */
} fa_service;

/* Winners beside the local store's; `work` is held. FA_ENOTFOUND when none has it. The first member of its own state. */
typedef struct fa_source {
    void (*close)(struct fa_source *source);
    int (*find)(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                fa_cubin_record *ret_cubin);
    void (*list)(fa_tuner *tuner, const fa_problem *like, fa_list *list);
    int (*cubin)(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
} fa_source;

#endif
