/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC is a file reader: an #include of an absolute path, or a FIFO, is read by the compiler. So
 * source is compiled only in a process that has no environment and cannot open files.
 */
#include "worker.h"

#include "error.h"

#include <errno.h>
#include <linux/landlock.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ADDRESS_SPACE RLIM_INFINITY /* their shadow memory is reserved, not used */
#else
#define ADDRESS_SPACE ((rlim_t)6 << 30)
#endif

int fa_sandbox_limit(fa_diag *diag)
{
    const struct {
        __rlimit_resource_t resource;
        rlim_t value;
        const char *name;
    } limits[] = {{RLIMIT_AS, ADDRESS_SPACE, "address space"},
                  {RLIMIT_FSIZE, 0, "file size"},
                  {RLIMIT_CORE, 0, "core size"},
                  {RLIMIT_NOFILE, 64, "open files"}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit limit;
        if (getrlimit(limits[i].resource, &limit) == 0 && limit.rlim_max > limits[i].value)
            limit.rlim_max = limits[i].value;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(limits[i].resource, &limit) != 0)
            return fa_fail(diag, FA_EWORKER, "cannot limit %s: %s", limits[i].name,
                           strerror(errno));
    }
    return 0;
}

int fa_sandbox_confine(bool *ret_confined, fa_diag *diag)
{
    /* Everything version 1 of Landlock knows is handled and nothing is allowed. */
    struct landlock_ruleset_attr rules = {.handled_access_fs = (1u << 13) - 1};
    *ret_confined = false;
    long fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (fd < 0)
        return 0; /* ENOSYS or EOPNOTSUPP: an older kernel, or Landlock is off */
    int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (rc == 0)
        rc = (int)syscall(SYS_landlock_restrict_self, (int)fd, 0);
    close((int)fd);
    if (rc != 0)
        return fa_fail(diag, FA_EWORKER, "cannot confine the compile worker: %s", strerror(errno));
    *ret_confined = true;
    return 0;
}

static void *follow(void *context)
{
    struct pollfd watch = {.fd = *(int *)context, .events = POLLRDHUP};
    while (poll(&watch, 1, -1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

int fa_sandbox_follow(int fd, fa_diag *diag)
{
    static int watched;
    pthread_t thread;
    watched = fd;
    int rc = pthread_create(&thread, NULL, follow, &watched);
    if (rc != 0)
        return fa_fail(diag, FA_EWORKER, "cannot start a thread: %s", strerror(rc));
    pthread_detach(thread);
    return 0;
}
