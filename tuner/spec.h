/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel specifications: a kernel as its author wrote it, and beside it what a tune needs to know: arguments, sizes, what
 * may be tuned, geometry, the answer. One becomes an operation with one family: its operation.json and its manifest are
 * made here, so that everything that works on operations works on it.
 *
 * docs/your-own-kernel.md tells its keys.
 *
 * May be used by: engine. Thread-safety: any thread. A specification that was loaded stays as it is until the process ends.
 * The text may be hostile: it is read as manifests and operations are.
 */
#ifndef FA_TUNER_SPEC_H
#define FA_TUNER_SPEC_H

#include "buf.h"
#include "manifest.h"

enum { FA_OPTIONS_MAX = 32 };

/* An #error of a source that begins so refuses the specification: the compiler met what may not stand there. */
#define FA_SPEC_REFUSED "fa-tune: "

typedef struct fa_includes fa_includes;

typedef struct fa_spec {
    fa_templates *templates;
    fa_family_list families;
    fa_compiled_with with; /* lies in the following, and in the operation's document */
    fa_includes *includes;
    fa_buf left; /* what the compiler does not see of the sources, a line each */
    const char *option[FA_OPTIONS_MAX + 1];
    fa_case_function *cases; /* NULL: none */
    void *cases_context;
    /* "": all is well; or why nothing may be measured: some tunable has no effect, the source takes handles */
    fa_diag fault;
} fa_spec;

/* As fa_spec_load() and fa_spec_read() of fa_problem.h, whose arguments were checked. */
int fa_spec_open(const char *path, const fa_operation **ret_operation, fa_diag *diag);
int fa_spec_make(const char *where, const char *text, const char *source,
                 const fa_operation **ret_operation, fa_diag *diag);

/* ---- ops/case_data.c -------------------------------------------------------------------------*/
/* fa_spec.fault; "" where the problem is no specification's. */
const char *fa_spec_fault_of(const fa_problem *problem);
/* As fa_spec_cases() of fa_problem.h; and what is set of the operation, NULL: nothing. */
int fa_spec_set_cases(const fa_operation *operation, fa_case_function *function, void *context,
                      int32_t contents, fa_diag *diag);
fa_case_function *fa_spec_cases_of(const fa_operation *operation, void **ret_context);

#endif
