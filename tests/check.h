/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole test harness: a visible list of tests, TAP on stdout.
 *
 *   static void budget_refuses_a_tile_that_is_one_byte_too_large(void) { CHECK_INT(a, b); }
 *   int main(void) { TEST(budget_refuses_a_tile_that_is_one_byte_too_large); return check_done(); }
 *
 * A failed CHECK prints where and what, marks the test failed and returns from it. SKIP says why.
 */
#ifndef FA_TESTS_CHECK_H
#define FA_TESTS_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int count, failures;
    bool failed;
    const char *skipped;
} check_state;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            printf("# %s:%d: %s is false\n", __FILE__, __LINE__, #condition);     \
            check_state.failed = true;                                            \
            return;                                                               \
        }                                                                         \
    } while (0)

#define CHECK_INT(actual, expected)                                               \
    do {                                                                          \
        long long a_ = (long long)(actual), e_ = (long long)(expected);           \
        if (a_ != e_) {                                                           \
            printf("# %s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__,    \
                   #actual, a_, e_);                                              \
            check_state.failed = true;                                            \
            return;                                                               \
        }                                                                         \
    } while (0)

#define CHECK_TEXT(actual, expected)                                              \
    do {                                                                          \
        const char *a_ = (actual), *e_ = (expected);                              \
        if (strcmp(a_, e_) != 0) {                                                \
            printf("# %s:%d: %s is \"%s\", expected \"%s\"\n", __FILE__, __LINE__, \
                   #actual, a_, e_);                                              \
            check_state.failed = true;                                            \
            return;                                                               \
        }                                                                         \
    } while (0)

/* The text contains the part: for sentences. */
#define CHECK_HAS(actual, part)                                                   \
    do {                                                                          \
        const char *a_ = (actual), *p_ = (part);                                  \
        if (strstr(a_, p_) == NULL) {                                             \
            printf("# %s:%d: %s is \"%s\", which lacks \"%s\"\n", __FILE__,       \
                   __LINE__, #actual, a_, p_);                                    \
            check_state.failed = true;                                            \
            return;                                                               \
        }                                                                         \
    } while (0)

/* rc is 0; otherwise prints the sentence of an fa_diag. */
#define CHECK_OK(rc, diag)                                                        \
    do {                                                                          \
        int r_ = (rc);                                                            \
        if (r_ != 0) {                                                            \
            printf("# %s:%d: %s gave %d: %s\n", __FILE__, __LINE__, #rc, r_,      \
                   (diag).text);                                                  \
            check_state.failed = true;                                            \
            return;                                                               \
        }                                                                         \
    } while (0)

#define SKIP(reason)                                                              \
    do {                                                                          \
        check_state.skipped = (reason);                                           \
        return;                                                                   \
    } while (0)

static inline void check_run(const char *name, void (*test)(void))
{
    check_state.failed = false;
    check_state.skipped = NULL;
    test();
    check_state.count++;
    if (check_state.failed)
        check_state.failures++;
    printf("%s %d - %s", check_state.failed ? "not ok" : "ok", check_state.count, name);
    if (check_state.skipped != NULL && !check_state.failed)
        printf(" # SKIP %s", check_state.skipped);
    printf("\n");
    fflush(stdout);
}

#define TEST(name) check_run(#name, name)

static inline int check_done(void)
{
    printf("1..%d\n", check_state.count);
    return check_state.failures == 0 ? 0 : 1;
}

#endif
