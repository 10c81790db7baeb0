/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages and child processes. Run with the argument "child" it is the child: it does what its
 * message says.
 */
#define CHECK_OWN_MAIN
#include "check.h"
#include "failing_allocator.h"

#include "json.h"
#include "pool.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static char self[4096];

/* The next call of send() fails so. */
static int send_errno;

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    if (send_errno == 0)
        return sendto(fd, bytes, size, flags, NULL, 0);
    errno = send_errno;
    send_errno = 0;
    return -1;
}

/* The next call of recv() fails so, or, from it on, the n-th allocation does. */
static int recv_errno;
static long allocation_of_recv;

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    if (recv_errno == 0) {
        if (allocation_of_recv != 0)
            allocator_fail(allocation_of_recv, false);
        allocation_of_recv = 0;
        return recvfrom(fd, bytes, size, flags, NULL, NULL);
    }
    errno = recv_errno;
    recv_errno = 0;
    return -1;
}

/* ---- the child ------------------------------------------------------------------------------*/
enum { BURN_MS = 500 };

/* Until this process has used so much of a CPU. */
static void burn(int ms)
{
    struct timespec used;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < ms);
}

static int be_child(void)
{
    fa_message message;
    while (fa_message_read(FA_CHILD_FD, &message, NULL) == 0) {
        const char *verb = cJSON_GetStringValue(cJSON_GetObjectItem(message.json, "do"));
        if (strcmp(verb, "run short") == 0)
            _exit(FA_CHILD_SHORT_CODE);
        if (strcmp(verb, "crash") == 0) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        }
        if (strcmp(verb, "burn") == 0)
            burn(BURN_MS);
        if (strcmp(verb, "be killed") == 0)
            raise(SIGKILL);
        if (strcmp(verb, "be stopped") == 0)
            raise(SIGTERM);
        if (strcmp(verb, "hang") == 0)
            for (;;)
                pause();
        if (strcmp(verb, "garbage") == 0 && write(FA_CHILD_FD, "not a frame at all..", 20) != 20)
            return 3;
        if (strncmp(verb, "echo", 4) == 0 || strcmp(verb, "burn") == 0)
            fa_message_write(FA_CHILD_FD, cJSON_Duplicate(message.json, true), message.blob,
                             message.blob_size, NULL);
        if (strcmp(verb, "echo and leave") == 0)
            _exit(0);
        fa_message_free(&message);
    }
    return 0;
}

/* ---- the parent -----------------------------------------------------------------------------*/
struct seen {
    int messages, gone;
    fa_child_end end;
    char reason[160];
    size_t blob_size;
    fa_child *child;
};

static void on_message(fa_child *child, fa_message *message)
{
    struct seen *seen = fa_child_context(child);
    seen->messages++;
    seen->blob_size = message->blob_size;
    fa_child_stop(&seen->child);
}

static void on_gone(fa_child *child, const char *reason, fa_child_end end)
{
    struct seen *seen = fa_child_context(child);
    seen->gone++;
    seen->end = end;
    snprintf(seen->reason, sizeof seen->reason, "%s", reason);
    seen->child = NULL;
}

static const fa_child_events events = {on_message, on_gone};

/* One child, one message, until it answered or is gone. held_up: the loop does not run before the
 * child has ended by itself. */
static int converse_late(const char *verb, const void *blob, size_t size, int timeout_ms,
                         bool held_up, struct seen *seen)
{
    fa_loop loop = {0};
    char *const arguments[] = {self, "child", NULL};
    char *const nothing[] = {NULL};
    fa_diag diag;
    *seen = (struct seen){0};
    int rc = fa_child_start(&loop, self, arguments, nothing, &events, seen, &seen->child, &diag);
    FA_ENDS(fa_json_end) cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "do", verb);
    if (rc == 0)
        rc = fa_child_send(seen->child, json, blob, size, timeout_ms, &diag);
    siginfo_t info;
    if (held_up && (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) != 0 ||
                    usleep(2000 * (useconds_t)timeout_ms) != 0))
        rc = -1001;
    fa_loop_run(&loop);
    if (loop.first != NULL)
        rc = -1000; /* a child was left */
    fa_loop_close(&loop);
    return rc;
}

static int converse(const char *verb, const void *blob, size_t size, int timeout_ms,
                    struct seen *seen)
{
    return converse_late(verb, blob, size, timeout_ms, false, seen);
}

TEST(a_child_answers_with_a_large_blob)
{
    struct seen seen;
    size_t size = 5 << 20;
    FA_ENDS(fa_free_at) char *blob = malloc(size);
    memset(blob, 'x', size);
    CHECK_INT(converse("echo", blob, size, 30000, &seen), 0);
    CHECK_INT(seen.messages, 1);
    CHECK_INT(seen.blob_size, size);
}

TEST(the_end_of_a_child_is_told_with_its_cause)
{
    static const struct {
        const char *verb, *reason;
        fa_child_end end;
        int timeout_ms;
    } ends[] = {
#ifndef __SANITIZE_ADDRESS__
        {"crash", "signal 11", FA_CHILD_DIED, 30000},
#endif
        {"garbage", "mark", FA_CHILD_DIED, 30000},
        {"be killed", "", FA_CHILD_KILLED, 30000},
        {"be stopped", "", FA_CHILD_KILLED, 30000}, /* by a service manager */
        {"run short", "out of memory", FA_CHILD_SHORT, 30000},
        {"hang", "100 ms", FA_CHILD_TIMED_OUT, 100},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct seen seen;
        CHECK_INT(converse(ends[i].verb, NULL, 0, ends[i].timeout_ms, &seen), 0);
        CHECK_INT(seen.gone, 1);
        CHECK_INT(seen.end, ends[i].end);
        CHECK_HAS(seen.reason, ends[i].reason);
    }
}

TEST(an_answer_that_came_while_the_host_was_held_up_counts)
{
    struct seen seen;
    CHECK_INT(converse_late("echo and leave", NULL, 0, 10, true, &seen), 0);
    CHECK_INT(seen.gone, 0);
    CHECK_INT(seen.messages, 1);
}

/* Two others want the one CPU that it may run on: it has its share when it is given BURN_MS on top. One that was
 * given half as much again, and is not done, had more than these two before it. */
TEST(time_that_a_child_waits_for_a_cpu_is_not_its_own)
{
    enum { OTHERS = 2 };
    struct seen seen;
    cpu_set_t before, one;
    pid_t other[OTHERS];
    if (access("/proc/self/schedstat", R_OK) != 0)
        SKIP("this kernel does not tell how long a process waits for a CPU");
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < OTHERS; i++)
        if ((other[i] = fork()) == 0)
            for (;;)
                burn(1 << 30);
    const uint64_t began_ns = fa_clock_ns();
    int rc = converse("burn", NULL, 0, 2 * BURN_MS, &seen);
    const uint64_t took_ms = (fa_clock_ns() - began_ns) / 1000000;
    for (int i = 0; i < OTHERS; i++) {
        kill(other[i], SIGKILL);
        waitpid(other[i], NULL, 0);
    }
    sched_setaffinity(0, sizeof before, &before);
    CHECK_INT(rc, 0);
    if (seen.gone == 1 && seen.end == FA_CHILD_TIMED_OUT &&
        took_ms >= 2 * BURN_MS + BURN_MS * 3 / 2)
        SKIP("others of this machine want that CPU too");
    CHECK_INT(seen.messages, 1);
}

TEST(no_child_is_left_behind_and_no_handler_installed)
{
    struct sigaction before, after;
    struct seen seen;
    sigaction(SIGCHLD, NULL, &before);
    CHECK_INT(converse("echo", NULL, 0, 30000, &seen), 0);
    sigaction(SIGCHLD, NULL, &after);
    CHECK(before.sa_handler == after.sa_handler);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_INT(errno, ECHILD);
}

TEST(a_host_that_ignores_sigchld_is_served_too)
{
    struct seen seen;
    signal(SIGCHLD, SIG_IGN);
    int rc = converse("crash", NULL, 0, 30000, &seen);
    signal(SIGCHLD, SIG_DFL);
    CHECK_INT(rc, 0);
    CHECK_INT(seen.gone, 1);
}

TEST(a_missing_program_is_a_sentence)
{
    fa_loop loop = {0};
    char *const arguments[] = {"x", NULL};
    fa_child *child = NULL;
    fa_diag diag;
    if (getenv("MESON_EXE_WRAPPER") != NULL)
        SKIP("an emulator's spawn reports no missing program");
    CHECK_FAILS(fa_child_start(&loop, "/nowhere/x", arguments, NULL, &events, NULL, &child, &diag),
                FA_EWORKER, "/nowhere/x");
    CHECK(loop.first == NULL);
}

TEST(a_child_that_nothing_can_be_sent_to_is_ended)
{
    struct seen seen;
    if (getenv("MESON_EXE_WRAPPER") != NULL)
        SKIP("an emulator's child ends as another program");
    send_errno = ENOBUFS;
    CHECK_INT(converse("echo", NULL, 0, 30000, &seen), 0);
    CHECK_INT(send_errno, 0);
    CHECK_INT(seen.gone, 1);
    CHECK_INT(seen.end, FA_CHILD_SHORT);
    CHECK_HAS(seen.reason, "could not be sent its work");
}

TEST(an_answer_that_memory_is_short_for_is_not_the_childs_fault)
{
    if (!FAILING_ALLOCATOR)
        SKIP("the sanitizer has an allocator of its own");
    static char blob[1000];
    int lost = 0;
    for (long n = 1;; n++) {
        struct seen seen;
        allocation_of_recv = n;
        int rc = converse("echo", blob, sizeof blob, 30000, &seen);
        bool failed = allocator_stop();
        CHECK_INT(rc, 0);
        CHECK_INT(seen.messages + seen.gone, 1);
        if (seen.gone == 1)
            CHECK_INT(seen.end, FA_CHILD_SHORT);
        lost += seen.gone;
        if (!failed)
            break;
    }
    CHECK(lost > 1); /* its bytes, its blob; its JSON is read once more */
}

TEST(an_answer_that_cannot_be_read_is_not_the_childs_fault)
{
    struct seen seen;
    recv_errno = EIO;
    CHECK_INT(converse("echo", NULL, 0, 30000, &seen), 0);
    CHECK_INT(seen.gone, 1);
    CHECK_INT(seen.end, FA_CHILD_SHORT);
    CHECK_HAS(seen.reason, "could not be read from");
}

TEST(children_beyond_the_limit_of_descriptors_are_heard)
{
    struct seen seen[2] = {{0}};
    struct rlimit before, one;
    fa_loop loop = {0};
    char *const arguments[] = {self, "child", NULL};
    fa_diag diag;
    FA_ENDS(fa_json_end) cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "do", "echo");
    int rc = getrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = fa_child_start(&loop, self, arguments, NULL, &events, &seen[i], &seen[i].child, &diag);
        if (rc == 0)
            rc = fa_child_send(seen[i].child, json, NULL, 0, 30000, &diag);
    }
    one = (struct rlimit){1, before.rlim_max};
    if (rc == 0)
        rc = setrlimit(RLIMIT_NOFILE, &one);
    fa_loop_run(&loop);
    setrlimit(RLIMIT_NOFILE, &before);
    fa_loop_close(&loop);
    CHECK_INT(rc, 0);
    CHECK_INT(seen[0].messages, 1);
    CHECK_INT(seen[1].messages, 1);
}

/* With one descriptor left, and then with two, of which the child's end of the channel is number 3 already. */
TEST(want_of_descriptors_is_not_told_as_want_of_memory)
{
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {5, 5};
        fa_loop loop = {0};
        char *const arguments[] = {self, "child", NULL};
        struct seen seen = {0};
        fa_diag diag = {{0}};
        dup2(1, 4);
        closefrom(5);
        close(3);
        setrlimit(RLIMIT_NOFILE, &limit);
        int rc = fa_child_start(&loop, self, arguments, NULL, &events, &seen, &seen.child, &diag);
        if (rc != FA_EIO || strstr(diag.text, strerror(EMFILE)) == NULL)
            _exit(1);
        close(0);
        cJSON *json = cJSON_Parse("{\"do\":\"echo\"}");
        rc = fa_child_start(&loop, self, arguments, NULL, &events, &seen, &seen.child, &diag);
        if (rc == 0)
            rc = fa_child_send(seen.child, json, NULL, 0, 30000, &diag);
        fa_loop_run(&loop);
        _exit(rc == 0 && seen.messages == 1 ? 0 : 2);
    }
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

TEST(frames_are_taken_only_when_whole_and_lengths_are_bounded)
{
    FA_ENDS(fa_buf_free) fa_buf buf = {0};
    fa_message message = {0};
    fa_diag diag;
    size_t used;
    FA_ENDS(fa_json_end) cJSON *json = cJSON_Parse("{\"a\":1}");
    CHECK_OK(fa_message_encode(json, "blob", 4, &buf, &diag), diag);
    for (size_t n = 0; n < buf.size; n++) {
        CHECK_OK(fa_message_decode(buf.data, n, &message, &used, &diag), diag);
        CHECK_INT(used, 0);
    }
    CHECK_OK(fa_message_decode(buf.data, buf.size, &message, &used, &diag), diag);
    CHECK_INT(used, buf.size);
    CHECK_INT(message.blob_size, 4);
    fa_message_free(&message);
    buf.data[15] = 0x7f; /* a blob of 2^62 bytes */
    CHECK_FAILS(fa_message_decode(buf.data, buf.size, &message, &used, &diag), FA_ECORRUPT,
                "too large");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "child") == 0)
        return be_child();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return 1;
    check_all();
    return check_done();
}
