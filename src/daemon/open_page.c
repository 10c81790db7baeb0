/* SPDX-License-Identifier: Apache-2.0 */
#include "open_page.h"

#include "buf.h"
#include "error.h"

#include <cJSON.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ANSWER_S = 60, ANSWER_MAX = 8192 };

static bool is_given(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != 0;
}

static bool goes_into_the_log(void)
{
    struct stat out, log;
    return isatty(STDOUT_FILENO) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
           fstat(STDERR_FILENO, &log) == 0 && out.st_dev == log.st_dev && out.st_ino == log.st_ino;
}

/* One file, which the next link replaces. The shell ends at once and leaves the browser to itself. */
static void open_on_desktop(const char *url)
{
    static char shell[] = "sh", flag[] = "-c", script[] = "xdg-open \"$0\" >/dev/null 2>&1 &";
    char path[1024], text[SERVE_URL_SIZE + 128];
    char *arguments[] = {shell, flag, script, path, NULL};
    const char *folder = getenv("XDG_RUNTIME_DIR");
    pid_t child;
    if (folder == NULL || folder[0] != '/' ||
        (!is_given("DISPLAY") && !is_given("WAYLAND_DISPLAY")))
        return;
    int size = snprintf(path, sizeof path, "%s/fa-tune-open.html", folder);
    snprintf(text, sizeof text,
             "<!DOCTYPE html><meta charset=\"utf-8\"><title>fa-tune</title>"
             "<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n",
             url);
    if (size < 0 || (size_t)size >= sizeof path ||
        fa_replace_file(path, text, strlen(text), 0600) != 0 ||
        posix_spawnp(&child, "sh", NULL, NULL, arguments, environ) != 0)
        return; /* the link is printed all the same */
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

bool serve_open_page(const char *url, bool logs)
{
    const bool hidden = logs && goes_into_the_log();
    if (!hidden) {
        printf("%s\n", url);
        fflush(stdout);
    }
    open_on_desktop(url);
    return !hidden;
}

/* ---- asking ---------------------------------------------------------------------------------*/
static int connect_to(const char *path, fa_diag *diag)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = ANSWER_S};
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0))
        return fd;
    if (fd >= 0)
        close(fd);
    fa_fail(diag, FA_EIO, "the service at %s cannot be asked for a link", path);
    return -1;
}

/* Such as serve_link_make() makes; it becomes part of a file of HTML. */
static bool is_link(const char *text)
{
    static const char before[] = "http://127.0.0.1:";
    return text != NULL && strncmp(text, before, sizeof before - 1) == 0 &&
           strlen(text) < SERVE_URL_SIZE && text[strspn(text, "0123456789abcdefhtp:/.#")] == 0;
}

static int read_link(const char *answer, char ret_url[SERVE_URL_SIZE], fa_diag *diag)
{
    const char *body = strstr(answer, "\r\n\r\n");
    cJSON *json = body != NULL ? cJSON_Parse(body + 4) : NULL;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const char *url = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "url"));
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    int rc = 0;
    if (is_link(url))
        snprintf(ret_url, SERVE_URL_SIZE, "%s", url);
    else
        rc = fa_fail(diag, FA_EIO, "the service that runs gave no link: %s",
                     why != NULL ? why : "it does not understand the request");
    cJSON_Delete(json);
    return rc;
}

int serve_ask_for_link(const char *path, char ret_url[SERVE_URL_SIZE], fa_diag *diag)
{
    static const char ask[] = "POST /v1/links HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                              "Connection: close\r\n\r\n";
    char answer[ANSWER_MAX];
    size_t size = 0;
    ssize_t got = 0;
    int fd = connect_to(path, diag);
    if (fd < 0)
        return FA_EIO;
    if (send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == (ssize_t)sizeof ask - 1)
        while (size < sizeof answer - 1 &&
               (got = recv(fd, answer + size, sizeof answer - 1 - size, 0)) > 0)
            size += (size_t)got;
    close(fd);
    answer[size] = 0;
    return read_link(answer, ret_url, diag);
}
