/* SPDX-License-Identifier: Apache-2.0
 *
 * One point of a family's space: the values of its expressions, what its config needs, and what ends it. And what the cost
 * models of all operations make of that: occupancy, overlap, memory; and the model of operations without their own.
 *
 * Invariant: what may end a config is judged in a fixed order (what is impossible, threads, grid, shared memory,
 * registers, the constraints of what does not fit, those of what does not pay) and only what is judged must have a
 * value, so that an expression may rely on the constraints of what is impossible.
 */
#include "family.h"

#include "driver.h"
#include "error.h"
#include "model.h"
#include "problem.h"
#include "words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    THREADS_MAX = 1024,  /* of a block, on every architecture */
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
        if (f->let[i].depth == depth)
            let[i] = fa_expr_evaluate(f->let[i].expr, point->value);
}

void fa_point_start(fa_point *ret_point, const fa_family *family, const fa_problem *problem,
                    const fa_gpu *gpu, fa_diag *diag)
{
    fa_given given;
    fa_given_make(family->operation, family->takes, problem, gpu, &given);
    *ret_point = (fa_point){.family = family, .gpu = gpu, .diag = diag};
    ret_point->config.count = family->tunable_count;
    memcpy(ret_point->config.family, family->name, FA_NAME_MAX);
    for (int i = 0; i < family->tunable_count; i++)
        memcpy(ret_point->config.tunable[i].name, family->tunable[i].name, FA_NAME_MAX);
    for (int i = 0; i < given.count; i++)
        ret_point->value[i] = (fa_expr_value){.kind = FA_EXPR_INTEGER, .integer = given.value[i]};
    set_lets(ret_point, 0);
}

void fa_point_set(fa_point *point, int tunable, int32_t value)
{
    point->config.tunable[tunable].value = value;
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
        *steps += f->constraint[i].expr->count;
        if (fa_expr_truth(fa_expr_evaluate(f->constraint[i].expr, point->value)) == 0)
            return true;
    }
    return false;
}

/* The value, an integer in low..high; else `low`, and the first of such failures names it and the config. */
static int64_t check_number(fa_point *p, fa_expr_value value, const char *kind, const char *name,
                            int64_t low, int64_t high)
{
    const char *why = fa_expr_fault(value);
    char text[FA_CONFIG_TEXT_MAX], range[128], a[FA_COMMAS_MAX], b[FA_COMMAS_MAX], n[FA_COMMAS_MAX];
    if (why == NULL && value.integer >= low && value.integer <= high)
        return value.integer;
    if (p->rc != 0)
        return low;
    if (why == NULL) {
        snprintf(range, sizeof range, "is %s: must be %s to %s", fa_commas(value.integer, n),
                 fa_commas(low, a), fa_commas(high, b));
        why = range;
    }
    fa_config_text(&p->config, text);
    p->rc = fa_fail(p->diag, FA_EMANIFEST, "%s.json: %s%s%s %s for %s", p->family->name, kind,
                    name[0] != 0 ? " " : "", name, why, text);
    return low;
}

/* `absent` where the manifest has no such expression. */
static int64_t take_number(fa_point *p, const fa_expr *expr, int64_t absent, const char *kind,
                           const char *name, int64_t low, int64_t high)
{
    return expr == NULL ? absent
                        : check_number(p, fa_expr_evaluate(expr, p->value), kind, name, low, high);
}

/* The reason that ends a config first stays. */
__attribute__((format(printf, 3, 4))) static void end_at(fa_candidate *candidate, fa_status status,
                                                         const char *format, ...)
{
    va_list arguments;
    if (candidate->trial.status != FA_STATUS_PENDING)
        return;
    candidate->trial.status = status;
    va_start(arguments, format);
    vsnprintf(candidate->trial.reason, sizeof candidate->trial.reason, format, arguments);
    va_end(arguments);
}

/* The rules in their order. Those of what is possible end the config; of the others, which say what does not
 * fit or does not pay, the first that it does not hold to is returned: the budget, which has numbers, is judged before them. */
static const fa_require *judge_constraints(fa_point *p, fa_candidate *candidate)
{
    const fa_require *later = NULL;
    for (int i = 0; i < p->family->constraint_count; i++) {
        const fa_require *rule = &p->family->constraint[i];
        char name[32];
        fa_expr_value value = fa_expr_evaluate(rule->expr, p->value);
        int holds = fa_expr_truth(value);
        if (holds < 0) {
            snprintf(name, sizeof name, "[%d]", i);
            check_number(p, value, "restrictions", name, 0, 1);
            break;
        }
        if (holds == 0 && rule->ends == FA_STATUS_CONSTRAINT) {
            end_at(candidate, rule->ends, "%s", rule->why);
            break;
        }
        bool sooner = later == NULL || (later->ends == FA_STATUS_DOES_NOT_PAY &&
                                        rule->ends != FA_STATUS_DOES_NOT_PAY);
        later = holds == 0 && sooner ? rule : later;
    }
    return later;
}

static const char *const axis[] = {"x", "y", "z"};

/* All sides are 0 where the launch is not made; false. */
static bool take_grid(fa_point *p, const fa_family_launch *launch, int64_t ret_grid[3])
{
    const fa_expr_value when =
        launch->when != NULL ? fa_expr_evaluate(launch->when, p->value) : fa_expr_of_value(1);
    const int made = fa_expr_truth(when);
    if (made < 0)
        check_number(p, when, "when", "", 0, 1);
    for (int i = 0; i < 3; i++)
        ret_grid[i] =
            made > 0 ? take_number(p, launch->grid[i], 0, "grid", axis[i], 0, INT64_MAX) : 0;
    return ret_grid[0] != 0 || ret_grid[1] != 0 || ret_grid[2] != 0;
}

/* Whether its blocks and its grid can be launched; what cannot of this is left at 0 with the reason. */
static void judge_launch(fa_candidate *candidate, const int64_t grid[3], fa_launch_shape *launch)
{
    char a[FA_COMMAS_MAX], b[FA_COMMAS_MAX];
    if (launch->threads > THREADS_MAX)
        end_at(candidate, FA_STATUS_CONSTRAINT, "%s threads: a block has at most %s",
               fa_commas(launch->threads, a), fa_commas(THREADS_MAX, b));
    for (int i = 0; i < 3 && candidate->trial.status == FA_STATUS_PENDING; i++) {
        int64_t most = i == 0 ? INT32_MAX : GRID_YZ_MAX;
        if (grid[i] <= most)
            launch->grid[i] = (uint32_t)grid[i];
        else
            end_at(candidate, FA_STATUS_CONSTRAINT, "the grid's %s is %s: at most %s", axis[i],
                   fa_commas(grid[i], a), fa_commas(most, b));
    }
}

/* Takes the addends of a launch; the candidate keeps those of its first and of what does not fit. */
static void judge_budget(fa_point *p, const fa_family_launch *launch, fa_candidate *candidate,
                         bool first, fa_launch_shape *shape)
{
    fa_addend addend[FA_MAX_ADDENDS] = {{{0}, 0}};
    int64_t bytes = 0;
    for (int i = 0; i < launch->addend_count; i++) {
        memcpy(addend[i].name, launch->addend[i].name, FA_NAME_MAX);
        addend[i].bytes = take_number(p, launch->addend[i].expr, 0, "shared_memory", addend[i].name,
                                      0, addend_max);
        bytes += addend[i].bytes;
    }
    bool exceeds = candidate->trial.status == FA_STATUS_PENDING && bytes > p->gpu->smem_per_block;
    if (exceeds || first) {
        memcpy(candidate->addend, addend, sizeof addend);
        candidate->addend_count = launch->addend_count;
    }
    shape->smem_bytes = bytes > INT32_MAX ? INT32_MAX : (int32_t)bytes;
    if (!exceeds)
        return;
    /* "needs 229,376 B = q 32,768 + k 98,304 + v 98,304; L4 allows 101,376" */
    char text[sizeof candidate->trial.reason], number[FA_COMMAS_MAX];
    const int room = (int)sizeof text - (int)sizeof p->gpu->name - 2 * FA_COMMAS_MAX;
    int n = snprintf(text, sizeof text, "needs %s B", fa_commas(bytes, number));
    const char *sign = " = ";
    for (int i = 0; i < launch->addend_count; i++) {
        if (addend[i].bytes == 0 || n + FA_NAME_MAX + FA_COMMAS_MAX > room)
            continue; /* nothing to say, or no place to say it: a dozen long names */
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %s", sign, addend[i].name,
                      fa_commas(addend[i].bytes, number));
        sign = " + ";
    }
    end_at(candidate, FA_STATUS_BUDGET, "%s; %s allows %s", text, p->gpu->name,
           fa_commas(p->gpu->smem_per_block, number));
}

/* Takes what all launches of a call share. */
static void take_call(fa_point *p, fa_launches *launches)
{
    const fa_family *f = p->family;
    launches->workspace_bytes = take_number(p, f->workspace, 0, "workspace", "", 0, addend_max);
    launches->counters = take_number(p, f->counters, 0, "counters", "", 0, INT32_MAX);
    for (int i = 0; i < f->scratch_count; i++) {
        launches->scratch[i] = (launches->workspace_bytes + 255) / 256 * 256;
        launches->workspace_bytes =
            launches->scratch[i] + take_number(p, f->scratch[i].expr, 0, "scratch",
                                               f->scratch[i].name, 0,
                                               addend_max / FA_SCRATCH_MAX - 255);
    }
    launches->splits = (int32_t)take_number(p, f->splits, 1, "splits", "", 1, INT32_MAX);
}

static void take_block(fa_point *p, const fa_family_launch *launch, fa_launch_shape *shape)
{
    int64_t side[3];
    for (int i = 0; i < 3; i++) {
        side[i] = take_number(p, launch->block[i], 1, "block", axis[i], 1, INT32_MAX);
        shape->block[i] = (uint32_t)side[i];
    }
    const bool fits = side[1] <= 1024 && side[2] <= 64 && side[0] * side[1] * side[2] <= INT32_MAX;
    shape->how = launch->cooperative ? FA_LAUNCH_COOPERATIVE : 0;
    shape->threads = fits ? (int32_t)(side[0] * side[1] * side[2]) : INT32_MAX;
}

/* What the launch does, as far as the manifest tells; numbers beyond 64 bits are as good as others. */
static void take_work(fa_point *p, const fa_family_launch *launch, fa_launch_shape *shape)
{
    double steps = 1;
    memset(shape->work, 0, sizeof shape->work);
    for (int i = 0; i < FA_WORKS; i++) {
        if (launch->work[i] == NULL)
            continue;
        fa_expr_value value = fa_expr_evaluate(launch->work[i], p->value);
        if (value.kind == FA_EXPR_NONE)
            check_number(p, value, "work", "", 0, 0);
        double number = fmax(fa_expr_number(value), 0);
        if (i == FA_WORK_STEPS)
            steps = number;
        else
            shape->work[i] = number * steps;
    }
    shape->work[FA_WORK_STEPS] = steps;
}

/* Takes all launches; trial's threads and grid are those of the first that is made, its shared memory that of the one with the most. */
static void take_launches(fa_point *p, fa_candidate *candidate)
{
    const fa_family *f = p->family;
    fa_launches *launches = &candidate->launches;
    const fa_launch_shape *first = NULL;
    candidate->estimated_registers =
        (int32_t)take_number(p, f->registers, 0, "registers", "", 0, 1000000);
    take_call(p, launches);
    for (int i = 0; i < f->launch_count && p->rc == 0; i++) {
        fa_launch_shape *shape = &launches->at[launches->count++];
        int64_t grid[3];
        if (!take_grid(p, &f->launch[i], grid) && p->rc == 0) {
            *shape = (fa_launch_shape){.block = {1, 1, 1}, .threads = 1};
            continue;
        }
        take_block(p, &f->launch[i], shape);
        if (p->rc != 0)
            return;
        /* Early behind a launch of its call alone: of work in front of a call its kernels need know nothing. */
        shape->how &= ~(unsigned)FA_LAUNCH_PROGRAMMATIC;
        if (f->launch[i].programmatic && first != NULL && p->gpu->sm >= 90)
            shape->how |= FA_LAUNCH_PROGRAMMATIC;
        first = first != NULL ? first : shape;
        judge_launch(candidate, grid, shape);
        judge_budget(p, &f->launch[i], candidate, shape == first, shape);
        take_work(p, &f->launch[i], shape);
        if (shape->smem_bytes > candidate->trial.smem_bytes)
            candidate->trial.smem_bytes = shape->smem_bytes;
    }
    if (first == NULL)
        end_at(candidate, FA_STATUS_CONSTRAINT, "none of its launches is made");
    first = first != NULL ? first : &launches->at[0];
    candidate->trial.threads = first->threads;
    memcpy(candidate->trial.grid, first->grid, sizeof candidate->trial.grid);
}

int fa_point_judge(fa_point *p, fa_candidate *candidate)
{
    char a[FA_COMMAS_MAX], b[FA_COMMAS_MAX];
    const fa_family *f = p->family;
    const fa_expr_value *let = p->value + f->given.count + f->tunable_count;
    candidate->family = p->index;
    candidate->trial.config = p->config;
    candidate->is_default = fa_config_equal(&p->config, &p->preset);
    const fa_require *later = judge_constraints(p, candidate);
    if (p->rc != 0 || candidate->trial.status != FA_STATUS_PENDING)
        return p->rc;
    candidate->let_count = f->let_count;
    for (int i = 0; i < f->let_count; i++) {
        memcpy(candidate->let[i].name, f->let[i].name, FA_NAME_MAX);
        candidate->let[i].value =
            (int32_t)check_number(p, let[i], "defines", f->let[i].name, INT32_MIN, INT32_MAX);
    }
    take_launches(p, candidate);
    const int64_t each = candidate->estimated_registers, threads = candidate->trial.threads;
    if (each > REGISTERS_MAX)
        end_at(candidate, FA_STATUS_REGISTERS, "needs about %s registers per thread: at most %d",
               fa_commas(each, a), REGISTERS_MAX);
    if (each * threads > REGISTERS_OF_BLOCK)
        end_at(candidate, FA_STATUS_REGISTERS,
               "needs about %d threads x %d registers = %s: a block has at most %s", (int)threads,
               (int)each, fa_commas(each * threads, a), fa_commas(REGISTERS_OF_BLOCK, b));
    if (later != NULL && !(p->named && later->ends == FA_STATUS_DOES_NOT_PAY))
        end_at(candidate, later->ends, "%s", later->why);
    return p->rc;
}

/* ---- launches for other problems ------------------------------------------------------------*/
int fa_space_answer(const fa_task *task, const fa_config *config, fa_launch_shape *ret_shape,
                    fa_diag *diag)
{
    fa_candidate unseen = {.trial = {.status = FA_STATUS_PENDING}};
    fa_launch_shape shape = {.threads = 0};
    fa_point point, *p = &point;
    int64_t grid[3];
    fa_point_start(p, task->families->family[0], task->problem, task->gpu, diag);
    fa_point_set_all(p, config);
    take_grid(p, &p->family->answer, grid);
    take_block(p, &p->family->answer, &shape);
    judge_launch(&unseen, grid, &shape);
    judge_budget(p, &p->family->answer, &unseen, true, &shape);
    if (p->rc == 0 && unseen.trial.status != FA_STATUS_PENDING)
        p->rc = fa_fail(p->diag, FA_EMANIFEST, "the answer: %s", unseen.trial.reason);
    *ret_shape = shape;
    return p->rc;
}

int fa_space_launches(const fa_task *task, const fa_candidate *candidate, int count,
                      fa_launches *ret_launches, int stride, fa_diag *diag)
{
    fa_point point = {.family = NULL}, *p = &point;
    for (int k = 0; k < count && p->rc == 0; k++, candidate++, ret_launches += stride) {
        const fa_family *family = task->families->family[candidate->family];
        const fa_status status = candidate->trial.status;
        fa_candidate there = {.trial = {.status = FA_STATUS_PENDING}};
        if (candidate->launches.count > 0 &&
            (status == FA_STATUS_PENDING || status == FA_STATUS_COMPILED ||
             status == FA_STATUS_MEASURED)) {
            if (p->family != family)
                fa_point_start(p, family, task->problem, task->gpu, diag);
            fa_point_set_all(p, &candidate->trial.config);
            take_launches(p, &there);
        }
        const bool fits = there.trial.status != FA_STATUS_BUDGET;
        *ret_launches = fits ? there.launches : (fa_launches){.count = 0};
    }
    return p->rc;
}

bool fa_launch_is_left_out(const fa_launch_shape *launch)
{
    return launch->grid[0] == 0 && launch->grid[1] == 0 && launch->grid[2] == 0;
}

int fa_launch_shaped(fa_driver *driver, const fa_launch_shape *launch, fa_function function,
                     void **arguments, fa_stream stream, fa_diag *diag)
{
    return fa_launch_is_left_out(launch)
               ? 0
               : fa_launch_how(driver, function, launch->grid, launch->block, launch->how,
                               (uint32_t)launch->smem_bytes, stream, arguments, diag);
}

/* ---- what the models share ----------------------------------------------------------------------*/
enum {
    SCHEDULERS = 4,      /* per SM, each with a quarter of the registers */
    REGISTER_UNIT = 256, /* registers are given to a warp in this unit */
    WARP = 32,
};

/* What the hardware does per clock and SM, by architecture. `tensor` is the FLOP rate at which mma.sync tops out where that
 * is below the data sheet's: Hopper's full rate needs wgmma (0.62 of it is what mma.sync kernels reach there), and
 * data-centre Blackwell's needs tcgen05 (its mma.sync rate is an assumption: Ampere's). Shared memory: 32 banks of 4 bytes;
 * Turing's load path is half as wide. FP32 lanes: architecture white papers. */
static const fa_model_rates architectures[] = {
    {75, 1024, 64, 16, 64},    {80, 2048, 128, 16, 64},   {86, 1024, 128, 16, 128},
    {87, 2048, 128, 16, 128},  {89, 1024, 128, 16, 128},  {90, 2540, 128, 16, 128},
    {100, 2048, 128, 16, 128}, {103, 2048, 128, 32, 128}, {110, 2048, 128, 16, 128},
    {120, 1024, 128, 16, 128}, {121, 1024, 128, 16, 128}};

const fa_model_rates *fa_model_rates_of(const fa_gpu *gpu)
{
    const fa_model_rates *found = &architectures[0];
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].sm <= gpu->sm)
            found = &architectures[i];
    return found;
}

/* FLOP of the GPU's tensor cores per clock and SM. */
static double tensor_rate(const fa_gpu *gpu)
{
    double sm_mhz = (double)gpu->sm_count * gpu->clock_mhz;
    double rate = sm_mhz > 0 ? gpu->tensor_tflops * 1e6 / sm_mhz : 0;
    return rate > 0 ? rate : fa_model_rates_of(gpu)->tensor;
}

double fa_model_mma_rate(const fa_gpu *gpu)
{
    double rate = tensor_rate(gpu), most = fa_model_rates_of(gpu)->tensor;
    return rate < most ? rate : most;
}

int32_t fa_model_occupancy(const fa_gpu *gpu, int32_t threads, int32_t registers,
                           int32_t smem_bytes)
{
    if (threads < 1 || threads > 1024 || registers < 0 || registers > REGISTERS_MAX ||
        smem_bytes < 0 || smem_bytes > gpu->smem_per_block)
        return 0;
    int64_t warps = (threads + WARP - 1) / WARP, blocks = gpu->blocks_per_sm;
    int64_t by_threads = gpu->threads_per_sm / (warps * WARP);
    int64_t each = ((int64_t)(registers > 0 ? registers : 1) * WARP + REGISTER_UNIT - 1) /
                   REGISTER_UNIT * REGISTER_UNIT;
    int64_t by_registers = gpu->regs_per_sm / SCHEDULERS / each * SCHEDULERS / warps;
    int64_t smem = (int64_t)smem_bytes + gpu->smem_reserved;
    int64_t by_smem = smem > 0 ? gpu->smem_per_sm / smem : blocks;
    blocks = by_threads < blocks ? by_threads : blocks;
    blocks = by_registers < blocks ? by_registers : blocks;
    return (int32_t)(by_smem < blocks ? by_smem : blocks);
}

int32_t fa_model_tunable(const fa_candidate *candidate, const char *name, int32_t absent)
{
    int32_t value = absent;
    if (!fa_config_get(&candidate->trial.config, name, &value)) {
        for (int i = 0; i < candidate->let_count; i++)
            if (strcmp(candidate->let[i].name, name) == 0)
                return candidate->let[i].value;
    }
    return value;
}

double fa_model_p_norm(const double *part, int count, double p)
{
    double largest = 0, sum = 0;
    for (int i = 0; i < count; i++)
        largest = part[i] > largest ? part[i] : largest;
    for (int i = 0; i < count && largest > 0; i++)
        sum += pow(part[i] / largest, p);
    return largest > 0 ? largest * pow(sum, 1 / p) : 0;
}

double fa_model_memory_us(double bytes, const fa_gpu *gpu)
{
    return gpu->bandwidth_gbs > 0 ? bytes / (gpu->bandwidth_gbs * 1e3) : 0;
}

/* ---- operations without a model of their own --------------------------------------------------*/
/* A roofline over the launches of a config; some thousand predictions per tuning. A launch takes as long as its blocks on
 * the fullest SM, or as its bytes of device memory. On an SM, units work beside each other as far as there are warps to
 * feed them: a p-norm of their clocks whose p grows with the warps of a scheduler. What a block only waits for, the SM's
 * other blocks fill. All blocks of a launch count as equal. */

/* What no data sheet gives, from the fits of attention's models; not fitted to any
 * operation that is predicted here. */
static const double mma_share = 0.6; /* of the rate, by the best loops */
static const double wgmma_share = 0.93;
static const double l2_bytes = 60;          /* per clock and SM */
static const double overlap = 2;            /* p without any warp to spare */
static const double overlap_per_warp = 0.8; /* and what each warp of a scheduler adds to it */
static const double launch_us = 3;

enum { USUAL_REGISTERS = 40 };

/* Clocks of the whole launch on an SM that had it to itself, `blocks` of them resident. */
static double unit_clocks(const fa_launch_shape *launch, const fa_gpu *gpu, double blocks)
{
    const fa_model_rates *rates = fa_model_rates_of(gpu);
    const double *work = launch->work;
    double part[] = {
        work[FA_WORK_MMA_FLOPS] / (fa_model_mma_rate(gpu) * mma_share) +
            work[FA_WORK_WGMMA_FLOPS] / (tensor_rate(gpu) * wgmma_share),
        work[FA_WORK_EXPONENTIALS] / rates->exponentials,
        work[FA_WORK_OPERATIONS] / rates->fp32_lanes,
        work[FA_WORK_SHARED_BYTES] / rates->smem_bytes,
        work[FA_WORK_L2_BYTES] / l2_bytes,
    };
    double warps = blocks * launch->threads / WARP / SCHEDULERS;
    return fa_model_p_norm(part, (int)(sizeof part / sizeof *part),
                           overlap + overlap_per_warp * warps);
}

static double launch_time(const fa_launch_shape *launch, const fa_gpu *gpu, int32_t resident)
{
    double blocks = (double)launch->grid[0] * launch->grid[1] * launch->grid[2];
    double sms = gpu->sm_count > 0 ? gpu->sm_count : 1;
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000;
    if (!(blocks > 0))
        return launch_us;
    double fullest = ceil(blocks / sms), together = fmin(resident, fullest);
    double clocks = unit_clocks(launch, gpu, together) + launch->work[FA_WORK_CLOCKS] / together;
    return launch_us + fmax(clocks / blocks * fullest / clock,
                            fa_model_memory_us(launch->work[FA_WORK_BYTES], gpu));
}

void fa_roofline_predict(const fa_candidate *candidate, const fa_problem *problem,
                         const fa_gpu *gpu, fa_trial *trial)
{
    const fa_launches *launches = &candidate->launches;
    int32_t registers = trial->registers > 0                 ? trial->registers
                        : candidate->estimated_registers > 0 ? candidate->estimated_registers
                                                             : USUAL_REGISTERS;
    (void)problem;
    bool told = false;
    trial->blocks_per_sm = fa_model_occupancy(gpu, trial->threads, registers,
                                              trial->smem_bytes + trial->static_smem_bytes);
    trial->predicted_us = 0;
    double us = 0;
    for (int i = 0; i < launches->count; i++) {
        const fa_launch_shape *launch = &launches->at[i];
        int32_t resident = fa_model_occupancy(gpu, launch->threads, registers,
                                              launch->smem_bytes + trial->static_smem_bytes);
        if (resident < trial->blocks_per_sm)
            trial->blocks_per_sm = resident;
        if (fa_launch_is_left_out(launch))
            continue;
        for (int w = FA_WORK_STEPS + 1; w < FA_WORKS; w++)
            told = told || launch->work[w] > 0;
        us += resident > 0 ? launch_time(launch, gpu, resident) : 0;
    }
    if (told && trial->blocks_per_sm > 0 && isfinite(us)) /* else what is told is beyond numbers */
        trial->predicted_us = us;
}
