/* SPDX-License-Identifier: Apache-2.0
 *
 * Searching spaces that are made up here: what every strategy keeps to, and what the good one finds.
 */
#include "check.h"
#include "search.h"

static bool all_valid(void *context, const int32_t *point)
{
    (void)context, (void)point;
    return true;
}

static bool some_valid(void *context, const int32_t *point)
{
    (void)context;
    return (point[0] + point[1] * 2 + point[2]) % 3 != 0;
}

static const fa_search_space cube = {.dims = 3, .values = {8, 8, 8}, .valid = some_valid};
static const fa_search_space large = {.dims = 5, .values = {8, 8, 8, 8, 8}, .valid = all_valid};

/* One valley, whose floor is at 5, 2, 5, 2, 5. */
static double convex(const int32_t *point)
{
    double cost = 1;
    for (int d = 0; d < 5; d++)
        cost += 0.1 * (point[d] - (d % 2 ? 2 : 5)) * (point[d] - (d % 2 ? 2 : 5));
    return cost;
}

/* The least cost that was told; infinity: none was. */
static double cheapest(const fa_search *search)
{
    double least = INFINITY;
    for (size_t i = 0; i < search->count; i++)
        if (search->known[i].cost > 0 && search->known[i].cost < least)
            least = search->known[i].cost;
    return least;
}

/* A whole search; the best cost. */
static double search_best(const fa_search_space *space, const char *strategy, int evaluations,
                          uint64_t seed, double cost(const int32_t *point))
{
    int32_t points[4 * FA_SEARCH_DIMS_MAX];
    fa_search *search;
    double best = INFINITY;
    fa_search_options how = {strategy, evaluations, seed, 0};
    if (fa_search_open(space, &how, &search, NULL) != 0)
        return best;
    for (int count; (count = fa_search_propose(search, 4, points)) > 0;)
        for (int i = 0; i < count; i++)
            fa_search_tell(search, points + i * space->dims, cost(points + i * space->dims));
    best = cheapest(search);
    fa_search_close(search);
    return best;
}

static int median_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- what all keep to -----------------------------------------------------------------------*/
TEST(no_strategy_proposes_a_point_twice_or_one_that_is_forbidden)
{
    for (int s = 0; fa_search_strategy(s) != NULL; s++) {
        bool seen[512] = {false};
        int32_t points[7 * 3];
        fa_search *search;
        CHECK_INT(fa_search_open(&cube, &(fa_search_options){fa_search_strategy(s), 100, 3, 0},
                                 &search, NULL),
                  0);
        int all = 0;
        for (int count; (count = fa_search_propose(search, 7, points)) > 0; all += count)
            for (int i = 0; i < count; i++) {
                const int32_t *p = points + i * 3;
                int at = p[0] * 64 + p[1] * 8 + p[2];
                CHECK(some_valid(NULL, p));
                CHECK(!seen[at]);
                seen[at] = true;
                CHECK_INT(fa_search_tell(search, p, 1 + at % 37), 0);
            }
        CHECK_INT(all, 100);
        CHECK_INT(search->spent, 100);
        fa_search_close(search);
    }
}

TEST(every_strategy_goes_through_a_space_that_its_budget_exceeds)
{
    for (int s = 0; fa_search_strategy(s) != NULL; s++) {
        int32_t points[32 * 3], all = 0, valid = 0;
        fa_search *search;
        CHECK_INT(fa_search_open(&cube, &(fa_search_options){fa_search_strategy(s), 600, 3, 0},
                                 &search, NULL),
                  0);
        for (int count; (count = fa_search_propose(search, 32, points)) > 0; all += count)
            for (int i = 0; i < count; i++)
                CHECK_INT(fa_search_tell(search, points + i * 3, points[i * 3] + 1), 0);
        for (int i = 0; i < 512; i++)
            valid += some_valid(NULL, (int32_t[]){i / 64, i / 8 % 8, i % 8});
        CHECK_INT(all, valid);
        fa_search_close(search);
    }
}

/* A clock may end a search before its evaluations are spent: what it is likely to get decides. */
TEST(the_default_tries_all_that_it_can_and_else_models_the_space)
{
    static const struct {
        const fa_search_space *space;
        int evaluations;
        int64_t expected;
        const char *chosen;
    } cases[] = {{&cube, 512, 0, "exhaustive"},
                 {&cube, 20000, 1000, "exhaustive"},
                 {&cube, 20000, 100, "surrogate"},
                 {&large, 100, 0, "surrogate"},
                 {&large, 5000, 0, "surrogate"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa_search *search;
        const fa_search_options how = {NULL, cases[i].evaluations, 1, cases[i].expected};
        CHECK_INT(fa_search_open(cases[i].space, &how, &search, NULL), 0);
        CHECK_TEXT(search->strategy->name, cases[i].chosen);
        fa_search_close(search);
    }
}

TEST(what_is_no_cost_is_a_failure)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, 0, -7};
    fa_search *search;
    CHECK_INT(fa_search_open(&large, &(fa_search_options){"random", 50, 1, 0}, &search, NULL), 0);
    for (int32_t i = 0; i < 5; i++)
        CHECK_INT(fa_search_tell(search, (int32_t[]){i, 0, 0, 0, 0}, bad[i]), 0);
    CHECK_INT(search->spent, 5);
    CHECK(cheapest(search) == INFINITY);
    CHECK_INT(fa_search_tell(search, (int32_t[]){7, 0, 0, 0, 0}, 3), 0);
    CHECK_INT(fa_search_tell(search, (int32_t[]){7, 0, 0, 0, 0}, 2), 0); /* the first stays */
    CHECK(cheapest(search) == 3);
    CHECK_INT(fa_search_tell(search, (int32_t[]){8, 0, 0, 0, 0}, 1), FA_EINVAL);
    CHECK_INT(fa_search_tell(search, (int32_t[]){-1, 0, 0, 0, 0}, 1), FA_EINVAL);
    fa_search_close(search);
}

TEST(a_space_that_cannot_be_is_refused)
{
    fa_search_space wide = {.dims = 8, .valid = all_valid};
    fa_search *search;
    fa_diag diag;
    for (int d = 0; d < 8; d++)
        wide.values[d] = FA_SEARCH_VALUES_MAX;
    CHECK_FAILS(fa_search_open(&wide, &(fa_search_options){"random", 1, 0, 0}, &search, &diag),
                FA_EINVAL, "2^62");
}

/* ---- what they find -------------------------------------------------------------------------*/
TEST(the_floor_of_one_valley_is_found_in_120_of_32768_points)
{
    enum { SEEDS = 5 };
    double best[SEEDS];
    for (int i = 0; i < SEEDS; i++)
        best[i] = search_best(&large, "surrogate", 120, (uint64_t)i, convex);
    qsort(best, SEEDS, sizeof *best, median_order);
    CHECK(best[SEEDS / 2] == 1);
}

TEST(what_fails_or_does_not_compile_is_soon_left_alone)
{
    for (int kind = 0; kind < 2; kind++) {
        int32_t point[FA_SEARCH_DIMS_MAX];
        int bad = 0;
        fa_search *search;
        CHECK_INT(
            fa_search_open(&large, &(fa_search_options){"surrogate", 100, 1, 0}, &search, NULL), 0);
        while (fa_search_propose(search, 1, point) > 0) {
            bool fails = point[0] + point[1] >= 7; /* more than half of all points */
            bad += fails;
            double cost =
                fails ? (kind == 0 ? FA_SEARCH_UNBUILT : FA_SEARCH_FAILED) : 1 + 0.01 * point[4];
            CHECK_INT(fa_search_tell(search, point, cost), 0);
        }
        fa_search_close(search);
        CHECK(bad < 300);
    }
}

static bool rarely_valid(void *context, const int32_t *point)
{
    (*(int64_t *)context)++;
    return (point[0] ^ point[5]) % 10 == 0 && (point[1] + point[7]) % 10 == 0;
}

static double far_cost(const int32_t *point)
{
    return 1 + abs(point[0] - 20) + abs(point[3] - 9);
}

TEST(a_space_of_ten_to_the_sixteenth_is_walked_and_not_built)
{
    int64_t asked = 0;
    fa_search_space space = {.dims = 8, .valid = rarely_valid, .context = &asked};
    for (int d = 0; d < 8; d++)
        space.values[d] = 100;
    CHECK(search_best(&space, "auto", 60, 1, far_cost) < 30);
    CHECK(asked < 5 * 1000 * 1000);
}

/* Of eight parameters with 16 values each, the later four follow from the first four, where the first is even: 32,768 of
 * 2^32 points. Where the first is odd, all but one of these are missing. */
static bool sparsely_begun(void *context, const int32_t *point, int count)
{
    (*(int64_t *)context)++;
    for (int d = 1; d < count && d < 4; d++)
        if (point[0] % 2 == 1 && point[d] != 7)
            return false;
    for (int d = 4; d < count; d++)
        if (point[d] != (point[d - 4] + d) % 16)
            return false;
    return true;
}

static bool sparsely_valid(void *context, const int32_t *point)
{
    return sparsely_begun(context, point, 8);
}

TEST(points_that_are_rare_are_drawn_value_by_value_and_evenly)
{
    int64_t asked = 0;
    int odd = 0, low = 0, count = 0;
    int32_t point[FA_SEARCH_DIMS_MAX];
    fa_search *search;
    fa_search_space space = {
        .dims = 8, .valid = sparsely_valid, .begins = sparsely_begun, .context = &asked};
    for (int d = 0; d < 8; d++)
        space.values[d] = 16;
    CHECK_INT(fa_search_open(&space, &(fa_search_options){"random", 400, 1, 0}, &search, NULL), 0);
    for (; fa_search_propose(search, 1, point) > 0; count++) {
        odd += point[0] % 2;
        low += point[1] < 8;
        CHECK_INT(fa_search_tell(search, point, 1), 0);
    }
    fa_search_close(search);
    CHECK_INT(count, 400);
    CHECK(odd <= 4); /* half of the choices of the first value lead to 8 of 32,776 points */
    CHECK(low > 150 && low < 250);
    CHECK(asked < 1000 * 1000); /* one in 131,040 combinations exists */
}
