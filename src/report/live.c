/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a service serves it: without a document, which its script asks for.
 */
#include "report.h"

void report_live_page(fa_buf *out)
{
    static const char without_script[] = "This page is drawn by its script.";
    fa_buf_append(out, report_live_part[0].bytes, report_live_part[0].size);
    fa_buf_text(out, without_script);
    fa_buf_append(out, report_live_part[1].bytes, report_live_part[1].size);
    fa_buf_append(out, report_live_part[2].bytes, report_live_part[2].size);
}
