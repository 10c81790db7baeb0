/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of what has `next` and `previous` of its own type; `first` is where the list begins.
 */
#ifndef FA_DAEMON_LIST_H
#define FA_DAEMON_LIST_H

#include <stddef.h>

#define SERVE_LIST_ADD(first, item)          \
    do {                                     \
        (item)->previous = NULL;             \
        (item)->next = (first);              \
        if ((item)->next != NULL)            \
            (item)->next->previous = (item); \
        (first) = (item);                    \
    } while (0)

#define SERVE_LIST_REMOVE(first, item)                                                   \
    do {                                                                                 \
        *((item)->previous != NULL ? &(item)->previous->next : &(first)) = (item)->next; \
        if ((item)->next != NULL)                                                        \
            (item)->next->previous = (item)->previous;                                   \
        (item)->next = (item)->previous = NULL;                                          \
    } while (0)

#endif
