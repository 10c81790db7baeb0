/* SPDX-License-Identifier: Apache-2.0
 *
 * Becomes the worker on a kernel that lacks something: built once with DENY_LANDLOCK and once with
 * DENY_SECCOMP. (A worker's environment is empty, so nothing can be passed to it.)
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char *const nothing[] = {NULL};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    (void)argc;
    if (filter == NULL)
        return 1;
#ifdef DENY_LANDLOCK
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(landlock_create_ruleset), 0);
#else
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(seccomp), 0);
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 1,
                     SCMP_A0(SCMP_CMP_EQ, PR_SET_SECCOMP));
#endif
    if (seccomp_load(filter) != 0)
        return 1;
    execve(WORKER, argv, nothing);
    return 1;
}
