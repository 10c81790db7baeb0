/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets to accept connections from.
 */
#ifndef FA_DAEMON_LISTEN_H
#define FA_DAEMON_LISTEN_H

#include "fa_types.h"

typedef struct serve_listener {
    int fd;
    bool local;  /* a Unix socket */
    int lock_fd; /* of the lock file of the process that serves there; -1 */
    char where[160]; /* "unix:/run/…", "tcp:127.0.0.1:7411" */
} serve_listener;

/* Binds a Unix socket that only its owner may use. A socket file that no process serves any more is replaced.
 * FA_EBUSY: another process serves there. */
int serve_listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag);
/* "HOST:PORT", "[::1]:PORT", or a port alone, which is on 127.0.0.1. Port 0: any, see `where`. */
int serve_listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag);
/* Closes the listener and removes its Unix socket. */
void serve_listener_close(serve_listener *listener);

#endif
