/* SPDX-License-Identifier: Apache-2.0
 *
 * Where libmicrohttpd reads a head more kindly than a proxy before the daemon may.
 */
#ifndef FA_DAEMON_FRAMING_H
#define FA_DAEMON_FRAMING_H

#include "connection.h"

/* Whether a head can be read in two ways; else exchange.announced is set. */
bool connection_is_ambiguous(struct connection *c);
/* For libmicrohttpd: decodes a path or an argument in place. */
size_t connection_unescape(void *context, struct MHD_Connection *mhd, char *text);

#endif
