/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets to accept connections from: opened by the service itself, or passed by systemd.
 */
#ifndef FA_DAEMON_LISTEN_H
#define FA_DAEMON_LISTEN_H

#include "fa_types.h"

#include <sys/types.h>

typedef struct serve_listener {
    int fd;
    bool local;  /* a Unix socket */
    int lock_fd; /* of the lock file of the process that serves there; -1 */
    ino_t inode; /* of the socket that was bound, so that no other socket is removed; 0: none was */
    char where[160]; /* "unix:/run/…", "tcp:127.0.0.1:7411" */
} serve_listener;

/* Binds a Unix socket that only its owner may use. A socket file that no process serves any more is replaced.
 * FA_EBUSY: another process serves there. */
int serve_listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag);
/* "HOST:PORT", "[::1]:PORT", or a port alone, which is on 127.0.0.1. Port 0: any, see `where`. */
int serve_listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag);
/* Whether it is such an address, without resolving it. */
int serve_tcp_check(const char *where, fa_diag *diag);
/* The sockets that systemd passes, at most `room`; *ret_count is 0 when it passes none. */
int serve_listen_inherited(serve_listener *ret_listeners, int room, int *ret_count, fa_diag *diag);
/* Closes the listener and removes its Unix socket if this process has bound it. */
void serve_listener_close(serve_listener *listener);
/* Sends "READY=1" and the like to systemd, if NOTIFY_SOCKET is set. */
void serve_notify(const char *state);

#endif
