/* SPDX-License-Identifier: Apache-2.0
 *
 * From the store to a report: which studies are told, in which order, one at a time. A problem that was tuned with
 * several sets of templates is told once: with the present ones, or with the newest where the present ones have not
 * seen it. The outcome counts what is left out.
 *
 * The page is its static file (page/, embedded at build time) with the document that its script draws, and the Markdown
 * summary for whoever has no script. A page of a thousand problems stays below 5 MB: the more there are, the fewer
 * configs of each are told in full.
 */
#include "data.h"

#include "error.h"
#include "operation.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROBLEM_BYTES = 4100000 }; /* for the problems of all */

typedef struct page {
    report_document document;
    fa_buf rows; /* of the summary */
    fa_buf text; /* the document */
} page;

static int page_begin(report *report)
{
    page *page = calloc(1, sizeof *page);
    if (page == NULL)
        return FA_ENOMEM;
    report->format = page;
    page->document.is_short = true;
    report_document_begin(report, &page->text);
    return 0;
}

static void page_problem(report *report, report_problem *problem)
{
    page *page = report->format;
    size_t left = report->outcome.problems - (size_t)problem->number + 1;
    size_t room = page->text.size < PROBLEM_BYTES ? PROBLEM_BYTES - page->text.size : 0;
    page->document.room = room / left;
    report_summary_row(&page->rows, problem->json);
    report_document_problem(report, &page->document, problem, &page->text);
}

static void write_page(fa_buf *out, const fa_buf *summary, const fa_buf *document)
{
    fa_buf_append(out, report_page_part[0].bytes, report_page_part[0].size);
    if (summary->data != NULL)
        report_html_lines(out, summary->data);
    fa_buf_append(out, report_page_part[1].bytes, report_page_part[1].size);
    if (document->data != NULL)
        report_script_json(out, document->data);
    fa_buf_append(out, report_page_part[2].bytes, report_page_part[2].size);
}

static void end(report *report, bool whole)
{
    page *page = report->format;
    fa_buf *out = report->out, summary = {0};
    if (page == NULL)
        return;
    report_document_end(report, &page->document, &page->text);
    report_summary(report, &page->rows, &summary);
    if (whole)
        write_page(out, &summary, &page->text);
    else if (page->text.data != NULL)
        fa_buf_append(out, page->text.data, page->text.size);
    out->failed |= page->text.failed || summary.failed;
    report_document_free(&page->document);
    fa_buf_free(&page->text);
    fa_buf_free(&page->rows);
    fa_buf_free(&summary);
    free(page);
    report->format = NULL;
}

static void page_end(report *report)
{
    end(report, true);
}

static void document_end(report *report)
{
    end(report, false);
}

static const report_writer report_page = {page_begin, page_problem, page_end};
static const report_writer report_page_json = {page_begin, page_problem, document_end};

/* ---- from the store -------------------------------------------------------------------------*/
struct studies {
    fa_study *study;
    size_t count, capacity;
};

/* A tune of --seq 0 that did not end is nothing that anybody would finish. */
static int keep_study(void *context, const fa_study *study)
{
    struct studies *list = context;
    if (!study->has_winner && fa_problem_computes_nothing(&study->problem))
        return 0;
    return fa_append(&list->study, &list->count, &list->capacity, study, sizeof *study);
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* What kernels are compiled for comes first, then lengths: a table is read along them. */
static int rank_of(const fa_field *field)
{
    return field->shapes_source ? 0 : field->length ? 1 : 2;
}

/* By silicon, then by operation, the default one first, then as a grid of problems is read; generations of one
 * problem follow one another, the one to be told first. */
static int compare_studies(const void *a, const void *b)
{
    const fa_study *x = a, *y = b;
    int order = strcmp(x->silicon, y->silicon);
    if (order != 0)
        return order;
    const fa_operation *operation = fa_operation_of(&x->problem);
    const fa_operation *other = fa_operation_of(&y->problem), *first = fa_operation_of(NULL);
    if (operation != other && (operation == first || other == first))
        return operation == first ? -1 : 1;
    if (operation != other)
        return strcmp(operation->name, other->name);
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < operation->field_count && order == 0; i++)
            if (rank_of(&operation->field[i]) == pass)
                order = compare_numbers(x->problem.value[i], y->problem.value[i]);
    if (order == 0)
        order = compare_numbers(y->current, x->current);
    if (order == 0)
        order = compare_numbers(y->has_winner, x->has_winner);
    if (order == 0)
        order = compare_numbers(y->unix_time, x->unix_time);
    return order != 0 ? order : strcmp(x->templates, y->templates);
}

/* Keeps what was asked for, in order, each problem once. */
static void select_studies(const report_options *options, struct studies *list,
                           report_outcome *outcome)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (report_asked_for(options, &list->study[i].problem, list->study[i].gpu.name))
            list->study[kept++] = list->study[i];
        else
            outcome->filtered++;
    }
    list->count = kept;
    if (kept > 0)
        qsort(list->study, kept, sizeof *list->study, compare_studies);
    kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        const fa_study *last = kept > 0 ? &list->study[kept - 1] : NULL;
        if (last != NULL && strcmp(last->silicon, list->study[i].silicon) == 0 &&
            fa_problem_equal(&last->problem, &list->study[i].problem))
            outcome->older++;
        else
            list->study[kept++] = list->study[i];
    }
    list->count = kept;
    if (options->most > 0 && kept > (size_t)options->most) {
        outcome->filtered += kept - (size_t)options->most;
        list->count = kept = (size_t)options->most;
    }
    outcome->problems = kept;
}

/* ---- baselines ------------------------------------------------------------------------------*/
struct baselines {
    fa_baseline *baseline;
    size_t count, capacity;
    const struct studies *studies;
};

static int keep_baseline(void *context, const fa_baseline *baseline)
{
    struct baselines *list = context;
    bool concerns = false;
    for (size_t i = 0; i < list->studies->count && !concerns; i++) {
        const fa_study *study = &list->studies->study[i];
        fa_answer answer = {.problem = study->problem, .gpu = study->gpu};
        concerns = fa_baseline_concerns(baseline, &answer);
    }
    return concerns ? fa_append(&list->baseline, &list->count, &list->capacity, baseline,
                                sizeof *baseline)
                    : 0;
}

/* ---- the report -----------------------------------------------------------------------------*/
static const report_writer *const writers[] = {
    [REPORT_HTML] = &report_page,
    [REPORT_MARKDOWN] = &report_markdown,
    [REPORT_CSV] = &report_csv,
    [REPORT_JSON] = &report_json,
    [REPORT_PAGE_JSON] = &report_page_json,
};

static int write_problems(report *report, const struct studies *studies, fa_diag *diag)
{
    const report_options *options = report->options;
    const report_writer *writer = writers[options->format];
    int rc = writer->begin(report);
    for (size_t i = 0; i < studies->count && rc == 0; i++) {
        report_problem problem;
        if (options->progress != NULL &&
            options->progress(options->context, (int32_t)i, (int32_t)studies->count)) {
            rc = fa_fail(diag, FA_ECANCELED, "the report was stopped");
            break;
        }
        rc = report_collect(report, &studies->study[i], &problem, diag);
        if (rc != 0)
            break;
        problem.number = (int)i + 1;
        rc = report_pay_add(report, &problem);
        if (rc == 0)
            rc = report_headline_add(report, &problem);
        if (rc == 0)
            rc = report_training_add(report, &problem);
        writer->problem(report, &problem);
        report_problem_free(&problem);
    }
    if (rc == 0)
        rc = report_pay_end(report);
    writer->end(report);
    return rc == 0 && report->out->failed ? FA_ENOMEM : rc;
}

/* ~/.cache/fa-tune/store.db: reports are passed on, and need not name whose home it was. */
static void word_store(const char *path, char *ret, size_t size)
{
    const char *home = getenv("HOME");
    size_t length = home != NULL ? strlen(home) : 0;
    bool at_home = length > 1 && strncmp(path, home, length) == 0 && path[length] == '/';
    snprintf(ret, size, "%s%s", at_home ? "~" : "", at_home ? path + length : path);
}

int report_write(fa_tuner *tuner, const report_options *options, fa_buf *out,
                 report_outcome *ret_outcome, fa_diag *diag)
{
    struct studies studies = {0};
    struct baselines baselines = {.studies = &studies};
    report report = {.tuner = tuner, .options = options, .out = out, .made = (int64_t)time(NULL)};
    word_store(fa_store_location(tuner), report.store, sizeof report.store);
    int rc = fa_list_studies(tuner, keep_study, &studies, diag);
    if (rc != 0)
        goto done;
    select_studies(options, &studies, &report.outcome);
    if ((rc = fa_list_baselines(tuner, keep_baseline, &baselines, diag)) != 0 ||
        (rc = report_collect_extras(&report, diag)) != 0)
        goto done;
    report.baseline = baselines.baseline;
    report.baselines = baselines.count;
    rc = write_problems(&report, &studies, diag);
    if (rc == 0)
        *ret_outcome = report.outcome;
done:
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory for a report");
    free(studies.study);
    free(baselines.baseline);
    free(report.regret);
    free(report.prediction);
    free(report.pass);
    report_pay_free(&report);
    report_headlines_free(&report);
    return rc;
}

int fa_write_report(fa_tuner *tuner, const fa_report_options *options, char **ret_text,
                    size_t *ret_size, fa_diag *diag)
{
    fa_buf out = {0};
    report_outcome outcome;
    if (tuner == NULL || options == NULL || ret_text == NULL || ret_size == NULL)
        return fa_fail(diag, FA_EINVAL, "tuner, options, ret_text or ret_size is NULL");
    if (options->size != sizeof *options || options->format < FA_REPORT_HTML ||
        options->format > FA_REPORT_JSON)
        return fa_fail(diag, FA_EINVAL,
                       "the options of a report have another size, or there is no such format");
    const report_options own = {.format = (report_format)options->format,
                                .keep = options->keep,
                                .progress = options->progress,
                                .context = options->context,
                                .top = options->top};
    int rc = report_write(tuner, &own, &out, &outcome, diag);
    fa_buf_append(&out, "", 1);
    if (rc == 0 && out.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a report");
    if (rc != 0) {
        fa_buf_free(&out);
        return rc;
    }
    *ret_text = out.data;
    *ret_size = out.size - 1;
    return 0;
}
