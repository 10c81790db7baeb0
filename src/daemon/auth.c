/* SPDX-License-Identifier: Apache-2.0 */
#include "auth.h"

#include "error.h"
#include "reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum { SECRET_BYTES = 32, SESSION_S = 12 * 3600 };

typedef char secret[2 * SECRET_BYTES + 1];

/* ---- secrets --------------------------------------------------------------------------------*/
/* The hash of what the client sends as its bearer token. */
static bool hash_of_bearer(const serve_exchange *exchange, unsigned char ret_hash[FA_HASH_BYTES])
{
    static const char scheme[] = "Bearer ";
    const char *header = serve_header(exchange, MHD_HTTP_HEADER_AUTHORIZATION);
    if (header == NULL || strncasecmp(header, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *token = header + sizeof scheme - 1;
    token += strspn(token, " ");
    size_t size = strlen(token);
    if (size < SERVE_TOKEN_MIN || size > SERVE_TOKEN_MAX)
        return false;
    fa_hash_raw(token, size, ret_hash);
    return true;
}

/* All of their bytes: the time tells nothing of the secret. */
static bool same(const unsigned char a[FA_HASH_BYTES], const unsigned char b[FA_HASH_BYTES])
{
    unsigned char different = 0;
    for (size_t i = 0; i < FA_HASH_BYTES; i++)
        different |= a[i] ^ b[i];
    return different == 0;
}

static bool is_good(const serve_secret *kept, const unsigned char hash[FA_HASH_BYTES],
                    int64_t now_ms)
{
    return same(kept->hash, hash) && now_ms < kept->until_ms;
}

static bool make_secret(serve_secret *kept, int64_t until_ms, secret ret_text)
{
    unsigned char bytes[SECRET_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
    fa_hash_raw(ret_text, 2 * sizeof bytes, kept->hash);
    kept->until_ms = until_ms;
    return true;
}

/* ---- who asks -------------------------------------------------------------------------------*/
bool serve_has_token(const serve_service *service, const serve_exchange *exchange)
{
    unsigned char hash[FA_HASH_BYTES];
    return service->settings->has_token && hash_of_bearer(exchange, hash) &&
           same(hash, service->settings->token_hash);
}

static bool is_loopback(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = strlen(names[i]);
        const char *port = host + size + 1;
        if (strncasecmp(host, names[i], size) == 0 &&
            (host[size] == 0 ||
             (host[size] == ':' && *port != 0 && port[strspn(port, "0123456789")] == 0)))
            return true;
    }
    return false;
}

bool serve_is_at_home(const serve_exchange *exchange)
{
    static const char scheme[] = "http://";
    const char *host = serve_header(exchange, MHD_HTTP_HEADER_HOST);
    const char *origin = serve_header(exchange, MHD_HTTP_HEADER_ORIGIN);
    if (exchange->local)
        return true;
    if (host == NULL || !is_loopback(host))
        return false;
    return origin == NULL || (strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
                              strcasecmp(origin + sizeof scheme - 1, host) == 0);
}

bool serve_has_session(const serve_service *service, const serve_exchange *exchange)
{
    unsigned char hash[FA_HASH_BYTES];
    bool found = false;
    if (!serve_is_at_home(exchange) || !hash_of_bearer(exchange, hash))
        return false;
    for (int i = 0; i < SERVE_SESSIONS; i++)
        found |= is_good(&service->session[i], hash, serve_now_ms(service));
    return found;
}

/* ---- links ----------------------------------------------------------------------------------*/
int serve_link_make(serve_service *service, char ret_url[SERVE_URL_SIZE], fa_diag *diag)
{
    const char *address = NULL;
    secret text;
    if (service->need_port == NULL)
        return fa_fail(diag, FA_ENOTSUP, "this server opens no port");
    int rc = service->need_port(service->ready_context, &address, diag);
    if (rc != 0)
        return rc;
    const int64_t until_ms = serve_now_ms(service) + service->settings->link_timeout_s * 1000;
    if (!make_secret(&service->link, until_ms, text))
        return fa_fail(diag, FA_EIO, "the system has no random bytes");
    snprintf(ret_url, SERVE_URL_SIZE, "http://%s/#%s", address, text);
    return 0;
}

void serve_post_link(serve_service *service, serve_exchange *exchange)
{
    char url[SERVE_URL_SIZE], text[SERVE_URL_SIZE + 48];
    fa_diag diag;
    if (!exchange->local) {
        serve_reply_refused(exchange, MHD_HTTP_FORBIDDEN, FA_EUNTRUSTED,
                            "links are made on the Unix socket alone: fa-tune serve --open", 0);
        return;
    }
    int rc = serve_link_make(service, url, &diag);
    if (rc != 0) {
        serve_reply_error(exchange, rc, diag.text, NULL);
        return;
    }
    snprintf(text, sizeof text, "{\"url\":\"%s\",\"seconds\":%d}", url,
             service->settings->link_timeout_s);
    serve_page *page = serve_page_json(strdup(text));
    serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    serve_reply_page(exchange, MHD_HTTP_CREATED, page);
}

/* In place of the session that ends first, be it over already. */
void serve_post_session(serve_service *service, serve_exchange *exchange)
{
    unsigned char hash[FA_HASH_BYTES];
    const int64_t now_ms = serve_now_ms(service);
    serve_secret *oldest = &service->session[0];
    secret text;
    char reply[sizeof text + 16];
    if (!serve_is_at_home(exchange) || !hash_of_bearer(exchange, hash) ||
        !is_good(&service->link, hash, now_ms)) {
        service->counts.unauthorized++;
        serve_reply_refused(exchange, MHD_HTTP_UNAUTHORIZED, FA_EUNTRUSTED,
                            "this link was used already or is too old: fa-tune serve --open makes "
                            "another",
                            0);
        return;
    }
    service->link = (serve_secret){{0}, 0};
    for (int i = 1; i < SERVE_SESSIONS; i++)
        if (service->session[i].until_ms < oldest->until_ms)
            oldest = &service->session[i];
    if (!make_secret(oldest, now_ms + SESSION_S * (int64_t)1000, text)) {
        serve_reply_error(exchange, FA_EIO, "the system has no random bytes", NULL);
        return;
    }
    snprintf(reply, sizeof reply, "{\"session\":\"%s\"}", text);
    serve_page *page = serve_page_json(strdup(reply));
    serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    serve_reply_page(exchange, MHD_HTTP_OK, page);
}
