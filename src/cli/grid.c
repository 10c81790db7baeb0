/* SPDX-License-Identifier: Apache-2.0 */
#include "grid.h"

#include "error.h"
#include "problem.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 256, WORD_MAX = 64 };

typedef struct list {
    int32_t value[VALUES_MAX];
    int count;
} list;

/* ---- lists ----------------------------------------------------------------------------------*/
static int fail_word(const char *option, const char *word, const char *advice, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    return fa_fail(diag, FA_EINVAL, "%s \"%s\": %s", option, cli_text_short(word, typed), advice);
}

static int push(list *list, const char *option, int64_t value, fa_diag *diag)
{
    for (int i = 0; i < list->count; i++)
        if (list->value[i] == value)
            return 0;
    if (list->count == VALUES_MAX)
        return fa_fail(diag, FA_EINVAL, "%s has more than %d values: sweep it in parts", option,
                       VALUES_MAX);
    list->value[list->count++] = (int32_t)value;
    return 0;
}

/* Digits only, from low to INT32_MAX. */
static bool number(const char *text, int32_t low, int32_t *ret)
{
    uint64_t value;
    if (!cli_parse_digits(text, &value) || value < (uint64_t)low || value > INT32_MAX)
        return false;
    *ret = (int32_t)value;
    return true;
}

/* A:B:xN or A:B:+N, split in place. */
static int push_range(list *list, const char *option, int32_t low, const char *word, fa_diag *diag)
{
    static const char advice[] = "a range is FIRST:LAST:xFACTOR, as in 512:16384:x2, or "
                                 "FIRST:LAST:+STEP, as in 512:2048:+512";
    char text[WORD_MAX];
    snprintf(text, sizeof text, "%s", word);
    char *second = strchr(text, ':'), *third = strchr(second + 1, ':');
    int32_t first, last, step;
    if (third == NULL)
        return fail_word(option, word, advice, diag);
    *second++ = 0;
    *third++ = 0;
    bool times = third[0] == 'x';
    if (!number(text, low > 1 ? low : 1, &first) || !number(second, first, &last) ||
        (!times && third[0] != '+') || !number(third + 1, times ? 2 : 1, &step))
        return fail_word(option, word, advice, diag);
    int rc = 0;
    for (int64_t value = first; value <= last && rc == 0;
         value = times ? value * step : value + step)
        rc = push(list, option, value, diag);
    return rc;
}

/* Calls back with each word between commas. */
typedef int word_visit(void *context, const char *option, const char *word, fa_diag *diag);

static int each_word(const char *option, const char *text, word_visit *visit, void *context,
                     fa_diag *diag)
{
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        char word[WORD_MAX];
        if (length == 0)
            return fail_word(option, text, "a value is missing beside a comma", diag);
        if (length >= sizeof word)
            return fail_word(option, at, "no value is as long as this", diag);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        int rc = visit(context, option, word, diag);
        if (rc != 0)
            return rc;
        at += length;
        if (*at == 0)
            return 0;
        at++;
    }
}

struct numbers {
    list *list;
    int32_t low, high;
};

static int push_number(void *context, const char *option, const char *word, fa_diag *diag)
{
    struct numbers *numbers = context;
    int32_t value;
    int rc;
    if (strchr(word, ':') != NULL) {
        rc = push_range(numbers->list, option, numbers->low, word, diag);
    } else if (number(word, numbers->low, &value)) {
        rc = push(numbers->list, option, value, diag);
    } else {
        char advice[96];
        snprintf(advice, sizeof advice, "use whole numbers from %d to %d, or ranges", numbers->low,
                 numbers->high);
        return fail_word(option, word, advice, diag);
    }
    for (int i = 0; i < numbers->list->count && rc == 0; i++)
        if (numbers->list->value[i] > numbers->high)
            rc = fa_fail(diag, FA_EINVAL, "%s holds %d: the largest is %d", option,
                         numbers->list->value[i], numbers->high);
    return rc;
}

/* `text` NULL leaves the one value `otherwise`. */
static int read_numbers(const char *option, const char *text, int32_t low, int32_t high,
                        int32_t otherwise, list *ret, fa_diag *diag)
{
    struct numbers numbers = {ret, low, high};
    ret->count = 0;
    if (text != NULL)
        return each_word(option, text, push_number, &numbers, diag);
    ret->value[ret->count++] = otherwise;
    return 0;
}

static int push_dtype(void *context, const char *option, const char *word, fa_diag *diag)
{
    fa_dtype dtype;
    if (fa_dtype_parse(word, &dtype) != 0)
        return fail_word(option, word, "use fp16, bf16 or fp16,bf16", diag);
    return push(context, option, (int)dtype, diag);
}

static int push_causal(void *context, const char *option, const char *word, fa_diag *diag)
{
    fa_causal causal;
    if (strcmp(word, "both") == 0) {
        int rc = push(context, option, FA_CAUSAL_NONE, diag);
        return rc != 0 ? rc : push(context, option, FA_CAUSAL_BOTTOM_RIGHT, diag);
    }
    if (fa_causal_parse(word, &causal) != 0)
        return fail_word(option, word, "use none, bottom-right, top-left or both", diag);
    return push(context, option, (int)causal, diag);
}

typedef struct gpu_names {
    char name[VALUES_MAX][64];
    int count;
} gpu_names;

static int push_gpu(void *context, const char *option, const char *word, fa_diag *diag)
{
    gpu_names *names = context;
    fa_gpu gpu;
    int rc = fa_gpu_find(word, &gpu, diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], gpu.name) == 0)
            return 0;
    if (names->count == VALUES_MAX)
        return fa_fail(diag, FA_EINVAL, "%s has more than %d values", option, VALUES_MAX);
    memcpy(names->name[names->count++], gpu.name, sizeof gpu.name);
    return 0;
}

/* ---- the product ----------------------------------------------------------------------------*/
typedef struct lists {
    gpu_names gpu;
    list seq, seq_k, batch, heads, heads_kv, head_dim, dtype, causal;
    const cli_options *options;
} lists;

static int read_lists(const cli_options *o, lists *ret, fa_diag *diag)
{
    int rc = 0;
    ret->options = o;
    ret->gpu.count = 0;
    ret->dtype.count = ret->causal.count = 0;
    if (o->sweep.gpu != NULL)
        rc = each_word("--gpu", o->sweep.gpu, push_gpu, &ret->gpu, diag);
    else
        ret->gpu.name[ret->gpu.count++][0] = 0;
    if (rc == 0)
        rc = read_numbers("--seq", o->sweep.seq, 1, INT32_MAX, 0, &ret->seq, diag);
    if (rc == 0)
        rc = read_numbers("--seq-k", o->sweep.seq_k, 1, INT32_MAX, 0, &ret->seq_k, diag);
    if (rc == 0)
        rc = read_numbers("--batch", o->sweep.batch, 1, INT32_MAX, 4, &ret->batch, diag);
    if (rc == 0)
        rc = read_numbers("--heads", o->sweep.heads, 1, 65535, 8, &ret->heads, diag);
    if (rc == 0)
        rc = read_numbers("--heads-kv", o->sweep.heads_kv, 1, 65535, 0, &ret->heads_kv, diag);
    if (rc == 0)
        rc = read_numbers("--head-dim", o->sweep.head_dim, 8, 256, 64, &ret->head_dim, diag);
    if (rc == 0)
        rc = each_word("--dtype", o->sweep.dtype != NULL ? o->sweep.dtype : "fp16", push_dtype,
                       &ret->dtype, diag);
    if (rc == 0)
        rc = each_word("--causal", o->sweep.causal != NULL ? o->sweep.causal : "none",
                       push_causal, &ret->causal, diag);
    return rc;
}

/* One combination; 0 in heads_kv and seq_k: as many as heads, as seq. */
static int add_one(const lists *l, const char *gpu, fa_problem problem, cli_grid *grid,
                   fa_diag *diag)
{
    const cli_options *o = l->options;
    if (o->sweep.hidden > 0) {
        if (o->sweep.hidden % problem.head_dim != 0 ||
            o->sweep.hidden / problem.head_dim > 65535)
            return fa_fail(diag, FA_EINVAL,
                           "--hidden %d is not 1 to 65535 heads of --head-dim %d: use a multiple",
                           o->sweep.hidden, problem.head_dim);
        problem.heads_q = o->sweep.hidden / problem.head_dim;
    }
    if (o->sweep.tokens > 0) {
        if (o->sweep.tokens % problem.seq_q != 0)
            return fa_fail(diag, FA_EINVAL,
                           "--tokens %d is not a multiple of --seq %d: a batch is tokens / "
                           "sequence length",
                           o->sweep.tokens, problem.seq_q);
        problem.batch = o->sweep.tokens / problem.seq_q;
    }
    if (problem.heads_kv == 0)
        problem.heads_kv = problem.heads_q;
    if (problem.seq_k == 0)
        problem.seq_k = problem.seq_q;
    if (problem.heads_q % problem.heads_kv != 0)
        return fa_fail(diag, FA_EINVAL, "--heads-kv %d does not divide %d heads: use a divisor",
                       problem.heads_kv, problem.heads_q);
    return cli_grid_add(grid, &problem, gpu, diag);
}

/* The i-th combination. The lists that decide the rendered source vary slowest, so that problems
 * that share cubins stand next to one another. */
static fa_problem combination(const lists *l, int64_t i, const char **ret_gpu)
{
    fa_problem p = {.layout = l->options->problem.layout,
                    .want_lse = l->options->problem.want_lse,
                    .unaligned = l->options->problem.unaligned};
    const struct {
        const list *list;
        int32_t *field;
    } fast[] = {{&l->seq_k, &p.seq_k},       {&l->seq, &p.seq_q},
                {&l->batch, &p.batch},       {&l->heads_kv, &p.heads_kv},
                {&l->heads, &p.heads_q}};
    for (size_t f = 0; f < sizeof fast / sizeof *fast; f++) {
        *fast[f].field = fast[f].list->value[i % fast[f].list->count];
        i /= fast[f].list->count;
    }
    p.causal = (fa_causal)l->causal.value[i % l->causal.count];
    i /= l->causal.count;
    p.dtype = (fa_dtype)l->dtype.value[i % l->dtype.count];
    i /= l->dtype.count;
    p.head_dim = l->head_dim.value[i % l->head_dim.count];
    i /= l->head_dim.count;
    *ret_gpu = l->gpu.name[i];
    return p;
}

static int multiply(const lists *l, cli_grid *grid, fa_diag *diag)
{
    const int counts[] = {l->gpu.count,    l->seq.count,      l->seq_k.count,
                          l->batch.count,  l->heads.count,    l->heads_kv.count,
                          l->head_dim.count, l->dtype.count,  l->causal.count};
    int64_t total = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        total *= counts[i];
        if (total > FA_SWEEP_ITEMS_MAX)
            return fa_fail(diag, FA_EINVAL,
                           "this grid has more than %d problems: shorten a list, or sweep it in "
                           "parts",
                           FA_SWEEP_ITEMS_MAX);
    }
    int rc = 0;
    for (int64_t i = 0; i < total && rc == 0; i++) {
        const char *gpu;
        fa_problem problem = combination(l, i, &gpu);
        rc = add_one(l, gpu, problem, grid, diag);
    }
    return rc;
}

/* ---- the grid -------------------------------------------------------------------------------*/
int cli_grid_add(cli_grid *grid, const fa_problem *problem, const char *gpu, fa_diag *diag)
{
    fa_sweep_item item = {.problem = *problem};
    int rc = fa_problem_check(problem, diag);
    if (rc != 0)
        return rc;
    snprintf(item.gpu, sizeof item.gpu, "%s", gpu);
    for (int32_t i = 0; i < grid->count; i++)
        if (strcmp(grid->item[i].gpu, item.gpu) == 0 &&
            fa_problem_equal(&grid->item[i].problem, problem))
            return 0;
    if (grid->count == FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d problems: sweep them in parts",
                       FA_SWEEP_ITEMS_MAX);
    fa_sweep_item *grown = fa_grow(grid->item, &grid->capacity, (size_t)grid->count,
                                   sizeof *grown);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a grid");
    grid->item = grown;
    grid->item[grid->count++] = item;
    return 0;
}

/* The options that were typed, each once; what stands for itself needs no quotes. */
static void word_plan(const cli_options *o, cli_grid *grid)
{
    const struct {
        const char *option, *text;
        int32_t number;
    } table[] = {{"--gpu", o->sweep.gpu, 0},           {"--plan", o->sweep.plan, 0},
                 {"--seq", o->sweep.seq, 0},           {"--seq-k", o->sweep.seq_k, 0},
                 {"--batch", o->sweep.batch, 0},       {"--tokens", NULL, o->sweep.tokens},
                 {"--heads", o->sweep.heads, 0},       {"--hidden", NULL, o->sweep.hidden},
                 {"--heads-kv", o->sweep.heads_kv, 0}, {"--head-dim", o->sweep.head_dim, 0},
                 {"--dtype", o->sweep.dtype, 0},       {"--causal", o->sweep.causal, 0}};
    static const char *const efforts[] = {"cached", "predict", NULL, "patient"};
    fa_buf text = {0};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].text != NULL)
            fa_buf_printf(&text, " %s %s", table[i].option, table[i].text);
        else if (table[i].number > 0)
            fa_buf_printf(&text, " %s %d", table[i].option, table[i].number);
    }
    if (o->problem.layout != FA_BHSD)
        fa_buf_printf(&text, " --layout %s", fa_layout_name(o->problem.layout));
    fa_buf_printf(&text, "%s%s%s%s", o->problem.want_lse ? " --lse" : "",
                  o->problem.unaligned ? " --unaligned" : "", o->again ? " --again" : "",
                  o->exact ? " --exact" : "");
    if (o->device > 0)
        fa_buf_printf(&text, " --device %d", o->device);
    if (efforts[o->effort] != NULL)
        fa_buf_printf(&text, " --effort %s", efforts[o->effort]);
    snprintf(grid->plan, sizeof grid->plan, "%s", text.data != NULL ? text.data + 1 : "");
    fa_buf_free(&text);
}

bool cli_grid_given(const cli_options *o)
{
    return o->sweep.plan != NULL || o->sweep.seq != NULL || o->sweep.seq_k != NULL ||
           o->sweep.batch != NULL || o->sweep.heads != NULL || o->sweep.heads_kv != NULL ||
           o->sweep.head_dim != NULL || o->sweep.dtype != NULL || o->sweep.causal != NULL ||
           o->sweep.tokens > 0 || o->sweep.hidden > 0;
}

/* Options that cannot stand together, or not alone. */
static int check(const cli_options *o, fa_diag *diag)
{
    cli_options rest = *o;
    rest.sweep.plan = NULL;
    if (o->sweep.plan != NULL && cli_grid_given(&rest))
        return fa_fail(diag, FA_EINVAL,
                       "--plan brings its own problems: leave the grid's options out");
    if (o->sweep.plan == NULL && o->sweep.seq == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "say what to sweep, as in `fa-tune sweep --seq 512:16384:x2 --head-dim "
                       "64,128`, or --plan FILE");
    if (o->sweep.tokens > 0 && o->sweep.batch != NULL)
        return fa_fail(diag, FA_EINVAL, "--tokens and --batch exclude one another");
    if (o->sweep.hidden > 0 && o->sweep.heads != NULL)
        return fa_fail(diag, FA_EINVAL, "--hidden and --heads exclude one another");
    if (o->effort == FA_EFFORT_CACHED)
        return fa_fail(diag, FA_EINVAL,
                       "--effort cached tunes nothing: a sweep takes predict, measure or patient");
    return 0;
}

int cli_grid_make(const cli_options *options, cli_grid *ret_grid, fa_diag *diag)
{
    cli_grid grid = {0};
    lists *l = calloc(1, sizeof *l);
    int rc = l == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for a grid")
                       : check(options, diag);
    if (rc == 0)
        rc = read_lists(options, l, diag);
    if (rc == 0 && options->sweep.plan != NULL)
        rc = cli_plan_read(options->sweep.plan, (const char(*)[64])l->gpu.name, l->gpu.count,
                           &grid, diag);
    else if (rc == 0)
        rc = multiply(l, &grid, diag);
    free(l);
    if (rc != 0) {
        cli_grid_free(&grid);
        return rc;
    }
    word_plan(options, &grid);
    *ret_grid = grid;
    return 0;
}

void cli_grid_free(cli_grid *grid)
{
    free(grid->item);
    *grid = (cli_grid){0};
}
