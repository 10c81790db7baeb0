/* SPDX-License-Identifier: Apache-2.0
 *
 * Which problems a report tells. A problem that was tuned with several sets of templates is told once: with the present ones,
 * or with the newest where the present ones have not seen it. And a report's text: a page, or the document alone.
 */
#include "report.h"

#include "error.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

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
        rc = report_document_write(tuner, options, &problems, out, diag);
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
    fa_buf out = {0};
    if (tuner == NULL || options == NULL || ret_text == NULL || ret_size == NULL)
        return fa_fail(diag, FA_EINVAL, "tuner, options, ret_text or ret_size is NULL");
    if (options->size != sizeof *options ||
        (options->format != FA_REPORT_HTML && options->format != FA_REPORT_JSON))
        return fa_fail(diag, FA_EINVAL,
                       "the options of a report have another size, or there is no such format");
    const int rc = report_write(tuner, options, 0, &out, NULL, diag);
    if (rc != 0) {
        fa_buf_free(&out);
        return rc;
    }
    *ret_text = out.data;
    *ret_size = out.size;
    return 0;
}
