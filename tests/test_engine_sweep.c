/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps through the library: what a request may not be, what a caller is told, how it stops one.
 */
#include "engine_fixture.h"

static fa_diag diag;
enum { ITEMS = 3 };

struct told {
    int begins, ends, known, tunes;
    int stop_after; /* ends; 0: never */
    int32_t last_done;
    double left_s; /* once every config of the last item has ended */
    bool ordered;
};

static int listen(void *context, const fa_sweep_progress *progress)
{
    struct told *told = context;
    told->begins += progress->event == FA_SWEEP_ITEM_BEGINS;
    told->ends += progress->event == FA_SWEEP_ITEM_ENDS;
    told->known += progress->event == FA_SWEEP_ITEM_KNOWN;
    told->tunes += progress->event == FA_SWEEP_ITEM_TUNES && progress->tune != NULL;
    told->ordered = told->ordered && progress->sweep->done >= told->last_done &&
                    progress->index >= 0 && progress->index < ITEMS;
    told->last_done = progress->sweep->done;
    if (progress->tune != NULL && progress->sweep->done == ITEMS - 1 &&
        progress->tune->in_budget > 0 && progress->tune->ended == progress->tune->in_budget)
        told->left_s = progress->left_s;
    return told->stop_after > 0 && told->ends >= told->stop_after;
}

static void make_items(fa_sweep_item item[ITEMS])
{
    memset(item, 0, ITEMS * sizeof *item);
    for (int i = 0; i < ITEMS; i++) {
        item[i].problem = small_problem;
        item[i].problem.batch = i + 1;
    }
}

static fa_sweep_request request_for(const fa_sweep_item *items, struct told *told)
{
    told->ordered = true;
    return (fa_sweep_request){.size = sizeof(fa_sweep_request), .items = items, .count = ITEMS,
                              .effort = FA_EFFORT_MEASURE, .progress = listen, .context = told};
}

static void a_sweep_that_is_stopped_goes_on_and_compiles_each_source_once(void)
{
    fa_sweep sweep = {0};
    fa_sweep_item item[ITEMS];
    struct told first = {.stop_after = 1}, second = {.left_s = -1}, third = {0};
    make_items(item);
    CHECK(fixture_open(&f, ""));
    fa_sweep_request request = request_for(item, &first);
    CHECK_INT(fa_run_sweep(f.tuner, &request, &sweep, &diag), FA_ECANCELED);
    CHECK_INT(first.begins, 1);
    CHECK_INT(sweep.done, 1);
    CHECK_INT(sweep.state, FA_SWEEP_STOPPED);
    CHECK(fixture_restart(&f, ""));
    request = request_for(item, &second);
    CHECK_OK(fa_run_sweep(f.tuner, &request, &sweep, &diag), diag);
    CHECK_INT(second.known, 1);
    CHECK_INT(second.begins, ITEMS - 1);
    CHECK_INT(second.ends, ITEMS - 1);
    CHECK(second.tunes > 0 && second.ordered);
    CHECK(second.left_s >= 0 && second.left_s < 1e-9); /* what is done of an item counts */
    CHECK_INT(sweep.state, FA_SWEEP_DONE);
    CHECK_INT(sweep.done, ITEMS);
    /* The fixture's store has every cubin from another problem already. */
    CHECK_INT(sweep.spent.compiled, 0);
    CHECK_INT(sweep.spent.reused, sweep.spent.trials);
    CHECK(sweep.spent.trials > 0);
    request = request_for(item, &third);
    request.budget.trials = 7; /* a budget is not what makes a sweep */
    CHECK_OK(fa_run_sweep(f.tuner, &request, &sweep, &diag), diag);
    CHECK_INT(third.known, ITEMS);
    CHECK_INT(third.begins, 0);
}

static void a_request_that_cannot_be_is_refused(void)
{
    fa_sweep_item item[ITEMS];
    struct told told = {0};
    make_items(item);
    CHECK(fixture_open(&f, NULL));
    const fa_sweep_request good = request_for(item, &told);
    fa_sweep_request bad[] = {good, good, good, good, good, good, good, good};
    bad[0].size = 3;
    bad[1].items = NULL;
    bad[2].count = 0;
    bad[3].count = FA_SWEEP_ITEMS_MAX + 1;
    bad[4].effort = FA_EFFORT_CACHED;
    bad[5].budget.seconds = NAN;
    bad[6].budget.cost = 1; /* without a price */
    bad[7].budget.trials = -1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        diag.text[0] = 0;
        CHECK_INT(fa_run_sweep(f.tuner, &bad[i], NULL, &diag), FA_EINVAL);
        CHECK(diag.text[0] != 0);
    }
    CHECK_INT(fa_run_sweep(NULL, &good, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_list_sweeps(f.tuner, NULL, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_list_sweep_items(f.tuner, NULL, NULL, NULL, &diag), FA_EINVAL);
}

int main(void)
{
    if (getenv("FA_TEST_FAKE_CUDA") == NULL)
        return 1;
    ENGINE_TEST(a_sweep_that_is_stopped_goes_on_and_compiles_each_source_once);
    ENGINE_TEST(a_request_that_cannot_be_is_refused);
    return check_done();
}
