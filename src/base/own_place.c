/* SPDX-License-Identifier: Apache-2.0
 *
 * Where this library or program itself lies.
 */
#include "own_place.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fa_own_directory(char *ret_path, size_t size)
{
    Dl_info info;
    char *real = NULL;
    ret_path[0] = 0;
    if (dladdr((void *)(uintptr_t)&fa_own_directory, &info) == 0 || info.dli_fname == NULL)
        return;
    real = realpath(info.dli_fname, NULL);
    if (real == NULL) /* a program found through PATH */
        real = realpath("/proc/self/exe", NULL);
    char *slash = real != NULL ? strrchr(real, '/') : NULL;
    if (slash != NULL && (size_t)(slash - real) < size)
        snprintf(ret_path, size, "%.*s", (int)(slash - real), real);
    free(real);
}
