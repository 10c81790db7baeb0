/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole test harness, TAP on stdout. A program's tests are those that its file defines, in their order:
 *
 *   TEST(budget_refuses_a_tile_that_is_one_byte_too_large) { CHECK_INT(a, b); }
 *
 * A failed CHECK prints where and what, marks the test failed and returns from it. SKIP says why.
 * A file with CHECK_OWN_MAIN has a main() that calls check_all() and returns check_done().
 */
#ifndef FA_TESTS_CHECK_H
#define FA_TESTS_CHECK_H

#include "error.h"

#include <ftw.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    int count, failures;
    bool failed;
    const char *skipped;
} check_state;

/* Of the call that a test has just made. */
static fa_diag diag __attribute__((unused));

/* Ends a test that did not pass, with a line that says why. */
#define CHECK_THAT(passed, ...)                      \
    do {                                             \
        if (!(passed)) {                             \
            printf("# %s:%d: ", __FILE__, __LINE__); \
            printf(__VA_ARGS__);                     \
            check_state.failed = true;               \
            return;                                  \
        }                                            \
    } while (0)

#define CHECK(condition) CHECK_THAT(condition, "%s is false\n", #condition)

#define CHECK_INT(actual, expected)                                           \
    do {                                                                      \
        long long a_ = (long long)(actual), e_ = (long long)(expected);       \
        CHECK_THAT(a_ == e_, "%s is %lld, expected %lld\n", #actual, a_, e_); \
    } while (0)

#define CHECK_TEXT(actual, expected)                                                         \
    do {                                                                                     \
        const char *a_ = (actual), *e_ = (expected);                                         \
        CHECK_THAT(strcmp(a_, e_) == 0, "%s is \"%s\", expected \"%s\"\n", #actual, a_, e_); \
    } while (0)

/* The text contains the part: for sentences. */
#define CHECK_HAS(actual, part)                                                                    \
    do {                                                                                           \
        const char *a_ = (actual), *p_ = (part);                                                   \
        CHECK_THAT(strstr(a_, p_) != NULL, "%s is \"%s\", which lacks \"%s\"\n", #actual, a_, p_); \
    } while (0)

/* rc is 0; otherwise prints the sentence of an fa_diag. */
#define CHECK_OK(rc, diag)                                             \
    do {                                                               \
        int r_ = (rc);                                                 \
        CHECK_THAT(r_ == 0, "%s gave %d: %s\n", #rc, r_, (diag).text); \
    } while (0)

/* rc is the code, and the sentence in `diag` has the part. */
#define CHECK_FAILS(rc, code, part) \
    do {                            \
        CHECK_INT(rc, code);        \
        CHECK_HAS(diag.text, part); \
    } while (0)

#define SKIP(reason)                                                              \
    do {                                                                          \
        check_state.skipped = (reason);                                           \
        return;                                                                   \
    } while (0)

typedef struct check_case {
    const char *name;
    void (*test)(void),
        (*within)(void (*test)(void)); /* which calls the test; NULL: nothing does */
    struct check_case *next;
} check_case;

static check_case *check_first, **check_next = &check_first;

static inline void check_run(const check_case *one)
{
    check_state.failed = false;
    check_state.skipped = NULL;
    if (one->within != NULL)
        one->within(one->test);
    else
        one->test();
    check_state.count++;
    if (check_state.failed)
        check_state.failures++;
    printf("%s %d - %s", check_state.failed ? "not ok" : "ok", check_state.count, one->name);
    if (check_state.skipped != NULL && !check_state.failed)
        printf(" # SKIP %s", check_state.skipped);
    printf("\n");
    fflush(stdout);
}

/* Before main(), in the order of the file. */
#define TEST_WITHIN(within, name)                                   \
    static void name(void);                                         \
    __attribute__((constructor)) static void name##_is_a_test(void) \
    {                                                               \
        static check_case one = {#name, name, within, NULL};        \
        *check_next = &one;                                         \
        check_next = &one.next;                                     \
    }                                                               \
    static void name(void)
#define TEST(name) TEST_WITHIN(NULL, name)

static inline void check_all(void)
{
    for (const check_case *one = check_first; one != NULL; one = one->next)
        check_run(one);
}

static inline int check_done(void)
{
    printf("1..%d\n", check_state.count);
    return check_state.failures == 0 ? 0 : 1;
}

/* ---- files and folders -----------------------------------------------------------------------*/
enum { CHECK_FOLDER = 256 };

/* A new one in `base`; NULL: where temporary files go. */
static inline void check_make_folder(char path[CHECK_FOLDER], const char *base)
{
    if (base == NULL)
        base = getenv("TMPDIR");
    snprintf(path, CHECK_FOLDER, "%s/fa-tune-test-XXXXXX",
             base != NULL && base[0] == '/' && strlen(base) < 200 ? base : "/tmp");
    if (mkdtemp(path) == NULL) {
        printf("Bail out! no folder for tests: %s\n", path);
        exit(1);
    }
}

static inline int check_remove_one(const char *path, const struct stat *st, int type,
                                   struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

/* With all that is in it. */
static inline void check_remove_folder(const char *path)
{
    if (path[0] != 0)
        nftw(path, check_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* For its owner alone. */
static inline bool check_write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "we");
    bool written = file != NULL && fwrite(bytes, 1, size, file) == size;
    return file != NULL && fclose(file) == 0 && chmod(path, 0600) == 0 && written;
}

#ifndef CHECK_OWN_MAIN
int main(void)
{
    check_all();
    return check_done();
}
#endif

#endif
