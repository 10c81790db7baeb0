/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "problem.h"
#include "text.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_item(cli_grid *grid, const fa_problem *problem, const char *gpu, fa_diag *diag)
{
    fa_sweep_item item = {.problem = *problem};
    FA_OR_RETURN(fa_problem_check(problem, diag));
    snprintf(item.gpu, sizeof item.gpu, "%s", gpu);
    for (int32_t i = 0; i < grid->count; i++)
        if (strcmp(grid->item[i].gpu, item.gpu) == 0 &&
            fa_problem_equal(&grid->item[i].problem, problem))
            return 0;
    if (grid->count == FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d problems: sweep them in parts",
                       FA_SWEEP_ITEMS_MAX);
    size_t count = (size_t)grid->count;
    int rc = fa_append(&grid->item, &count, &grid->capacity, &item, sizeof item);
    grid->count = (int32_t)count;
    return rc == 0 ? 0 : fa_fail(diag, rc, "out of memory for a grid");
}

void cli_grid_free(cli_grid *grid)
{
    free(grid->item);
    *grid = (cli_grid){0};
}

/* ---- lists ----------------------------------------------------------------------------------*/
enum { VALUES_MAX = 256, WORD_MAX = 64 };
enum { FOLLOWS = -1 }; /* in the list of a field that was not given and follows another */

typedef struct list {
    int32_t value[VALUES_MAX];
    int count;
} list;

typedef struct lists {
    char gpu[VALUES_MAX][64];
    int gpus;
    list field[FA_PROBLEM_VALUES];
    const cli_options *options;
    const fa_operation *operation;
} lists;

/* The next word between commas, from *at on: 1, or 0 where there are no more. */
static int next_word(const char *option, const char *text, const char **at, char ret[WORD_MAX],
                     fa_diag *diag)
{
    size_t length = strcspn(*at, ",");
    if (*at > text && (*at)[-1] != ',') /* behind the last */
        return 0;
    if (length == 0 || length >= WORD_MAX)
        return cli_refuse(option, text, "a list of values between commas", NULL, diag);
    snprintf(ret, WORD_MAX, "%.*s", (int)length, *at);
    *at += length + ((*at)[length] == ',');
    return 1;
}

static int push(list *list, const char *option, int64_t value, fa_diag *diag)
{
    if (list->count == VALUES_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: more than %d values", option, VALUES_MAX);
    list->value[list->count++] = (int32_t)value;
    return 0;
}

static int push_number(list *list, const char *option, const fa_field *f, int64_t number,
                       fa_diag *diag)
{
    char text[24];
    int32_t value;
    snprintf(text, sizeof text, "%lld", (long long)number);
    int rc = cli_integer_set(&(cli_option_spec){.name = option}, f, text, &value, diag);
    return rc == 0 ? push(list, option, value, diag) : rc;
}

/* A number, A:B:xN or A:B:+N. */
static int push_numbers(list *list, const char *option, const fa_field *f, const char *word,
                        fa_diag *diag)
{
    /* What makes a problem empty is nothing to sweep. */
    const int32_t low = (f->length || f->nonempty) && !f->optional && f->min < 1 ? 1 : f->min;
    const int64_t high = f->max > INT32_MAX ? f->max : INT32_MAX;
    char what[96], from[24], to[24], kind[2], by[24], more;
    const int parts = sscanf(word, "%23[0-9]:%23[0-9]:%1[x+]%23[0-9]%c", from, to, kind, by, &more);
    const bool times = parts == 4 && kind[0] == 'x';
    int64_t first, last, step;
    int rc = 0;
    snprintf(what, sizeof what, "a whole number (%d to %lld) or a range such as 512:16384:x2", low,
             (long long)f->max);
    if (strchr(word, ':') == NULL)
        return cli_parse_digits(word, low, high, &first)
                   ? push_number(list, option, f, first, diag)
                   : cli_refuse(option, word, what, NULL, diag);
    if (parts != 4 || !cli_parse_digits(from, low > 1 ? low : 1, high, &first) ||
        !cli_parse_digits(to, 1, high, &last) ||
        !cli_parse_digits(by, times ? 2 : 1, times ? 9000 : INT32_MAX, &step) || last < first)
        return cli_refuse(option, word,
                          "a range (FIRST:LAST:xFACTOR as 512:16384:x2, FIRST:LAST:+STEP as "
                          "512:2048:+512)",
                          NULL, diag);
    for (int64_t v = first; v <= last && rc == 0; v = times ? v * step : v + step)
        rc = push_number(list, option, f, v, diag);
    return rc;
}

static int push_values(list *list, const char *option, const fa_field *f, const char *text,
                       fa_diag *diag)
{
    char word[WORD_MAX];
    const char *at = text;
    int rc, value;
    if (f->kind == FA_FIELD_TEXT) /* one, which may have commas */
        return (rc = fa_value_of_line(text, &value, diag)) != 0 ? fa_fail_in(diag, rc, "%s", option)
                                                                : push(list, option, value, diag);
    while ((rc = next_word(option, text, &at, word, diag)) > 0) {
        if (f->kind != FA_FIELD_CHOICE) {
            rc = push_numbers(list, option, f, word, diag);
        } else if (fa_field_may_be_bare(f) && strcmp(word, "both") == 0) {
            rc = push(list, option, f->preset, diag);
            if (rc == 0)
                rc = push(list, option, 1, diag);
        } else if ((value = fa_field_choice(f, word)) >= 0) {
            rc = push(list, option, value, diag);
        } else {
            rc = cli_refuse_choice(option, word, f->choice, diag);
        }
        if (rc != 0)
            return rc;
    }
    return rc;
}

static int push_gpus(lists *l, const char *text, fa_diag *diag)
{
    char word[WORD_MAX];
    const char *at = text;
    int rc;
    while ((rc = next_word("--gpu", text, &at, word, diag)) > 0) {
        fa_gpu gpu;
        if ((rc = fa_gpu_find(word, 0, &gpu, diag)) != 0)
            return rc;
        if (l->gpus == VALUES_MAX)
            return fa_fail(diag, FA_EINVAL, "--gpu: more than %d values", VALUES_MAX);
        snprintf(l->gpu[l->gpus++], sizeof l->gpu[0], "%s", gpu.name);
    }
    return rc;
}

static int read_lists(const cli_options *o, lists *ret, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&o->request.problem);
    *ret = (lists){.options = o, .operation = operation, .gpus = o->sweep.gpu == NULL};
    int rc = o->sweep.gpu != NULL ? push_gpus(ret, o->sweep.gpu, diag) : 0;
    for (int i = 0; i < operation->field_count && rc == 0; i++) {
        const fa_field *f = &operation->field[i];
        const char *option = cli_sweep_option(operation, i);
        if (option != NULL && o->sweep.values[i] != NULL)
            rc = push_values(&ret->field[i], option, f, o->sweep.values[i], diag);
        else
            ret->field[i] = (list){.value = {f->follows >= 0 && !(o->given >> i & 1) ? FOLLOWS
                                             : option == NULL ? o->request.problem.value[i]
                                                              : f->preset},
                                   .count = 1};
    }
    return rc;
}

/* ---- the product ----------------------------------------------------------------------------*/
/* With training, and that of its gradients. */
static int add_problem(const lists *l, fa_problem problem, const char *gpu, cli_grid *grid,
                       fa_diag *diag)
{
    fa_problem gradients;
    const bool training = l->options->sweep.training;
    int rc = training ? fa_problem_train(&problem, &gradients, diag) : 0;
    if (rc == 0)
        rc = add_item(grid, &problem, gpu, diag);
    return rc == 0 && training ? add_item(grid, &gradients, gpu, diag) : rc;
}

/* One combination: what is derived from other fields, then the item. */
static int add_one(const lists *l, const char *gpu, fa_problem problem, cli_grid *grid,
                   fa_diag *diag)
{
    const fa_operation *operation = l->operation;
    for (int i = 0; i < operation->product_count; i++) {
        const fa_product *product = &operation->product[i];
        int32_t total = l->options->sweep.product[i], by = problem.value[product->by];
        const char *field = cli_sweep_option(operation, product->field);
        const char *other = cli_sweep_option(operation, product->by);
        if (total > 0 && (by < 1 || total % by != 0))
            return fa_fail(diag, FA_EINVAL, "%s %d is not a multiple of %s %d: %s is %s / %s",
                           product->option, total, other, by, field, product->option, other);
        if (total > 0)
            problem.value[product->field] = total / by;
    }
    for (int i = 0; i < operation->field_count; i++)
        if (problem.value[i] == FOLLOWS && operation->field[i].follows >= 0)
            problem.value[i] = problem.value[operation->field[i].follows];
    return add_problem(l, problem, gpu, grid, diag);
}

static int multiply(const lists *l, cli_grid *grid, fa_diag *diag)
{
    int order[FA_PROBLEM_VALUES], rc = 0;
    int64_t total = l->gpus;
    for (int i = 0; i < l->operation->field_count && total <= FA_SWEEP_ITEMS_MAX; i++)
        total *= l->field[i].count;
    if (total > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL,
                       "this grid has more than %d problems: shorten a list, or sweep it in parts",
                       FA_SWEEP_ITEMS_MAX);
    /* Those of a source vary slowest, so that problems that render the same one stand next to one another. */
    for (int pass = 0, count = 0; pass < 5; pass++)
        for (int i = 0; i < l->operation->field_count; i++) {
            const fa_field *f = &l->operation->field[i];
            const int late = f->length ? 4 : f->nonempty ? 3 : 2;
            if ((f->shapes_source ? f->kind != FA_FIELD_INTEGER : late) == pass)
                order[count++] = i;
        }
    for (int64_t i = 0; i < total && rc == 0; i++) { /* GPUs vary slowest of all */
        fa_problem problem = {.operation = l->operation};
        int64_t left = i;
        for (int at = l->operation->field_count - 1; at >= 0; at--) {
            const list *list = &l->field[order[at]];
            problem.value[order[at]] = list->value[left % list->count];
            left /= list->count;
        }
        rc = add_one(l, l->gpu[left], problem, grid, diag);
    }
    return rc;
}

/* ---- a plan: JSON lines. Its bytes are anybody's: all is checked, and the sentence names the line ----*/
enum { PLAN_MAX = 16 << 20, PLAN_LINE_MAX = 16384 };

/* A problem, for its own GPU or for each of the options'. */
static int take_line(const cJSON *json, const lists *l, cli_grid *grid, fa_diag *diag)
{
    fa_problem problem = {.operation = l->operation};
    const char *name = NULL;
    fa_gpu gpu;
    const cJSON *inner = fa_json_member(json, "problem");
    if (!cJSON_IsObject(json) || (inner != NULL && !cJSON_IsObject(inner)))
        return fa_fail(diag, FA_EINVAL, "%s is no JSON object",
                       inner != NULL ? "\"problem\"" : "it");
    FA_OR_RETURN(fa_problem_from_json(inner != NULL ? inner : json, false,
                                      inner == NULL ? "gpu" : NULL, &problem, diag));
    int rc = fa_json_text(json, "gpu", &name, "JSON", diag);
    if (rc == 0 && (rc = fa_gpu_find(name, 0, &gpu, diag)) == 0)
        return add_problem(l, problem, gpu.name, grid, diag);
    if (rc != FA_ENOTFOUND || name != NULL)
        return rc;
    rc = 0;
    for (int i = 0; i < l->gpus && rc == 0; i++)
        rc = add_problem(l, problem, l->gpu[i], grid, diag);
    return rc;
}

static int read_plan(const char *path, const lists *l, cli_grid *grid, fa_diag *diag)
{
    FA_ENDS(fa_buf_free) fa_buf file = {0};
    cJSON *json = NULL;
    int rc = fa_input_read(&file, path, PLAN_MAX, diag);
    fa_json_lines lines = {.at = file.data, .end = file.data + file.size};
    while (rc == 0 && (rc = fa_json_next_line(&lines, PLAN_LINE_MAX, &json, diag)) == 0 &&
           json != NULL) {
        rc = take_line(json, l, grid, diag);
        cJSON_Delete(json);
    }
    if (rc != 0 && lines.line > 0)
        fa_fail_in(diag, rc, "line %d", lines.line);
    if (rc == 0 && grid->count == 0)
        rc = fa_fail(diag, FA_EINVAL, "it holds no problem");
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "plan %.200s", path);
}

/* ---- the grid -------------------------------------------------------------------------------*/
/* A grid without a list that it needs, and lists that another option makes. */
static int check_lists(const cli_options *o, const fa_operation *operation, fa_diag *diag)
{
    for (int i = 0; i < operation->field_count; i++) {
        if (!operation->field[i].required || o->sweep.values[i] != NULL)
            continue;
        return fa_fail(diag, FA_EINVAL, "%s LIST or --plan FILE is missing%s%s",
                       cli_sweep_option(operation, i),
                       operation->sweep_example[0] != 0 ? ", as in fa-tune sweep " : "",
                       operation->sweep_example);
    }
    for (int i = 0; i < operation->product_count; i++) {
        const fa_product *product = &operation->product[i];
        if (o->sweep.product[i] > 0 && o->sweep.values[product->field] != NULL)
            return fa_fail(diag, FA_EINVAL, "%s: does not go with %s", product->option,
                           cli_sweep_option(operation, product->field));
    }
    return 0;
}

/* Options that cannot stand together, or not alone. */
static int check_grid(const cli_options *o, fa_diag *diag)
{
    bool lists = false; /* or a total that makes one */
    for (int i = 0; i < FA_PROBLEM_VALUES; i++)
        lists = lists || o->sweep.values[i] != NULL;
    for (int i = 0; i < FA_PRODUCTS_MAX; i++)
        lists = lists || o->sweep.product[i] > 0;
    if (o->sweep.plan != NULL && lists)
        return fa_fail(diag, FA_EINVAL, "--plan: does not go with options of a grid");
    int rc = o->sweep.plan == NULL ? check_lists(o, fa_operation_of(&o->request.problem), diag) : 0;
    if (rc == 0 && o->request.effort == FA_EFFORT_CACHED)
        rc = cli_refuse("--effort", "cached", "predict, measure or patient", NULL, diag);
    return rc;
}

int cli_grid_make(const cli_options *options, cli_grid *ret_grid, fa_diag *diag)
{
    FA_ENDS(fa_free_at) lists *l = calloc(1, sizeof *l);
    *ret_grid = (cli_grid){0};
    FA_OR_RETURN(fa_have(l != NULL, "a grid", diag));
    FA_OR_RETURN(check_grid(options, diag));
    FA_OR_RETURN(read_lists(options, l, diag));
    int rc = options->sweep.plan != NULL ? read_plan(options->sweep.plan, l, ret_grid, diag)
                                         : multiply(l, ret_grid, diag);
    if (rc != 0)
        cli_grid_free(ret_grid);
    return rc;
}
