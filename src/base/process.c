/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the start ------------------------------------------------------------------------------*/
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

int fa_process_start(const char *path, char *const *arguments, char *const *environment,
                     pid_t *ret_pid, int *ret_fd, fa_diag *diag)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return fa_fail(diag, FA_EIO, "no socket pair for a worker: %s", strerror(errno));
    /* dup2 onto itself would keep close-on-exec set: move the child's end out of the way. */
    int theirs = pair[1];
    if (theirs == FA_CHILD_FD) {
        theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, FA_CHILD_FD + 1);
        int why = errno == EINVAL ? EMFILE : errno; /* EINVAL: no higher one is allowed */
        close(pair[1]);
        if (theirs < 0) {
            close(pair[0]);
            return fa_fail(diag, FA_EIO, "no descriptor for a worker: %s", strerror(why));
        }
    }
    int rc = spawn(path, arguments, environment, theirs, ret_pid);
    close(theirs);
    if (rc != 0) {
        close(pair[0]);
        return fa_fail(diag, FA_EWORKER, "cannot start the worker %s: %s", path, strerror(rc));
    }
    *ret_fd = pair[0];
    return 0;
}

/* ---- the end --------------------------------------------------------------------------------*/
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

fa_process_end fa_process_finish(pid_t pid)
{
    fa_process_end end = {0};
    pid_t dead = waitpid(pid, &end.status, WNOHANG);
    end.by_itself = end.known = dead == pid;
    /* Killed only while it is known to run: the pid of a process that was reaped may belong to another. */
    if (dead == 0) {
        kill(-pid, SIGKILL); /* its process group: what it started, too */
        end.known = wait_for_death(pid, &end.status);
    }
    return end;
}

void fa_process_kill(pid_t pid)
{
    siginfo_t info = {0};
    if (pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == 0) /* it runs, and nobody has reaped it */
        kill(-pid, SIGKILL);
}

void fa_process_await(pid_t pid)
{
    for (int i = 0; i < 50; i++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
            return;
        usleep(1000);
    }
}

/* ---- its share of the CPUs ------------------------------------------------------------------*/
uint64_t fa_process_waited_ns(pid_t pid)
{
    char path[64];
    unsigned long long ran, waited = 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (file != NULL && fscanf(file, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    if (file != NULL)
        fclose(file);
    return waited;
}

void fa_process_yield(pid_t pid, int nice)
{
    struct sched_param none = {0};
    if (nice <= 0 || pid <= 0)
        return;
    setpriority(PRIO_PROCESS, (id_t)pid, nice);
    if (nice >= 19)
        sched_setscheduler(pid, SCHED_IDLE, &none);
}
