/* SPDX-License-Identifier: Apache-2.0
 *
 * One point of a family's space: the values of its expressions, what its config needs, and what ends it.
 *
 * Invariant: what may end a config is judged in a fixed order (what is impossible, threads, grid, shared memory,
 * registers, the constraints of what does not fit, those of what does not pay) and only what is judged must have a
 * value, so that an expression may rely on the constraints of what is impossible.
 */
#include "family.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <string.h>

enum {
    THREADS_MAX = 1024,  /* of a block, on every architecture */
    CLUSTER_SM = 90,     /* the first that has clusters */
    CLUSTER_MAX = 8,     /* blocks that every GPU with clusters takes */
    REGISTERS_MAX = 255, /* of a thread */
    REGISTERS_OF_BLOCK = 65536,
    GRID_YZ_MAX = 65535
};

static const int64_t addend_max = (int64_t)1 << 40;

static void set_lets(fa_point *point, int depth)
{
    const fa_family *f = point->family;
    fa_expr_value *let = point->value + f->given.count + f->tunable_count;
    for (int i = 0; i < f->let_count; i++)
        if (f->let[f->order[i]].depth == depth)
            let[f->order[i]] = fa_expr_evaluate(f->let[f->order[i]].expr, point->value);
}

void fa_point_start(fa_point *ret_point, const fa_family *family, const fa_problem *problem,
                    const fa_gpu *gpu)
{
    fa_given given;
    fa_given_make(family->operation, family->takes, problem, gpu, &given);
    *ret_point = (fa_point){.family = family, .gpu = gpu};
    for (int i = 0; i < given.count; i++)
        ret_point->value[i] = (fa_expr_value){.kind = FA_EXPR_INTEGER, .integer = given.value[i]};
    set_lets(ret_point, 0);
}

void fa_point_set(fa_point *point, int tunable, int32_t value)
{
    point->value[point->family->given.count + tunable] = fa_expr_of_value(value);
    set_lets(point, tunable + 1);
}

void fa_point_set_all(fa_point *point, const fa_config *config)
{
    for (int i = 0; i < point->family->tunable_count; i++) {
        int32_t value = 0;
        fa_config_get(config, point->family->tunable[i].name, &value);
        fa_point_set(point, i, value);
    }
}

bool fa_point_breaks(const fa_point *point, int depth, int64_t *steps)
{
    const fa_family *f = point->family;
    for (int i = 0; i < f->constraint_count; i++) {
        if (f->constraint[i].depth != depth)
            continue;
        *steps += fa_expr_steps(f->constraint[i].expr);
        if (fa_expr_truth(fa_expr_evaluate(f->constraint[i].expr, point->value)) == 0)
            return true;
    }
    return false;
}

/* Which expressions are evaluated, and what for. */
struct judge {
    const fa_point *point;
    const fa_config *config;
    fa_diag *diag;
};

/* The expression's value, an integer in low..high; FA_EMANIFEST names it and the config. */
static int check_number(const struct judge *c, fa_expr_value value, const char *kind,
                        const char *name, int64_t low, int64_t high, int64_t *ret)
{
    const char *why = fa_expr_fault(value);
    char text[FA_CONFIG_TEXT_MAX], range[128], a[FA_COMMAS_MAX], b[FA_COMMAS_MAX], n[FA_COMMAS_MAX];
    if (why == NULL && value.integer >= low && value.integer <= high) {
        *ret = value.integer;
        return 0;
    }
    if (why == NULL) {
        snprintf(range, sizeof range, "is %s: must be %s to %s", fa_commas(value.integer, n),
                 fa_commas(low, a), fa_commas(high, b));
        why = range;
    }
    fa_config_text(c->config, text);
    return fa_fail(c->diag, FA_EMANIFEST, "%s.json: %s%s%s %s for %s", c->point->family->name, kind,
                   name[0] != 0 ? " " : "", name, why, text);
}

/* Leaves *ret as it is where the manifest has no such expression. */
static int take_number(const struct judge *c, const fa_expr *expr, const char *kind,
                       const char *name, int64_t low, int64_t high, int64_t *ret)
{
    return expr == NULL ? 0
                        : check_number(c, fa_expr_evaluate(expr, c->point->value), kind, name, low,
                                       high, ret);
}

static void end_at(fa_candidate *candidate, fa_status status, const char *reason)
{
    candidate->trial.status = status;
    snprintf(candidate->trial.reason, sizeof candidate->trial.reason, "%s", reason);
}

/* The rules in their order. Those of what is possible end the config; of the others, which say what does not
 * fit or does not pay, *ret_later is the first that it does not hold to, NULL for none: the budget, which has
 * numbers, is judged before them. */
static int judge_constraints(const struct judge *c, fa_candidate *candidate,
                             const fa_require **ret_later)
{
    const fa_family *f = c->point->family;
    *ret_later = NULL;
    for (int i = 0; i < f->constraint_count; i++) {
        const fa_require *rule = &f->constraint[i];
        char name[32];
        fa_expr_value value = fa_expr_evaluate(rule->expr, c->point->value);
        int holds = fa_expr_truth(value);
        if (holds < 0) {
            snprintf(name, sizeof name, "[%d]", i);
            return check_number(c, value, "restrictions", name, 0, 1, NULL);
        }
        if (holds == 0 && rule->ends == FA_STATUS_CONSTRAINT) {
            end_at(candidate, rule->ends, rule->why);
            return 0;
        }
        bool sooner = *ret_later == NULL || (*ret_later)->ends == FA_STATUS_DOES_NOT_PAY;
        if (holds == 0 && sooner && (*ret_later == NULL || rule->ends != FA_STATUS_DOES_NOT_PAY))
            *ret_later = rule;
    }
    return 0;
}

/* All sides are 0 where the launch is not made. */
static int take_grid(const struct judge *c, const fa_family_launch *launch, int64_t ret_grid[3])
{
    static const char *const axis[] = {"x", "y", "z"};
    int64_t made = 1;
    int rc = 0;
    memset(ret_grid, 0, 3 * sizeof *ret_grid);
    if (launch->when != NULL) {
        const fa_expr_value value = fa_expr_evaluate(launch->when, c->point->value);
        made = fa_expr_truth(value);
        rc = made < 0 ? check_number(c, value, "when", "", 0, 1, NULL) : 0;
    }
    for (int i = 0; i < 3 && rc == 0 && made > 0; i++)
        rc = take_number(c, launch->grid[i], "grid", axis[i], 0, INT64_MAX, &ret_grid[i]);
    return rc;
}

/* Whether the grid can be launched; one that cannot is left at 0 with the reason. */
static bool set_grid(const int64_t grid[3], fa_launch_shape *launch, char *ret_reason, size_t size)
{
    char a[FA_COMMAS_MAX], b[FA_COMMAS_MAX];
    for (int i = 0; i < 3; i++) {
        int64_t most = i == 0 ? INT32_MAX : GRID_YZ_MAX;
        if (grid[i] > most) {
            snprintf(ret_reason, size, "the grid's %c is %s: at most %s", "xyz"[i],
                     fa_commas(grid[i], a), fa_commas(most, b));
            return false;
        }
        launch->grid[i] = (uint32_t)grid[i];
    }
    return true;
}

/* Whether the grid can be launched in the clusters that are told. */
static bool fits_clusters(const fa_gpu *gpu, const fa_launch_shape *launch, char *ret_reason,
                          size_t size)
{
    const uint32_t *cluster = launch->cluster, *grid = launch->grid;
    const uint64_t blocks = (uint64_t)cluster[0] * cluster[1] * cluster[2];
    int axis = blocks > 0 ? 0 : 3;
    while (axis < 3 && grid[axis] % cluster[axis] == 0)
        axis++;
    if (blocks > 0 && gpu->sm < CLUSTER_SM)
        snprintf(ret_reason, size, "clusters need sm_%d; %s is sm_%d", CLUSTER_SM, gpu->name,
                 (int)gpu->sm);
    else if (blocks > CLUSTER_MAX)
        snprintf(ret_reason, size, "a cluster of %llu blocks: at most %d",
                 (unsigned long long)blocks, CLUSTER_MAX);
    else if (axis < 3)
        snprintf(ret_reason, size, "the grid's %c is %u: no multiple of the cluster's %u",
                 "xyz"[axis], grid[axis], cluster[axis]);
    else
        return true;
    return false;
}

static void judge_launch(fa_candidate *candidate, const fa_gpu *gpu, const int64_t grid[3],
                         fa_launch_shape *launch)
{
    char reason[128], a[FA_COMMAS_MAX], b[FA_COMMAS_MAX];
    if (candidate->trial.status != FA_STATUS_PENDING)
        return; /* an earlier launch has ended it */
    if (launch->threads > THREADS_MAX) {
        snprintf(reason, sizeof reason, "%s threads: a block has at most %s",
                 fa_commas(launch->threads, a), fa_commas(THREADS_MAX, b));
        end_at(candidate, FA_STATUS_CONSTRAINT, reason);
    } else if (!set_grid(grid, launch, reason, sizeof reason) ||
               !fits_clusters(gpu, launch, reason, sizeof reason)) {
        end_at(candidate, FA_STATUS_CONSTRAINT, reason);
    }
}

/* "needs 229,376 B = q 32,768 + k 98,304 + v 98,304; L4 allows 101,376" */
static void refuse_budget(fa_candidate *candidate, int64_t bytes, const fa_gpu *gpu)
{
    char text[sizeof candidate->trial.reason], number[FA_COMMAS_MAX];
    const int room = (int)sizeof text - (int)sizeof gpu->name - 2 * FA_COMMAS_MAX;
    int n = snprintf(text, sizeof text, "needs %s B", fa_commas(bytes, number));
    const char *sign = " = ";
    for (int i = 0; i < candidate->addend_count; i++) {
        const fa_addend *addend = &candidate->addend[i];
        if (addend->bytes == 0 || n + FA_NAME_MAX + FA_COMMAS_MAX > room)
            continue; /* nothing to say, or no place to say it: a dozen long names */
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %s", sign, addend->name,
                      fa_commas(addend->bytes, number));
        sign = " + ";
    }
    snprintf(text + n, sizeof text - (size_t)n, "; %s allows %s", gpu->name,
             fa_commas(gpu->smem_per_block, number));
    end_at(candidate, FA_STATUS_BUDGET, text);
}

/* Takes the addends of a launch; the candidate keeps those of its first and of what does not fit. */
static int judge_budget(const struct judge *c, const fa_family_launch *launch, const fa_gpu *gpu,
                        fa_candidate *candidate, bool first, fa_launch_shape *shape)
{
    fa_addend addend[FA_MAX_ADDENDS] = {{{0}, 0}};
    int64_t bytes = 0;
    for (int i = 0; i < launch->addend_count; i++) {
        memcpy(addend[i].name, launch->addend[i].name, FA_NAME_MAX);
        int rc = take_number(c, launch->addend[i].expr, "shared_memory", addend[i].name, 0,
                             addend_max, &addend[i].bytes);
        if (rc != 0)
            return rc;
        bytes += addend[i].bytes;
    }
    bool exceeds = candidate->trial.status == FA_STATUS_PENDING && bytes > gpu->smem_per_block;
    if (exceeds || first) {
        memcpy(candidate->addend, addend, sizeof addend);
        candidate->addend_count = launch->addend_count;
    }
    shape->smem_bytes = bytes > INT32_MAX ? INT32_MAX : (int32_t)bytes;
    if (exceeds)
        refuse_budget(candidate, bytes, gpu);
    return 0;
}

/* Takes what all launches of a call share. */
static int take_call(const struct judge *c, fa_launches *launches)
{
    const fa_family *f = c->point->family;
    int64_t splits = 1;
    launches->workspace_bytes = launches->counters = 0;
    int rc =
        take_number(c, f->workspace, "workspace", "", 0, addend_max, &launches->workspace_bytes);
    if (rc == 0)
        rc = take_number(c, f->counters, "counters", "", 0, INT32_MAX, &launches->counters);
    for (int i = 0; i < f->scratch_count && rc == 0; i++) {
        int64_t bytes = 0;
        launches->scratch[i] = (launches->workspace_bytes + 255) / 256 * 256;
        rc = take_number(c, f->scratch[i].expr, "scratch", f->scratch[i].name, 0,
                         addend_max / FA_SCRATCH_MAX - 255, &bytes);
        launches->workspace_bytes = launches->scratch[i] + bytes;
    }
    if (rc == 0)
        rc = take_number(c, f->splits, "splits", "", 1, INT32_MAX, &splits);
    launches->splits = (int32_t)splits;
    return rc;
}

static int take_block(const struct judge *c, const fa_family_launch *launch, fa_launch_shape *shape,
                      int64_t *ret_threads)
{
    static const char *const axis[] = {"x", "y", "z"};
    static const int most[] = {1024, 1024, 64};
    int64_t side[3] = {1, 1, 1}, cluster[3] = {0};
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = take_number(c, launch->block[i], "block", axis[i], 1, INT32_MAX, &side[i]);
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = take_number(c, launch->cluster[i], "cluster", axis[i], 1, 1024, &cluster[i]);
    const bool alone = cluster[0] * cluster[1] * cluster[2] == 1; /* which every GPU launches */
    for (int i = 0; i < 3; i++) {
        shape->block[i] = (uint32_t)side[i];
        shape->cluster[i] = alone ? 0 : (uint32_t)cluster[i];
    }
    shape->cooperative = launch->cooperative;
    *ret_threads = side[1] > most[1] || side[2] > most[2] ? INT32_MAX : side[0] * side[1] * side[2];
    if (*ret_threads > INT32_MAX)
        *ret_threads = INT32_MAX;
    return rc;
}

/* What the launch does, as far as the manifest tells; numbers beyond 64 bits are as good as others. */
static int take_work(const struct judge *c, const fa_family_launch *launch, fa_launch_shape *shape)
{
    double steps = 1;
    memset(shape->work, 0, sizeof shape->work);
    for (int i = 0; i < FA_WORKS; i++) {
        if (launch->work[i] == NULL)
            continue;
        fa_expr_value value = fa_expr_evaluate(launch->work[i], c->point->value);
        if (value.kind == FA_EXPR_NONE)
            return check_number(c, value, "work", "", 0, 0, NULL);
        double number = value.kind == FA_EXPR_REAL ? value.real : (double)value.integer;
        number = number > 0 ? number : 0;
        if (i == FA_WORK_STEPS)
            steps = number;
        else
            shape->work[i] = number * steps;
    }
    shape->work[FA_WORK_STEPS] = steps;
    return 0;
}

static bool is_left_out(const int64_t grid[3])
{
    return grid[0] == 0 && grid[1] == 0 && grid[2] == 0;
}

/* Other sizes of the same config may have the launch: it has its block and memory, as far as they fit. */
static void take_left_out(const struct judge *c, const fa_family_launch *launch,
                          fa_launch_shape *shape)
{
    const struct judge quiet = {c->point, c->config, NULL};
    fa_candidate unseen = {.trial = {.status = FA_STATUS_PENDING}};
    int64_t threads = 0;
    if (take_block(&quiet, launch, shape, &threads) != 0 || threads > THREADS_MAX ||
        judge_budget(&quiet, launch, c->point->gpu, &unseen, false, shape) != 0 ||
        unseen.trial.status != FA_STATUS_PENDING) {
        *shape = (fa_launch_shape){.block = {1, 1, 1}};
        threads = 1;
    }
    shape->threads = (int32_t)threads;
}

/* Takes all launches; trial's threads and grid are those of the first that is made, its shared memory that of the one with the most. */
static int take_launches(const struct judge *c, fa_candidate *candidate)
{
    const fa_family *f = c->point->family;
    fa_launches *launches = &candidate->launches;
    const fa_launch_shape *first = NULL;
    int64_t registers = 0, grid[3] = {0}, threads = 0;
    int rc = take_number(c, f->registers, "registers", "", 0, 1000000, &registers);
    if (rc == 0)
        rc = take_call(c, launches);
    candidate->estimated_registers = (int32_t)registers;
    for (int i = 0; i < f->launch_count && rc == 0; i++) {
        fa_launch_shape *shape = &launches->at[launches->count++];
        rc = take_grid(c, &f->launch[i], grid);
        if (rc == 0 && is_left_out(grid)) {
            take_left_out(c, &f->launch[i], shape);
            continue;
        }
        if (rc == 0)
            rc = take_block(c, &f->launch[i], shape, &threads);
        if (rc != 0)
            return rc;
        first = first != NULL ? first : shape;
        shape->threads = (int32_t)threads;
        judge_launch(candidate, c->point->gpu, grid, shape);
        rc = judge_budget(c, &f->launch[i], c->point->gpu, candidate, shape == first, shape);
        if (rc == 0)
            rc = take_work(c, &f->launch[i], shape);
        if (shape->smem_bytes > candidate->trial.smem_bytes)
            candidate->trial.smem_bytes = shape->smem_bytes;
    }
    first = first != NULL ? first : &launches->at[0];
    candidate->trial.threads = first->threads;
    memcpy(candidate->trial.grid, first->grid, sizeof candidate->trial.grid);
    return rc;
}

static void judge_registers(fa_candidate *candidate)
{
    char reason[160], a[FA_COMMAS_MAX], b[FA_COMMAS_MAX];
    int64_t each = candidate->estimated_registers, threads = candidate->trial.threads;
    if (each > REGISTERS_MAX)
        snprintf(reason, sizeof reason, "needs about %s registers per thread: at most %d",
                 fa_commas(each, a), REGISTERS_MAX);
    else if (each * threads > REGISTERS_OF_BLOCK)
        snprintf(reason, sizeof reason,
                 "needs about %d threads x %d registers = %s: a block has at most %s", (int)threads,
                 (int)each, fa_commas(each * threads, a), fa_commas(REGISTERS_OF_BLOCK, b));
    else
        return;
    end_at(candidate, FA_STATUS_REGISTERS, reason);
}

static int take_lets(const struct judge *c, fa_candidate *candidate)
{
    const fa_family *f = c->point->family;
    const fa_expr_value *let = c->point->value + f->given.count + f->tunable_count;
    for (int i = 0; i < f->let_count; i++) {
        int64_t value = 0;
        int rc = check_number(c, let[i], "defines", f->let[i].name, INT32_MIN, INT32_MAX, &value);
        if (rc != 0)
            return rc;
        memcpy(candidate->let[i].name, f->let[i].name, FA_NAME_MAX);
        candidate->let[i].value = (int32_t)value;
    }
    candidate->let_count = f->let_count;
    return 0;
}

int fa_point_judge(const fa_point *point, fa_candidate *candidate, fa_diag *diag)
{
    const struct judge c = {point, &candidate->trial.config, diag};
    const fa_require *later = NULL;
    const fa_status *status = &candidate->trial.status;
    int rc = judge_constraints(&c, candidate, &later);
    if (rc != 0 || *status != FA_STATUS_PENDING)
        return rc;
    if ((rc = take_lets(&c, candidate)) != 0 || (rc = take_launches(&c, candidate)) != 0)
        return rc;
    if (*status == FA_STATUS_PENDING)
        judge_registers(candidate);
    if (*status == FA_STATUS_PENDING && later != NULL)
        end_at(candidate, later->ends, later->why);
    return 0;
}

int fa_point_launches(const fa_point *point, const fa_candidate *candidate,
                      fa_launches *ret_launches, fa_diag *diag)
{
    const struct judge c = {point, &candidate->trial.config, diag};
    fa_launches launches = candidate->launches;
    char reason[128];
    int rc = take_call(&c, &launches);
    for (int i = 0; i < launches.count && rc == 0; i++) {
        int64_t grid[3] = {0};
        memset(launches.at[i].grid, 0, sizeof launches.at[i].grid);
        rc = take_grid(&c, &point->family->launch[i], grid);
        if (rc == 0) /* one that cannot be launched stays 0 */
            set_grid(grid, &launches.at[i], reason, sizeof reason);
        if (rc == 0 && !is_left_out(grid))
            rc = take_work(&c, &point->family->launch[i], &launches.at[i]);
    }
    *ret_launches = launches;
    return rc;
}
