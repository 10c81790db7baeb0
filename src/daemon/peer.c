/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel tells whose a socket of this host is (sock_diag(7)): one request and one answer, which is there
 * when the request was taken, however many sockets there are.
 */
#include "peer.h"

#include "hash.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NETWORK_BYTES = 8 }; /* of an IPv6 address */

struct place {
    unsigned char address[16];
    size_t size;
    in_port_t port;
};

static bool read_place(const struct sockaddr_storage *from, struct place *ret)
{
    *ret = (struct place){0};
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        ret->port = in->sin_port;
        ret->size = sizeof in->sin_addr;
        memcpy(ret->address, &in->sin_addr, ret->size);
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        ret->port = in->sin6_port;
        ret->size = sizeof in->sin6_addr;
        memcpy(ret->address, &in->sin6_addr, ret->size);
    }
    return ret->size > 0;
}

/* The socket whose own end `peer` is. Without an inode its process has closed it already, and the kernel
 * names root. */
static bool find_user(sa_family_t family, const struct place *peer, const struct place *own,
                      uint32_t *ret_user)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 asked;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST},
             .asked = {.sdiag_family = (uint8_t)family,
                       .sdiag_protocol = IPPROTO_TCP,
                       .idiag_states = UINT32_MAX,
                       .id = {.idiag_sport = peer->port,
                              .idiag_dport = own->port,
                              .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg socket;
        char attributes[1024];
    } told;
    memcpy(ask.asked.id.idiag_src, peer->address, peer->size);
    memcpy(ask.asked.id.idiag_dst, own->address, own->size);
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool good = fd >= 0 && send(fd, &ask, sizeof ask, MSG_DONTWAIT) == (ssize_t)sizeof ask &&
                recv(fd, &told, sizeof told, MSG_DONTWAIT) >=
                    (ssize_t)(sizeof told.head + sizeof told.socket) &&
                told.head.nlmsg_type == SOCK_DIAG_BY_FAMILY && told.socket.idiag_inode != 0;
    if (fd >= 0)
        close(fd);
    if (good)
        *ret_user = told.socket.idiag_uid;
    return good;
}

unsigned serve_peer_of(int fd)
{
    struct sockaddr_storage peer, own;
    socklen_t peer_size = sizeof peer, own_size = sizeof own;
    struct place from, to;
    uint32_t user;
    unsigned char hash[FA_HASH_BYTES];
    unsigned number;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_size) != 0 || !read_place(&peer, &from) ||
        !read_place(&own, &to))
        return 0;
    bool network = peer.ss_family == AF_INET6 &&
                   !IN6_IS_ADDR_V4MAPPED(&((struct sockaddr_in6 *)&peer)->sin6_addr);
    if (find_user(peer.ss_family, &from, &to, &user))
        fa_hash_raw(&user, sizeof user, hash);
    else
        fa_hash_raw(from.address, network ? NETWORK_BYTES : from.size, hash);
    memcpy(&number, hash, sizeof number);
    return number;
}
