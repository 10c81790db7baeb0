/* SPDX-License-Identifier: Apache-2.0
 *
 * Doubly linked lists of structs with `next` and `previous` of their own type; `first` is the head.
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
