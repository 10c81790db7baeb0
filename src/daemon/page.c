/* SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

serve_page *serve_page_of(const char *type, size_t size, struct MHD_Response *response)
{
    serve_page *page = response != NULL ? calloc(1, sizeof *page) : NULL;
    if (page != NULL &&
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES) {
        *page = (serve_page){response, size, 1};
        return page;
    }
    free(page);
    if (response != NULL)
        MHD_destroy_response(response);
    return NULL;
}

serve_page *serve_page_make(const char *type, void *bytes, size_t size)
{
    struct MHD_Response *response =
        bytes != NULL ? MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response == NULL)
        free(bytes);
    return serve_page_of(type, size, response);
}

serve_page *serve_page_json(char *text)
{
    return serve_page_make("application/json", text, text != NULL ? strlen(text) : 0);
}

serve_page *serve_page_text(const char *type, const char *text)
{
    size_t size = strlen(text);
    return serve_page_of(
        type, size,
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT));
}

void serve_page_header(serve_page *page, const char *name, const char *value)
{
    if (page != NULL)
        MHD_add_response_header(page->response, name, value);
}

serve_page *serve_page_keep(serve_page *page)
{
    if (page != NULL)
        page->references++;
    return page;
}

void serve_page_drop(serve_page **page)
{
    if (page == NULL || *page == NULL)
        return;
    if (--(*page)->references == 0) {
        MHD_destroy_response((*page)->response);
        free(*page);
    }
    *page = NULL;
}
