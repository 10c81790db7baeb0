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
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
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

/* The strict sandbox: what a compile worker may still ask of the kernel once NVRTC is loaded and
 * has compiled something, so that nothing more of it is opened lazily. An allow list: memory, time,
 * and the channel that is open already. No thread and no process is started: NVRTC compiles in the
 * caller's, and RLIMIT_NPROC would not bind root. Paths look as if nothing were there, so
 * that an #include of any file is an error of the source like any other; all else is refused.
 *
 * The rest is not killed but refused: a compiler that meets a refusal says so in its log, and one
 * that was taken over gets no further. */
enum {
    STRICT_ADDRESS_SPACE = 1 << 30,   /* our largest templates need 180 MB */
    CPU_SECONDS_MAX = 2 * 3600 /* of one worker: a whole space on one core takes half an hour */
};

/* Calls with no effect beyond this process and its open descriptors. */
static const int allowed[] = {SCMP_SYS(read),
                              SCMP_SYS(write),
                              SCMP_SYS(close),
                              SCMP_SYS(poll),
                              SCMP_SYS(ppoll),
                              SCMP_SYS(brk),
                              SCMP_SYS(munmap),
                              SCMP_SYS(mremap),
                              SCMP_SYS(madvise),
                              SCMP_SYS(futex),
                              SCMP_SYS(sched_yield),
                              SCMP_SYS(sched_getaffinity),
                              SCMP_SYS(set_robust_list),
                              SCMP_SYS(rseq),
                              SCMP_SYS(restart_syscall),
                              SCMP_SYS(gettid),
                              SCMP_SYS(getpid),
                              SCMP_SYS(clock_gettime),
                              SCMP_SYS(clock_nanosleep),
                              SCMP_SYS(nanosleep),
                              SCMP_SYS(gettimeofday),
                              SCMP_SYS(time),
                              SCMP_SYS(getrusage),
                              SCMP_SYS(getrandom),
                              SCMP_SYS(getcwd),
                              SCMP_SYS(rt_sigaction),
                              SCMP_SYS(rt_sigprocmask),
                              SCMP_SYS(rt_sigreturn),
                              SCMP_SYS(sigaltstack),
                              SCMP_SYS(exit),
                              SCMP_SYS(exit_group)};

static const int paths[] = {SCMP_SYS(open),       SCMP_SYS(openat),     SCMP_SYS(openat2),
                            SCMP_SYS(creat),      SCMP_SYS(stat),       SCMP_SYS(lstat),
                            SCMP_SYS(newfstatat), SCMP_SYS(statx),      SCMP_SYS(access),
                            SCMP_SYS(faccessat),  SCMP_SYS(faccessat2), SCMP_SYS(readlink),
                            SCMP_SYS(readlinkat), SCMP_SYS(statfs)};

static int add_all(scmp_filter_ctx filter, uint32_t action, const int *call, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = seccomp_rule_add(filter, action, call[i], 0);
    return rc;
}

/* Those whose arguments decide. */
static int add_conditional(scmp_filter_ctx filter, int channel)
{
    const struct {
        int call;
        unsigned count;
        struct scmp_arg_cmp when[2];
    } rules[] = {
        {SCMP_SYS(sendto),
         2,
         {SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)channel), SCMP_A4(SCMP_CMP_EQ, 0)}},
        {SCMP_SYS(mmap), 1, {SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)}},
        {SCMP_SYS(mprotect), 1, {SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)}},
        {SCMP_SYS(tgkill), 1, {SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid())}},        /* abort() */
        {SCMP_SYS(prlimit64), 2, {SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0)}}, /* reads */
        {SCMP_SYS(prlimit64), 2, {SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A1(SCMP_CMP_EQ, RLIMIT_CPU)}},
        {SCMP_SYS(setrlimit), 1, {SCMP_A0(SCMP_CMP_EQ, RLIMIT_CPU)}}};
    int rc = 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && rc == 0; i++)
        rc = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rules[i].call, rules[i].count,
                                    rules[i].when);
    return rc;
}

static int load_filter(int channel)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return -ENOMEM;
    int rc;
    if ((rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1)) ==
            0 && /* existing threads, too */
        (rc = add_all(filter, SCMP_ACT_ALLOW, allowed, sizeof allowed / sizeof *allowed)) == 0 &&
        (rc = add_all(filter, SCMP_ACT_ERRNO(ENOENT), paths, sizeof paths / sizeof *paths)) == 0 &&
        (rc = add_conditional(filter, channel)) == 0 &&
        /* The C library then takes clone(), which is refused like the rest. */
        (rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0)) == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    return rc;
}

int fa_sandbox_strict(int channel, fa_diag *diag)
{
    struct rlimit files = {(rlim_t)channel + 1, (rlim_t)channel + 1};
    struct rlimit cpu = {CPU_SECONDS_MAX, CPU_SECONDS_MAX};
    struct rlimit memory; /* none with a sanitizer: fa_sandbox_limit() knows */
    if (getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_max != RLIM_INFINITY)
        memory.rlim_cur = memory.rlim_max = STRICT_ADDRESS_SPACE;
    if (chdir("/") != 0 || setrlimit(RLIMIT_AS, &memory) != 0 ||
        setrlimit(RLIMIT_NOFILE, &files) != 0 || setrlimit(RLIMIT_CPU, &cpu) != 0)
        return fa_fail(diag, FA_EWORKER, "cannot confine the compile worker: %s", strerror(errno));
    int rc = load_filter(channel);
    /* open() must fail now as the filter says, not as the file system does. */
    if (rc == 0 && (access("/", F_OK) == 0 || errno != ENOENT))
        rc = -EINVAL;
    if (rc != 0)
        return fa_fail(diag, FA_ENOTSUP,
                       "source from outside is not compiled here, because this kernel cannot "
                       "confine the compiler (seccomp: %s): use Linux with CONFIG_SECCOMP_FILTER, "
                       "and let the container allow it",
                       strerror(-rc));
    return 0;
}

int fa_sandbox_cpu(int seconds, fa_diag *diag)
{
    struct timespec used = {0};
    struct rlimit limit;
    if (getrlimit(RLIMIT_CPU, &limit) != 0 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0)
        return fa_fail(diag, FA_EWORKER, "cannot read this process's time: %s", strerror(errno));
    rlim_t until = (rlim_t)used.tv_sec + 1 + (rlim_t)seconds;
    limit.rlim_cur = until < limit.rlim_max ? until : limit.rlim_max;
    if (setrlimit(RLIMIT_CPU, &limit) != 0)
        return fa_fail(diag, FA_EWORKER, "cannot limit this process's time: %s", strerror(errno));
    return 0;
}
