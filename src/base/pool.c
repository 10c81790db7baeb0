/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct fa_child {
    uv_pipe_t pipe;
    uv_timer_t deadline;
    int open_handles; /* of the two above */
    pid_t pid;        /* 0 once reaped */
    bool stopped;     /* closing: no more events */
    fa_buf input;
    int timeout_ms;
    bool late; /* its deadline has passed once while something of it lay unread */
    fa_child_events events;
    void *context;
};

struct write_request {
    uv_write_t request;
    fa_buf buf;
};

static void handle_closed(uv_handle_t *handle)
{
    fa_child *child = handle->data;
    if (--child->open_handles == 0) {
        fa_buf_free(&child->input);
        free(child);
    }
}

static void *reap(void *context)
{
    pid_t pid = (pid_t)(intptr_t)context;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return NULL;
}

/* Waits for a child that was told to die. One that sits in a driver call may take long: after a
 * while a thread of its own waits for it, and the caller goes on. True when *ret_status is known. */
static bool wait_for_death(pid_t pid, int *ret_status)
{
    enum { PATIENCE_MS = 3000 };
    pthread_t thread;
    for (int i = 0; i < PATIENCE_MS; i++) {
        pid_t dead = waitpid(pid, ret_status, WNOHANG);
        if (dead != 0 && !(dead < 0 && errno == EINTR))
            return dead == pid;
        usleep(1000);
    }
    if (pthread_create(&thread, NULL, reap, (void *)(intptr_t)pid) == 0)
        pthread_detach(thread);
    return false;
}

/* By somebody else: the out-of-memory killer, a service manager, a person. */
static bool from_outside(int signal)
{
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

/* Kills, reaps and closes; describes the end of the child for `reason`. */
static fa_child_end end_child(fa_child *child, char *reason, size_t size)
{
    int status = 0;
    bool known = false, by_itself = false;
    if (child->pid > 0) {
        pid_t pid = waitpid(child->pid, &status, WNOHANG);
        by_itself = pid == child->pid;
        /* Killed only while it is known to run: a pid that the kernel or the host has reaped may be
         * another process's by now. */
        if (pid == 0) {
            kill(-child->pid, SIGKILL); /* its process group: what it started, too */
            known = wait_for_death(child->pid, &status);
        } else {
            known = by_itself;
        }
        child->pid = 0;
    }
    if (!known) /* the host ignores SIGCHLD, or waits for any child */
        snprintf(reason, size, "ended");
    else if (WIFSIGNALED(status))
        snprintf(reason, size, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(reason, size, "exited with code %d", WEXITSTATUS(status));
    child->stopped = true;
    uv_timer_stop(&child->deadline);
    uv_close((uv_handle_t *)&child->pipe, handle_closed);
    uv_close((uv_handle_t *)&child->deadline, handle_closed);
    return by_itself && WIFSIGNALED(status) && from_outside(WTERMSIG(status)) ? FA_CHILD_KILLED
                                                                              : FA_CHILD_DIED;
}

/* why: NULL when the child ended by itself. */
static void child_gone(fa_child *child, const char *why, bool timed_out)
{
    char reason[160];
    if (child->stopped)
        return;
    /* End of file comes a moment before the zombie: give the exit status a chance to be real. */
    for (int i = 0; why == NULL && i < 50; i++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != 0)
            break;
        usleep(1000);
    }
    fa_child_end end = end_child(child, reason, sizeof reason);
    child->events.gone(child, why != NULL ? why : reason, timed_out ? FA_CHILD_TIMED_OUT : end);
}

/* A loop that was held up (a stopped process, a slow callback) sees its timers before what has come
 * meanwhile: what lies there unread is taken first, once. */
static void deadline_passed(uv_timer_t *timer)
{
    enum { GRACE_MS = 5000 };
    fa_child *child = timer->data;
    char why[80];
    struct pollfd unread = {.events = POLLIN};
    if (!child->late && uv_fileno((uv_handle_t *)&child->pipe, &unread.fd) == 0 &&
        poll(&unread, 1, 0) > 0) {
        child->late = true;
        uv_timer_start(timer, deadline_passed, GRACE_MS, 0);
        return;
    }
    snprintf(why, sizeof why, "did not answer within %d ms", child->timeout_ms);
    child_gone(child, why, true);
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)handle;
    ret->base = malloc(suggested);
    ret->len = ret->base != NULL ? suggested : 0;
}

/* Hands out every whole message that has come. */
static void take_messages(fa_child *child)
{
    while (!child->stopped) {
        fa_message message = {0};
        fa_diag diag;
        size_t used;
        if (fa_message_decode(child->input.data, child->input.size, &message, &used, &diag) != 0) {
            child_gone(child, diag.text, false);
            return;
        }
        if (used == 0)
            return;
        memmove(child->input.data, child->input.data + used, child->input.size - used);
        child->input.size -= used;
        uv_timer_stop(&child->deadline);
        child->events.message(child, &message);
        fa_message_free(&message);
    }
}

static void bytes_came(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    fa_child *child = stream->data;
    if (count > 0 && !child->stopped)
        fa_buf_append(&child->input, buffer->base, (size_t)count);
    free(buffer->base);
    if (child->stopped)
        return;
    if (count < 0)
        child_gone(child, NULL, false);
    else if (child->input.failed)
        child_gone(child, "sent more than memory holds", false);
    else if (count > 0)
        take_messages(child);
}

/* The child's signal mask and dispositions are made plain; its own process group keeps a
 * terminal's Ctrl-C for the parent to decide on. */
static int spawn(const char *path, char *const *arguments, char *const *environment, int fd,
                 pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    posix_spawn_file_actions_adddup2(&actions, fd, FA_CHILD_FD);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn_file_actions_addclosefrom_np(&actions, FA_CHILD_FD + 1);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    if (rc == 0)
        rc = posix_spawn(ret_pid, path, &actions, &attributes, arguments,
                         environment != NULL ? environment : environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

int fa_child_start(uv_loop_t *loop, const char *path, char *const *arguments,
                   char *const *environment, const fa_child_events *events, void *context,
                   fa_child **ret_child, fa_diag *diag)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return fa_fail(diag, FA_EIO, "no socket pair for a worker: %s", strerror(errno));
    /* dup2 onto itself would keep close-on-exec set: move the child's end out of the way. */
    int theirs = pair[1] == FA_CHILD_FD ? fcntl(pair[1], F_DUPFD_CLOEXEC, FA_CHILD_FD + 1)
                                        : pair[1];
    if (theirs != pair[1])
        close(pair[1]);
    fa_child *child = calloc(1, sizeof *child);
    int rc = child == NULL || theirs < 0 ? ENOMEM
                                         : spawn(path, arguments, environment, theirs, &child->pid);
    if (theirs >= 0)
        close(theirs);
    if (rc != 0) {
        close(pair[0]);
        free(child);
        return fa_fail(diag, FA_EWORKER, "cannot start the worker %s: %s", path, strerror(rc));
    }
    child->events = *events;
    child->context = context;
    uv_pipe_init(loop, &child->pipe, 0);
    uv_timer_init(loop, &child->deadline);
    child->open_handles = 2;
    child->pipe.data = child->deadline.data = child;
    rc = uv_pipe_open(&child->pipe, pair[0]);
    if (rc != 0)
        close(pair[0]);
    else
        rc = uv_read_start((uv_stream_t *)&child->pipe, give_buffer, bytes_came);
    if (rc != 0) {
        fa_child_stop(&child);
        return fa_fail(diag, FA_EWORKER, "cannot listen to the worker %s: %s", path,
                       uv_strerror(rc));
    }
    *ret_child = child;
    return 0;
}

void fa_child_kill(fa_child *child)
{
    siginfo_t info = {0};
    if (child != NULL && child->pid > 0 &&
        waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == 0) /* it runs, and nobody has reaped it */
        kill(-child->pid, SIGKILL);
}

void fa_child_stop(fa_child **child)
{
    char reason[160];
    if (child == NULL || *child == NULL)
        return;
    if (!(*child)->stopped)
        end_child(*child, reason, sizeof reason);
    *child = NULL;
}

static void written(uv_write_t *request, int status)
{
    struct write_request *write = (struct write_request *)request;
    (void)status; /* a broken pipe shows as end of file on the reading side */
    fa_buf_free(&write->buf);
    free(write);
}

int fa_child_send(fa_child *child, const cJSON *json, const void *blob, size_t blob_size,
                  int timeout_ms, fa_diag *diag)
{
    struct write_request *write = calloc(1, sizeof *write);
    if (write == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a message");
    int rc = fa_message_encode(json, blob, blob_size, &write->buf, diag);
    if (rc == 0) {
        uv_buf_t buffer = uv_buf_init(write->buf.data, (unsigned)write->buf.size);
        int uv = uv_write(&write->request, (uv_stream_t *)&child->pipe, &buffer, 1, written);
        if (uv != 0)
            rc = fa_fail(diag, FA_EWORKER, "cannot write to a worker: %s", uv_strerror(uv));
    }
    if (rc != 0) {
        fa_buf_free(&write->buf);
        free(write);
        return rc;
    }
    fa_child_deadline(child, timeout_ms);
    return 0;
}

void fa_child_deadline(fa_child *child, int timeout_ms)
{
    child->timeout_ms = timeout_ms;
    child->late = false;
    if (timeout_ms > 0)
        uv_timer_start(&child->deadline, deadline_passed, (uint64_t)timeout_ms, 0);
    else
        uv_timer_stop(&child->deadline);
}

void fa_child_yield(fa_child *child, int nice)
{
    struct sched_param none = {0};
    if (nice <= 0 || child->pid <= 0)
        return;
    setpriority(PRIO_PROCESS, (id_t)child->pid, nice);
    if (nice >= 19)
        sched_setscheduler(child->pid, SCHED_IDLE, &none);
}

void *fa_child_context(const fa_child *child)
{
    return child->context;
}
