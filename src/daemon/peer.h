/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose a TCP connection is before it has sent a token: for fair shares of connections, not for trust.
 */
#ifndef FA_DAEMON_PEER_H
#define FA_DAEMON_PEER_H

/* A number that connections of one user of this host share, or of one other host (of IPv6: of one network);
 * others may have it too, by chance. */
unsigned serve_peer_of(int fd);

#endif
