/* SPDX-License-Identifier: Apache-2.0
 *
 * Which problems a report tells, and the raw document (docs/json.md): what is stored about each, one problem a line, with
 * nothing concluded; alone, or in a page. A page holds a short one: members that are null, false or empty are left out;
 * numbers have seven digits; and the more problems there are, the fewer configs of each are told in full, so that a page of
 * a thousand problems stays below 5 MB.
 *
 * A problem that was tuned with several sets of templates is told once: with the present ones, or with the newest where the
 * present ones have not seen it.
 *
 * Texts are as they were stored, which may be anything. Each line is made valid UTF-8 as it is written, and '<' and
 * characters that are not seen are escaped, so that it may stand inside a script element.
 */
#include "report.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"
#include "trial.h"
#include "words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    VERSION = 2,
    PROBLEM_BYTES = 4100000, /* of a short document, for the problems of all */
    ROW_BYTES = 12,          /* that a row of the space takes */
    HEAT_AXES = 3,
    PAGE_CONFIGS = 200, /* of one problem, told in full where there is room */
    REASONS = 3,        /* told for each gate */
    ENVIRONMENTS = 8,   /* told for each problem */
    SLOTS = 1 << 17     /* of the table of configs, which is filled by half */
};

/* The problems that a report tells, in its order, and every baseline. */
typedef struct document {
    const report_problems *problems;
    bool is_short;
    fa_buf *out;
    cJSON *configs; /* each config of a space once */
    char **words;   /* the same as words */
    size_t count, capacity;
    uint32_t *slot; /* [SLOTS]: a place among them, plus 1, by the words' hash; 0: none */
    uint32_t *seen_by; /* [SLOTS]: of each place, the last problem that has it as a cell */
} document;

/* ---- tables ---------------------------------------------------------------------------------*/
static const fa_member evidence_members[] = {
    FA_MEMBER("space", COUNT, fa_answer, space),
    FA_MEMBER("in_budget", COUNT, fa_answer, in_budget),
    FA_MEMBER("compiled", COUNT, fa_answer, compiled),
    FA_MEMBER("clean", COUNT, fa_answer, clean),
    FA_MEMBER("proved", COUNT, fa_answer, proved),
    FA_MEMBER("measured", COUNT, fa_answer, measured),
    FA_MEMBER("ties", COUNT, fa_answer, ties),
    FA_MEMBER("ties_differ", COUNT, fa_answer, ties_differ),
    FA_MEMBER("strategy", TEXT, fa_answer, strategy),
    {.key = NULL},
};

static const fa_member baseline_members[] = {
    FA_MEMBER("peer", TEXT, fa_baseline, peer),
    FA_MEMBER("median_us", REAL, fa_baseline, median_us, .rules = FA_MEMBER_UNKNOWN),
    FA_MEMBER("low_us", REAL, fa_baseline, low_us, .rules = FA_MEMBER_UNKNOWN),
    FA_MEMBER("high_us", REAL, fa_baseline, high_us, .rules = FA_MEMBER_UNKNOWN),
    FA_MEMBER("source", TEXT, fa_baseline, source),
    FA_MEMBER("matmul_tflops", REAL, fa_baseline, matmul_tflops, .rules = FA_MEMBER_UNKNOWN),
    {.key = NULL},
};

static cJSON *problem_words(const void *problem)
{
    FA_ENDS(fa_buf_free) fa_buf words = {0};
    fa_problem_words(&words, problem, " · ", false);
    cJSON *text = words.failed ? NULL : cJSON_CreateString(words.data);
    return text;
}

static const fa_member study_members[] = {
    FA_MEMBER("problem", OTHER, fa_study, problem, .write = fa_problem_to_json),
    FA_MEMBER("words", OTHER, fa_study, problem, .write = problem_words),
    FA_MEMBER("gpu", STRUCT, fa_study, gpu, .members = fa_gpu_members),
    FA_MEMBER("silicon", TEXT, fa_study, silicon),
    FA_MEMBER("templates", TEXT, fa_study, templates),
    FA_MEMBER("templates_are_present", FLAG, fa_study, current),
    FA_MEMBER("policy", TEXT, fa_study, policy),
    FA_MEMBER("same_bits", TEXT, fa_study, winner.same_bits),
    FA_MEMBER("unix_time", COUNT64, fa_study, unix_time),
    FA_MEMBER("undated", FLAG, fa_study, winner.undated),
    FA_MEMBER("default_us", REAL, fa_study, winner.default_us, .rules = FA_MEMBER_UNKNOWN),
    FA_MEMBER("tune_s", REAL, fa_study, winner.tune_s, .rules = FA_MEMBER_UNKNOWN),
    FA_MEMBER("evidence", STRUCT, fa_study, winner, .members = evidence_members),
    {.key = NULL},
};

/* ---- writing --------------------------------------------------------------------------------*/
/* Appends JSON without its first `skip` and its last `less` bytes, and deletes it. */
static void write_json(fa_buf *out, cJSON *json, size_t skip, size_t less)
{
    FA_ENDS(fa_free_at) char *text = fa_json_finish(json);
    const char *end = text != NULL ? text + strlen(text) - less : NULL;
    out->failed |= text == NULL;
    for (const char *c = text != NULL ? text + skip : NULL; c < end;) {
        uint32_t code;
        unsigned unseen = (unsigned char)*c;
        size_t size = fa_utf8_at(c, (size_t)(end - c), &code);
        if (size == 0)
            fa_buf_text(out, "?");
        else if (*c == '<' || fa_control_at(c, &unseen) > 0)
            fa_buf_printf(out, "\\u%04x", unseen);
        else
            fa_buf_append(out, c, size);
        c += size > 0 ? size : 1;
    }
}

/* Seven digits of it, where it is of a usual size. */
static double shortened(double value)
{
    const double size = fabs(value);
    double power = 1;
    if (!(size >= 1e-4 && size < 1e7))
        return value;
    while (size * power < 1e6)
        power *= 10;
    return copysign(rint(size * power) / power, value);
}

static void shorten(cJSON *json)
{
    for (cJSON *item = json->child, *next; item != NULL; item = next) {
        next = item->next;
        shorten(item);
        bool empty = cJSON_IsString(item) ? item->valuestring[0] == 0
                                          : item->child == NULL && !cJSON_IsNumber(item);
        if (cJSON_IsObject(json) && empty && !cJSON_IsTrue(item))
            cJSON_Delete(cJSON_DetachItemViaPointer(json, item));
        else if (cJSON_IsNumber(item) && item->valuedouble != floor(item->valuedouble))
            item->valuedouble = shortened(item->valuedouble);
    }
}

/* ---- one problem ----------------------------------------------------------------------------*/
/* What is gathered of one problem while its trials come. */
struct collecting {
    document *document;
    const fa_study *study;
    uint32_t number; /* of the problem, from 1 */
    cJSON *configs, *space;
    struct environment {
        const char *text; /* of the first of its trials */
        size_t trials;
    } environment[ENVIRONMENTS];
    size_t tried, environments, other_environments;
    struct outcome {
        fa_status status;
        size_t count, order;
        char reason[sizeof((fa_trial *)NULL)->reason];
    } * outcome; /* with how many configs ended so */
    size_t outcomes, outcome_capacity;
    bool unfinished;   /* a config passed, or is pending */
    double compile_ms; /* of all compiles, one after another */
};

/* The config's place among the document's; -1: there is no room. */
static int32_t place_of(document *document, const fa_config *config)
{
    FA_ENDS(fa_buf_free) fa_buf words = {0};
    uint32_t at = 5381;
    fa_words_config(&words, config);
    for (size_t i = 0; i < words.size; i++)
        at = at * 33 + (unsigned char)words.data[i];
    for (at %= SLOTS; !words.failed && document->slot[at] != 0; at = (at + 1) % SLOTS)
        if (strcmp(document->words[document->slot[at] - 1], words.data) == 0)
            return (int32_t)document->slot[at] - 1;
    if (words.failed || document->count == SLOTS / 2 ||
        fa_append(&document->words, &document->count, &document->capacity, &words.data,
                  sizeof words.data) != 0) {
        document->out->failed |= document->count < SLOTS / 2;
        return -1;
    }
    words = (fa_buf){0}; /* the document's now */
    document->slot[at] = (uint32_t)document->count;
    fa_json_push(document->configs, fa_config_to_json(config));
    return (int32_t)document->count - 1;
}

/* A row of the space: the config, the gate it ended at, its time where it finished, and 1 where it was raced. Configs that
 * were not tried fill the rest of heat maps, whose cells are the first values of configs: one for each cell. */
static void add_row(struct collecting *c, const fa_study_trial *trial)
{
    const fa_trial *t = &trial->trial;
    const double us = t->median_us > 0 ? t->median_us : t->predicted_us;
    fa_config cell = t->config;
    cell.count = cell.count < HEAT_AXES ? cell.count : HEAT_AXES;
    int32_t place = place_of(c->document, &cell);
    int gate = 0;
    if (place < 0 || (!trial->tried && c->document->seen_by[place] == c->number))
        return;
    c->document->seen_by[place] = c->number;
    if (trial->tried && (place = place_of(c->document, &t->config)) < 0)
        return;
    while (gate + 1 < FA_GATES && fa_gates[gate].status != t->status)
        gate++;
    cJSON *row = cJSON_CreateArray();
    fa_json_push(row, cJSON_CreateNumber(place));
    fa_json_push(row, cJSON_CreateNumber(gate));
    if (trial->rank > 0 && us > 0) {
        fa_json_push(row, cJSON_CreateNumber(us));
        if (t->raced)
            fa_json_push(row, cJSON_CreateNumber(1));
    }
    fa_json_push(c->space, row);
}

static void count_outcome(struct collecting *c, const fa_trial *trial)
{
    size_t i = 0;
    while (i < c->outcomes && (c->outcome[i].status != trial->status ||
                               strcmp(c->outcome[i].reason, trial->reason) != 0))
        i++;
    if (i == c->outcomes) {
        struct outcome next = {trial->status, 0, i, ""};
        memcpy(next.reason, trial->reason, sizeof next.reason);
        c->document->out->failed |=
            fa_append(&c->outcome, &c->outcomes, &c->outcome_capacity, &next, sizeof next) != 0;
    }
    if (i < c->outcomes)
        c->outcome[i].count++;
}

/* By gate, then the most frequent first. */
static int compare_outcomes(const void *a, const void *b)
{
    const struct outcome *x = a, *y = b;
    return x->status != y->status ? (int)x->status - (int)y->status
           : x->count != y->count ? (x->count < y->count) - (x->count > y->count)
                                  : (x->order > y->order) - (x->order < y->order);
}

/* The REASONS most frequent ones of each gate, and the others together. */
static cJSON *outcomes_json(const struct collecting *c)
{
    cJSON *array = cJSON_CreateArray(), *item = NULL;
    if (c->outcomes > 0)
        qsort(c->outcome, c->outcomes, sizeof *c->outcome, compare_outcomes);
    for (size_t i = 0, of_gate = 0; i < c->outcomes && array != NULL; i++) {
        const struct outcome *one = &c->outcome[i];
        of_gate = i > 0 && one->status == one[-1].status ? of_gate + 1 : 0;
        cJSON *count = cJSON_GetObjectItemCaseSensitive(item, "count");
        if (of_gate > REASONS && count != NULL) {
            cJSON_SetNumberValue(count, count->valuedouble + (double)one->count);
            continue;
        }
        item = cJSON_CreateObject();
        fa_json_add_text(item, "status", fa_status_name(one->status));
        fa_json_add_text(item, "reason", of_gate < REASONS ? one->reason : "…");
        fa_json_add_number(item, "count", (double)one->count);
        fa_json_push(array, item);
    }
    return array;
}

static void count_environment(struct collecting *c, const char *text)
{
    size_t i = 0;
    if (text == NULL)
        return; /* it came with an imported winner, and was not said */
    while (i < c->environments && strcmp(c->environment[i].text, text) != 0)
        i++;
    if (i == ENVIRONMENTS) {
        c->other_environments++;
        return;
    }
    c->environment[i].text = text;
    c->environment[i].trials++;
    c->environments += i == c->environments;
}

static cJSON *environments_json(const struct collecting *c)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < c->environments; i++) {
        cJSON *json = NULL;
        c->document->out->failed |=
            fa_json_parse_object(c->environment[i].text, "environment", &json, NULL) != 0;
        if (json == NULL)
            json = cJSON_CreateObject();
        cJSON_DeleteItemFromObjectCaseSensitive(json, "trials");
        fa_json_add_number(json, "trials", (double)c->environment[i].trials);
        fa_json_push(array, json);
    }
    return array;
}

/* A config that was tried, in full. */
static void add_config(struct collecting *c, const fa_study_trial *trial)
{
    const fa_study *study = c->study;
    cJSON *clocks, *item = cJSON_CreateObject(), *samples;
    char seed[24];
    fa_json_add_known(item, "rank", trial->rank, trial->rank > 0);
    fa_struct_add_json(item, fa_trial_members, &trial->trial);
    fa_json_add_bool(item, "default", trial->is_default);
    fa_json_add_bool(item, "winner",
                     study->has_winner &&
                         fa_config_equal(&trial->trial.config, &study->winner.trial.config));
    samples = fa_json_add_array(item, "samples_us");
    for (int32_t s = 0; s < trial->sample_count; s++)
        fa_json_push(samples, cJSON_CreateNumber(shortened((double)trial->samples_us[s])));
    c->document->out->failed |= fa_json_parse_object(trial->clocks, "clocks", &clocks, NULL) != 0;
    fa_json_add(item, "clocks", clocks != NULL ? clocks : cJSON_CreateNull());
    /* 64 bits: as text, because a JSON number may lose some. */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)trial->seed);
    fa_json_add_text(item, "seed", seed);
    fa_json_add_text(item, "cubin_key", trial->cubin_key);
    fa_json_add_number(item, "unix_time", (double)trial->unix_time);
    fa_json_push(c->configs, item);
}

/* The problem that computes this one's gradients, by its number; 0: none is told, or this is no forward pass of
 * training. */
static size_t backward_of(const report_problems *problems, const fa_study *study)
{
    fa_problem forward = study->problem, gradients;
    if (fa_problem_train(&forward, &gradients, NULL) != 0 ||
        !fa_problem_equal(&forward, &study->problem))
        return 0;
    for (size_t i = 0; i < problems->count; i++)
        if (strcmp(problems->study[i].silicon, study->silicon) == 0 &&
            fa_problem_equal(&problems->study[i].problem, &gradients))
            return i + 1;
    return 0;
}

static cJSON *problem_json(const struct collecting *c)
{
    const report_problems *problems = c->document->problems;
    const fa_study *study = c->study;
    const double flops = fa_problem_work(&study->problem, "flops");
    const double bytes = fa_problem_work(&study->problem, "bytes");
    const size_t backward = backward_of(problems, study);
    const fa_answer answer = {.problem = study->problem, .gpu = study->gpu};
    cJSON *object = fa_struct_to_json(study_members, study);
    fa_json_add_text(object, "known_how",
                     study->has_winner ? fa_origin_name(study->winner.origin)
                     : c->unfinished   ? "unfinished"
                                       : "failed");
    fa_json_add(object, "winner",
                study->has_winner ? fa_struct_to_json(fa_trial_members, &study->winner.trial)
                                  : cJSON_CreateNull());
    fa_json_add_known(object, "flops", flops, flops > 0);
    fa_json_add_known(object, "least_bytes", bytes, bytes > 0);
    fa_json_add_bool(object, "reads_fp32", fa_problem_reads_fp32(&study->problem));
    fa_json_add_known(object, "backward", (double)backward, backward > 0);
    fa_json_add_known(object, "compile_ms", c->compile_ms, c->compile_ms > 0);
    cJSON *baselines = fa_json_add_array(object, "baselines");
    for (size_t i = 0; i < problems->baselines; i++)
        if (fa_baseline_concerns(&problems->baseline[i], &answer))
            fa_json_push(baselines, fa_struct_to_json(baseline_members, &problems->baseline[i]));
    fa_json_add_number(object, "trials_in_other_environments", (double)c->other_environments);
    fa_json_add_number(object, "configs_tried", (double)c->tried);
    return object;
}

/* ---- what there is room for -----------------------------------------------------------------*/
/* Leaves the best configs that there is room for; returns how many went. */
static size_t leave_best(cJSON *configs, size_t room)
{
    size_t gone = 0, kept = 0;
    for (cJSON *item = configs->child, *next; item != NULL; item = next) {
        FA_ENDS(fa_free_at) char *text = fa_json_print(item);
        const size_t size = text != NULL ? strlen(text) : 0;
        const bool fits = kept < PAGE_CONFIGS && size <= room;
        next = item->next;
        kept += fits;
        gone += !fits;
        room -= fits ? size : 0;
        if (!fits)
            cJSON_Delete(cJSON_DetachItemViaPointer(configs, item));
    }
    return gone;
}

static int write_problem(document *document, fa_tuner *tuner, size_t number, size_t begun,
                         fa_diag *diag)
{
    const report_problems *problems = document->problems;
    const size_t written = document->out->size - begun;
    const size_t room =
        written < PROBLEM_BYTES ? (PROBLEM_BYTES - written) / (problems->count - number) : 0;
    size_t gone = 0;
    struct collecting c = {.document = document,
                           .study = &problems->study[number],
                           .number = (uint32_t)number + 1,
                           .configs = cJSON_CreateArray(),
                           .space = cJSON_CreateArray()};
    FA_ENDS(fa_free_at) fa_study_trial *trial = NULL;
    size_t trials = 0;
    int rc = fa_list_study_trials(tuner, c.study, &trial, &trials, diag);
    for (size_t i = 0; i < trials; i++) {
        const fa_trial *one = &trial[i].trial;
        add_row(&c, &trial[i]);
        count_outcome(&c, one);
        c.unfinished |= trial[i].rank > 0 || one->status == FA_STATUS_PENDING;
        if (!trial[i].tried)
            continue;
        c.tried++;
        c.compile_ms += one->compile_ms > 0 ? one->compile_ms : 0;
        add_config(&c, &trial[i]);
        count_environment(&c, trial[i].environment);
    }
    cJSON *json = problem_json(&c);
    fa_json_add(json, "outcomes", outcomes_json(&c));
    fa_json_add(json, "environments", environments_json(&c));
    free(c.outcome);
    if (document->is_short && json != NULL && c.configs != NULL && c.space != NULL) {
        shorten(json);
        shorten(c.configs);
        shorten(c.space);
        for (int rows = cJSON_GetArraySize(c.space); (size_t)rows > room / 4 / ROW_BYTES; rows--)
            cJSON_DeleteItemFromArray(c.space, rows - 1);
        gone = leave_best(c.configs, room / 4 * 3);
    }
    fa_json_add_number(json, "configs_left_out", (double)gone);
    fa_json_add(json, "configs", c.configs);
    fa_json_add(json, "space", c.space);
    fa_buf_text(document->out, number > 0 ? ",\n" : "\n");
    write_json(document->out, json, 0, 0);
    return rc;
}

/* ---- the document ---------------------------------------------------------------------------*/
/* The operations that reports know, each with the fields of its problems. */
static cJSON *operations_json(void)
{
    static const char *const told[] = {"name", "title", "default", "counts", "sizes"};
    const fa_operation *operation;
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++) {
        cJSON *item = cJSON_CreateObject();
        for (size_t t = 0; t < sizeof told / sizeof *told; t++) {
            const cJSON *value = fa_json_member(operation->document, told[t]);
            if (value != NULL)
                fa_json_add(item, told[t], cJSON_Duplicate(value, true));
        }
        fa_json_push(array, item);
    }
    return array;
}

static void write_head(const document *document, const char *store)
{
    const report_problems *problems = document->problems;
    /* As ~/.cache/fa-tune/store.db: reports are passed on, and need not name whose home it was. */
    char text[4096];
    const char *home = getenv("HOME");
    size_t length = home != NULL ? strlen(home) : 0;
    bool at_home = length > 1 && strncmp(store, home, length) == 0 && store[length] == '/';
    cJSON *head = cJSON_CreateObject();
    fa_json_add_text(head, "document", "fa-tune-report");
    fa_json_add_number(head, "version", VERSION);
    fa_json_add_text(head, "fa_tune", fa_version());
    snprintf(text, sizeof text, "%s%s", at_home ? "~" : "", at_home ? store + length : store);
    fa_json_add_text(head, "store", text);
    fa_json_add_number(head, "unix_time", (double)time(NULL));
    fa_json_add_number(head, "not_asked_for", (double)problems->filtered);
    fa_json_add_number(head, "earlier_generations", (double)problems->older);
    cJSON *gates = fa_json_add_array(head, "gates");
    for (int g = 0; g < FA_GATES; g++) {
        cJSON *gate = cJSON_CreateObject();
        fa_json_add_text(gate, "status", fa_status_name(fa_gates[g].status));
        fa_json_add_text(gate, "meaning", fa_gates[g].meaning);
        fa_json_push(gates, gate);
    }
    fa_json_add(head, "operations", operations_json());
    write_json(document->out, head, 0, 1); /* it goes on */
    fa_buf_text(document->out, ",\"problems\":[");
}

static int write_document(fa_tuner *tuner, const fa_report_options *options,
                          const report_problems *problems, fa_buf *out, fa_diag *diag)
{
    document document = {.problems = problems,
                         .is_short = options->format != FA_REPORT_JSON,
                         .out = out,
                         .configs = cJSON_CreateArray(),
                         .slot = calloc(SLOTS, sizeof *document.slot),
                         .seen_by = calloc(SLOTS, sizeof *document.seen_by)};
    const size_t begun = out->size;
    int rc = document.slot != NULL && document.seen_by != NULL ? 0 : FA_ENOMEM;
    if (rc == 0)
        write_head(&document, fa_store_location(tuner));
    for (size_t i = 0; i < problems->count && rc == 0; i++) {
        if (options->progress != NULL &&
            options->progress(options->context, (int32_t)i, (int32_t)problems->count))
            rc = fa_fail(diag, FA_ECANCELED, "the report was stopped");
        else
            rc = write_problem(&document, tuner, i, begun, diag);
    }
    if (rc == 0) {
        cJSON *tail = cJSON_CreateObject();
        fa_json_add(tail, "space_configs", document.configs);
        document.configs = NULL;
        fa_buf_text(out, "\n],");
        write_json(out, tail, 1, 0);
        fa_buf_text(out, "\n");
    }
    for (size_t i = 0; i < document.count; i++)
        free(document.words[i]);
    cJSON_Delete(document.configs);
    free(document.words);
    free(document.slot);
    free(document.seen_by);
    return rc;
}

/* ---- which problems ---------------------------------------------------------------------------*/
/* Leaves those that the report tells. */
static void choose_studies(const fa_report_options *options, report_problems *problems)
{
    size_t kept = 0;
    for (size_t i = 0; i < problems->count; i++) {
        const fa_study *study = &problems->study[i];
        if (study->unread != NULL)
            continue;
        if (options->keep == NULL ||
            options->keep(options->context, &study->problem, study->gpu.name))
            problems->study[kept++] = *study;
        else
            problems->filtered++;
    }
    problems->count = kept;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* By silicon, then as a grid of problems is read; generations of one problem follow one another, the one to be told
 * first. */
static int compare_studies(const void *a, const void *b)
{
    const fa_study *x = a, *y = b;
    int order = strcmp(x->silicon, y->silicon);
    order = order != 0 ? order : fa_problem_compare(&x->problem, &y->problem);
    order = order != 0 ? order : strcmp(x->policy, y->policy); /* with same_bits it is another */
    order = order != 0 ? order : compare_numbers(y->current, x->current);
    order = order != 0 ? order : compare_numbers(y->has_winner, x->has_winner);
    order = order != 0 ? order : compare_numbers(y->unix_time, x->unix_time);
    return order != 0 ? order : strcmp(x->templates, y->templates);
}

/* Puts them in order, each problem once. */
static void order_studies(size_t most, report_problems *problems)
{
    size_t kept = 0;
    if (problems->count > 0)
        qsort(problems->study, problems->count, sizeof *problems->study, compare_studies);
    for (size_t i = 0; i < problems->count; i++) {
        const fa_study *study = &problems->study[i];
        const fa_study *last = kept > 0 ? &problems->study[kept - 1] : NULL;
        if (last != NULL && strcmp(last->silicon, study->silicon) == 0 &&
            strcmp(last->policy, study->policy) == 0 &&
            fa_problem_equal(&last->problem, &study->problem))
            problems->older++;
        else
            problems->study[kept++] = *study;
    }
    if (most > 0 && kept > most) {
        problems->filtered += kept - most;
        kept = most;
    }
    problems->count = kept;
}

int report_write(fa_tuner *tuner, const fa_report_options *options, size_t most, fa_buf *out,
                 report_problems *ret_problems, fa_diag *diag)
{
    const report_part *part = options->format == FA_REPORT_HTML ? report_page_part : NULL;
    report_problems problems = {0};
    int rc = fa_list_studies(tuner, &problems.study, &problems.count, diag);
    choose_studies(options, &problems);
    order_studies(most, &problems);
    if (rc == 0)
        rc = fa_list_baselines(tuner, &problems.baseline, &problems.baselines, diag);
    if (part != NULL)
        fa_buf_append(out, part[0].bytes, part[0].size);
    if (rc == 0 && (int)options->format != REPORT_NO_TEXT)
        rc = write_document(tuner, options, &problems, out, diag);
    if (part != NULL)
        fa_buf_append(out, part[1].bytes, part[1].size);
    if (ret_problems != NULL) {
        *ret_problems = problems;
    } else {
        free(problems.study);
        free(problems.baseline);
    }
    return rc == FA_ENOMEM || (rc == 0 && out->failed)
               ? fa_fail(diag, FA_ENOMEM, "out of memory for a report")
               : rc;
}

int fa_write_report(fa_tuner *tuner, const fa_report_options *options, char **ret_text,
                    size_t *ret_size, fa_diag *diag)
{
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    FA_OR_RETURN(fa_expect(tuner != NULL && options != NULL && ret_text != NULL && ret_size != NULL,
                           "tuner, options, ret_text or ret_size", diag));
    if (options->size != sizeof *options ||
        (options->format != FA_REPORT_HTML && options->format != FA_REPORT_JSON))
        return fa_fail(diag, FA_EINVAL,
                       "the options of a report have another size, or there is no such format");
    FA_OR_RETURN(report_write(tuner, options, 0, &out, NULL, diag));
    *ret_text = out.data;
    *ret_size = out.size;
    out = (fa_buf){0};
    return 0;
}
