/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that embed.py generates from kernel_templates/: sorted by name, texts end in a NUL.
 */
#ifndef FA_TUNER_TEMPLATES_BUILTIN_H
#define FA_TUNER_TEMPLATES_BUILTIN_H

#include "manifest.h"

extern const fa_template_file fa_templates_builtin[];
extern const int fa_templates_builtin_count;

/* The hash over all files that an operation may be made of; over all of these: "". */
typedef struct fa_template_closure {
    const char *operation;
    char hash[FA_HASH_HEX];
} fa_template_closure;
extern const fa_template_closure fa_templates_builtin_closures[]; /* "" last */
extern const int fa_templates_builtin_closure_count;

#endif
