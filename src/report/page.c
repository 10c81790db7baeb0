/* SPDX-License-Identifier: Apache-2.0
 *
 * The page: its static file (page/, embedded at build time) with the document that its script draws,
 * and the Markdown summary for whoever has no script. A page of a thousand problems stays below 5 MB:
 * the more there are, the fewer configs of each are told in full.
 */
#include "data.h"

#include <stdlib.h>

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

const report_writer report_page = {page_begin, page_problem, page_end};
const report_writer report_page_json = {page_begin, page_problem, document_end};
