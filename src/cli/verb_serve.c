/* SPDX-License-Identifier: Apache-2.0
 *
 * serve: the daemon is a program of its own, so that this one loads no HTTP server. It reads its
 * own options.
 */
#include "error.h"
#include "text.h"
#include "verbs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside this program, where it was built; in libexec, where it was installed. */
static bool find_beside(char *ret_path, size_t size)
{
    static const char *const places[] = {"%s/fa-tune-serve", "%s/../libexec/fa-tune/fa-tune-serve"};
    char here[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
    if (length <= 0)
        return false;
    here[length] = 0;
    char *slash = strrchr(here, '/');
    if (slash == NULL)
        return false;
    *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int needed = snprintf(ret_path, size, places[i], here);
        if (needed > 0 && (size_t)needed < size && access(ret_path, X_OK) == 0)
            return true;
    }
    return false;
}

int cli_serve(int count, char **arguments)
{
    char path[PATH_MAX];
    fa_diag diag;
    char **all = calloc((size_t)count + 2, sizeof *all);
    if (!find_beside(path, sizeof path))
        snprintf(path, sizeof path, "%s/fa-tune-serve", FA_TUNE_LIBEXECDIR);
    if (all == NULL)
        return 1;
    all[0] = path;
    for (int i = 0; i < count; i++)
        all[i + 1] = arguments[i];
    execv(path, all);
    int error = errno;
    free(all);
    fa_fail(&diag, FA_EIO, "cannot start %s: %s; it is installed with fa-tune", path,
            strerror(error));
    return cli_error(1, &diag);
}
