/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that embed.py generates from kernel_templates/: sorted by name, texts end in a NUL.
 */
#ifndef FA_TUNER_TEMPLATES_BUILTIN_H
#define FA_TUNER_TEMPLATES_BUILTIN_H

#include "manifest.h"

extern const fa_template_file fa_templates_builtin[];
extern const int fa_templates_builtin_count;
extern const char fa_templates_builtin_hash[];

#endif
