/* SPDX-License-Identifier: Apache-2.0
 *
 * Where CUDA's own headers are: those of NVRTC's version, where there are some.
 *
 * Workload: once for each kernel of a user's own that includes some.
 */
#include "nvrtc.h"

#include "own_place.h"
#include "places.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 13000 for CUDA 13.0; 0: it cannot be told. */
static int version_of_headers(const char *folder)
{
    static const char word[] = "#define CUDART_VERSION";
    char path[PATH_MAX], text[1 << 14];
    int version = 0;
    if (snprintf(path, sizeof path, "%s/cuda_runtime_api.h", folder) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *at = strstr(text, word);
    return at != NULL && sscanf(at + sizeof word - 1, "%d", &version) == 1 ? version : 0;
}

/* Takes a folder that fits NVRTC's version better than what was taken before. */
static void take_headers(const char *root, const char *below, const fa_nvrtc_location *nvrtc,
                         fa_cuda_headers *ret)
{
    char path[PATH_MAX], folder[PATH_MAX];
    if (root == NULL || root[0] == 0 ||
        snprintf(path, sizeof path, "%s%s", root, below) >= (int)sizeof path ||
        realpath(path, folder) == NULL || strlen(folder) >= sizeof ret->folder ||
        snprintf(path, sizeof path, "%s/cuda_fp16.h", folder) >= (int)sizeof path ||
        access(path, R_OK) != 0)
        return;
    const int version = version_of_headers(folder);
    const int own =
        1000 * nvrtc->major + 10 * nvrtc->minor; /* an unknown version is a person's own */
    const unsigned fit = version == 0 || version == own   ? FA_HEADERS_SAME
                         : version / 1000 == nvrtc->major ? FA_HEADERS_SAME_MAJOR
                                                          : FA_HEADERS_OTHER;
    if (fit <= ret->fit)
        return;
    *ret = (fa_cuda_headers){.version = version, .fit = fit};
    memcpy(ret->folder, folder, strlen(folder));
}

void fa_cuda_headers_find(fa_cuda_headers *ret_headers)
{
    fa_nvrtc_location nvrtc = {.major = 0};
    char here[PATH_MAX - 64];
    *ret_headers = (fa_cuda_headers){.version = 0};
    fa_own_directory(here, sizeof here);
    if (fa_nvrtc_locate(&nvrtc, NULL) == 0)
        *strrchr(nvrtc.library, '/') = 0;
    const char *const places[][2] = {
        {nvrtc.library, "/../include"}, /* of a toolkit, and of packages of CUDA 13 */
        {nvrtc.library, "/../../cuda_runtime/include"}, /* of CUDA 12's */
        {getenv("CUDA_HOME"), "/include"},
        {getenv("CUDA_PATH"), "/include"},
        {here, "/../../nvidia/cu13/include"},
        {here, "/../../nvidia/cuda_runtime/include"},
        {FA_TUNE_NVRTC_DIR, "/../include"},
        {"/usr/local/cuda", "/include"},
        {"/usr", "/include"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        take_headers(places[i][0], places[i][1], &nvrtc, ret_headers);
    glob_t folders;
    if (glob("/usr/local/cuda-*", 0, NULL, &folders) == 0)
        for (size_t i = 0; i < folders.gl_pathc; i++)
            take_headers(folders.gl_pathv[i], "/include", &nvrtc, ret_headers);
    globfree(&folders);
}
