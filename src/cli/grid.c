/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "options_table.h"
#include "problem.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_item(cli_grid *grid, const fa_problem *problem, const char *gpu, fa_diag *diag)
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
    fa_sweep_item *grown = fa_grow(grid->item, &grid->capacity, (size_t)grid->count, sizeof *grown);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a grid");
    grid->item = grown;
    grid->item[grid->count++] = item;
    return 0;
}

void cli_grid_free(cli_grid *grid)
{
    free(grid->item);
    *grid = (cli_grid){0};
}

/* ---- a plan: JSON lines. Its bytes are anybody's: all is checked, and the sentence names the line ----*/
enum { PLAN_MAX = 16 << 20, PLAN_LINE_MAX = 16384 };

/* A problem, for its own GPU or for each of the defaults'. */
static int take_json(const cJSON *json, const cli_plan_defaults *defaults, cli_grid *grid,
                     fa_diag *diag)
{
    fa_problem problem;
    const char *name = NULL;
    fa_gpu gpu;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "it is no JSON object");
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(json, "problem");
    if (inner != NULL && !cJSON_IsObject(inner))
        return fa_fail(diag, FA_EINVAL, "\"problem\" is no JSON object");
    problem.operation = defaults->operation;
    int rc = fa_problem_from_strict_json(inner != NULL ? inner : json, FA_NEED_REQUIRED,
                                         inner == NULL ? "gpu" : NULL, &problem, diag);
    if (rc != 0)
        return rc;
    rc = fa_json_text(json, "gpu", &name, "JSON", diag);
    if (rc == 0) {
        rc = fa_gpu_find(name, &gpu, diag);
        return rc == 0 ? add_item(grid, &problem, gpu.name, diag) : rc;
    }
    if (rc != FA_ENOTFOUND)
        return rc;
    rc = 0;
    for (int i = 0; i < defaults->gpu_count && rc == 0; i++)
        rc = add_item(grid, &problem, defaults->gpus[i], diag);
    return rc;
}

static int take_line(const char *text, size_t size, const cli_plan_defaults *defaults,
                     cli_grid *grid, fa_diag *diag)
{
    cJSON *json = NULL;
    if (size > PLAN_LINE_MAX)
        return fa_fail(diag, FA_EINVAL, "longer than %d bytes", PLAN_LINE_MAX);
    int rc = fa_json_parse(text, size, "problem", &json, diag);
    if (rc == 0)
        rc = take_json(json, defaults, grid, diag);
    cJSON_Delete(json);
    return rc;
}

static int take_lines(const fa_buf *file, const cli_plan_defaults *defaults, cli_grid *grid,
                      fa_diag *diag)
{
    const char *at = file->data, *end = file->data + file->size;
    for (size_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop != NULL ? stop : end) - at), blank = 0;
        while (blank < size && strchr(" \t\r", at[blank]) != NULL && at[blank] != 0)
            blank++;
        int rc = blank < size ? take_line(at, size, defaults, grid, diag) : 0;
        if (rc != 0)
            return fa_fail_in(diag, rc, "line %zu", line);
        at += size + (stop != NULL);
    }
    return grid->count > 0 ? 0 : fa_fail(diag, FA_EINVAL, "it holds no problem");
}

int cli_plan_read(const char *path, const cli_plan_defaults *defaults, cli_grid *grid,
                  fa_diag *diag)
{
    fa_buf file = {0};
    int rc = fa_input_read(&file, path, PLAN_MAX, diag);
    if (rc == 0)
        rc = take_lines(&file, defaults, grid, diag);
    fa_buf_free(&file);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "plan %.200s", path);
}

/* ---- a grid: lists --------------------------------------------------------------------------*/
enum { VALUES_MAX = 256, WORD_MAX = 64 };

typedef struct list {
    int32_t value[VALUES_MAX];
    int count;
} list;

/* ---- lists ----------------------------------------------------------------------------------*/
static int push(list *list, const char *option, int64_t value, fa_diag *diag)
{
    for (int i = 0; i < list->count; i++)
        if (list->value[i] == value)
            return 0;
    if (list->count == VALUES_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: more than %d values", option, VALUES_MAX);
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

/* A:B:xN or A:B:+N. */
static int push_range(list *list, const char *option, int32_t low, const char *word, fa_diag *diag)
{
    char text[WORD_MAX];
    snprintf(text, sizeof text, "%s", word);
    char *second = strchr(text, ':'), *third = strchr(second + 1, ':');
    int32_t first, last, step;
    int rc = 0;
    if (third != NULL) {
        *second++ = 0;
        *third++ = 0;
    }
    bool times = third != NULL && third[0] == 'x';
    if (third == NULL || !number(text, low > 1 ? low : 1, &first) || !number(second, 1, &last) ||
        (!times && third[0] != '+') || !number(third + 1, times ? 2 : 1, &step) || last < first)
        return cli_refuse(option, word,
                          "a range (FIRST:LAST:xFACTOR as 512:16384:x2, FIRST:LAST:+STEP as "
                          "512:2048:+512)",
                          NULL, diag);
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
        if (length == 0 || length >= sizeof word)
            return cli_refuse(option, text, "a list of values between commas", NULL, diag);
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
    const fa_field *field;
    int32_t low;
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
        char what[96];
        snprintf(what, sizeof what, "a whole number (%d to %d) or a range such as 512:16384:x2",
                 numbers->low, numbers->field->max);
        return cli_refuse(option, word, what, NULL, diag);
    }
    for (int i = 0; i < numbers->list->count && rc == 0; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", numbers->list->value[i]);
        rc =
            cli_integer_set(&(cli_option_spec){.name = option}, numbers->field, text, &value, diag);
    }
    return rc;
}

struct names {
    list *list;
    const fa_field *field;
};

static int push_name(void *context, const char *option, const char *word, fa_diag *diag)
{
    struct names *names = context;
    const fa_field *f = names->field;
    if (f->both[0] != 0 && strcmp(word, "both") == 0)
        return each_word(option, f->both, push_name, context, diag);
    int value = fa_field_choice(f, word);
    if (value >= 0)
        return push(names->list, option, value, diag);
    char what[256] = "";
    for (int i = 0; f->choice[i] != NULL; i++)
        snprintf(what + strlen(what), sizeof what - strlen(what), "%s%s", i > 0 ? ", " : "",
                 f->choice[i]);
    snprintf(what + strlen(what), sizeof what - strlen(what), " or %s",
             f->both[0] != 0 ? "both" : "several of them");
    return cli_refuse(option, word, what, f->choice, diag);
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
        return fa_fail(diag, FA_EINVAL, "%s: more than %d values", option, VALUES_MAX);
    memcpy(names->name[names->count++], gpu.name, sizeof gpu.name);
    return 0;
}

/* ---- the product ----------------------------------------------------------------------------*/
enum { FOLLOWS = -1 }; /* in the list of a field that was not given and follows another */

typedef struct lists {
    gpu_names gpu;
    list field[FA_PROBLEM_VALUES];
    const cli_options *options;
    const fa_operation *operation;
} lists;

static int read_list(const cli_options *o, const fa_operation *operation, int field, list *ret,
                     fa_diag *diag)
{
    const fa_field *f = &operation->field[field];
    const char *option = cli_sweep_option(operation, field), *text = o->sweep.values[field];
    ret->count = 0;
    if (option == NULL || text == NULL) {
        bool given = o->given >> field & 1;
        ret->value[ret->count++] = f->follows >= 0 && !given ? FOLLOWS
                                   : option == NULL          ? o->problem.value[field]
                                                             : f->preset;
        return 0;
    }
    if (f->kind == FA_FIELD_CHOICE)
        return each_word(option, text, push_name, &(struct names){ret, f}, diag);
    /* What makes a problem empty is nothing to sweep. */
    int32_t low = (f->length || f->nonempty) && f->min < 1 ? 1 : f->min;
    return each_word(option, text, push_number, &(struct numbers){ret, f, low}, diag);
}

static int read_lists(const cli_options *o, lists *ret, fa_diag *diag)
{
    int rc = 0;
    ret->options = o;
    ret->operation = fa_operation_of(&o->problem);
    ret->gpu.count = 0;
    if (o->sweep.gpu != NULL)
        rc = each_word("--gpu", o->sweep.gpu, push_gpu, &ret->gpu, diag);
    else
        ret->gpu.name[ret->gpu.count++][0] = 0;
    for (int i = 0; i < ret->operation->field_count && rc == 0; i++)
        rc = read_list(o, ret->operation, i, &ret->field[i], diag);
    return rc;
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
    int rc = cli_problem_check(&problem, diag);
    if (rc != 0 || !l->options->sweep.training)
        return rc == 0 ? add_item(grid, &problem, gpu, diag) : rc;
    fa_problem gradients;
    rc = fa_problem_train(&problem, &gradients, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "--training");
    rc = add_item(grid, &problem, gpu, diag);
    return rc == 0 ? add_item(grid, &gradients, gpu, diag) : rc;
}

/* The i-th combination, in the order in which sweeps vary fields; GPUs vary slowest of all. */
static fa_problem combination(const lists *l, const int *order, int64_t i, const char **ret_gpu)
{
    fa_problem problem = {.operation = l->operation};
    for (int at = l->operation->field_count - 1; at >= 0; at--) {
        const list *list = &l->field[order[at]];
        problem.value[order[at]] = list->value[i % list->count];
        i /= list->count;
    }
    *ret_gpu = l->gpu.name[i];
    return problem;
}

static int multiply(const lists *l, cli_grid *grid, fa_diag *diag)
{
    int order[FA_PROBLEM_VALUES], rc = 0;
    int64_t total = l->gpu.count;
    for (int i = 0; i < l->operation->field_count && total <= FA_SWEEP_ITEMS_MAX; i++)
        total *= l->field[i].count;
    if (total > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL,
                       "this grid has more than %d problems: shorten a list, or sweep it in parts",
                       FA_SWEEP_ITEMS_MAX);
    fa_operation_order(l->operation, FA_ORDER_SWEEP, order);
    for (int64_t i = 0; i < total && rc == 0; i++) {
        const char *gpu;
        fa_problem problem = combination(l, order, i, &gpu);
        rc = add_one(l, gpu, problem, grid, diag);
    }
    return rc;
}

/* ---- the grid -------------------------------------------------------------------------------*/
/* The options of fields that were typed, in the order of the help. */
static void word_fields(const cli_options *o, const fa_operation *operation, fa_buf *text)
{
    int order[FA_PROBLEM_VALUES];
    fa_operation_order(operation, FA_ORDER_OPTIONS, order);
    for (int i = 0; i < operation->field_count; i++) {
        const char *list = o->sweep.values[order[i]];
        if (list != NULL && !cli_shorthand_lists(o, order[i]))
            fa_buf_printf(text, " %s %s", cli_sweep_option(operation, order[i]), list);
        for (int p = 0; p < operation->product_count; p++)
            if (operation->product[p].field == order[i] && o->sweep.product[p] > 0)
                fa_buf_printf(text, " %s %d", operation->product[p].option, o->sweep.product[p]);
    }
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[order[i]];
        int32_t value = o->problem.value[order[i]];
        char room[16];
        if (cli_sweep_option(operation, order[i]) != NULL || value == f->preset ||
            f->option[0] == 0)
            continue;
        fa_buf_printf(text, " %s", f->option);
        if (f->kind != FA_FIELD_BOOLEAN)
            fa_buf_printf(text, " %s", fa_field_text(f, value, room));
    }
    cli_shorthand_words(o, text);
}

/* The options that were typed, each once; what stands for itself needs no quotes. */
static void word_plan(const cli_options *o, cli_grid *grid)
{
    static const char *const efforts[] = {"cached", "predict", NULL, "patient"};
    const struct {
        const char *option, *text;
    } table[] = {{"--operation", o->operation},
                 {"--gpu", o->sweep.gpu},
                 {"--plan", o->sweep.plan},
                 {"--model", o->sweep.model}};
    fa_buf text = {0};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].text != NULL)
            fa_buf_printf(&text, " %s %s", table[i].option, table[i].text);
    word_fields(o, fa_operation_of(&o->problem), &text);
    fa_buf_printf(&text, "%s%s%s", o->sweep.training ? " --training" : "",
                  o->again ? " --again" : "", o->exact ? " --exact" : "");
    if (o->device > 0)
        fa_buf_printf(&text, " --device %d", o->device);
    if (efforts[o->effort] != NULL)
        fa_buf_printf(&text, " --effort %s", efforts[o->effort]);
    if (o->search.strategy != NULL)
        fa_buf_printf(&text, " --strategy %s", o->search.strategy);
    if (o->search.evaluations > 0)
        fa_buf_printf(&text, " --evaluations %d", o->search.evaluations);
    if (o->search.seconds > 0)
        fa_buf_printf(&text, " --time-each %gs", o->search.seconds);
    snprintf(grid->plan, sizeof grid->plan, "%s", text.data != NULL ? text.data + 1 : "");
    fa_buf_free(&text);
}

/* Whether there is any list, or a total that makes one. */
static bool lists_given(const cli_options *o)
{
    bool given = false;
    for (int i = 0; i < FA_PROBLEM_VALUES; i++)
        given = given || o->sweep.values[i] != NULL;
    for (int i = 0; i < FA_PRODUCTS_MAX; i++)
        given = given || o->sweep.product[i] > 0;
    return given;
}

bool cli_grid_given(const cli_options *o)
{
    return o->sweep.plan != NULL || o->sweep.model != NULL || lists_given(o);
}

/* A grid without a list that it needs, and lists that another option makes. */
static int check_lists(const cli_options *o, const fa_operation *operation, fa_diag *diag)
{
    for (int i = 0; i < operation->field_count; i++) {
        if (!operation->field[i].required || o->sweep.values[i] != NULL)
            continue;
        if (operation->sweep_example[0] == 0)
            return fa_fail(diag, FA_EINVAL, "say what to sweep: add %s LIST, or --plan FILE",
                           cli_sweep_option(operation, i));
        return fa_fail(diag, FA_EINVAL,
                       "say what to sweep, as in `fa-tune sweep %s`, or --plan FILE",
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
    if (o->sweep.plan != NULL && lists_given(o))
        return fa_fail(diag, FA_EINVAL, "--plan: does not go with options of a grid");
    int rc = o->sweep.plan == NULL && o->sweep.model == NULL
                 ? check_lists(o, fa_operation_of(&o->problem), diag)
                 : 0;
    if (rc == 0 && o->effort == FA_EFFORT_CACHED)
        rc = cli_refuse("--effort", "cached", "predict, measure or patient", NULL, diag);
    return rc;
}

/* The grids of every kind of layer of a model, and of every work that is asked of it. */
static int add_model(const cli_options *options, lists *l, cli_grid *grid, fa_diag *diag)
{
    cli_options of_layer;
    cli_model model;
    int i = 0, rc = cli_model_find(options, &model, diag);
    while (rc == 0 && (rc = cli_model_variant(options, &model, i++, &of_layer, diag)) == 0 &&
           (rc = check_lists(&of_layer, fa_operation_of(&options->problem), diag)) == 0 &&
           (rc = read_lists(&of_layer, l, diag)) == 0 && (rc = multiply(l, grid, diag)) == 0)
        ;
    cJSON_Delete(model.owned);
    return rc == FA_ENOTFOUND && grid->count > 0 ? 0 : rc;
}

int cli_grid_make(const cli_options *options, cli_grid *ret_grid, fa_diag *diag)
{
    cli_grid grid = {0};
    lists *l = calloc(1, sizeof *l);
    int rc = l == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for a grid")
                       : check_grid(options, diag);
    if (rc == 0)
        rc = read_lists(options, l, diag);
    if (rc == 0 && options->sweep.model != NULL)
        rc = add_model(options, l, &grid, diag);
    else if (rc == 0 && options->sweep.plan != NULL)
        rc = cli_plan_read(
            options->sweep.plan,
            &(cli_plan_defaults){l->operation, (const char(*)[64])l->gpu.name, l->gpu.count}, &grid,
            diag);
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
