/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FA_FAILING_POINT_H
#define FA_FAILING_POINT_H

#include <stdbool.h>

#pragma GCC visibility push(hidden) /* from the program into which it is loaded */

enum failing_kind { NONE, MEMORY, IO, LOCKS };

/* Whether this call of that kind is to fail. caller: where it returns to; but_of: a library whose calls do not
 * count, or NULL. */
bool failing_refuse(enum failing_kind kind, const void *caller, const char *but_of);

/* While it is set, the thread's calls do not count. Returns what it was. */
bool failing_set_inside(bool now);

#pragma GCC visibility pop

#endif
