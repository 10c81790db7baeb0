/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages: prepared responses, shared by any number of replies. On the loop's thread.
 */
#ifndef FA_DAEMON_PAGE_H
#define FA_DAEMON_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

typedef struct serve_page {
    struct MHD_Response *response;
    size_t size;
    int references;
} serve_page;

/* Takes a response of libmicrohttpd's, or NULL; one reference. NULL: out of memory. */
serve_page *serve_page_of(const char *type, size_t size, struct MHD_Response *response);
/* From malloced bytes, which the page owns from here on; NULL: out of memory, or no bytes. */
serve_page *serve_page_make(const char *type, void *bytes, size_t size);
serve_page *serve_page_json(char *text);                         /* the same for a JSON text */
serve_page *serve_page_text(const char *type, const char *text); /* of a constant */
/* NULL page is allowed. */
void serve_page_header(serve_page *page, const char *name, const char *value);
serve_page *serve_page_keep(serve_page *page);
void serve_page_drop(serve_page **page); /* NULL and pointer to NULL are allowed */

#endif
