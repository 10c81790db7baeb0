/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict sandbox from inside: a compiler that was taken over starts nothing.
 */
#include "check.h"

#include "worker.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONFINED = 1, NO_SECCOMP, THREAD_STARTED, PROCESS_STARTED };

static void *nothing(void *context)
{
    return context;
}

/* In a child of the test, which it does not leave. */
static int try_to_start(void)
{
    int pair[2];
    pthread_t thread;
    fa_diag diag;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 0;
    int rc = fa_sandbox_strict(pair[0], &diag);
    if (rc != 0)
        return rc == FA_ENOTSUP ? NO_SECCOMP : 0;
    if (pthread_create(&thread, NULL, nothing, NULL) == 0)
        return THREAD_STARTED;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child > 0 ? PROCESS_STARTED : CONFINED;
}

static void neither_a_thread_nor_a_process_is_started(void)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(try_to_start());
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_SECCOMP)
        SKIP("this kernel has no seccomp");
    CHECK_INT(WEXITSTATUS(status), CONFINED);
}

int main(void)
{
    TEST(neither_a_thread_nor_a_process_is_started);
    return check_done();
}
