/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as far as a specification looks into it: the comment at its head, and its kernels by name.
 */
#ifndef FA_TUNER_SPEC_SOURCE_H
#define FA_TUNER_SPEC_SOURCE_H

#include "buf.h"

/* The JSON object in the first comment, `fa-tune` before it; NULL: there is none. Its lines are counted from the file's. */
char *fa_source_head(const char *text, fa_diag *diag);

/* Finds the kernel that is named, "space::name<arguments>" where it is a template, or where `named` is "" the only one but
 * `other`. Its name alone goes to ret_name; *ret_template: the source must instantiate it. FA_EMANIFEST lists those there
 * are. */
int fa_source_kernel(const char *where, const char *text, const char *named, const char *other,
                     char ret_name[FA_NAME_MAX], bool *ret_template, fa_diag *diag);

#endif
