/* SPDX-License-Identifier: Apache-2.0 */
#include "framing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A head must say the length of its body once and in one way: libmicrohttpd takes the first of two
 * lengths, a proxy might take the other, and one client's body would be another client's request.
 * The same holds for the host. */
struct framing {
    int lengths, encodings, hosts;
    size_t length;
    bool odd;
};

static enum MHD_Result look_at_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    struct framing *framing = context;
    (void)kind;
    if (strpbrk(name, " \t") != NULL) { /* "Content-Length : 5", which some take for the length */
        framing->odd = true;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        framing->lengths++;
        framing->odd |= value == NULL || *value == 0 || value[strspn(value, "0123456789")] != 0;
        framing->length = framing->odd ? 0 : (size_t)strtoull(value, NULL, 10);
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        framing->encodings++;
        framing->odd |= value == NULL || strcasecmp(value, "chunked") != 0;
        framing->length = SIZE_MAX;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        framing->hosts++;
    }
    return MHD_YES;
}

bool connection_is_ambiguous(struct connection *c)
{
    struct framing framing = {0};
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, look_at_header, &framing);
    c->exchange.announced = framing.length;
    return framing.odd || framing.lengths + framing.encodings > 1 || framing.hosts > 1;
}

/* A NUL would end the path where another reader of it goes on: it stays as it is written, and then
 * there is nothing at that path. */
size_t connection_unescape(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}
