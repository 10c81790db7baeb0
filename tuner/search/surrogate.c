/* SPDX-License-Identifier: Apache-2.0
 *
 * The strategy that learns: a Gaussian process over the logarithms of what was measured says where the next point
 * is expected to gain most. It is asked about some points drawn from the whole space, the neighbours of the best,
 * and whatever lies uphill from there.
 *
 * Points under way count as if they had cost what the model expects, so that a batch spreads. Configs that fail, or do
 * not compile, count as if they were slow.
 */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the process ----------------------------------------------------------------------------*/
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
    int choices;                  /* parameters that have more than one value */
    int64_t learnt;               /* at this many evaluations the length was last learnt */
    double goal;                  /* the logarithm of the cost that a point is to be below */
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
    fa_walk_point(walk, rank, point);
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
    if (rank == FA_NO_POINT || rank == best->rank || fa_walk_find(walk, rank) != NULL ||
        !fa_walk_valid(walk, rank))
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
    uint32_t count = fa_walk_neighbours(walk), tried = count < NEAR_MAX ? count : NEAR_MAX;
    for (uint32_t k = 0; k < tried; k++)
        consider(walk, s,
                 fa_walk_neighbour(walk, rank, tried == count ? k : fa_walk_below(walk, count)),
                 best);
}

static uint64_t surrogate_next(fa_search *walk)
{
    struct surrogate *s = walk->state;
    if (s->gp.dims == 0)
        begin(walk, s);
    int count = 0, first = 4 + (s->choices > 0 ? s->choices : 1);
    fa_known *list = malloc((walk->count + 1) * sizeof *list); /* with a cost, the cheapest first */
    if (list == NULL) {
        walk->no_memory = true;
        return FA_NO_POINT;
    }
    for (size_t i = 0; i < walk->count; i++)
        if (walk->known[i].cost > 0)
            list[count++] = walk->known[i];
    qsort(list, (size_t)count, sizeof *list, compare_costs);
    if (count + walk->pending < first || count < 4) {
        free(list);
        return fa_walk_draw(walk);
    }
    struct hope best = {FA_NO_POINT, -1};
    model(walk, s, list, count);
    for (int i = 0; i < ELITE && i < count; i++)
        consider_near(walk, s, list[i].rank, &best);
    uint64_t drawn = 0;
    for (int i = 0; i < DRAWN && drawn != FA_NO_POINT; i++)
        consider(walk, s, drawn = fa_walk_draw(walk), &best);
    free(list);
    for (int i = 0; i < 30; i++) { /* uphill from the best of them */
        uint64_t from = best.rank;
        if (from == FA_NO_POINT)
            return fa_walk_draw(walk);
        consider_near(walk, s, from, &best);
        if (best.rank == from)
            break;
    }
    return best.rank;
}

const fa_strategy fa_strategy_surrogate = {
    .name = "surrogate", .size = sizeof(struct surrogate), .next = surrogate_next};
