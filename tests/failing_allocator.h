/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator that fails at the n-th call from now on: once, or for good. It stands in the test's own
 * program, so every library of the process uses it. Not under the sanitizers, which have their own.
 */
#ifndef FA_TESTS_FAILING_ALLOCATOR_H
#define FA_TESTS_FAILING_ALLOCATOR_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAILING_ALLOCATOR 0
#else
#define FAILING_ALLOCATOR 1
#endif

/* Of this thread alone. fail_at: which call fails, from 1; 0: none. */
static _Thread_local struct {
    long calls, fail_at;
    bool lasting, failed;
} allocator;

/* From now on, call n fails and, when lasting, all after it. */
static inline void allocator_fail(long n, bool lasting)
{
    allocator.calls = 0;
    allocator.fail_at = n;
    allocator.lasting = lasting;
    allocator.failed = false;
}

/* No call fails any more. Whether one did. */
static inline bool allocator_stop(void)
{
    allocator.fail_at = 0;
    return allocator.failed;
}

#if FAILING_ALLOCATOR
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

static bool allocator_refuses(void)
{
    if (allocator.fail_at == 0)
        return false;
    long call = ++allocator.calls;
    if (call != allocator.fail_at && !(allocator.lasting && call > allocator.fail_at))
        return false;
    allocator.failed = true;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return allocator_refuses() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return allocator_refuses() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return allocator_refuses() ? NULL : __libc_realloc(block, size);
}
#endif

#endif
