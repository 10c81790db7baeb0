/* SPDX-License-Identifier: Apache-2.0
 *
 * The page's static file, made by embed.py from page/: what stands before the summary, between it and
 * the document, and after the document. The live one is the same with page/live.js.
 */
#ifndef FA_REPORT_PAGE_H
#define FA_REPORT_PAGE_H

#include <stddef.h>

typedef struct report_part {
    const unsigned char *bytes;
    size_t size;
} report_part;

extern const report_part report_page_part[3], report_live_part[3];

#endif
