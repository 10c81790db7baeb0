/* SPDX-License-Identifier: Apache-2.0
 *
 * serve: the daemon is a program of its own, so that this one loads no HTTP server. It reads its
 * own options.
 */
#include "error.h"
#include "own_place.h"
#include "run.h"
#include "text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_serve(int count, char **arguments)
{
    char path[PATH_MAX];
    fa_diag diag;
    char **all = calloc((size_t)count + 2, sizeof *all);
    fa_own_program("fa-tune-serve", path, sizeof path);
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
