/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources that are compiled by themselves, side by side.
 */
#ifndef FA_ENGINE_BUILDS_H
#define FA_ENGINE_BUILDS_H

#include "session.h"

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
