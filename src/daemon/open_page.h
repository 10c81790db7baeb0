/* SPDX-License-Identifier: Apache-2.0
 *
 * A link to the page, on its way to the person who asked for it. It is a secret until it is used: no log
 * and no argument of a program is told of it.
 */
#ifndef FA_DAEMON_OPEN_PAGE_H
#define FA_DAEMON_OPEN_PAGE_H

#include "auth.h"

/* Prints the link on stdout and, where there is a display, opens it by a file of this user's alone that
 * leads there. false: this process logs, and stdout is where the log goes, and not a terminal; nothing was
 * printed. */
bool serve_open_page(const char *url, bool logs);
/* Asks the service at this Unix socket for a link. */
int serve_ask_for_link(const char *socket, char ret_url[SERVE_URL_SIZE], fa_diag *diag);

#endif
