/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ncu is. Only absolute folders are looked into.
 */
#include "ncu.h"

#include "error.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *path)
{
    struct stat st;
    return path[0] == '/' && stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool look_in(const char *folder, size_t length, char ret_path[FA_NCU_PATH_MAX])
{
    char path[FA_NCU_PATH_MAX];
    int size = snprintf(path, sizeof path, "%.*s/ncu", (int)length, folder);
    if (length >= sizeof path || size >= (int)sizeof path || !is_program(path))
        return false;
    memcpy(ret_path, path, (size_t)size + 1);
    return true;
}

static bool look_in_path(char ret_path[FA_NCU_PATH_MAX])
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != 0) {
        size_t length = strcspn(at, ":");
        if (*at == '/' && look_in(at, length, ret_path))
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* The last by name first, which mostly is the newest. */
static bool look_by_pattern(const char *pattern, char ret_path[FA_NCU_PATH_MAX])
{
    glob_t found;
    bool is_there = false;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = found.gl_pathc; i > 0 && !is_there; i--) {
            const char *folder = found.gl_pathv[i - 1];
            is_there = look_in(folder, strlen(folder), ret_path);
        }
        globfree(&found);
    }
    return is_there;
}

int fa_ncu_locate(char ret_path[FA_NCU_PATH_MAX], fa_diag *diag)
{
    static const char *const patterns[] = {"/usr/local/cuda/bin", "/usr/local/cuda*/bin",
                                           "/opt/nvidia/nsight-compute/*"};
    const char *named = getenv("FA_TUNE_NCU");
    if (named != NULL && named[0] != 0) {
        if (strlen(named) >= FA_NCU_PATH_MAX || !is_program(named))
            return fa_fail(diag, FA_EINVAL,
                           "FA_TUNE_NCU is \"%.200s\", which is not the absolute path of a program",
                           named);
        snprintf(ret_path, FA_NCU_PATH_MAX, "%s", named);
        return 0;
    }
    if (named == NULL && look_in_path(ret_path))
        return 0;
    for (size_t i = 0; named == NULL && i < sizeof patterns / sizeof *patterns; i++)
        if (look_by_pattern(patterns[i], ret_path))
            return 0;
    return fa_fail(
        diag, FA_ENOTFOUND,
        "ncu (Nsight Compute's command line) is not here: install the CUDA toolkit or the "
        "package nsight-compute, or name the program in FA_TUNE_NCU");
}
