/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may ask over TCP: clients with the server's token, for everything; and the page, for what it reads.
 *
 * A link to the page carries a secret in its fragment, which no server and no log is told of. The page
 * hands it in once (POST /v1/session) and gets a session's secret, which it keeps in its memory and
 * sends as "Authorization: Bearer …": no cookie, so no other page's request carries it. Secrets are kept
 * as their hashes, which are compared whole.
 */
#ifndef FA_DAEMON_AUTH_H
#define FA_DAEMON_AUTH_H

#include "service.h"

enum { SERVE_URL_SIZE = 256 };

bool serve_has_token(const serve_service *service, const serve_exchange *exchange);
/* A session's secret, from a page of this host's own. */
bool serve_has_session(const serve_service *service, const serve_exchange *exchange);
/* Whether a browser that asks thinks of this host, by a name of the loopback; what another name's page
 * asks (its address was changed to ours, or it asks across origins) is refused. Local peers may. */
bool serve_is_at_home(const serve_exchange *exchange);

/* A link to the page, good once and for some minutes, in place of the last. Opens the page's port where it
 * is not open yet. */
int serve_link_make(serve_service *service, char ret_url[SERVE_URL_SIZE], fa_diag *diag);
void serve_post_link(serve_service *service, serve_exchange *exchange);
void serve_post_session(serve_service *service, serve_exchange *exchange);

/* Prints the link on stdout and, where there is a display, opens it by a file of this user's alone that
 * leads there. false: this process logs, and stdout is where the log goes, and not a terminal; nothing was
 * printed. */
bool serve_open_page(const char *url, bool logs);
/* Asks the service at this Unix socket for a link. */
int serve_ask_for_link(const char *socket, char ret_url[SERVE_URL_SIZE], fa_diag *diag);

/* A number that connections of one user of this host share, or of one other host (of IPv6: of one network);
 * others may have it too, by chance. */
unsigned serve_peer_of(int fd);

#endif
