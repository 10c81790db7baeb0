/* SPDX-License-Identifier: Apache-2.0
 *
 * "Did you mean …?"
 */
#ifndef FA_BASE_NEAREST_H
#define FA_BASE_NEAREST_H

/* The name in `names` (NULL-terminated) nearest to a mistyped one, or NULL when none is near. */
const char *fa_nearest(const char *typed, const char *const *names);

#endif
