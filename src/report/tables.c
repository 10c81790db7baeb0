/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as Markdown and as CSV. Both are tables of the JSON document (docs/json.md): a column is a path
 * into it, and for Markdown also how its value is worded.
 *
 * CSV is RFC 4180, UTF-8, CRLF: one kind of row for each kind of fact, all with the same columns. A value
 * that is not known, or is no fact of its row, is empty. `ratio` is a baseline's time over the winner's, the
 * default's time over the winner's, or of regrets and predictions their time over the best time there.
 */
#include "data.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKING = 10 };

/* ---- values of the document -----------------------------------------------------------------*/
/* Where a table's row stands: the entry, the entry that its list belongs to, the problem. */
struct place {
    const cJSON *row, *outer, *problem;
};

static const cJSON *step(const cJSON *object, const char *name, size_t length)
{
    const cJSON *child = object != NULL ? object->child : NULL;
    while (child != NULL && (child->string == NULL || strlen(child->string) != length ||
                             strncmp(child->string, name, length) != 0))
        child = child->next;
    return child;
}

/* The value at the first of the paths, divided by '|', that is there and not null; else NULL. A path is names
 * divided by '/'; it begins at the problem after '^', at the outer entry after '<'. "" is the row. */
static const cJSON *find(const struct place *place, const char *path)
{
    for (;;) {
        const cJSON *item = *path == '^'   ? place->problem
                            : *path == '<' ? place->outer
                                           : place->row;
        path += *path == '^' || *path == '<';
        for (size_t length; (length = strcspn(path, "/|")) > 0; path += *path == '/') {
            item = step(item, path, length);
            path += length;
        }
        if (item != NULL && !cJSON_IsNull(item))
            return item;
        if (*path++ == 0)
            return NULL;
    }
}

static const cJSON *member(const cJSON *object, const char *path)
{
    return find(&(struct place){.row = object}, path);
}

/* 0 where it is not known. */
static double number_of(const cJSON *object, const char *path)
{
    double value = report_number(member(object, path));
    return isnan(value) ? 0 : value;
}

static const char *text_of(const cJSON *object, const char *path)
{
    const cJSON *value = member(object, path);
    return cJSON_IsString(value) ? value->valuestring : "";
}

static bool is_true(const cJSON *object, const char *path)
{
    return cJSON_IsTrue(member(object, path));
}

static bool is_timed(const cJSON *problem)
{
    return number_of(problem, "winner/median_us") > 0;
}

/* ---- CSV ------------------------------------------------------------------------------------*/
/* A row for each entry of a list, or for the problem itself. */
static const struct kind {
    const char *row, *list, *name, *text;
} kinds[] = {
    {"winner", "", "winner/config/family", NULL}, /* the problem's best and how it is known */
    {"baseline", "baselines", "peer", "source"},  /* somebody else's kernel */
    {"gate", "gates", NULL, NULL},                /* `count` configs ended at `status` */
    {"reason", "reasons", NULL, "text"},          /* of this gate, `count` because of `text` */
    {"config", "configs", "config/family", "reason"},
    {"environment", "environments", "gpu", ""}, /* made `count` trials; `text` is its JSON */
};
static const struct kind regrets = {"regret", "regret", "bucket_config/family", ""};
static const struct kind predictions = {"prediction", "predictions", "config/family", "from_gpu"};
/* Of a headline: the winners against a peer, the mean over `count` problems. */
static const struct kind comparisons = {"comparison", "peers", "peer", "<sentence"};

/* A heading; its path, where that is another one, after '='. Before and after the operations' fields. */
static const char *const first_columns[] = {"problem=^number", "gpu=^gpu/name|^gpu", "sm=^gpu/sm",
                                            "silicon=^silicon", NULL};
static const char *const last_columns[] = {
    "rank",
    "status=status|winner/status|<status",
    "count=count|trials|problems",
    "median_us=median_us|winner/median_us|measured_us|bucket_us",
    "low_us=low_us|winner/low_us",
    "high_us=high_us|winner/high_us",
    "predicted_us=predicted_us|winner/predicted_us",
    "samples=sample_count|winner/sample_count",
    "raced=raced|winner/raced",
    "tflops",
    "ratio=ratio|speedup_over_default|gain",
    "slow",
    "default_us",
    "compile_ms",
    "tune_s",
    "registers=registers|winner/registers",
    "spill_bytes=spill_bytes|winner/spill_bytes",
    "smem_bytes=smem_bytes|winner/smem_bytes",
    "static_smem_bytes=static_smem_bytes|winner/static_smem_bytes",
    "threads=threads|winner/threads",
    "blocks_per_sm=blocks_per_sm|winner/blocks_per_sm",
    "max_error=max_error|winner/max_error",
    "tolerance=tolerance|winner/tolerance",
    "sm_mhz=clocks/sm_mhz",
    "temperature_c=clocks/temperature_c",
    "seed",
    "cubin_key",
    "unix_time",
    NULL};

enum { KINDS = sizeof kinds / sizeof *kinds, GATE = 2 };

static void csv_value(fa_buf *out, const cJSON *value)
{
    double n = report_number(value);
    fa_buf_text(out, ",");
    if (!isnan(n)) {
        fa_buf_printf(out, fabs(n) < 1e15 && floor(n) == n ? "%.0f" : "%.9g", n);
    } else if (cJSON_IsString(value)) {
        report_csv_text(out, value->valuestring);
    } else if (cJSON_IsBool(value)) {
        fa_buf_text(out, cJSON_IsTrue(value) ? "1" : "0");
    } else if (cJSON_IsArray(value) || cJSON_IsObject(value)) {
        char *text = fa_json_print(value);
        out->failed |= text == NULL;
        report_csv_text(out, text != NULL ? text : "");
        free(text);
    }
}

static void tunable_words(fa_buf *out, const cJSON *config, const char *before)
{
    const cJSON *tunables = member(config, "tunables");
    for (const cJSON *t = tunables != NULL ? tunables->child : NULL; t != NULL; t = t->next) {
        int32_t value;
        char room[FA_VALUE_TEXT_MAX];
        if (fa_value_of_json(t, &value, NULL) == 0)
            fa_buf_printf(out, "%s%s=%s", before, t->string, fa_value_words(value, room));
        before = " ";
    }
}

static void csv_tunables(fa_buf *out, const struct place *place)
{
    fa_buf words = {0};
    tunable_words(&words, find(place, "config|winner/config|bucket_config"), "");
    fa_buf_text(out, ",");
    report_csv_text(out, words.data != NULL ? words.data : "");
    out->failed |= words.failed;
    fa_buf_free(&words);
}

/* The fields of every operation, those of one name once: the names when place is NULL, else the values. */
static void field_columns(fa_buf *out, const struct place *place)
{
    const fa_operation *operation, *earlier;
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++) {
        int field[FA_PROBLEM_VALUES];
        fa_operation_order(operation, FA_ORDER_COLUMNS, field);
        for (int f = 0; f < operation->field_count; f++) {
            const char *name = operation->field[field[f]].name;
            int e = 0;
            while ((earlier = fa_operation_at(e)) != operation &&
                   fa_operation_field_index(earlier, name) < 0)
                e++;
            if (earlier != operation)
                continue;
            if (place == NULL)
                fa_buf_printf(out, ",%s", name);
            else
                csv_value(out, member(find(place, "^problem"), name));
        }
    }
}

/* The headings when place is NULL, else the values. */
static void columns(fa_buf *out, const char *const *column, const struct place *place)
{
    for (; *column != NULL; column++) {
        size_t heading = strcspn(*column, "=");
        if (place == NULL)
            fa_buf_printf(out, ",%.*s", (int)heading, *column);
        else
            csv_value(out, find(place, *column + ((*column)[heading] != 0 ? heading + 1 : 0)));
    }
}

static void csv_row(fa_buf *out, const struct kind *kind, const struct place *place)
{
    fa_buf_text(out, kind->row);
    columns(out, first_columns, place);
    field_columns(out, place);
    csv_value(out, find(place, "^known_how"));
    csv_value(out, kind->name != NULL ? find(place, kind->name) : NULL);
    csv_tunables(out, place);
    columns(out, last_columns, place);
    csv_value(out, kind->text != NULL ? find(place, kind->text) : NULL);
    fa_buf_text(out, "\r\n");
}

/* Of a list in `outer`; entries that have no problem around them are told with their own. */
static void csv_rows(fa_buf *out, const struct kind *kind, const cJSON *outer, const cJSON *problem)
{
    const cJSON *list = member(outer, kind->list);
    for (const cJSON *row = list != NULL ? list->child : NULL; row != NULL; row = row->next) {
        csv_row(out, kind, &(struct place){row, outer, problem != NULL ? problem : row});
        if (kind == &kinds[GATE])
            csv_rows(out, &kinds[GATE + 1], row, problem);
    }
}

static int csv_begin(report *report)
{
    fa_buf *out = report->out;
    fa_buf_text(out, "row");
    columns(out, first_columns, NULL);
    field_columns(out, NULL);
    fa_buf_text(out, ",known_how,name,tunables");
    columns(out, last_columns, NULL);
    fa_buf_text(out, ",text\r\n");
    return 0;
}

static void csv_problem(report *report, report_problem *problem)
{
    fa_buf *out = report->out;
    cJSON *json = report_document_whole_problem(problem);
    fa_json_add_number(json, "number", problem->number);
    if (!problem->measured) /* a rate that is not the GPU's own */
        cJSON_DeleteItemFromObjectCaseSensitive(json, "tflops");
    out->failed |= !fa_json_is_whole(json);
    csv_row(out, &kinds[0], &(struct place){json, NULL, json});
    for (int i = 1; i < KINDS; i++)
        csv_rows(out, &kinds[i], json, json);
    cJSON_Delete(json);
}

static void csv_end(report *report)
{
    cJSON *tail = report_document_tail(report, NULL);
    report->out->failed |= !fa_json_is_whole(tail);
    const cJSON *headline;
    cJSON_ArrayForEach (headline, member(tail, "headlines"))
        csv_rows(report->out, &comparisons, headline, headline);
    csv_rows(report->out, &regrets, tail, NULL);
    csv_rows(report->out, &predictions, tail, NULL);
    cJSON_Delete(tail);
}

const report_writer report_csv = {csv_begin, csv_problem, csv_end};

/* ---- Markdown: how values are worded --------------------------------------------------------*/
static void count(fa_buf *out, double value)
{
    fa_words_grouped(out, (int64_t)value);
}

static void milliseconds(fa_buf *out, double value)
{
    report_seconds(out, value / 1000);
}

typedef void show(fa_buf *out, const cJSON *value, const struct place *place);

static void percent(fa_buf *out, double value)
{
    fa_buf_printf(out, "%.1f%%", 100 * value);
}

/* A text, whether something is so, or a list of configs in words. */
static void show_value(fa_buf *out, const cJSON *value)
{
    if (cJSON_IsString(value))
        report_markdown_text(out, value->valuestring);
    else if (cJSON_IsBool(value))
        fa_buf_text(out, cJSON_IsTrue(value) ? "yes" : "");
    for (const cJSON *item = value->child; item != NULL; item = item->next) {
        report_markdown_code(out, cJSON_IsString(item) ? item->valuestring : "");
        fa_buf_text(out, item->next != NULL ? "; " : "");
    }
}

static void show_config(fa_buf *out, const cJSON *value, const struct place *place)
{
    fa_buf words = {0};
    (void)place;
    fa_buf_text(&words, text_of(value, "family"));
    tunable_words(&words, value, " ");
    report_markdown_code(out, words.data != NULL ? words.data : "");
    out->failed |= words.failed;
    fa_buf_free(&words);
}

static void show_shared(fa_buf *out, const cJSON *trial, const struct place *place)
{
    double bytes = number_of(trial, "smem_bytes") + number_of(trial, "static_smem_bytes");
    (void)place;
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(trial, "smem_bytes")))
        fa_words_grouped(out, (int64_t)bytes);
    else
        fa_buf_text(out, "–");
}

/* What is compared with a time that is the model's has a tilde. */
static void show_ratio(fa_buf *out, const cJSON *value, const struct place *place)
{
    fa_buf_text(out, place->problem == NULL || is_timed(place->problem) ? "" : "~");
    report_ratio(out, report_number(value));
}

static void show_tflops(fa_buf *out, const cJSON *value, const struct place *place)
{
    fa_buf_text(out, is_timed(place->problem) ? "" : "~");
    fa_words_tflops(out, report_number(value));
}

/* A trial's. */
static void show_time(fa_buf *out, const cJSON *trial, const struct place *place)
{
    double us = number_of(trial, "median_us"), predicted_us = number_of(trial, "predicted_us");
    (void)place;
    if (us > 0) {
        double interval = number_of(trial, "high_us") - number_of(trial, "low_us");
        report_us(out, us);
        if (interval > 0) /* a single launch has none */
            fa_buf_printf(out, " ±%.*f", us < 9.995 ? 2 : 1, interval / 2);
    } else if (predicted_us > 0) {
        fa_buf_text(out, "*");
        report_about(out, predicted_us);
        fa_buf_text(out, "* predicted");
    } else {
        fa_buf_text(out, "–");
    }
}

/* Of a row that says itself whether it was measured. */
static void show_own_ratio(fa_buf *out, const cJSON *value, const struct place *place)
{
    fa_buf_text(out, is_true(place->row, "measured") ? "" : "~");
    report_ratio(out, report_number(value));
}

static void show_together(fa_buf *out, const cJSON *row, const struct place *place)
{
    double us = number_of(row, "together_us");
    (void)place;
    if (!(us > 0))
        fa_buf_text(out, "–");
    else if (is_true(row, "measured"))
        report_us(out, us);
    else
        report_about(out, us);
}

static void show_peers(fa_buf *out, const cJSON *peers, const struct place *place)
{
    for (const cJSON *peer = peers->child; peer != NULL; peer = peer->next) {
        const cJSON *ratio = member(peer, "ratio");
        fa_buf_text(out, peer != peers->child ? "; " : "");
        report_markdown_text(out, text_of(peer, "name"));
        fa_buf_text(out, ratio != NULL ? " " : " –");
        if (ratio != NULL)
            show_ratio(out, ratio, place);
    }
}

static void show_why(fa_buf *out, const cJSON *gate, const struct place *place)
{
    const cJSON *reasons = member(gate, "reasons");
    (void)place;
    for (int g = 0; g < FA_STAGES; g++)
        if (strcmp(text_of(gate, "status"), fa_status_name(fa_stages[g])) == 0)
            fa_buf_text(out, fa_stage_meaning(fa_stages[g]));
    for (const cJSON *one = reasons != NULL ? reasons->child : NULL; one != NULL; one = one->next) {
        fa_buf_printf(out, "; %.0f× ", number_of(one, "count"));
        report_markdown_text(out, text_of(one, "text"));
    }
    if (number_of(gate, "other_reasons") > 0)
        fa_buf_printf(out, "; %.0f with other reasons", number_of(gate, "other_reasons"));
}

/* ---- Markdown: tables -----------------------------------------------------------------------*/
/* A heading that ends in ':' has its column at the right. The last of a table has none. */
typedef struct column {
    const char *heading, *path;
    void (*words)(fa_buf *out, double value); /* a number's; else NULL */
    show *show;                               /* NULL: as the value says itself */
} column;

static const column summary_columns[] = {
    {"problem", "words", NULL, NULL},
    {"kernel", "winner/config", NULL, show_config},
    {"GPU", "gpu/name", NULL, NULL},
    {"known how", "known_how", NULL, NULL},
    {"slow", "slow", NULL, NULL},
    {"time:", "winner", NULL, show_time},
    {"TFLOP/s:", "tflops", NULL, show_tflops},
    {"default's time / fa-tune's:", "speedup_over_default", NULL, show_ratio},
    {"other kernels' time / fa-tune's", "baselines", NULL, show_peers},
    {"tried:", "configs_tried", count, NULL},
    {"compile:", "compile_ms", milliseconds, NULL},
    {"tune:", "tune_s", report_seconds, NULL},
    {0},
};
static const column peer_columns[] = {
    {"other kernel", "name", NULL, NULL},
    {"time:", "median_us", report_us, NULL},
    {"time / fa-tune's:", "ratio", NULL, show_ratio},
    {"source", "source", NULL, NULL},
    {0},
};
static const column gate_columns[] = {
    {"ended at", "status", NULL, NULL},
    {"configs:", "count", count, NULL},
    {"reason, with examples", "", NULL, show_why},
    {0},
};
static const column config_columns[] = {
    {"#:", "rank", count, NULL},
    {"config", "config", NULL, show_config},
    {"time:", "", NULL, show_time},
    {"95% low:", "low_us", report_us, NULL},
    {"95% high:", "high_us", report_us, NULL},
    {"samples:", "sample_count", count, NULL},
    {"model says:", "predicted_us", report_about, NULL},
    {"registers:", "registers", count, NULL},
    {"shared B:", "", NULL, show_shared},
    {"winner", "winner", NULL, NULL},
    {"default", "default", NULL, NULL},
    {"raced", "raced", NULL, NULL},
    {0},
};
static const column environment_columns[] = {
    {"trials:", "trials", count, NULL},
    {"GPU", "gpu", NULL, NULL},
    {"UUID", "uuid", NULL, NULL},
    {"driver's CUDA", "driver", report_driver, NULL},
    {"NVRTC", "nvrtc", NULL, NULL},
    {"fa-tune", "library", NULL, NULL},
    {0},
};
static const column regret_columns[] = {
    {"point", "words", NULL, NULL},
    {"its bucket", "bucket_words", NULL, NULL},
    {"GPU", "gpu", NULL, NULL},
    {"bucket's winner takes:", "bucket_us", report_us, NULL},
    {"best config takes:", "best_us", report_us, NULL},
    {"regret:", "regret", percent, NULL},
    {0},
};
static const column prediction_columns[] = {
    {"problem", "words", NULL, NULL},
    {"GPU", "gpu", NULL, NULL},
    {"known how", "known_how", NULL, NULL},
    {"model said:", "predicted_us", report_about, NULL},
    {"measured:", "measured_us", report_us, NULL},
    {"best:", "best_us", report_us, NULL},
    {"place:", "rank", count, NULL},
    {"configs measured:", "measured", count, NULL},
    {0},
};
static const column training_columns[] = {
    {"forward pass", "words", NULL, NULL},
    {"GPU", "gpu", NULL, NULL},
    {"forward:", "forward", NULL, show_time},
    {"backward:", "backward", NULL, show_time},
    {"backward over forward:", "ratio", NULL, show_own_ratio},
    {"together:", "", NULL, show_together},
    {0},
};
static const column pay_columns[] = {
    {"GPU", "<gpu", NULL, NULL},
    {"winners compared with", "against", NULL, NULL},
    {"problems measured:", "problems", count, NULL},
    {"problems:", "<problems", count, NULL},
    {"probes:", "probes", count, NULL},
    {"gain, geometric mean:", "gain", NULL, show_ratio},
    {"largest gain:", "most", NULL, show_ratio},
    {"configs", "configs", NULL, NULL},
    {0},
};

static void table_head(fa_buf *out, const column *columns)
{
    for (const column *c = columns; c->heading != NULL; c++)
        fa_buf_printf(out, "| %.*s ", (int)strcspn(c->heading, ":"), c->heading);
    fa_buf_text(out, "|\n");
    for (const column *c = columns; c->heading != NULL; c++)
        fa_buf_text(out, strchr(c->heading, ':') != NULL ? "|--:" : "|---");
    fa_buf_text(out, "|\n");
}

static void table_row(fa_buf *out, const column *columns, const struct place *place)
{
    for (const column *c = columns; c->heading != NULL; c++) {
        const cJSON *value = find(place, c->path);
        fa_buf_text(out, "| ");
        if (value == NULL || (c->words != NULL && isnan(report_number(value))))
            fa_buf_text(out, "–");
        else if (c->words != NULL)
            c->words(out, report_number(value));
        else if (c->show != NULL)
            c->show(out, value, place);
        else
            show_value(out, value);
        fa_buf_text(out, " ");
    }
    fa_buf_text(out, "|\n");
}

/* The first `most` entries of a list; nothing when it has none. */
static void table(fa_buf *out, const column *columns, const cJSON *list, const cJSON *problem,
                  size_t most)
{
    const cJSON *row = list != NULL ? list->child : NULL;
    if (row == NULL)
        return;
    table_head(out, columns);
    for (; row != NULL && most > 0; row = row->next, most--)
        table_row(out, columns, &(struct place){row, NULL, problem});
    fa_buf_text(out, "\n");
}

/* ---- Markdown: the summary ------------------------------------------------------------------*/
void report_summary_row(fa_buf *rows, const cJSON *problem)
{
    table_row(rows, summary_columns, &(struct place){problem, NULL, problem});
}

/* What is said first of each GPU type and operation. */
static void headlines(const report *report, fa_buf *out)
{
    cJSON *list = report_headlines_json(report);
    const cJSON *one;
    out->failed |= !fa_json_is_whole(list);
    cJSON_ArrayForEach (one, list) {
        fa_buf_text(out, "**");
        report_markdown_text(out, text_of(one, "sentence"));
        fa_buf_text(out, "**\n\n");
        const char *line = text_of(one, "circumstances");
        if (one->next != NULL && strcmp(line, text_of(one->next, "circumstances")) == 0)
            continue; /* one GPU type's are told once */
        report_markdown_text(out, line);
        fa_buf_text(out, "\n\n");
    }
    cJSON_Delete(list);
}

void report_summary(const report *report, const fa_buf *rows, fa_buf *out)
{
    const report_outcome *outcome = &report->outcome;
    fa_buf_text(out, "# fa-tune report\n\n");
    report_markdown_text(out, report->store);
    fa_buf_text(out, " · ");
    fa_words_time(out, report->made, true);
    fa_buf_printf(out, " · fa-tune %s\n\n", fa_version());
    headlines(report, out);
    if (outcome->problems == 0 && outcome->filtered > 0) {
        fa_buf_printf(out, "No problem in this store (%zu in all) matches the filters.\n",
                      outcome->filtered);
    } else if (outcome->problems == 0) {
        fa_buf_text(out, "This store holds no problem yet: tune one, as in `fa-tune --gpu L4 "
                         "--seq 512`.\n");
    } else {
        table_head(out, summary_columns);
        if (rows->data != NULL)
            fa_buf_append(out, rows->data, rows->size);
        fa_buf_text(out,
                    "\nA ratio is another kernel's time divided by fa-tune's: above 1, fa-tune is "
                    "faster. A ~ marks a prediction. The column \"known how\" says whether a "
                    "kernel was measured here, measured elsewhere or only predicted.\n\n");
    }
    out->failed |= rows->failed;
}

/* ---- Markdown: the report -------------------------------------------------------------------*/
typedef struct markdown {
    fa_buf rows, body; /* of the summary; a section for each problem */
} markdown;

static int markdown_begin(report *report)
{
    report->format = calloc(1, sizeof(markdown));
    return report->format != NULL ? 0 : FA_ENOMEM;
}

static void advice(fa_buf *out, const cJSON *problem)
{
    const cJSON *peers = member(problem, "baselines"), *fastest = NULL;
    for (const cJSON *peer = peers->child; peer != NULL; peer = peer->next)
        if (fastest == NULL || number_of(peer, "ratio") < number_of(fastest, "ratio"))
            fastest = peer;
    fa_buf_printf(out, "**⚠ Takes %.1f times as long as ", 1 / number_of(fastest, "ratio"));
    report_markdown_text(out, text_of(fastest, "name"));
    fa_buf_text(out,
                ": profile this kernel (`python -m fa_tune.profile`) before spending more time on "
                "tuning.**\n\n");
}

static void funnel(fa_buf *out, const cJSON *problem)
{
    const cJSON *f = member(problem, "funnel");
    fa_buf_text(out, "Funnel: ");
    if (member(f, "space") != NULL) {
        fa_buf_text(out, "space ");
        fa_words_grouped(out, (int64_t)number_of(f, "space"));
        fa_buf_text(out, " → ");
    }
    fa_buf_printf(out, "budget %.0f → compiled %.0f → clean %.0f → ", number_of(f, "in_budget"),
                  number_of(f, "compiled"), number_of(f, "clean"));
    if (is_true(f, "on_device"))
        fa_buf_printf(out, "proved and timed %.0f\n\n", number_of(f, "measured"));
    else
        fa_buf_printf(out, "%sno config timed\n\n",
                      member(problem, "winner") == NULL               ? ""
                      : number_of(problem, "winner/predicted_us") > 0 ? "ranked by the model, "
                                                                      : "unranked, ");
}

static void ranking(fa_buf *out, const cJSON *problem, size_t most)
{
    const cJSON *configs = member(problem, "configs");
    size_t ranked = 0;
    for (const cJSON *one = configs != NULL ? configs->child : NULL; one != NULL; one = one->next)
        ranked += number_of(one, "rank") > 0;
    if (ranked > 0)
        table(out, config_columns, configs, problem, ranked < most ? ranked : most);
    if (ranked > most)
        fa_buf_printf(out, "%zu further %s passed.\n\n", ranked - most,
                      ranked - most == 1 ? "config" : "configs");
}

static void circumstances(fa_buf *out, const cJSON *problem)
{
    const cJSON *mhz = member(problem, "sm_mhz"), *throttles = member(problem, "throttled_by");
    double others = number_of(problem, "trials_in_other_environments");
    table(out, environment_columns, member(problem, "environments"), problem, SIZE_MAX);
    if (others > 0)
        fa_buf_printf(out, "%.0f trials were made in further environments.\n\n", others);
    if (mhz != NULL && mhz->child != NULL && mhz->child->next != NULL)
        fa_buf_printf(out, "SM clock %d to %d MHz\n", mhz->child->valueint,
                      mhz->child->next->valueint);
    for (const cJSON *one = throttles != NULL ? throttles->child : NULL; one != NULL;
         one = one->next) {
        fa_buf_text(out, "Throttled by ");
        show_value(out, one);
        fa_buf_text(out, "\n");
    }
    fa_buf_text(out, "\n");
}

static void markdown_problem(report *report, report_problem *told)
{
    markdown *md = report->format;
    fa_buf *out = &md->body;
    int32_t top = report->options->top;
    cJSON *problem = report_document_whole_problem(told);
    if (!fa_json_is_whole(problem)) {
        out->failed = true;
        cJSON_Delete(problem);
        return;
    }
    report_summary_row(&md->rows, problem);
    fa_buf_text(out, "## ");
    report_markdown_text(out, text_of(problem, "words"));
    fa_buf_text(out, " on ");
    report_markdown_text(out, text_of(problem, "gpu/name"));
    fa_buf_printf(out, ": %s\n\n", text_of(problem, "known_how"));
    if (member(problem, "winner") == NULL)
        fa_buf_text(out, "**No config passed.** `fa-tune doctor` looks for causes outside the "
                         "kernels.\n\n");
    table(out, peer_columns, member(problem, "baselines"), problem, SIZE_MAX);
    if (is_true(problem, "slow"))
        advice(out, problem);
    funnel(out, problem);
    table(out, gate_columns, member(problem, "gates"), problem, SIZE_MAX);
    ranking(out, problem, top > 0 ? (size_t)top : RANKING);
    circumstances(out, problem);
    cJSON_Delete(problem);
}

static void pay(fa_buf *out, const cJSON *pays)
{
    if (pays == NULL || pays->child == NULL)
        return;
    fa_buf_text(out, "## Does tuning pay?\n\n");
    table_head(out, pay_columns);
    for (const cJSON *one = pays->child; one != NULL; one = one->next)
        for (const cJSON *row = member(one, "rows")->child; row != NULL; row = row->next)
            table_row(out, pay_columns, &(struct place){row, one, NULL});
    fa_buf_text(
        out,
        "\nThe gain is the other kernel's time divided by the winner's. A fixed config is the config "
        "that was measured on most of the problems and is fastest there on average; its time on the "
        "remaining problems is not known. A probe is a time taken alone and not in a race with the "
        "winner: differences of a few percent between probes mean nothing.\n\n");
}

static void training(fa_buf *out, const cJSON *rows)
{
    if (rows == NULL || rows->child == NULL)
        return;
    fa_buf_text(out, "## Training: backward beside forward\n\n");
    table(out, training_columns, rows, NULL, SIZE_MAX);
}

static void buckets(fa_buf *out, const report *report, const cJSON *regrets)
{
    report_regret_sum sum;
    if (report->regrets == 0)
        return;
    if (report_regret_summary(report, &sum) != 0) {
        out->failed = true;
        return;
    }
    fa_buf_printf(out,
                  "## Shape buckets\n\n%zu point%s between buckets: median regret %.1f%%, worst "
                  "%.1f%%.",
                  sum.points, sum.points == 1 ? "" : "s", 100 * sum.median, 100 * sum.worst);
    if (sum.failed > 0)
        fa_buf_printf(out, " At %zu of them the bucket's winner did not pass its proof.",
                      sum.failed);
    fa_buf_text(out, "\n\n");
    table(out, regret_columns, regrets, NULL, SIZE_MAX);
}

static void markdown_end(report *report)
{
    markdown *md = report->format;
    fa_buf *out = report->out;
    if (md == NULL)
        return;
    report_summary(report, &md->rows, out);
    cJSON *tail = report_document_tail(report, NULL);
    out->failed |= md->body.failed || !fa_json_is_whole(tail);
    if (report->outcome.problems > 0 && !out->failed) {
        training(out, member(tail, "training"));
        pay(out, member(tail, "pay"));
        buckets(out, report, member(tail, "regret"));
        fa_buf_text(out, report->predictions > 0 ? "## Predictions that were measured\n\n" : "");
        table(out, prediction_columns, member(tail, "predictions"), NULL, SIZE_MAX);
        if (md->body.data != NULL)
            fa_buf_append(out, md->body.data, md->body.size);
        if (report->outcome.older > 0)
            fa_buf_printf(out,
                          "%zu earlier results of these problems, made with other "
                          "templates, are left out.\n",
                          report->outcome.older);
    }
    cJSON_Delete(tail);
    fa_buf_free(&md->rows);
    fa_buf_free(&md->body);
    free(md);
    report->format = NULL;
}

const report_writer report_markdown = {markdown_begin, markdown_problem, markdown_end};
