/* SPDX-License-Identifier: Apache-2.0
 *
 * A candidate of a space, from its source to its rank, by its operation: rendering, which is a #define prologue in front of a
 * template and a signature behind it; the key of the cubin that comes of it; what that cubin says of its kernels; and ranking
 * by the operation's cost model. And the list of the operations with C code of their own.
 *
 * Workload: a thousand renderings of twenty kilobytes and some thousand predictions per tuning.
 * Invariant: equal candidates give equal bytes. Every name in the prologue is an upper-case
 * identifier that the manifest's reader let through; every value is a number, or a text without quotes and line ends.
 */
#include "op.h"

#include "attn_launch.h"
#include "attn_proof.h"
#include "family.h"
#include "model.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"
#include "snippet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations -----------------------------------------------------------------------------*/
static const fa_op ops[] = {
    {.name = "attn_fwd",
     .cases = fa_attn_case_problems,
     .reference_entry = "attn_ref_fp32",
     .proof = &fa_attn_proof,
     .predict = fa_attn_predict},
    {.name = NULL,
     .cases = fa_generic_cases,
     .proof = &fa_generic_proof,
     .predict = fa_roofline_predict,
     .blur = 0.05},
};

const fa_op *fa_op_of(const fa_problem *problem)
{
    const char *name = fa_operation_of(problem)->name;
    const fa_op *op = ops;
    while (op->name != NULL && strcmp(op->name, name) != 0)
        op++;
    return op;
}

int fa_bench_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES])
{
    return fa_op_of(problem)->cases(problem, seed, ret_case);
}

/* ---- the source ------------------------------------------------------------------------------*/
static void define(fa_buf *out, const char *name, int32_t value)
{
    /* Parentheses, so that a negative value stays one operand. */
    fa_buf_printf(out, value < 0 ? "#define %s (%d)\n" : "#define %s %d\n", name, value);
}

/* Fields that shape the source: integers, then choices, then booleans, each in the table's order; of
 * features those in `takes`, so that families that know nothing of a field have the source that they had. */
static int shaping_fields(const fa_operation *operation, uint32_t takes,
                          int ret_field[FA_PROBLEM_VALUES])
{
    int count = 0;
    for (int kind = FA_FIELD_INTEGER; kind <= FA_FIELD_TEXT; kind++)
        for (int i = 0; i < operation->field_count; i++)
            if ((int)operation->field[i].kind == kind && operation->field[i].shapes_source &&
                (!operation->field[i].feature || (takes >> i & 1) != 0))
                ret_field[count++] = i;
    return count;
}

static void define_problem(fa_buf *out, const fa_problem *problem, uint32_t takes,
                           const fa_gpu *gpu)
{
    int at[FA_PROBLEM_VALUES];
    const fa_operation *operation = fa_operation_of(problem);
    /* A specification's sizes are in macros that are made of them. */
    const bool named = operation->specification[0] == 0;
    int count = shaping_fields(operation, takes, at);
    define(out, "FA_SM", gpu->sm);
    for (int i = 0; i < count; i++)
        if (named)
            define(out, operation->field[at[i]].macro,
                   (int32_t)fa_field_shown(&operation->field[at[i]], problem->value[at[i]]));
    fa_snippets_print(problem, out, NULL, NULL);
}

/* A variable that nothing reads: it ends up in the cubin and says what it was made from. */
static void put_signature(fa_buf *out, const fa_family *family, const fa_config *config,
                          const fa_problem *problem, uint32_t takes, const fa_gpu *gpu)
{
    int at[FA_PROBLEM_VALUES];
    char room[FA_VALUE_TEXT_MAX];
    const fa_operation *operation = fa_operation_of(problem);
    int count = shaping_fields(operation, takes, at);
    fa_buf_printf(out,
                  "\nextern \"C\" __device__ const char fa_tune_config[] = "
                  "\"fa_tune_config=family=%s;",
                  config->family);
    for (int i = 0; i < config->count; i++)
        if (family == NULL || !fa_family_runs_late(family, i))
            fa_buf_printf(out, "%s=%s;", config->tunable[i].name,
                          fa_value_words(config->tunable[i].value, room));
    fa_buf_printf(out, "FA_SM=%d;", gpu->sm);
    for (int i = 0; i < count; i++)
        if (operation->field[at[i]].kind == FA_FIELD_TEXT && problem->value[at[i]] != 0)
            fa_buf_printf(out, "%s=%s;", operation->field[at[i]].macro,
                          fa_field_text(&operation->field[at[i]], problem->value[at[i]], NULL));
        else
            fa_buf_printf(
                out, "%s=%lld;", operation->field[at[i]].macro,
                (long long)fa_field_shown(&operation->field[at[i]], problem->value[at[i]]));
    fa_buf_text(out, "\";\n");
}

static int finish_source(fa_buf *source, fa_buf *ret_source, fa_diag *diag)
{
    FA_OR_RETURN(fa_have(!source->failed, "rendering", diag));
    *ret_source = *source;
    *source = (fa_buf){0};
    return 0;
}

/* What the template sees of a config: names with their values, in the order of their lines. */
struct define {
    const char *name;
    int32_t value;
    const fa_domain *domain; /* NULL: it is no tunable */
};

enum { DEFINES_MAX = FA_MAX_TUNABLES + FA_MAX_LETS + 2 };

static int list_defines(const fa_family *family, const fa_candidate *candidate,
                        struct define ret[DEFINES_MAX])
{
    const fa_config *config = &candidate->trial.config; /* in the family's order */
    int count = 0;
    for (int i = 0; i < config->count; i++)
        if (!fa_family_runs_late(family, i))
            ret[count++] = (struct define){config->tunable[i].name, config->tunable[i].value,
                                           &family->tunable[i]};
    for (int i = 0; i < candidate->let_count; i++)
        if ((family->let[i].reads & (family->given.sized | family->run_time)) == 0)
            ret[count++] = (struct define){candidate->let[i].name, candidate->let[i].value, NULL};
    ret[count++] = (struct define){"FA_THREADS", candidate->trial.threads, NULL};
    if (!family->run_time_memory)
        ret[count++] = (struct define){"FA_SMEM_BYTES", candidate->trial.smem_bytes, NULL};
    return count;
}

/* Of a tunable: a text as it is, a number with a point where others of its domain have one. */
static void put_defines(fa_buf *out, const struct define *first, int count)
{
    char room[FA_VALUE_TEXT_MAX];
    for (const struct define *is = first; is < first + count; is++) {
        const char *words = fa_value_words(is->value, room);
        bool point = is->domain != NULL && is->domain->fractions && strpbrk(words, ".e") == NULL;
        if (is->domain == NULL)
            define(out, is->name, is->value);
        else
            fa_buf_printf(out,
                          words[0] == '-' && !fa_value_is_text(is->value) ? "#define %s (%s%s)\n"
                                                                          : "#define %s %s%s\n",
                          is->name, words, point ? ".0" : "");
    }
}

bool fa_render_is_same(const fa_family_list *families, const fa_candidate *a, const fa_candidate *b)
{
    struct define of_a[DEFINES_MAX], of_b[DEFINES_MAX];
    const fa_family *family = families->family[a->family];
    if (a->family != b->family || family->run_time == 0)
        return false; /* no two configs of a space are equal */
    int count = list_defines(family, a, of_a);
    bool same = list_defines(family, b, of_b) == count;
    for (int i = 0; i < count && same; i++)
        same = of_a[i].value == of_b[i].value;
    return same;
}

static void put_file(fa_buf *out, const fa_template_file *file)
{
    fa_buf_printf(out, "#line 1 \"%s\"\n", file->name);
    fa_buf_append(out, file->text, file->size);
}

int fa_render(const fa_templates *templates, const fa_task *task, const fa_candidate *candidate,
              fa_buf *ret_source, fa_diag *diag)
{
    const fa_family *family = task->families->family[candidate->family];
    struct define defines[DEFINES_MAX];
    char name[FA_NAME_MAX + 8];
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    snprintf(name, sizeof name, "%s.cu", family->name);
    define_problem(&out, task->problem, family->takes, task->gpu);
    put_defines(&out, defines, list_defines(family, candidate, defines));
    put_file(&out, fa_templates_find(templates, name)); /* manifest.c found it */
    put_signature(&out, family, &candidate->trial.config, task->problem, family->takes, task->gpu);
    return finish_source(&out, ret_source, diag);
}

/* The checks stand before a specification's answer, whose macros are a user's, and behind a reference of ours. The answer may
 * stand among kernels which need macros: it has those of the default config. */
int fa_render_reference(const fa_templates *templates, const fa_task *task, fa_buf *ret_source,
                        fa_diag *diag)
{
    const fa_problem *problem = task->problem;
    const fa_operation *operation = fa_operation_of(problem);
    const bool specified = operation->specification[0] != 0;
    const fa_template_file *checks = fa_templates_find(templates, "fa_check.cuh"); /* built in */
    bool features = false; /* one is away from its default */
    for (int i = 0; i < operation->field_count; i++)
        features = features || (operation->field[i].feature &&
                                !fa_field_is_absent(&operation->field[i], problem->value[i]));
    const uint32_t takes = features ? UINT32_MAX : 0;
    const char *name = NULL;
    fa_config none = {.count = 0};
    fa_candidate preset;
    struct define defines[DEFINES_MAX];
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    int rc = fa_json_text(operation->document, features ? "reference_of_features" : "reference",
                          &name, operation->name, diag);
    if (rc == FA_ENOTFOUND)
        rc = specified ? 0
                       : fa_json_text_needed(operation->document, "reference", &name,
                                             operation->name, diag);
    const fa_template_file *file = name != NULL ? fa_templates_find(templates, name) : NULL;
    if (specified)
        put_file(&out, checks);
    if (rc == 0 && name != NULL && file == NULL)
        rc = fa_fail(diag, FA_EMANIFEST,
                     "%s/operation.json: its reference %s is not there: put it into the folder",
                     operation->name, name);
    if (rc == 0 && file != NULL) {
        define_problem(&out, problem, takes, task->gpu);
        if (specified && (rc = fa_space_default(task, 0, &preset, diag)) == 0)
            put_defines(&out, defines, list_defines(task->families->family[0], &preset, defines));
        put_file(&out, file);
        snprintf(none.family, sizeof none.family, "%.*s", (int)strcspn(name, "."), name);
    }
    if (!specified)
        put_file(&out, checks);
    FA_OR_RETURN(rc);
    put_signature(&out, NULL, &none, problem, takes, task->gpu);
    return finish_source(&out, ret_source, diag);
}

void fa_render_architecture(const fa_family *family, const fa_gpu *gpu, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "sm_%d%s", gpu->sm, family != NULL ? family->arch_suffix : "");
}

/* ---- the key -------------------------------------------------------------------------------*/
/* The file that the text behind the word "include" names; NULL: none of ours. */
static const fa_template_file *named_file(const fa_templates *templates, const char *text)
{
    char name[64];
    text += strspn(text, " \t");
    const char *end = *text == '"'   ? strpbrk(text + 1, "\"\n")
                      : *text == '<' ? strpbrk(text + 1, ">\n")
                                     : NULL;
    if (end == NULL || *end == '\n' || end - text > (ptrdiff_t)sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)(end - text - 1), text + 1);
    return fa_templates_find(templates, name);
}

static void mark_includes(const fa_templates *templates, const char *text, bool *marked);

static void mark(const fa_templates *templates, const fa_template_file *file, bool *marked)
{
    bool *its = &marked[file - templates->file];
    if (*its)
        return;
    *its = true;
    mark_includes(templates, file->text, marked);
}

/* Marks the files that a text may include, and those that they may. Anything beyond a plain #include "NAME" of a file that
 * we have (a macro, a spliced line, a digraph, __has_include) marks every header: a key of too
 * much costs a compile, a key of too little loads the wrong cubin. */
static void mark_includes(const fa_templates *templates, const char *text, bool *marked)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
    bool unsure = strstr(text, "%:") != NULL || strstr(text, "%\\") != NULL ||
                  strstr(text, "\?\?=") != NULL || strstr(text, "_include") != NULL;
    for (const char *at = text; !unsure && (at = strchr(at, '#')) != NULL; at++) {
        const char *word = at + 1 + strspn(at + 1, " \t\f\v\r"); /* what NVRTC passes over */
        const size_t size = strspn(word, letters);
        if (strncmp(word, "include", 7) == 0) {
            const fa_template_file *file = /* include_next is none */
                size == 7 ? named_file(templates, word + 7) : NULL;
            unsure = file == NULL;
            if (!unsure)
                mark(templates, file, marked);
        } else {
            unsure = word[size] == '\\' || (size == 0 && word[0] == '/');
        }
    }
    for (int i = 0; unsure && i < templates->count; i++) {
        const fa_template_file *file = &templates->file[i];
        const char *dot = strrchr(file->name, '.');
        if (dot != NULL && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0))
            mark(templates, file, marked);
    }
}

void fa_render_key(const fa_templates *templates, const char *source, const char *options,
                   const char *architecture, const char *nvrtc_identity, char ret_key[FA_HASH_HEX])
{
    bool marked[FA_FAMILIES_MAX] = {false}; /* of the templates' files */
    fa_hash hash;
    fa_hash_init(&hash);
    fa_hash_text(&hash, "fa-tune cubin 1");
    fa_hash_text(&hash, source);
    fa_hash_text(&hash, options);
    fa_hash_text(&hash, architecture);
    fa_hash_text(&hash, nvrtc_identity);
    mark_includes(templates, source, marked);
    for (int i = 0; i < templates->count; i++) {
        const fa_template_file *file = &templates->file[i];
        if (!marked[i])
            continue;
        fa_hash_text(&hash, file->name);
        fa_hash_part(&hash, file->text, file->size);
    }
    fa_hash_final(&hash, ret_key);
}

/* ---- its kernels ----------------------------------------------------------------------------*/
const char *fa_op_reference_entry(const fa_problem *problem)
{
    const cJSON *document = fa_operation_of(problem)->document;
    const char *entry = fa_op_of(problem)->reference_entry;
    if (entry == NULL)
        entry = fa_json_string(fa_json_member(document, "answer"), "kernel");
    return entry != NULL                                ? entry
           : cJSON_HasObjectItem(document, "reference") ? "reference"
                                                        : "fa_check_output";
}

int fa_op_check_entry(const fa_problem *problem, const fa_cubin_entry *entry, fa_diag *diag)
{
    const fa_launcher *launcher = fa_op_of(problem)->proof->launcher;
    void *shared = NULL;
    int rc = launcher->load(NULL, problem, entry, &shared, diag);
    launcher->unload(&shared);
    return rc;
}

int fa_op_read_cubin(const fa_family *family, const fa_candidate *candidate,
                     const fa_problem *problem, const void *cubin, size_t size,
                     fa_cubin_info *ret_info, fa_diag *diag)
{
    fa_cubin_entry entry = {cubin, size, .workspace = candidate->launches.workspace_bytes > 0,
                            .counters = candidate->launches.counters > 0};
    fa_cubin_info all = {0};
    for (int i = 0; i < family->launch_count; i++) {
        int32_t threads = candidate->launches.at[i].threads;
        fa_cubin_info info;
        entry.name = family->launch[i].entry;
        entry.launch = i;
        FA_OR_RETURN(fa_cubin_read(cubin, size, entry.name, &info, diag));
        FA_OR_RETURN(fa_op_check_entry(problem, &entry, diag));
        if (i > 0 && info.max_threads != 0 && info.max_threads < threads)
            return fa_fail(diag, FA_ECORRUPT,
                           "cubin allows %d threads in %s, the manifest launches %d",
                           info.max_threads, entry.name, threads);
        if (i == 0)
            all = info;
        fa_cubin_join(&all, &info);
    }
    *ret_info = all;
    return 0;
}

/* ---- by the cost model ----------------------------------------------------------------------*/
void fa_model_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                      fa_trial *trial)
{
    fa_op_of(problem)->predict(candidate, problem, gpu, trial);
}

static int compare(const void *left, const void *right, void *context)
{
    const fa_space *space = context;
    const fa_candidate *one = &space->candidate[*(const int *)left];
    const fa_candidate *other = &space->candidate[*(const int *)right];
    const fa_trial *a = &one->trial, *b = &other->trial;
    bool a_runs = a->predicted_us > 0, b_runs = b->predicted_us > 0;
    if (a_runs != b_runs)
        return a_runs ? -1 : 1;
    if (a_runs && (a->predicted_us < b->predicted_us || a->predicted_us > b->predicted_us))
        return a->predicted_us < b->predicted_us ? -1 : 1;
    if (one->is_default != other->is_default)
        return one->is_default ? -1 : 1;
    char a_text[FA_CONFIG_TEXT_MAX], b_text[FA_CONFIG_TEXT_MAX];
    fa_config_text(&a->config, a_text);
    fa_config_text(&b->config, b_text);
    int order = strcmp(a->config.family, b->config.family);
    return order != 0 ? order : strcmp(a_text, b_text);
}

void fa_model_rank(const fa_space *space, int *order, int count)
{
    if (count > 1)
        qsort_r(order, (size_t)count, sizeof *order, compare, (void *)(uintptr_t)space);
}

static void move_to_front(int *order, int at)
{
    int moved = order[at];
    memmove(order + 1, order, (size_t)at * sizeof *order);
    order[0] = moved;
}

bool fa_model_is_tied(const fa_problem *problem, const fa_trial *trial, const fa_trial *best)
{
    return trial->predicted_us > 0 &&
           trial->predicted_us <= best->predicted_us * (1 + fa_op_of(problem)->blur);
}

int fa_model_break_ties(const fa_problem *problem, const fa_space *space, int *order, int count)
{
    int ties = 0, preset = -1;
    for (; ties < count && fa_model_is_tied(problem, &space->candidate[order[ties]].trial,
                                            &space->candidate[order[0]].trial);
         ties++)
        if (preset < 0 && space->candidate[order[ties]].is_default)
            preset = ties;
    if (preset > 0)
        move_to_front(order, preset);
    return ties > 0 ? ties - 1 : 0;
}

static int32_t registers_of(const fa_candidate *candidate)
{
    return candidate->estimated_registers > 0 ? candidate->estimated_registers
                                              : fa_model_tunable(candidate, "CONSUMER_NEED", 0);
}

static int compare_size(const void *left, const void *right, void *context)
{
    const fa_space *space = context;
    int32_t a = registers_of(&space->candidate[*(const int *)left]);
    int32_t b = registers_of(&space->candidate[*(const int *)right]);
    return a != b ? (a < b) - (a > b) : compare(left, right, context);
}

void fa_model_largest_first(const fa_space *space, int *order, int count)
{
    if (count > 1)
        qsort_r(order, (size_t)count, sizeof *order, compare_size, (void *)(uintptr_t)space);
}

void fa_model_soonest_first(const fa_problem *problem, const fa_space *space, int *order, int count)
{
    const double blur = fa_op_of(problem)->blur, alike = blur > 0.02 ? 1 + blur : 1.02;
    double least = 0;
    int best = 0;
    for (int i = 0; i < count; i++) {
        const fa_candidate *candidate = &space->candidate[order[i]];
        const double most_us = space->candidate[order[0]].trial.predicted_us * alike;
        const double need = fa_model_tunable(candidate, "CONSUMER_NEED", 0) *
                            (3.0 - fa_model_tunable(candidate, "SHORT", 0));
        if (!(candidate->trial.predicted_us > 0) || candidate->trial.predicted_us > most_us)
            break;
        if (i == 0 || need < least)
            least = need, best = i;
    }
    move_to_front(order, best);
}
