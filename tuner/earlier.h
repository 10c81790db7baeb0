/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners that were chosen from an earlier version of the built-in templates and still hold.
 *
 * May be used by: tuner, bundle, engine. Thread-safety: any thread.
 */
#ifndef FA_TUNER_EARLIER_H
#define FA_TUNER_EARLIER_H

#include "manifest.h"

/* Whether a winner of `family` that was chosen from the templates with this closure hash holds for
 * these: the hash is theirs, or an earlier one under which the family had the text that it has here.
 * 1, 0, or negative when memory ran out over it. */
int fa_templates_hold(const fa_templates *templates, const char *closure, const char *family,
                      fa_diag *diag);

/* The index-th earlier closure hash under which at least one family had the text that it has here:
 * what a store is asked for beside fa_templates_hash. FA_ENOTFOUND: there are no more. */
int fa_templates_earlier(const fa_templates *templates, int index, const char **ret_closure);

#endif
