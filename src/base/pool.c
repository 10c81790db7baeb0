/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- messages -------------------------------------------------------------------------------*/
struct frame {
    char mark[4];
    uint32_t json;
    uint64_t blob;
};
static const char mark[4] = {'F', 'A', 'M', '1'};

void fa_message_free(fa_message *message)
{
    if (message == NULL)
        return;
    cJSON_Delete(message->json);
    free(message->blob);
    *message = (fa_message){0};
}

int fa_message_encode(const cJSON *json, const void *blob, size_t blob_size, fa_buf *buf,
                      fa_diag *diag)
{
    FA_ENDS(fa_free_at) char *text = fa_json_print(json);
    FA_OR_RETURN(fa_have(text != NULL, "a message", diag));
    size_t length = strlen(text);
    if (length > FA_FRAME_JSON_MAX || blob_size > FA_FRAME_BLOB_MAX)
        return fa_fail(diag, FA_EINVAL, "message of %zu + %zu bytes is too large", length,
                       blob_size);
    struct frame frame = {.json = (uint32_t)length, .blob = blob_size};
    memcpy(frame.mark, mark, sizeof mark);
    fa_buf_append(buf, &frame, sizeof frame);
    fa_buf_append(buf, text, length);
    fa_buf_append(buf, blob, blob_size);
    return fa_have(!buf->failed, "writing a message", diag);
}

static int check_frame(const struct frame *frame, fa_diag *diag)
{
    if (memcmp(frame->mark, mark, sizeof mark) != 0)
        return fa_fail(diag, FA_ECORRUPT, "message does not begin with its mark");
    return frame->json <= FA_FRAME_JSON_MAX && frame->blob <= FA_FRAME_BLOB_MAX
               ? 0
               : fa_fail(diag, FA_ECORRUPT, "message announces %lu + %lu bytes: too large",
                         (unsigned long)frame->json, (unsigned long)frame->blob);
}

static int decode_body(const char *body, size_t json_size, size_t blob_size,
                       fa_message *ret_message, fa_diag *diag)
{
    FA_ENDS(fa_message_free) fa_message message = {.blob_size = blob_size};
    FA_OR_RETURN(fa_json_parse(body, json_size, "message", &message.json, diag));
    if (!cJSON_IsObject(message.json))
        return fa_fail(diag, FA_ECORRUPT, "message is not a JSON object");
    if (blob_size != 0 && (message.blob = malloc(blob_size)) == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a message of %zu bytes", blob_size);
    if (blob_size != 0)
        memcpy(message.blob, body + json_size, blob_size);
    *ret_message = message;
    message = (fa_message){0};
    return 0;
}

int fa_message_decode(const void *bytes, size_t size, fa_message *ret_message, size_t *ret_used,
                      fa_diag *diag)
{
    struct frame frame;
    *ret_used = 0;
    if (size < sizeof frame)
        return 0;
    memcpy(&frame, bytes, sizeof frame);
    int rc = check_frame(&frame, diag);
    if (rc != 0 || size < sizeof frame + frame.json + frame.blob)
        return rc;
    rc = decode_body((const char *)bytes + sizeof frame, frame.json, frame.blob, ret_message, diag);
    if (rc == 0)
        *ret_used = sizeof frame + frame.json + frame.blob;
    return rc;
}

int fa_message_write(int fd, cJSON *json, const void *blob, size_t blob_size, fa_diag *diag)
{
    FA_ENDS(fa_buf_free) fa_buf buf = {0};
    int rc = fa_message_encode(json, blob, blob_size, &buf, diag);
    cJSON_Delete(json);
    for (size_t done = 0; rc == 0 && done < buf.size;) {
        ssize_t n = send(fd, buf.data + done, buf.size - done, MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            rc = fa_fail(diag, FA_EIO, "writing a message: %s", strerror(errno));
    }
    return rc;
}

static int read_exactly(int fd, void *bytes, size_t size, fa_diag *diag)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)bytes + done, size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return fa_fail(diag, FA_EIO, "the other end closed the channel");
        else if (errno != EINTR)
            return fa_fail(diag, FA_EIO, "reading a message: %s", strerror(errno));
    }
    return 0;
}

int fa_message_read(int fd, fa_message *ret_message, fa_diag *diag)
{
    struct frame frame;
    FA_OR_RETURN(read_exactly(fd, &frame, sizeof frame, diag));
    FA_OR_RETURN(check_frame(&frame, diag));
    const size_t size = frame.json + frame.blob;
    FA_ENDS(fa_free_at) char *body = malloc(size + 1);
    FA_OR_RETURN(fa_have(body != NULL, "a message", diag));
    FA_OR_RETURN(read_exactly(fd, body, size, diag));
    return decode_body(body, frame.json, frame.blob, ret_message, diag);
}

/* ---- the process at the other end of a socket ------------------------------------------------*/
/* Processes are started with posix_spawn (never fork: the host may have threads that hold locks) in a group of
 * their own, and reaped by pid, so that no SIGCHLD handler is installed in the host.
 * Invariant: no signal is sent to a pid that somebody has reaped. A pid that is 0 stands for none. */
extern char **environ;

/* What CUDA, Nsight, the dynamic linker, sanitizers and the tests' driver read: whole names, or beginnings that end in "_". None
 * may hold a secret, as NVIDIA_API_KEY does, or FA_TUNE_STORE with a password in it. */
static bool is_passed_on(const char *variable)
{
    static const char names[] =
        "CUDA_ LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT LD_BIND_NOW NV_ NVTX_ NVIDIA_VISIBLE_DEVICES "
        "NVIDIA_DRIVER_CAPABILITIES PATH HOME TMPDIR FA_TUNE_LIBCUDA FAKE_ ASAN_ LSAN_ TSAN_ UBSAN_ ";
    size_t size;
    for (const char *name = names; *name != 0; name += size + 1) {
        size = strcspn(name, " ");
        if (strncmp(variable, name, size) == 0 &&
            (name[size - 1] == '_' ? strstr(variable, "_KEY=") == NULL : variable[size] == '='))
            return true;
    }
    return false;
}

enum { PASSED_ON_MAX = 120 };

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
    posix_spawn_file_actions_init(&actions); /* glibc's do not fail */
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, fd, FA_CHILD_FD); /* also onto itself */
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawn_file_actions_addclosefrom_np(&actions, FA_CHILD_FD + 1);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    if (rc == 0)
        rc = posix_spawn(ret_pid, path, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static int start_process(const char *path, char *const *arguments, char *const *environment,
                         pid_t *ret_pid, int *ret_fd, fa_diag *diag)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return fa_fail(diag, FA_EIO, "no socket pair for a worker: %s", strerror(errno));
    static char language[] = "LC_ALL=C";
    char *plain[PASSED_ON_MAX] = {language}; /* the other texts stay the process's own */
    int count = 1;
    for (char **one = environ; one != NULL && *one != NULL && count < PASSED_ON_MAX - 1; one++)
        if (is_passed_on(*one))
            plain[count++] = *one;
    int rc = spawn(path, arguments, environment != NULL ? environment : plain, pair[1], ret_pid);
    close(pair[1]);
    if (rc != 0) {
        close(pair[0]);
        return fa_fail(diag, FA_EWORKER, "cannot start the worker %s: %s", path, strerror(rc));
    }
    *ret_fd = pair[0];
    return 0;
}

static void *reap(void *context)
{
    pid_t pid = (pid_t)(intptr_t)context;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return NULL;
}

struct process_end {
    bool known;     /* it died in time, and was not reaped elsewhere */
    bool by_itself; /* it had ended before it was to be killed */
    int status;     /* as waitpid() returns it */
};

/* Reaps a process that ends by itself within `grace_ms`, or else is killed with its group. One that sits in a driver call may
 * take long to die: after a while a thread of its own waits for it, and the caller goes on. */
static struct process_end finish_process(pid_t pid, int grace_ms)
{
    enum { PATIENCE_MS = 3000 };
    struct process_end end = {0};
    pthread_t thread;
    for (int waited_ms = 0; waited_ms < grace_ms + PATIENCE_MS; waited_ms++) {
        pid_t dead = waitpid(pid, &end.status, WNOHANG);
        if (dead != 0 && !(dead < 0 && errno == EINTR)) {
            end.known = dead == pid;
            end.by_itself = end.known && waited_ms <= grace_ms;
            return end;
        }
        if (waited_ms == grace_ms) /* it runs: its pid is not another's */
            kill(-pid, SIGKILL);
        usleep(1000);
    }
    if (pthread_create(&thread, NULL, reap, (void *)(intptr_t)pid) == 0)
        pthread_detach(thread);
    return end;
}

/* ---- children -------------------------------------------------------------------------------*/
enum { READ_BYTES = 64 << 10 };

struct fa_child {
    fa_child *next;
    fa_loop *loop;
    int fd;
    pid_t pid;    /* 0 once reaped */
    bool stopped; /* no more events; freed by the loop */
    int timeout_ms;
    uint64_t deadline_ns;  /* 0: none */
    uint64_t waited_at_ns; /* for a CPU, when the deadline was set */
    uint64_t waited_ns;    /* since then, and given on top of its time */
    fa_buf input, output;
    size_t sent; /* bytes of output that are on their way */
    bool unsent; /* the machine could not send the rest, which is no fault of the child's */
    fa_child_events events;
    void *context;
};

enum { MS_NS = 1000000 };

uint64_t fa_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int64_t fa_clock_ms(void)
{
    return (int64_t)(fa_clock_ns() / MS_NS);
}

double fa_clock_s(void)
{
    return (double)fa_clock_ns() / 1e9;
}

/* Reaps and closes, and kills what does not end by itself within `grace_ms`; describes the end of the child for `reason`. */
static fa_child_end end_child(fa_child *child, int grace_ms, char *reason, size_t size)
{
    struct process_end end = {0};
    if (child->pid > 0)
        end = finish_process(child->pid, grace_ms);
    child->pid = 0;
    if (!end.known) /* the host ignores SIGCHLD, or waits for any child */
        snprintf(reason, size, "ended");
    else if (WIFSIGNALED(end.status))
        snprintf(reason, size, "was killed by signal %d (%s)", WTERMSIG(end.status),
                 strsignal(WTERMSIG(end.status)));
    else
        snprintf(reason, size, "exited with code %d", WEXITSTATUS(end.status));
    child->stopped = true;
    close(child->fd);
    child->fd = -1;
    if (child->unsent || (end.by_itself && WIFEXITED(end.status) &&
                          WEXITSTATUS(end.status) == FA_CHILD_SHORT_CODE)) {
        snprintf(reason, size,
                 child->unsent ? "could not be sent its work: no memory for it"
                               : "ran out of memory or descriptors");
        return FA_CHILD_SHORT;
    }
    /* From outside: by the out-of-memory killer, a service manager, a person. */
    const int signal = end.by_itself && WIFSIGNALED(end.status) ? WTERMSIG(end.status) : 0;
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP
               ? FA_CHILD_KILLED
               : FA_CHILD_DIED;
}

/* why: NULL when the child ended by itself; else what it is ended for, which is then an `end` of that kind. */
static void child_gone(fa_child *child, const char *why, fa_child_end end)
{
    enum { GRACE_MS = 50 }; /* end of file on the socket comes a moment before the exit status */
    char reason[160];
    if (child->stopped)
        return;
    fa_child_end by_itself = end_child(child, why == NULL ? GRACE_MS : 0, reason, sizeof reason);
    child->events.gone(child, why != NULL ? why : reason, why != NULL ? end : by_itself);
}

/* How long the child's first thread, which does its work, has been ready to run and did not; 0: the kernel does
 * not tell. */
static uint64_t time_waited_ns(const fa_child *child)
{
    char path[64];
    unsigned long long ran, waited = 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)child->pid);
    FILE *file = child->pid > 0 ? fopen(path, "re") : NULL;
    if (file != NULL && fscanf(file, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    if (file != NULL)
        fclose(file);
    return waited;
}

/* Extends the deadline by the time in which the child could not run. True: it was extended. */
static bool give_waited_time(fa_child *child)
{
    enum { AT_MOST = 9 };
    uint64_t timeout_ns = (uint64_t)child->timeout_ms * 1000000u;
    uint64_t waited_ns = time_waited_ns(child);
    waited_ns -= waited_ns < child->waited_at_ns ? waited_ns : child->waited_at_ns;
    if (waited_ns > AT_MOST * timeout_ns)
        waited_ns = AT_MOST * timeout_ns;
    if (waited_ns < child->waited_ns + timeout_ns / 16)
        return false;
    child->deadline_ns = fa_clock_ns() + waited_ns - child->waited_ns;
    child->waited_ns = waited_ns;
    return true;
}

/* Hands out every whole message that has come. */
static void take_messages(fa_child *child)
{
    while (!child->stopped) {
        FA_ENDS(fa_message_free) fa_message message = {0};
        fa_diag diag;
        size_t used;
        int rc = fa_message_decode(child->input.data, child->input.size, &message, &used, &diag);
        if (rc != 0) {
            child_gone(child, diag.text, rc == FA_ENOMEM ? FA_CHILD_SHORT : FA_CHILD_DIED);
            return;
        }
        if (used == 0)
            return;
        memmove(child->input.data, child->input.data + used, child->input.size - used);
        child->input.size -= used;
        child->deadline_ns = 0;
        child->events.message(child, &message);
    }
}

static void read_some(fa_child *child)
{
    char bytes[READ_BYTES], why[96];
    ssize_t count = recv(child->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count > 0)
        fa_buf_append(&child->input, bytes, (size_t)count);
    /* A child that ended and left something unread shows as ECONNRESET. */
    if (count < 0 && errno != ECONNRESET) {
        snprintf(why, sizeof why, "could not be read from: %s", strerror(errno));
        child_gone(child, why, FA_CHILD_SHORT);
    } else if (count <= 0)
        child_gone(child, NULL, FA_CHILD_DIED);
    else if (child->input.failed)
        child_gone(child, "sent more than memory holds", FA_CHILD_SHORT);
    else
        take_messages(child);
}

/* If the loop was held up (a stopped process, a slow callback), bytes that came in time may lie unread: they are read first. */
static void deadline_passed(fa_child *child)
{
    char why[80];
    struct pollfd unread = {.fd = child->fd, .events = POLLIN};
    if (give_waited_time(child))
        return;
    if (poll(&unread, 1, 0) > 0) {
        read_some(child); /* and the rest, before each further round */
        return;
    }
    snprintf(why, sizeof why, "did not answer within %d ms", child->timeout_ms);
    child_gone(child, why, FA_CHILD_TIMED_OUT);
}

/* A child that is gone, or is ended because nothing can be sent to it, shows as end of file on the
 * reading side. */
static void write_some(fa_child *child)
{
    while (child->sent < child->output.size) {
        ssize_t count = send(child->fd, child->output.data + child->sent,
                             child->output.size - child->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return;
        if (count < 0 && errno != EPIPE && errno != ECONNRESET) {
            child->unsent = true;
            fa_child_kill(child);
        }
        if (count < 0)
            break;
        child->sent += (size_t)count;
    }
    fa_buf_free(&child->output);
    child->sent = 0;
}

int fa_child_start(fa_loop *loop, const char *path, char *const *arguments,
                   char *const *environment, const fa_child_events *events, void *context,
                   fa_child **ret_child, fa_diag *diag)
{
    int fd = -1;
    pid_t pid;
    if (loop->count == FA_LOOP_CHILDREN_MAX)
        return fa_fail(diag, FA_EINVAL, "at most %d workers run at once", FA_LOOP_CHILDREN_MAX);
    FA_ENDS(fa_free_at) fa_child *child = calloc(1, sizeof *child);
    int rc = child == NULL ? fa_fail(diag, FA_EWORKER, "cannot start the worker %s: %s", path,
                                     strerror(ENOMEM))
                           : start_process(path, arguments, environment, &pid, &fd, diag);
    FA_OR_RETURN(rc);
    child->pid = pid;
    child->events = *events;
    child->context = context;
    child->fd = fd;
    child->loop = loop;
    child->next = loop->first;
    loop->first = child;
    loop->count++;
    *ret_child = child, child = NULL;
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
        end_child(*child, 0, reason, sizeof reason);
    *child = NULL;
}

int fa_child_send(fa_child *child, const cJSON *json, const void *blob, size_t blob_size,
                  int timeout_ms, fa_diag *diag)
{
    FA_OR_RETURN(fa_message_encode(json, blob, blob_size, &child->output, diag));
    write_some(child);
    fa_child_deadline(child, timeout_ms);
    return 0;
}

void fa_child_deadline(fa_child *child, int timeout_ms)
{
    child->timeout_ms = timeout_ms;
    child->deadline_ns = timeout_ms > 0 ? fa_clock_ns() + (uint64_t)timeout_ms * MS_NS : 0;
    child->waited_at_ns = timeout_ms > 0 ? time_waited_ns(child) : 0;
    child->waited_ns = 0;
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

/* ---- the loop -------------------------------------------------------------------------------*/
static void free_stopped(fa_loop *loop)
{
    for (fa_child **at = &loop->first; *at != NULL;) {
        fa_child *child = *at;
        if (!child->stopped) {
            at = &child->next;
            continue;
        }
        *at = child->next;
        loop->count--;
        fa_buf_free(&child->input);
        fa_buf_free(&child->output);
        free(child);
    }
}

/* Until the next deadline or tick; -1: for as long as it takes. */
static int wait_ms(const fa_loop *loop)
{
    uint64_t now = fa_clock_ns(), until = loop->tick_ms > 0 ? loop->next_tick_ns : 0;
    for (const fa_child *child = loop->first; child != NULL; child = child->next)
        if (child->deadline_ns != 0 && (until == 0 || child->deadline_ns < until))
            until = child->deadline_ns;
    if (until == 0)
        return -1;
    return until <= now ? 0 : (int)((until - now + 999999) / 1000000);
}

/* Waits once, and calls what is due. A callback may start children, which come first in the list and
 * are not looked at in this round, and stop any. */
static void run_once(fa_loop *loop)
{
    struct pollfd poll_fd[FA_LOOP_CHILDREN_MAX];
    fa_child *polled[FA_LOOP_CHILDREN_MAX];
    int count = 0;
    for (fa_child *child = loop->first; child != NULL; child = child->next) {
        short wanted = child->output.size > 0 ? POLLIN | POLLOUT : POLLIN;
        poll_fd[count] = (struct pollfd){.fd = child->fd, .events = wanted};
        polled[count++] = child;
    }
    int timeout_ms = wait_ms(loop);
    if (loop->held != NULL)
        pthread_mutex_unlock(loop->held);
    const int ready = poll(poll_fd, (nfds_t)count, timeout_ms);
    /* The host has lowered its limit of descriptors below the number of its children: each is tried. */
    const bool blind = ready < 0 && errno != EINTR;
    if (blind)
        usleep(10000);
    if (loop->held != NULL)
        pthread_mutex_lock(loop->held);
    for (int i = 0; i < count && (ready > 0 || blind) && !loop->stopped; i++) {
        if (!polled[i]->stopped && (blind || (poll_fd[i].revents & POLLOUT) != 0))
            write_some(polled[i]);
        if (!polled[i]->stopped && (blind || (poll_fd[i].revents & ~POLLOUT) != 0))
            read_some(polled[i]);
    }
    uint64_t now = fa_clock_ns();
    for (fa_child *child = loop->first; child != NULL && !loop->stopped; child = child->next)
        if (!child->stopped && child->deadline_ns != 0 && child->deadline_ns <= now)
            deadline_passed(child);
    if (loop->tick_ms > 0 && loop->next_tick_ns <= now && !loop->stopped) {
        loop->next_tick_ns = fa_clock_ns() + (uint64_t)loop->tick_ms * MS_NS;
        loop->tick(loop->context);
    }
}

void fa_loop_run(fa_loop *loop)
{
    loop->stopped = false;
    loop->next_tick_ns = fa_clock_ns() + (uint64_t)loop->tick_ms * MS_NS;
    for (;;) {
        if (loop->before_wait != NULL && !loop->stopped)
            loop->before_wait(loop->context);
        free_stopped(loop);
        if (loop->stopped || loop->first == NULL)
            return;
        run_once(loop);
    }
}

void fa_loop_stop(fa_loop *loop)
{
    loop->stopped = true;
}

void fa_loop_close(fa_loop *loop)
{
    for (fa_child *child = loop->first; child != NULL; child = child->next)
        fa_child_kill(child); /* they die side by side */
    for (fa_child *child = loop->first; child != NULL; child = child->next) {
        fa_child *running = child;
        fa_child_stop(&running);
    }
    free_stopped(loop);
}
