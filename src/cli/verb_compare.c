/* SPDX-License-Identifier: Apache-2.0
 *
 * compare: whether winners became slower from one store or export to another, with confidence.
 *
 * Compared are measured winners of one problem on the same silicon, by their medians' 95% intervals:
 * slower is what stays above the margin even from NEW's low end to OLD's high end. Everything else is
 * listed with the reason why it was not compared: also what was imported, transferred, or measured
 * for other lengths.
 */
#include "error.h"
#include "json.h"
#include "problem.h"
#include "run.h"
#include "text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_SLOWER = 1, EXPORT_MAX = 256 << 20, WINNERS_MAX = 20000 };

typedef struct winner {
    fa_problem problem;
    char silicon[FA_SILICON_MAX], gpu[64];
    fa_origin origin;
    double median_us, low_us, high_us; /* 0: not measured */
    int64_t unix_time;
} winner;

typedef struct side {
    const char *path;
    winner *winner;
    size_t count, capacity;
} side;

/* ---- reading --------------------------------------------------------------------------------*/
static int same_key(const winner *a, const winner *b)
{
    return fa_problem_equal(&a->problem, &b->problem) && strcmp(a->silicon, b->silicon) == 0;
}

/* Of several winners of one problem (templates moved on), the newest that was measured counts. */
static int keep_winner(side *side, const winner *w)
{
    for (size_t i = 0; i < side->count; i++) {
        winner *other = &side->winner[i];
        if (!same_key(other, w))
            continue;
        bool measured = w->median_us > 0, before = other->median_us > 0;
        if (measured != before ? measured : w->unix_time > other->unix_time)
            *other = *w;
        return 0;
    }
    if (side->count == WINNERS_MAX)
        return FA_EINVAL;
    return fa_append(&side->winner, &side->count, &side->capacity, w, sizeof *w);
}

static int keep_answer(void *context, const fa_answer *answer)
{
    winner w = {
        .problem = answer->problem, .origin = answer->origin, .unix_time = answer->unix_time};
    fa_gpu_silicon(&answer->gpu, w.silicon);
    memcpy(w.gpu, answer->gpu.name, sizeof w.gpu);
    if (fa_origin_is_measured(answer->origin) && answer->trial.median_us > 0) {
        w.median_us = answer->trial.median_us;
        w.low_us = answer->trial.low_us;
        w.high_us = answer->trial.high_us;
    }
    return keep_winner(context, &w);
}

static int read_store(side *side, cli_run *run)
{
    fa_diag *diag = &run->diag;
    fa_tuner *tuner;
    fa_options library = cli_library_options(run->options);
    library.store = side->path;
    library.server = ""; /* the file itself */
    library.log = cli_progress_note;
    library.log_context = &run->progress;
    int rc = fa_open(&library, &tuner, diag);
    if (rc != 0)
        return rc;
    rc = fa_list_winners(tuner, keep_answer, side, diag);
    if (rc == FA_ENOMEM || rc == FA_EINVAL)
        fa_fail(diag, rc, "%s", rc == FA_ENOMEM ? "out of memory" : "too many winners");
    fa_close(&tuner);
    return rc;
}

/* A number of the answer that may be null, which is 0 here. */
static int read_time(const cJSON *answer, const char *key, double *ret, fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(answer, key);
    if (item == NULL || cJSON_IsNull(item))
        return 0;
    int rc = fa_json_number(answer, key, ret, "answer", diag);
    if (rc == 0 && !(*ret > 0))
        rc = fa_fail(diag, FA_EINVAL, "\"%s\" is %g: a time is above 0", key, *ret);
    return rc;
}

static int read_times(const cJSON *answer, winner *ret, fa_diag *diag)
{
    int rc = fa_json_int(answer, "unix_time", 0, (int64_t)1 << 40, &ret->unix_time, "answer", diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    rc = read_time(answer, "median_us", &ret->median_us, diag);
    if (rc == 0)
        rc = read_time(answer, "low_us", &ret->low_us, diag);
    return rc == 0 ? read_time(answer, "high_us", &ret->high_us, diag) : rc;
}

static int read_winner(const cJSON *json, winner *ret, fa_diag *diag)
{
    const cJSON *answer = cJSON_GetObjectItemCaseSensitive(json, "answer");
    const char *origin = NULL;
    fa_gpu gpu = {0};
    *ret = (winner){0};
    const cJSON *problem = cJSON_GetObjectItemCaseSensitive(json, "answered_problem");
    if (problem == NULL) /* the one that was asked is the winner's own */
        problem = cJSON_GetObjectItemCaseSensitive(json, "problem");
    int rc = fa_problem_from_strict_json(problem, FA_NEED_INTEGERS, "*", &ret->problem, diag);
    if (rc == 0)
        rc = fa_gpu_from_json(cJSON_GetObjectItemCaseSensitive(json, "gpu"), &gpu, diag);
    if (rc != 0)
        return rc;
    if (!cJSON_IsObject(answer))
        return fa_fail(diag, FA_EINVAL, "\"answer\" is missing");
    rc = fa_json_text(answer, "origin", &origin, "answer", diag);
    if (rc == FA_ENOTFOUND || (rc == 0 && fa_origin_parse(origin, &ret->origin) != 0))
        return fa_fail(diag, FA_EINVAL, "its origin is not known");
    if (rc != 0 || (rc = read_times(answer, ret, diag)) != 0)
        return rc;
    if (ret->low_us > 0 && ret->high_us > 0 &&
        !(ret->low_us <= ret->median_us && ret->median_us <= ret->high_us))
        return fa_fail(diag, FA_EINVAL, "its interval does not hold its median");
    if (!fa_origin_is_measured(ret->origin))
        ret->median_us = ret->low_us = ret->high_us = 0;
    fa_gpu_silicon(&gpu, ret->silicon);
    memcpy(ret->gpu, gpu.name, sizeof ret->gpu);
    return 0;
}

/* The document of show ("winners") or of sweep ("items", of which some may have no answer). */
static int read_export(side *side, const char *text, size_t size, fa_diag *diag)
{
    cJSON *document = NULL;
    size_t blank = 0;
    while (blank < size && strchr(" \t\r\n", text[blank]) != NULL)
        blank++;
    bool json = blank < size && text[blank] == '{';
    int rc = json ? fa_json_parse(text, size, "document", &document, diag) : 0;
    const cJSON *winners = cJSON_GetObjectItemCaseSensitive(document, "winners");
    const cJSON *list =
        winners != NULL ? winners : cJSON_GetObjectItemCaseSensitive(document, "items");
    if (rc == 0 && !cJSON_IsArray(list))
        rc = fa_fail(diag, FA_EINVAL,
                     "it is neither a store nor the output of `fa-tune show --json` or `fa-tune "
                     "sweep --json`");
    size_t number = 0;
    for (const cJSON *item = rc == 0 ? list->child : NULL; item != NULL && rc == 0;
         item = item->next, number++) {
        winner w;
        if (list != winners && cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(item, "answer")))
            continue;
        rc = read_winner(item, &w, diag);
        if (rc == 0)
            rc = keep_winner(side, &w);
        if (rc != 0)
            fa_fail_in(diag, rc, "winner %zu", number + 1);
    }
    cJSON_Delete(document);
    return rc;
}

/* A file that begins as SQLite's do is a store; nothing is created that is not there. */
static int read_side(side *side, cli_run *run)
{
    fa_diag *diag = &run->diag;
    static const char magic[16] = "SQLite format 3";
    char head[sizeof magic] = {0};
    fa_buf file = {0};
    if (strstr(side->path, "://") != NULL) /* said without it: there may be a password in it */
        return fa_fail(diag, FA_EINVAL,
                       "OLD and NEW are files: `fa-tune show --json` makes one of a "
                       "store on a server");
    int fd = open(side->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool store = fd >= 0 && read(fd, head, sizeof head) == sizeof head &&
                 memcmp(head, magic, sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    if (store)
        return read_store(side, run);
    int rc = fa_input_read(&file, side->path, EXPORT_MAX, diag);
    if (rc == 0 && file.size == 0)
        rc = fa_fail(diag, FA_EINVAL, "it is empty");
    else if (rc == 0)
        rc = read_export(side, file.data, file.size, diag);
    fa_buf_free(&file);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "%.200s", side->path);
}

/* ---- comparing ------------------------------------------------------------------------------*/
typedef enum verdict { SAME, FASTER, SLOWER, NOT_COMPARABLE } verdict;
static const char *const verdicts[] = {"same", "faster", "SLOWER", "not comparable"};

typedef struct pair {
    const winner *old, *new; /* one may be NULL */
    verdict verdict;
    char reason[64];         /* why it is not comparable; "" when it is */
    double ratio, low, high; /* NEW over OLD: medians, and from the nearest to the farthest ends */
} pair;

/* As in "predicted in both" or "imported in OLD, predicted in NEW". */
static void not_measured(const winner *old, const winner *new, char *ret, size_t size)
{
    const char *a = fa_origin_is_measured(old->origin) ? "not timed" : fa_origin_name(old->origin);
    const char *b = fa_origin_is_measured(new->origin) ? "not timed" : fa_origin_name(new->origin);
    bool in_old = !(old->median_us > 0), in_new = !(new->median_us > 0);
    if (in_old && in_new && strcmp(a, b) == 0)
        snprintf(ret, size, "%s in both", a);
    else
        snprintf(ret, size, "%s%s%s%s%s", in_old ? a : "", in_old ? " in OLD" : "",
                 in_old && in_new ? ", " : "", in_new ? b : "", in_new ? " in NEW" : "");
}

static pair compare(const winner *old, const winner *new, double margin)
{
    pair p = {.old = old, .new = new, .verdict = NOT_COMPARABLE};
    if (old == NULL || new == NULL)
        snprintf(p.reason, sizeof p.reason, "only in %s", old == NULL ? "NEW" : "OLD");
    else if (!(old->median_us > 0) || !(new->median_us > 0))
        not_measured(old, new, p.reason, sizeof p.reason);
    else if (!(old->low_us > 0 && old->high_us > 0 && new->low_us > 0 && new->high_us > 0))
        snprintf(p.reason, sizeof p.reason, "an interval is missing");
    if (p.reason[0] != 0)
        return p;
    p.ratio = new->median_us / old->median_us;
    p.low = new->low_us / old->high_us;
    p.high = new->high_us / old->low_us;
    p.verdict = p.low > 1 + margin ? SLOWER : p.high < 1 / (1 + margin) ? FASTER : SAME;
    return p;
}

/* The same problem on another silicon says why nothing stands beside it. */
static void explain_alone(pair *p, const side *other)
{
    const winner *w = p->old != NULL ? p->old : p->new;
    for (size_t i = 0; i < other->count; i++)
        if (fa_problem_equal(&w->problem, &other->winner[i].problem))
            snprintf(p->reason, sizeof p->reason, "another silicon");
}

static const winner *find_winner(const side *side, const winner *w)
{
    for (size_t i = 0; i < side->count; i++)
        if (same_key(&side->winner[i], w))
            return &side->winner[i];
    return NULL;
}

static int compare_pairs(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if ((x->verdict == NOT_COMPARABLE) != (y->verdict == NOT_COMPARABLE))
        return x->verdict == NOT_COMPARABLE ? 1 : -1;
    if (x->ratio != y->ratio) /* the slowest first */
        return x->ratio < y->ratio ? 1 : -1;
    const winner *v = x->old != NULL ? x->old : x->new, *w = y->old != NULL ? y->old : y->new;
    char key_v[FA_PROBLEM_KEY_MAX], key_w[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&v->problem, key_v);
    fa_problem_key(&w->problem, key_w);
    return strcmp(key_v, key_w);
}

static pair *pair_up(const side *old, const side *new, double margin, size_t *ret_count)
{
    size_t count = 0;
    pair *pairs = calloc(old->count + new->count + 1, sizeof *pairs);
    for (size_t i = 0; i < old->count && pairs != NULL; i++) {
        const winner *other = find_winner(new, &old->winner[i]);
        pairs[count] = compare(&old->winner[i], other, margin);
        if (other == NULL)
            explain_alone(&pairs[count], new);
        count++;
    }
    for (size_t i = 0; i < new->count &&pairs != NULL; i++) {
        if (find_winner(old, &new->winner[i]) != NULL)
            continue;
        pairs[count] = compare(NULL, &new->winner[i], margin);
        explain_alone(&pairs[count], old);
        count++;
    }
    if (pairs != NULL)
        qsort(pairs, count, sizeof *pairs, compare_pairs);
    *ret_count = count;
    return pairs;
}

/* ---- printing -------------------------------------------------------------------------------*/
static void put_time(cli_table *table, const winner *w)
{
    if (w != NULL && w->median_us > 0)
        cli_text_us(&table->cell, w->median_us);
    cli_cell_end(table);
}

static void print_text(const pair *pairs, size_t count, const size_t *counts, double margin,
                       fa_buf *out)
{
    cli_table table = {0};
    for (size_t i = 0; i < count; i++) {
        const pair *p = &pairs[i];
        const winner *w = p->new != NULL ? p->new : p->old;
        cli_cell(&table, "%s", verdicts[p->verdict]);
        cli_text_problem_short(&table.cell, &w->problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", w->gpu);
        put_time(&table, p->old);
        put_time(&table, p->new);
        if (p->verdict == NOT_COMPARABLE)
            cli_cell(&table, "%s", p->reason);
        else
            cli_cell(&table, "%.3f (%.3f to %.3f)", p->ratio, p->low, p->high);
        cli_row_end(&table);
    }
    cli_table_put(&table, "=|=problem|~GPU|>old|>new|=new / old", out);
    fa_buf_printf(out,
                  "%zu slower by more than %g%% with confidence, %zu faster, %zu the same, %zu "
                  "not comparable\n",
                  counts[SLOWER], margin * 100, counts[FASTER], counts[SAME],
                  counts[NOT_COMPARABLE]);
}

static cJSON *json_side(const winner *w)
{
    if (w == NULL)
        return cJSON_CreateNull();
    cJSON *json = cJSON_CreateObject();
    const struct {
        const char *name;
        double value;
    } times[] = {{"median_us", w->median_us}, {"low_us", w->low_us}, {"high_us", w->high_us}};
    fa_json_add_text(json, "origin", fa_origin_name(w->origin));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        if (times[i].value > 0)
            fa_json_add_number(json, times[i].name, times[i].value);
        else
            fa_json_add_null(json, times[i].name);
    }
    return json;
}

static void print_json(const pair *pairs, size_t count, const size_t *counts, double margin,
                       cJSON *document)
{
    static const char *const names[] = {"same", "faster", "slower", "not-comparable"};
    fa_json_add_number(document, "margin", margin);
    cJSON *total = fa_json_add_object(document, "counts");
    for (size_t v = 0; v < sizeof names / sizeof *names; v++)
        fa_json_add_number(total, names[v], (double)counts[v]);
    cJSON *array = fa_json_add_array(document, "problems");
    for (size_t i = 0; i < count; i++) {
        const pair *p = &pairs[i];
        const winner *w = p->new != NULL ? p->new : p->old;
        cJSON *item = cJSON_CreateObject();
        fa_json_add(item, "problem", fa_problem_to_json(&w->problem));
        fa_json_add_text(item, "gpu", w->gpu);
        fa_json_add_text(item, "silicon", w->silicon);
        fa_json_add_text(item, "verdict", names[p->verdict]);
        fa_json_add_text(item, "reason", p->reason);
        fa_json_add(item, "old", json_side(p->old));
        fa_json_add(item, "new", json_side(p->new));
        if (p->verdict == NOT_COMPARABLE) {
            fa_json_add_null(item, "ratio");
        } else {
            fa_json_add_number(item, "ratio", p->ratio);
            fa_json_add_number(item, "ratio_low", p->low);
            fa_json_add_number(item, "ratio_high", p->high);
        }
        fa_json_push(array, item);
    }
}

static int finish_comparison(cli_run *run, const side *old, const side *new)
{
    size_t count = 0, counts[4] = {0};
    double margin = run->options->margin / 100;
    pair *pairs = pair_up(old, new, margin, &count);
    if (pairs == NULL)
        return FA_ENOMEM;
    for (size_t i = 0; i < count; i++)
        counts[pairs[i].verdict]++;
    if (run->options->json)
        print_json(pairs, count, counts, margin, run->document);
    else
        print_text(pairs, count, counts, margin, &run->out);
    free(pairs);
    int status = cli_print(run);
    if (status == 0 && counts[NOT_COMPARABLE] == count)
        return fa_fail(&run->diag, FA_ENOTFOUND,
                       "nothing could be compared: OLD and NEW share no problem that "
                       "was measured on the same silicon in both");
    return status == 0 && counts[SLOWER] > 0 ? EXIT_SLOWER : status;
}

int cli_compare(cli_run *run)
{
    side sides[2] = {{.path = run->options->operand[0]}, {.path = run->options->operand[1]}};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = read_side(&sides[i], run);
    int status =
        rc != 0 ? cli_error(EXIT_USAGE, &run->diag) : finish_comparison(run, &sides[0], &sides[1]);
    free(sides[0].winner);
    free(sides[1].winner);
    return status;
}
