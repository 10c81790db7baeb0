/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems of any operation, by the names of their fields. Part of fa_tune.h. A caller who only computes
 * attention fills the typed fields of fa_problem and needs none of this.
 *
 *     const fa_operation *operation;
 *     fa_problem problem;
 *     fa_find_operation("rms_norm", &operation, &diag);
 *     fa_make_problem(operation, &problem);
 *     fa_set_field(&problem, "rows", "4096", &diag);
 *
 * Operations of a directory of templates are known once fa_open() or fa_load_operations() has read it,
 * and then until the process ends. Safe to call from any thread.
 */
#ifndef FA_PROBLEM_H
#define FA_PROBLEM_H

#include "fa_tuner.h"

/* FA_ENOTSUP, with a sentence that lists those known. */
FA_API int fa_find_operation(const char *name, const fa_operation **ret_operation, fa_diag *diag);
/* Makes the operations of a directory of templates known: its folders' operation.json. What fa_open() refuses of the directory
 * is refused here; one that cannot be read has none. */
FA_API int fa_load_operations(const char *templates, fa_diag *diag);
/* Makes the operation of a kernel specification known (docs/your-own-kernel.md), for all tuners of the process: from a file,
 * NAME.cu with a comment at its head or NAME.json, or from texts, JSON and the CUDA C++ that it speaks of, or NULL and CUDA C++
 * with such a comment. `where` begins sentences and, up to its first dot and cut to 23 letters, is the operation's name unless the text says one.
 * Where it is a path, files that are named and included are looked for in its folder; otherwise a text may name none.
 * The same text again is the same operation; another text of the same name is another, and the newest has the name.
 * FA_EMANIFEST with a sentence. Thread-safe. */
FA_API int fa_spec_load(const char *path, const fa_operation **ret_operation, fa_diag *diag);
FA_API int fa_spec_read(const char *where, const char *text, const char *source,
                        const fa_operation **ret_operation, fa_diag *diag);
/* "NAME@HASH": what fa_find_operation() and problems in JSON find this very specification by, whatever was read after it;
 * of another operation its name. NULL stands for attention forward. */
FA_API int fa_spec_name(const fa_operation *operation, char *ret_name, size_t size, fa_diag *diag);

/* Data of the caller's own for the proofs of a specification: before anything is compiled, tunes of this process call the
 * function on their thread, once for each case, with the arguments in the kernel's order. It may give inputs, with which
 * the problem itself is timed, too. Where the specification's answer is {"given": …} it answers cases; in one that it leaves
 * unanswered configs must agree. NaN is refused. NULL: no function; whatever is set holds until the process ends.
 * contents: a hash, not negative, of the inputs that it gives from now on; 0: none. MEASURE then races the best configs again
 * where the winner was timed with other inputs; other efforts are answered with that winner, and its `why` says so. */
FA_API int fa_spec_cases(const fa_operation *operation, fa_case_function *function, void *context,
                         int32_t contents, fa_diag *diag);

typedef struct fa_field_info {
    size_t size;                /* sizeof(fa_field_info), set by the caller */
    const char *name;           /* as in JSON */
    const char *const *choices; /* names in the order of their values, then NULL; NULL: a number */
    bool boolean;               /* 0 or 1; true and false in JSON */
    int32_t min, max, multiple; /* what the value may be */
    int32_t preset;             /* the default; 0: it is beyond 32 bits */
    bool required;              /* there is no default */
} fa_field_info;
/* The field of problem.value[index]; FA_ENOTFOUND past the last. Texts live as long as the process. */
FA_API int fa_operation_field(const fa_operation *operation, int32_t index,
                              fa_field_info *ret_info);

/* A problem of the operation with the default of every field; fields without one are 0. */
FA_API int fa_make_problem(const fa_operation *operation, fa_problem *ret_problem);
/* Sets one field from text: a choice's name, a number (a specification's size above 2^31-1 is set here alone), true or
 * false. What the fields are worth together
 * is checked by every function that takes a problem. */
FA_API int fa_set_field(fa_problem *problem, const char *name, const char *text, fa_diag *diag);

/* A problem as JSON; *ret_text is malloced and the caller's. */
FA_API int fa_problem_write(const fa_problem *problem, char **ret_text, fa_diag *diag);
FA_API int fa_problem_read(const char *text, size_t size, fa_problem *ret_problem, fa_diag *diag);

#endif
