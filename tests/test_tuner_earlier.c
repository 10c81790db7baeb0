/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners of earlier templates: which of them hold, and that want of memory does not end them.
 */
#include "failing_allocator.h"
#include "tuner_fixture.h"

#include "earlier.h"
#include "render.h"

#include <sys/wait.h>

/* What 0.1.0 says of itself in the head of its records. */
static const char closure_0_1_0[] =
    "c0100a3dcf0b876a9d97c7fa82543b51808238033879730fc25782e8832e1ae9";
/* What 0.2.0 says of itself before it had serving attention. */
static const char closure_dense[] =
    "949bcbda8e9d65bbd5d0ac77c085b546fe512a8f41224bc8b235c8eab7b1c48e";
static const char *const family_0_1_0[][2] = {
    {"attn_fwd_sm75", "96cd9d89f8d35cfea8f0d9322a700d4b2a20d22cad30b53a324e7ef8be73a5de"},
    {"attn_fwd_sm80", "5a0165bc1f623293c0d8a1f2cc62951e361845f23ed8fe855dd33c54cf92c0f4"},
    {"attn_fwd_sm90a", "c988f56df36f810318af507e335e26930561881bd2bbbe3e11d4468afdc05613"}};

static void winners_of_0_1_0_hold_as_long_as_the_text_of_their_family_stands(void)
{
    fa_templates *t = NULL;
    fa_diag diag = {{0}};
    bool right = true, any = false;
    CHECK_OK(fa_templates_open(NULL, &t, &diag), diag);
    bool today = strcmp(fa_templates_hash(t, NULL), closure_0_1_0) == 0;
    for (int i = 0; i < 3; i++) {
        char hash[FA_HASH_HEX];
        bool stands = fa_render_family_hash(t, family_0_1_0[i][0], hash) == 0 &&
                      strcmp(hash, family_0_1_0[i][1]) == 0;
        right = right && fa_templates_hold(t, closure_0_1_0, family_0_1_0[i][0], NULL) == stands &&
                fa_templates_hold(t, fa_templates_hash(t, NULL), family_0_1_0[i][0], NULL);
        any = any || stands;
    }
    const char *earlier, *next;
    bool listed = fa_templates_earlier(t, 0, &earlier) == 0 &&
                  strcmp(earlier, closure_0_1_0) == 0 && fa_templates_earlier(t, 1, &next) == 0 &&
                  strcmp(next, closure_dense) == 0 &&
                  fa_templates_earlier(t, 2, &next) == FA_ENOTFOUND;
    for (int i = 0; i < 2; i++)
        right = right && fa_templates_hold(t, closure_dense, family_0_1_0[i][0], NULL);
    bool unknown = fa_templates_hold(t, closure_0_1_0, "attn_fwd_sm10", NULL) && !today;
    fa_templates_close(&t);
    CHECK(right);
    CHECK(listed == (any && !today));
    CHECK(!unknown);
}

/* A window without a mask was counted from the first key then. Neither winner nor cubin key of that time may be taken
 * for one of today. */
static void no_winner_holds_whose_windows_were_counted_from_the_first_key(void)
{
    static const char closure[] =
        "28f8944db2b69fdac4ceaf94d1d6f53869e1434847c7d0c8d4c470c1b68fc7fd";
    static const char *const families[][2] = {
        {"attn_fwd_prefill_sm80",
         "83dcab7038533c2b245d721946ea97f416a69846b4c9913a9789fe2bbb58671f"},
        {"attn_fwd_prefill_sm90a",
         "b3357b31f793b9fb8912890bd6f264d7cd76b27fd3acb80814d7192e9e3c0d65"},
        {"attn_fwd_splitkv_sm80",
         "9c4df216e91bf31c204ea023e101150bb55978a1c2a21f622d52fa684a1da4ce"}};
    fa_templates *t = NULL;
    fa_diag diag = {{0}};
    bool held = false;
    CHECK_OK(fa_templates_open(NULL, &t, &diag), diag);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char hash[FA_HASH_HEX] = "";
        held = held || fa_render_family_hash(t, families[i][0], hash) != 0 ||
               strcmp(hash, families[i][1]) == 0 ||
               fa_templates_hold(t, closure, families[i][0], NULL) != 0;
    }
    fa_templates_close(&t);
    CHECK(!held);
}

/* In a process of its own, where nothing is known yet: whether the winners hold while the n-th allocation fails,
 * and, where one failed for that, afterwards. What is found once is kept. */
static int ask_with_failure(const fa_templates *t, long n, bool *ret_failed)
{
    fa_diag diag = {{0}};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        allocator_fail(n, false);
        int holds = fa_templates_hold(t, closure_0_1_0, "attn_fwd_sm80", &diag);
        bool failed = allocator_stop();
        bool told = holds == FA_ENOMEM && strstr(diag.text, "out of memory") != NULL;
        if (told)
            holds = fa_templates_hold(t, closure_0_1_0, "attn_fwd_sm80", &diag);
        _exit(holds == 1 ? failed : 2);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    *ret_failed = WEXITSTATUS(status) != 0;
    return WEXITSTATUS(status);
}

static void want_of_memory_is_not_the_end_of_earlier_closures_and_does_not_last(void)
{
    fa_templates *t = NULL;
    fa_diag diag = {{0}};
    const char *closure = NULL;
    bool failed = true;
    int answer = 1, tries = 0;
    if (!FAILING_ALLOCATOR)
        SKIP("the sanitizer has an allocator of its own");
    CHECK_OK(fa_templates_open(NULL, &t, &diag), diag);
    fflush(stdout);
    for (long n = 1; failed && answer == 1; n++, tries++)
        answer = ask_with_failure(t, n, &failed);
    allocator_fail(1, true);
    int without = fa_templates_earlier(t, 0, &closure);
    bool listed = !allocator_stop();
    int with = fa_templates_earlier(t, 0, &closure);
    fa_templates_close(&t);
    CHECK(!listed);
    CHECK_INT(without, FA_ENOMEM);
    CHECK_INT(with, 0);
    CHECK_INT(answer, 0); /* the last try was without a failure; none said that they do not hold */
    CHECK(tries > 3);
}

static void winners_of_0_1_0_do_not_hold_beside_families_of_a_directory(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK_OK(fixture_load(&f, &(manifest_parts){0}, &diag), diag);
    bool holds = fa_templates_hold(f.templates, closure_0_1_0, "attn_fwd_sm80", NULL);
    const char *earlier;
    bool listed = fa_templates_earlier(f.templates, 0, &earlier) != FA_ENOTFOUND;
    fixture_free(&f);
    CHECK(!holds && !listed);
}

int main(void)
{
    TEST(want_of_memory_is_not_the_end_of_earlier_closures_and_does_not_last);
    TEST(winners_of_0_1_0_hold_as_long_as_the_text_of_their_family_stands);
    TEST(no_winner_holds_whose_windows_were_counted_from_the_first_key);
    TEST(winners_of_0_1_0_do_not_hold_beside_families_of_a_directory);
    return check_done();
}
