/* SPDX-License-Identifier: Apache-2.0
 *
 * What every strategy stands on; the strategies: every point in order, points spread evenly over the space, and the one that
 * learns; and the search by one of them.
 */
#include "search.h"

#include "buf.h"
#include "error.h"
#include "manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int fa_search_twos(double number)
{
    int count = 0;
    for (; number >= 2 && number <= INT32_MAX && fmod(number, 2) == 0; number /= 2)
        count++;
    return count;
}

/* Draws that find nothing before points are drawn value by value, if they can be, and before the rest is looked through in
 * order, and how much of it then is. */
enum { DRAWS_FEW = 64, DESCENTS_MAX = 1000, DRAWS_MAX = 200000, SCAN_MAX = 1 << 20 };

/* [0, 1). */
static double uniform(fa_search *walk)
{
    return (double)(fa_random(walk->seed, walk->random++) >> 11) * 0x1p-53;
}

uint64_t fa_walk_rank(const fa_search *walk, const int32_t *point)
{
    uint64_t rank = 0;
    for (int d = 0; d < walk->space.dims; d++)
        rank = rank * (uint64_t)walk->space.values[d] + (uint64_t)point[d];
    return rank;
}

static void point_of(const fa_search *walk, uint64_t rank, int32_t *ret_point)
{
    for (int d = walk->space.dims - 1; d >= 0; d--) {
        ret_point[d] = (int32_t)(rank % (uint64_t)walk->space.values[d]);
        rank /= (uint64_t)walk->space.values[d];
    }
}

static bool is_valid(const fa_search *walk, uint64_t rank)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    point_of(walk, rank, point);
    return walk->space.valid(walk->space.context, point);
}

/* ---- what is known --------------------------------------------------------------------------*/
static size_t slot_of(const fa_search *walk, uint64_t rank)
{
    size_t at = (size_t)fa_random(rank, 0) & (walk->slots - 1);
    while (walk->slot[at] != 0 && walk->known[walk->slot[at] - 1].rank != rank)
        at = (at + 1) & (walk->slots - 1);
    return at;
}

fa_known *fa_walk_find(const fa_search *walk, uint64_t rank)
{
    uint32_t index = walk->slot[slot_of(walk, rank)];
    return index != 0 ? &walk->known[index - 1] : NULL;
}

/* Joins a point that is under way. NULL: out of memory. */
static fa_known *add(fa_search *walk, uint64_t rank)
{
    const fa_known known = {.rank = rank};
    if ((walk->count + 1) * 2 > walk->slots) {
        uint32_t *slot = calloc(walk->slots * 2, sizeof *slot);
        if (slot == NULL)
            return NULL;
        free(walk->slot);
        walk->slot = slot;
        walk->slots *= 2;
        for (size_t i = 0; i < walk->count; i++)
            slot[slot_of(walk, walk->known[i].rank)] = (uint32_t)i + 1;
    }
    size_t at = slot_of(walk, rank);
    if (fa_append(&walk->known, &walk->count, &walk->capacity, &known, sizeof known) != 0)
        return NULL;
    walk->slot[at] = (uint32_t)walk->count;
    walk->pending++;
    return &walk->known[walk->count - 1];
}

/* ---- draws ----------------------------------------------------------------------------------*/
/* [0, below). */
static uint32_t draw_below(fa_search *walk, uint32_t below)
{
    return (uint32_t)((fa_random(walk->seed, walk->random++) >> 32) * below >> 32);
}

/* It exists and is not known. */
static bool is_new(const fa_search *walk, uint64_t rank)
{
    return fa_walk_find(walk, rank) == NULL && is_valid(walk, rank);
}

/* The first in the order of ranks; FA_NO_POINT. */
static uint64_t next_point(fa_search *walk)
{
    for (int i = 0; i < SCAN_MAX && walk->scan < walk->size; i++, walk->scan++)
        if (is_new(walk, walk->scan))
            return walk->scan;
    return FA_NO_POINT;
}

/* A point drawn value by value, each from those that a point may go on with: of so many choices in all. FA_NO_POINT: no
 * value went on. */
static uint64_t descend(fa_search *walk, double *ret_choices)
{
    const fa_search_space *space = &walk->space;
    int32_t point[FA_SEARCH_DIMS_MAX];
    *ret_choices = 1;
    for (int d = 0; d < space->dims; d++) {
        int32_t chosen = 0;
        uint32_t count = 0;
        for (point[d] = 0; point[d] < space->values[d]; point[d]++)
            if (space->begins(space->context, point, d + 1) && draw_below(walk, ++count) == 0)
                chosen = point[d];
        if (count == 0)
            return FA_NO_POINT;
        point[d] = chosen;
        *ret_choices *= count;
    }
    return fa_walk_rank(walk, point);
}

/* A point that is one of few choices is drawn too often by as much: it is taken as much more rarely. */
static uint64_t draw_rare(fa_search *walk)
{
    uint64_t last = FA_NO_POINT;
    for (int i = 0; i < DESCENTS_MAX; i++) {
        double choices;
        uint64_t rank = descend(walk, &choices);
        if (rank == FA_NO_POINT || !is_new(walk, rank))
            continue;
        last = rank;
        walk->choices = fmax(walk->choices, choices);
        if (uniform(walk) * walk->choices < choices)
            break;
    }
    return last != FA_NO_POINT ? last : next_point(walk);
}

/* A point that exists and is not known, evenly spread over the space by a sequence of low discrepancy, or drawn value by
 * value where points are rare and space.begins is known; FA_NO_POINT: there is none, or it is too rare to be found. */
static uint64_t draw(fa_search *walk)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    for (int i = 0; i < (walk->space.begins != NULL ? DRAWS_FEW : DRAWS_MAX); i++) {
        double n = (double)++walk->drawn;
        for (int d = 0; d < walk->space.dims; d++) {
            double x = walk->phase[d] + n * walk->step[d];
            point[d] = (int32_t)((x - floor(x)) * walk->space.values[d]);
        }
        uint64_t rank = fa_walk_rank(walk, point);
        if (is_new(walk, rank))
            return rank;
    }
    return walk->space.begins != NULL ? draw_rare(walk) : next_point(walk);
}

/* ---- neighbours -----------------------------------------------------------------------------*/
/* The k-th of the points that differ from one in a single parameter, whether it exists or not. */
static uint64_t neighbour(const fa_search *walk, uint64_t rank, uint32_t k)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    int d = 0;
    point_of(walk, rank, point);
    for (; k >= (uint32_t)walk->space.values[d] - 1; d++)
        k -= (uint32_t)walk->space.values[d] - 1;
    point[d] = (int32_t)k < point[d] ? (int32_t)k : (int32_t)k + 1;
    return fa_walk_rank(walk, point);
}

/* ---- the strategy that learns ---------------------------------------------------------------*/
/* A Gaussian process over the logarithms of what was measured says where the next point is expected to gain most. It is
 * asked about some points drawn from the whole space, the neighbours of the best, and whatever lies uphill from there.
 * Points under way count as if they had cost what the model expects, so that a batch spreads. Configs that fail, or do
 * not compile, count as if they were slow. */
/* A Gaussian process over the points of a grid: what a point may cost, and how unsure that is. Two points are alike as
 * the product over their parameters says, each by a length (Matérn 5/2 over the order of values), what any other value
 * costs (96 and 128 threads may be far apart), and what another power of 2 in it costs (64 and 128 are nearer to one
 * another than to 96). The length, a share of the way from the first value to the last, is the same for all and learnt.
 * Some hundred points; of a space's few values little of the tables is ever touched. */
enum { GP_POINTS_MAX = 448 };

static const double usual_length = 1.2, step = 0.1, by_twos = 0.2;
static const double noise = 1e-3; /* a share of the variance */

typedef struct gaussian {
    int dims, count;
    int values[FA_SEARCH_DIMS_MAX];
    /* how often 2 divides a value; all 0 at first */
    uint8_t twos[FA_SEARCH_DIMS_MAX][FA_SEARCH_VALUES_MAX];
    double length;
    uint8_t x[FA_SEARCH_DIMS_MAX][GP_POINTS_MAX]; /* indices of values */
    double y[GP_POINTS_MAX];
    double mean, variance; /* of y, and of the process */
    /* of two values of a parameter: [values][values] */
    double alike[FA_SEARCH_DIMS_MAX][FA_SEARCH_VALUES_MAX * FA_SEARCH_VALUES_MAX];
    double factor[GP_POINTS_MAX][GP_POINTS_MAX];
    double weight[GP_POINTS_MAX], scratch[GP_POINTS_MAX];
    double near[GP_POINTS_MAX]; /* how alike each point and that of the last gp_mean() are */
} gaussian;

/* A point more, which counts from the next gp_solve() on. */
static void gp_add(gaussian *gp, const uint8_t *x, double y)
{
    for (int d = 0; d < gp->dims; d++)
        gp->x[d][gp->count] = x[d];
    gp->y[gp->count++] = y;
}

/* ---- how alike points are -------------------------------------------------------------------*/
/* The table of one parameter: no exponential is left for pairs of points. */
static void tabulate(gaussian *gp, int d)
{
    const int count = gp->values[d];
    const uint8_t *twos = gp->twos[d];
    const double unit = sqrt(5) / gp->length / (count > 1 ? count - 1 : 1);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            const double r = unit * abs(i - j);
            const double apart = r + step + by_twos * abs(twos[i] - twos[j]);
            gp->alike[d][i * count + j] = i == j ? 1 : (1 + r + r * r / 3) * exp(-apart);
        }
}

/* A point and each of the first `count`. */
static void all_alike(const gaussian *gp, const uint8_t *x, int count, double *ret)
{
    for (int i = 0; i < count; i++)
        ret[i] = 1;
    for (int d = 0; d < gp->dims; d++) {
        const uint8_t *other = gp->x[d];
        const double *alike = gp->alike[d] + x[d] * gp->values[d];
        for (int i = 0; i < count; i++)
            ret[i] *= alike[other[i]];
    }
}

/* ---- linear algebra -------------------------------------------------------------------------*/
/* Four sums, so that no product waits for the one before it. */
static double dot(const double *a, const double *b, int count)
{
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* x := L^-1 x, of the first `count`. */
static void forward(const gaussian *gp, double *x, int count)
{
    for (int i = 0; i < count; i++)
        x[i] = (x[i] - dot(gp->factor[i], x, i)) / gp->factor[i][i];
}

static void backward(const gaussian *gp, double *x)
{
    for (int i = gp->count - 1; i >= 0; i--) {
        const double *row = gp->factor[i];
        x[i] /= row[i];
        for (int j = 0; j < i; j++)
            x[j] -= row[j] * x[i];
    }
}

/* Makes ready to predict: the Cholesky factor of the kernel, and the weights of a prediction. The noise on the diagonal keeps
 * it positive. Returns the logarithm of how likely the points are, and the length, a priori the usual one. */
static double gp_solve(gaussian *gp)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    double sum = 0, likely = 0;
    for (int d = 0; d < gp->dims; d++)
        tabulate(gp, d);
    for (int i = 0; i < gp->count; i++)
        sum += gp->y[i];
    gp->mean = gp->count > 0 ? sum / gp->count : 0;
    for (int i = 0; i < gp->count; i++) {
        double *row = gp->factor[i];
        for (int d = 0; d < gp->dims; d++)
            x[d] = gp->x[d][i];
        all_alike(gp, x, i, row);
        forward(gp, row, i);
        row[i] = sqrt(fmax(1 + noise - dot(row, row, i), 1e-9));
        gp->weight[i] = gp->y[i] - gp->mean;
        likely -= log(row[i]);
    }
    forward(gp, gp->weight, gp->count);
    sum = dot(gp->weight, gp->weight, gp->count);
    gp->variance = gp->count > 0 ? fmax(sum / gp->count, 1e-12) : 1;
    backward(gp, gp->weight);
    return likely - gp->count * log(gp->variance) / 2 - 4 * pow(log(gp->length / usual_length), 2);
}

/* Doubles or halves the length where that makes the points likelier. */
static void gp_learn(gaussian *gp)
{
    const double ways[] = {2, 0.5};
    double most = gp_solve(gp);
    for (int i = 0; i < 2; i++) {
        const double before = gp->length;
        gp->length *= ways[i];
        const double likely = gp_solve(gp);
        if (likely > most)
            most = likely;
        else
            gp->length = before;
    }
}

/* ---- predicting -----------------------------------------------------------------------------*/
static double gp_mean(gaussian *gp, const uint8_t *x)
{
    all_alike(gp, x, gp->count, gp->near);
    return gp->mean + dot(gp->near, gp->weight, gp->count);
}

/* The standard deviation at the point of the last gp_mean(). */
static double gp_deviation(gaussian *gp)
{
    memcpy(gp->scratch, gp->near, (size_t)gp->count * sizeof *gp->scratch);
    forward(gp, gp->scratch, gp->count);
    double left = 1 - dot(gp->scratch, gp->scratch, gp->count);
    return sqrt(gp->variance * fmax(left, 1e-9));
}

/* ---- the strategy ---------------------------------------------------------------------------*/
enum { DRAWN = 24, ELITE = 5, NEAR_MAX = 96, FAILED_MAX = 192, PENDING_MAX = 64 };

struct surrogate {
    gaussian gp;
    int choices;    /* parameters that have more than one value */
    int64_t learnt; /* at this many evaluations the length was last learnt */
    double goal;    /* the logarithm of the cost that a point is to be below */
};

/* A point with what may be gained there. */
struct hope {
    uint64_t rank;
    double gain;
};

static void begin(const fa_search *walk, struct surrogate *s)
{
    const fa_search_space *space = &walk->space;
    gaussian *gp = &s->gp;
    gp->length = usual_length;
    gp->dims = space->dims;
    for (int d = 0; d < space->dims; d++) {
        uint8_t *twos = gp->twos[d];
        bool grow = true; /* with the values, as with 16, 32, 64: then the order says it all */
        gp->values[d] = space->values[d];
        s->choices += space->values[d] > 1;
        for (int i = 0; space->twos != NULL && i < space->values[d]; i++) {
            twos[i] = (uint8_t)space->twos(space->context, d, i);
            grow = grow && (i == 0 || twos[i] >= twos[i - 1]);
        }
        if (grow)
            memset(twos, 0, (size_t)space->values[d]);
    }
}

static void place(const fa_search *walk, uint64_t rank, uint8_t *ret_x)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    point_of(walk, rank, point);
    for (int d = 0; d < walk->space.dims; d++)
        ret_x[d] = (uint8_t)point[d];
}

static int compare_costs(const void *a, const void *b)
{
    const fa_known *x = a, *y = b;
    return (x->cost > y->cost) - (x->cost < y->cost);
}

/* The model of what is told and under way. At first only a gain as large as the best's over the middle counts, at the end
 * any: points a little better than a good one wait until the rest of the space is known. What is worse than the middle by
 * more than that counts as if by as much: how bad it is must not shape the model where it matters. So do the latest of
 * those that failed. */
static void model(fa_search *walk, struct surrogate *s, const fa_known *list, int count)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    gaussian *gp = &s->gp;
    double least = log(list[0].cost), middle = log(list[count / 2].cost);
    double cap = 2 * middle - least;
    gp->count = 0;
    s->goal = least - (middle - least) * fmax(0, 1 - (double)walk->spent / (double)walk->expected);
    for (int i = 0; i < count && i < GP_POINTS_MAX - FAILED_MAX - PENDING_MAX; i++) {
        place(walk, list[i].rank, x);
        gp_add(gp, x, fmin(log(list[i].cost), cap));
    }
    int failed = 0;
    for (size_t i = walk->count; i-- > 0 && failed < FAILED_MAX;) {
        if (walk->known[i].cost >= 0)
            continue;
        failed++;
        place(walk, walk->known[i].rank, x);
        gp_add(gp, x, cap);
    }
    if (walk->spent >= s->learnt + (s->learnt / 20) + 1) {
        gp_learn(gp);
        s->learnt = walk->spent;
    }
    gp_solve(gp);
    int told = gp->count;
    for (size_t i = walk->count; i-- > 0 && gp->count < GP_POINTS_MAX;) {
        if (walk->known[i].cost != 0)
            continue;
        place(walk, walk->known[i].rank, x);
        int now = gp->count;
        gp->count = told; /* expected by what is told alone */
        double expected = gp_mean(gp, x);
        gp->count = now;
        gp_add(gp, x, expected);
    }
    if (gp->count > told)
        gp_solve(gp);
}

/* Takes the point if more is expected to be gained there. */
static void consider(const fa_search *walk, struct surrogate *s, uint64_t rank, struct hope *best)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    if (rank == FA_NO_POINT || rank == best->rank || !is_new(walk, rank))
        return;
    place(walk, rank, x);
    const double ahead = s->goal - gp_mean(&s->gp, x), deviation = gp_deviation(&s->gp);
    const double z = ahead / deviation, normal = exp(-z * z / 2) * 0.3989422804014327;
    const double gain = fmax(ahead * 0.5 * erfc(-z * M_SQRT1_2) + deviation * normal, 0);
    if (gain > best->gain)
        *best = (struct hope){rank, gain};
}

/* The neighbours of a point, or some of them where they are many. */
static void consider_near(fa_search *walk, struct surrogate *s, uint64_t rank, struct hope *best)
{
    uint32_t count = 0;
    for (int d = 0; d < walk->space.dims; d++)
        count += (uint32_t)walk->space.values[d] - 1;
    const uint32_t tried = count < NEAR_MAX ? count : NEAR_MAX;
    for (uint32_t k = 0; k < tried; k++)
        consider(walk, s, neighbour(walk, rank, tried == count ? k : draw_below(walk, count)),
                 best);
}

static uint64_t surrogate_next(fa_search *walk)
{
    struct surrogate *s = walk->state;
    if (s->gp.dims == 0)
        begin(walk, s);
    int count = 0, first = 4 + (s->choices > 0 ? s->choices : 1);
    FA_ENDS(fa_free_at)
    fa_known *list = malloc((walk->count + 1) * sizeof *list); /* with a cost, the cheapest first */
    if (list == NULL) {
        walk->no_memory = true;
        return FA_NO_POINT;
    }
    for (size_t i = 0; i < walk->count; i++)
        if (walk->known[i].cost > 0)
            list[count++] = walk->known[i];
    qsort(list, (size_t)count, sizeof *list, compare_costs);
    if (count + walk->pending < first || count < 4)
        return draw(walk);
    struct hope best = {FA_NO_POINT, -1};
    model(walk, s, list, count);
    for (int i = 0; i < ELITE && i < count; i++)
        consider_near(walk, s, list[i].rank, &best);
    uint64_t drawn = 0;
    for (int i = 0; i < DRAWN && drawn != FA_NO_POINT; i++)
        consider(walk, s, drawn = draw(walk), &best);
    for (int i = 0; i < 30; i++) { /* uphill from the best of them */
        uint64_t from = best.rank;
        if (from == FA_NO_POINT)
            return draw(walk);
        consider_near(walk, s, from, &best);
        if (best.rank == from)
            break;
    }
    return best.rank;
}

/* ---- strategies ------------------------------------------------------------------------------*/
static const fa_strategy exhaustive = {.name = "exhaustive", .next = next_point};
static const fa_strategy any = {.name = "random", .next = draw};
static const fa_strategy surrogate = {
    .name = "surrogate", .size = sizeof(struct surrogate), .next = surrogate_next};

/* NULL: "auto". */
static const fa_strategy *const strategies[] = {NULL, &exhaustive, &any, &surrogate};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

const char *fa_search_strategy(int i)
{
    return i < 0 || i >= STRATEGIES ? NULL : strategies[i] == NULL ? "auto" : strategies[i]->name;
}

/* -1: there is none of that name. */
static int find_strategy(const char *name)
{
    int i = STRATEGIES - 1;
    while (i >= 0 && strcmp(fa_search_strategy(i), name) != 0)
        i--;
    return i;
}

int fa_search_check(const char **strategy, int32_t evaluations, double seconds, fa_diag *diag)
{
    if (evaluations < 0 || evaluations > FA_SPACE_MAX)
        return fa_fail(diag, FA_EINVAL, "evaluations is %d: use 1 to %d, or 0 for the default",
                       evaluations, FA_SPACE_MAX);
    if (!(seconds >= 0 && seconds <= 1e9))
        return fa_fail(diag, FA_EINVAL, "seconds must be 0 to 10^9");
    if (*strategy == NULL)
        return 0;
    int at = find_strategy(*strategy);
    if (at < 0)
        return fa_fail(diag, FA_EINVAL,
                       "there is no strategy \"%.60s\": use auto, exhaustive, random or surrogate",
                       *strategy);
    *strategy = fa_search_strategy(at);
    return 0;
}

/* ---- which one ------------------------------------------------------------------------------*/
enum { COUNTED_MAX = 1 << 17 /* combinations of a space that is counted */ };

/* Whether all points can be tried. */
static bool is_affordable(const fa_search *walk)
{
    int64_t count = 0;
    if (walk->size > COUNTED_MAX)
        return false;
    for (uint64_t rank = 0; rank < walk->size && count <= walk->expected; rank++)
        count += is_valid(walk, rank);
    return count <= walk->expected;
}

static int begin_walk(fa_search *walk, const fa_search_space *space,
                      const fa_search_options *options)
{
    *walk = (fa_search){.space = *space,
                        .evaluations = options->evaluations,
                        .expected = options->evaluations,
                        .seed = options->seed,
                        .size = 1,
                        .slots = 256};
    walk->slot = calloc(walk->slots, sizeof *walk->slot);
    if (options->expected > 0 && options->expected < options->evaluations)
        walk->expected = options->expected;
    /* The additive sequence of the generalised golden ratio: g^(dims + 1) = g + 1. */
    double ratio = 2;
    for (int i = 0; i < 60; i++)
        ratio = pow(1 + ratio, 1.0 / (space->dims + 1));
    for (int d = 0; d < space->dims; d++) {
        if (walk->size > (UINT64_C(1) << 62) / (uint64_t)space->values[d])
            return FA_EINVAL;
        walk->size *= (uint64_t)space->values[d];
        walk->step[d] = pow(1 / ratio, d + 1);
        walk->phase[d] = uniform(walk);
    }
    return walk->slot != NULL ? 0 : FA_ENOMEM;
}

int fa_search_open(const fa_search_space *space, const fa_search_options *options,
                   fa_search **ret_search, fa_diag *diag)
{
    const char *name = options->strategy;
    fa_search *search = calloc(1, sizeof *search);
    int rc = search != NULL ? begin_walk(search, space, options) : FA_ENOMEM;
    if (rc == 0) {
        search->strategy = name != NULL ? strategies[find_strategy(name)] : NULL;
        if (search->strategy == NULL)
            search->strategy = is_affordable(search) ? &exhaustive : &surrogate;
        search->state = calloc(1, search->strategy->size + 1);
        rc = search->state != NULL ? 0 : FA_ENOMEM;
    }
    if (rc == 0) {
        *ret_search = search;
        return 0;
    }
    fa_search_close(search);
    return fa_fail(diag, rc,
                   rc == FA_ENOMEM ? "out of memory for a search"
                                   : "the space has more than 2^62 combinations");
}

void fa_search_close(fa_search *search)
{
    if (search == NULL)
        return;
    free(search->known);
    free(search->slot);
    free(search->state);
    free(search);
}

/* ---- asking and telling ---------------------------------------------------------------------*/
int fa_search_propose(fa_search *walk, int count, int32_t *ret_points)
{
    int found = 0;
    while (found < count && walk->spent + walk->pending < walk->evaluations) {
        uint64_t rank = walk->strategy->next(walk);
        if (walk->no_memory)
            return FA_ENOMEM;
        if (rank == FA_NO_POINT)
            break;
        if (add(walk, rank) == NULL)
            return found > 0 ? found : FA_ENOMEM;
        point_of(walk, rank, ret_points + found++ * walk->space.dims);
    }
    return found;
}

static bool is_point(const fa_search *walk, const int32_t *point)
{
    for (int d = 0; d < walk->space.dims; d++)
        if (point[d] < 0 || point[d] >= walk->space.values[d])
            return false;
    return true;
}

int fa_search_join(fa_search *walk, const int32_t *point)
{
    if (!is_point(walk, point) || !walk->space.valid(walk->space.context, point) ||
        fa_walk_find(walk, fa_walk_rank(walk, point)) != NULL)
        return FA_EINVAL;
    return add(walk, fa_walk_rank(walk, point)) != NULL ? 0 : FA_ENOMEM;
}

int fa_search_tell(fa_search *walk, const int32_t *point, double cost)
{
    if (!is_point(walk, point))
        return FA_EINVAL;
    uint64_t rank = fa_walk_rank(walk, point);
    fa_known *known = fa_walk_find(walk, rank);
    if (known != NULL && known->cost != 0)
        return 0;
    if (known == NULL && !walk->space.valid(walk->space.context, point))
        return FA_EINVAL;
    known = known != NULL ? known : add(walk, rank);
    if (known == NULL)
        return FA_ENOMEM;
    known->cost =
        (cost > 0 && isfinite(cost)) || cost == FA_SEARCH_UNBUILT ? cost : FA_SEARCH_FAILED;
    walk->pending--;
    walk->spent += known->cost != FA_SEARCH_UNBUILT;
    return 0;
}
