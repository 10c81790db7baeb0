/* SPDX-License-Identifier: Apache-2.0 */
#include "body.h"

#include "fa_types.h"

#include <stdlib.h>
#include <string.h>

static int reserve(serve_body_budget *budget, size_t more)
{
    if (budget == NULL)
        return 0;
    if (more > budget->limit - budget->used)
        return FA_EBUSY;
    budget->used += more;
    return 0;
}

serve_body *serve_body_make(const char *bytes, size_t size, serve_body_budget *budget)
{
    serve_body *body = reserve(budget, size + 1) == 0 ? malloc(sizeof *body + size + 1) : NULL;
    if (body == NULL)
        return NULL;
    *body = (serve_body){budget, 1, size, size + 1};
    memcpy(body->bytes, bytes, size);
    body->bytes[size] = 0;
    return body;
}

int serve_body_append(serve_body **body, const char *bytes, size_t size)
{
    serve_body *b = *body;
    size_t needed = b->size + size + 1;
    if (needed > b->capacity) {
        size_t capacity = b->capacity * 2 > needed ? b->capacity * 2 : needed;
        int rc = reserve(b->budget, capacity - b->capacity);
        if (rc != 0)
            return rc;
        serve_body *larger = realloc(b, sizeof *b + capacity);
        if (larger == NULL) {
            if (b->budget != NULL)
                b->budget->used -= capacity - b->capacity;
            return FA_ENOMEM;
        }
        *body = b = larger;
        b->capacity = capacity;
    }
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
    b->bytes[b->size] = 0;
    return 0;
}

serve_body *serve_body_keep(serve_body *body)
{
    body->references++;
    return body;
}

void serve_body_drop(serve_body **body)
{
    if (body == NULL || *body == NULL)
        return;
    serve_body *b = *body;
    *body = NULL;
    if (--b->references > 0)
        return;
    if (b->budget != NULL)
        b->budget->used -= b->capacity;
    free(b);
}
