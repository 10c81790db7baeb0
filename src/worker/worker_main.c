/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune-worker: the process that compiles, proves and times. Started by the library only.
 */
#include "worker.h"

#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ends this process as soon as the other end is gone, also in the middle of a compile. */
static void *follow(void *unused)
{
    (void)unused;
    struct pollfd watch = {.fd = FA_CHILD_FD, .events = POLLRDHUP};
    while (poll(&watch, 1, -1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

int main(int argc, char **argv)
{
    struct stat st;
    pthread_t thread;
    int rc = 2;
    if (fstat(FA_CHILD_FD, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        fputs("fa-tune-worker is started by fa-tune; run fa-tune instead\n", stderr);
        return 2;
    }
    if (pthread_create(&thread, NULL, follow, NULL) != 0)
        return 2;
    if (argc == 6 && strcmp(argv[1], "compile") == 0) {
        fa_nvrtc_location location = {.major = atoi(argv[4]), .minor = atoi(argv[5])};
        snprintf(location.library, sizeof location.library, "%s", argv[2]);
        snprintf(location.builtins, sizeof location.builtins, "%s", argv[3]);
        rc = fa_worker_compile(FA_CHILD_FD, &location);
    } else if (argc == 3 && strcmp(argv[1], "measure") == 0)
        rc = fa_worker_measure(FA_CHILD_FD, atoi(argv[2]));
    /* Exits without running the destructors of the CUDA libraries, which may hang in a lost context. */
    bool is_short = rc == FA_ENOMEM || rc == FA_EIO;
    _exit(rc == 0 ? 0 : is_short ? FA_CHILD_SHORT_CODE : 1);
}
