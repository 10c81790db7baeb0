/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FA_TESTS_THREADS_H
#define FA_TESTS_THREADS_H

#include <pthread.h>
#include <stddef.h>

/* A thread for each of so many elements, which lie `size` bytes apart; how many could not be started or returned anything. */
static inline int run_threads(void *(*body)(void *), void *element, size_t size, int count)
{
    enum { MOST = 64 };
    pthread_t thread[MOST];
    int started = 0, bad = 0;
    while (started < count && started < MOST &&
           pthread_create(&thread[started], NULL, body, (char *)element + size * (size_t)started) ==
               0)
        started++;
    for (int i = 0; i < started; i++) {
        void *result = NULL;
        bad += pthread_join(thread[i], &result) != 0 || result != NULL;
    }
    return bad + count - started;
}

#endif
