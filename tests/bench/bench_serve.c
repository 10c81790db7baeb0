/* SPDX-License-Identifier: Apache-2.0
 *
 * Load on a daemon's Unix socket: kept connections, each with one request under way at a time, all
 * of the same bytes, on one thread with epoll.
 *
 *     bench_serve SOCKET CONNECTIONS REQUESTS < BODY        POST /v1/kernel with that body
 *
 * Prints one line of JSON: requests answered with 200, all others, seconds, requests per second and
 * the latencies' median, 99th percentile and maximum in microseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BODY_MAX = 1 << 16, REPLY_MAX = 1 << 16, CONNECTIONS_MAX = 20000, TURN = 256 };

struct client {
    int fd;
    size_t sent, got,
        whole; /* of the request; of the reply; its size once its head is there, else 0 */
    double began;
    char reply[REPLY_MAX];
};

static struct {
    char request[BODY_MAX + 256];
    size_t size;
    long wanted, begun, good, bad;
    float *latency_us; /* [wanted] */
    int epoll;
} load;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_serve: %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool read_request(void)
{
    static char body[BODY_MAX];
    size_t size = fread(body, 1, sizeof body, stdin);
    int head = snprintf(load.request, sizeof load.request,
                        "POST /v1/kernel HTTP/1.1\r\nHost: localhost\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                        size);
    if (head < 0 || size == sizeof body)
        return false;
    memcpy(load.request + head, body, size);
    load.size = (size_t)head + size;
    return true;
}

static void open_client(struct client *client, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >=
        (int)sizeof address.sun_path)
        die("the socket's path is too long");
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0 || connect(client->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        fcntl(client->fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(load.epoll, EPOLL_CTL_ADD, client->fd, &event) != 0)
        die(path);
}

/* Sends the next request, or nothing more when all have been begun. A request fits the socket. */
static void ask(struct client *client)
{
    if (load.begun == load.wanted)
        return;
    load.begun++;
    client->got = client->whole = 0;
    client->began = now_us();
    if (send(client->fd, load.request, load.size, MSG_NOSIGNAL) != (ssize_t)load.size)
        die("sending");
}

/* The size of the whole reply from its head, 0 while that is not there. */
static size_t reply_size(const struct client *client)
{
    static const char name[] = "Content-Length: ";
    const char *end = memmem(client->reply, client->got, "\r\n\r\n", 4);
    const char *length =
        end != NULL ? memmem(client->reply, (size_t)(end - client->reply), name, sizeof name - 1)
                    : NULL;
    if (length == NULL)
        return 0;
    return (size_t)(end + 4 - client->reply) + strtoul(length + sizeof name - 1, NULL, 10);
}

static void take(struct client *client)
{
    ssize_t n =
        recv(client->fd, client->reply + client->got, sizeof client->reply - client->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        die("the daemon closed a connection");
    client->got += (size_t)n;
    if (client->whole == 0)
        client->whole = reply_size(client);
    if (client->whole == 0 || client->got < client->whole)
        return;
    bool good = memcmp(client->reply, "HTTP/1.1 200 ", 13) == 0;
    load.latency_us[load.good + load.bad] = (float)(now_us() - client->began);
    load.good += good;
    load.bad += !good;
    ask(client);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report(double seconds)
{
    long count = load.good + load.bad;
    qsort(load.latency_us, (size_t)count, sizeof *load.latency_us, ascending);
    printf("{\"good\": %ld, \"other\": %ld, \"seconds\": %.3f, \"per_second\": %.0f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           load.good, load.bad, seconds, (double)count / seconds, load.latency_us[count / 2],
           load.latency_us[count * 99 / 100], load.latency_us[count - 1]);
}

int main(int argc, char **argv)
{
    struct epoll_event event[TURN];
    long connections = argc == 4 ? atol(argv[2]) : 0;
    load.wanted = argc == 4 ? atol(argv[3]) : 0;
    if (connections < 1 || connections > CONNECTIONS_MAX || load.wanted < connections ||
        !read_request()) {
        fprintf(stderr, "usage: bench_serve SOCKET CONNECTIONS REQUESTS < BODY\n");
        return 2;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    struct client *clients = calloc((size_t)connections, sizeof *clients);
    load.latency_us = calloc((size_t)load.wanted, sizeof *load.latency_us);
    if (load.epoll < 0 || clients == NULL || load.latency_us == NULL)
        die("starting");
    for (long i = 0; i < connections; i++)
        open_client(&clients[i], argv[1]);
    double began = now_us();
    for (long i = 0; i < connections; i++)
        ask(&clients[i]);
    while (load.good + load.bad < load.wanted) {
        int count = epoll_wait(load.epoll, event, TURN, -1);
        for (int i = 0; i < count; i++)
            take(event[i].data.ptr);
    }
    report((now_us() - began) / 1e6);
    free(load.latency_us);
    free(clients);
    return 0;
}
