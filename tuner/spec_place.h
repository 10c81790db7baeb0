/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of a specification that a sentence is about.
 */
#ifndef FA_TUNER_SPEC_PLACE_H
#define FA_TUNER_SPEC_PLACE_H

#include "fa_types.h"

/* Puts "WHERE:LINE: " before the sentence in place of the file's name that it begins with: `where`, or a file that was made
 * of the specification called `name`. The line is the one of what the sentence speaks of first; it is left out if the JSON is a text of the
 * caller's, beside the file, in one line. */
void fa_spec_locate(const char *where, const char *name, const char *json, bool beside,
                    fa_diag *diag);

#endif
