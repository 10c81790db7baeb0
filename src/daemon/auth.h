/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may send requests over TCP: clients with the server's token may send all of them, the page those that only
 * read.
 *
 * A link to the page carries a secret in its fragment, which browsers send to no server and which is never logged.
 * The page presents it once (POST /v1/session) and gets a session's secret, which it keeps in its memory and sends
 * as "Authorization: Bearer …": no cookie, so no other page's request carries it. Secrets are kept as their hashes,
 * which are compared whole.
 */
#ifndef FA_DAEMON_AUTH_H
#define FA_DAEMON_AUTH_H

#include "service.h"

enum { SERVE_URL_SIZE = 256 };

bool serve_has_token(const serve_service *service, const serve_exchange *exchange);
/* Whether the request has a session's secret and comes from the page of this host. */
bool serve_has_session(const serve_service *service, const serve_exchange *exchange);
/* Whether the Host and Origin headers name this host by a name of the loopback. A page of another name (DNS
 * rebinding, or a request across origins) is refused. Peers on the Unix socket need no such headers. */
bool serve_is_at_home(const serve_exchange *exchange);

/* Makes a link to the page that works once and for some minutes; the link before it stops working. Opens the page's
 * port if it is not open yet. */
int serve_link_make(serve_service *service, char ret_url[SERVE_URL_SIZE], fa_diag *diag);
void serve_post_link(serve_service *service, serve_exchange *exchange);
void serve_post_session(serve_service *service, serve_exchange *exchange);

/* Prints the link on stdout and, where there is a display, opens it through a file that only this user can read and
 * that redirects there. `logs`: this process writes a log. false: nothing was printed, because stdout is where the
 * log goes and not a terminal. */
bool serve_open_page(const char *url, bool logs);
/* Asks the service at this Unix socket for a link. */
int serve_ask_for_link(const char *socket, char ret_url[SERVE_URL_SIZE], fa_diag *diag);

/* A number that is the same for all connections of one user of this host, or of one other host (for IPv6: of one
 * network). Two peers may have the same number by chance. */
unsigned serve_peer_of(int fd);

#endif
