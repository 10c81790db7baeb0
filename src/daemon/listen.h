/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets to accept connections from: opened by the daemon itself, or passed by systemd.
 */
#ifndef FA_DAEMON_LISTEN_H
#define FA_DAEMON_LISTEN_H

#include "fa_types.h"

#include <sys/types.h>

typedef struct serve_listener {
    int fd;
    bool local;   /* a Unix socket: peers are known by their uid */
    int lock_fd;  /* of the file that says who serves there; -1 */
    dev_t device; /* of the socket that was bound, so that no other's is removed */
    ino_t inode;
    char where[160]; /* "unix:/run/…", "tcp:127.0.0.1:7411" */
} serve_listener;

/* Binds a Unix socket that only its owner may use, in place of a socket that no process serves any more.
 * FA_EBUSY: somebody does. */
int serve_listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag);
/* "HOST:PORT", "[::1]:PORT", or a port alone, which is on 127.0.0.1. Port 0: any, see `where`. */
int serve_listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag);
/* The sockets that systemd passes, at most `room`; *ret_count is 0 when it passes none. */
int serve_listen_inherited(serve_listener *ret_listeners, int room, int *ret_count, fa_diag *diag);
/* Removes a Unix socket that we have bound. */
void serve_listener_close(serve_listener *listener);

/* A connection, or -1 when there is none for now (or the peer is somebody else: *ret_refused). */
int serve_listener_accept(const serve_listener *listener, bool *ret_refused);

/* "READY=1" and the like to systemd, if it wants to know. */
void serve_notify(const char *state);

#endif
