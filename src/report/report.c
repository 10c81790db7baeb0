/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include "error.h"

int report_write(fa_tuner *tuner, const fa_report_options *options, const report_problems *problems,
                 fa_buf *out, fa_diag *diag)
{
    const report_part *part = options->format == FA_REPORT_HTML ? report_page_part : NULL;
    if (part != NULL)
        fa_buf_append(out, part[0].bytes, part[0].size);
    const int rc = report_document_write(tuner, options, problems, out, diag);
    if (part != NULL)
        fa_buf_append(out, part[1].bytes, part[1].size);
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
    report_problems problems;
    int rc = report_read(tuner, options, 0, &problems, diag);
    if (rc == 0)
        rc = report_write(tuner, options, &problems, &out, diag);
    report_problems_free(&problems);
    if (rc != 0) {
        fa_buf_free(&out);
        return rc;
    }
    *ret_text = out.data;
    *ret_size = out.size;
    return 0;
}
