/* SPDX-License-Identifier: Apache-2.0
 *
 * An NVRTC that makes no code: what a version refuses, for tests of who is asked to compile, and with what options.
 * A test copies it into a folder, as the library and as its builtins, whose name gives the version. A file "broken"
 * beside them: nothing compiles; "crashing": it ends its process. A source with the word "wrong" does not.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL_ERROR = 11 };

static char said[200];
static int fails;

static int version(void)
{
    Dl_info self;
    int major = 0, minor = 0;
    char folder[4096];
    if (dladdr((void *)version, &self) == 0)
        return 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(self.dli_fname, '/') - self.dli_fname),
             self.dli_fname);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        sscanf(entry->d_name, "libnvrtc-builtins.so.%d.%d", &major, &minor);
        if (strcmp(entry->d_name, "broken") == 0)
            snprintf(said, sizeof said, "broken");
        if (strcmp(entry->d_name, "crashing") == 0)
            _exit(9);
    }
    if (dir != NULL)
        closedir(dir);
    return 100 * major + minor;
}

EXPORT int nvrtcVersion(int *ret_major, int *ret_minor)
{
    *ret_major = version() / 100;
    *ret_minor = version() % 100;
    return OK;
}

EXPORT int nvrtcCreateProgram(void **ret, const char *source, const char *name, int count,
                              const char *const *headers, const char *const *names)
{
    (void)name, (void)count, (void)headers, (void)names;
    fails = strstr(source, "wrong") != NULL;
    *ret = said;
    return OK;
}

EXPORT int nvrtcDestroyProgram(void **program)
{
    *program = NULL;
    return OK;
}

/* As NVRTC of that version does. */
EXPORT int nvrtcCompileProgram(void *program, int count, const char *const *options)
{
    static const struct {
        const char *option;
        int since;
    } known[] = {{"--minimal", 1204}, {"--no-cache", 1209}, {"-std=c++23", 1303}};
    (void)program;
    said[0] = 0;
    const int own = version();
    if (said[0] != 0)
        return INTERNAL_ERROR;
    for (int i = 0; i < count; i++) {
        const char *end = options[i] + strlen(options[i]) - 1;
        if (strncmp(options[i], "--gpu-architecture=", 19) == 0 &&
            ((*end == 'f' && own < 1209) || (strstr(options[i], "=sm_70") != NULL && own >= 1300) ||
             (strstr(options[i], "=sm_120") != NULL && own < 1208))) {
            snprintf(said, sizeof said,
                     "nvrtc: error: invalid value for --gpu-architecture (-arch)\n");
            return INVALID_OPTION;
        }
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strcmp(options[i], known[k].option) == 0 && own < known[k].since) {
                snprintf(said, sizeof said, "nvrtc: error: unrecognized option %s found\n",
                         options[i]);
                return INVALID_OPTION;
            }
    }
    if (fails)
        snprintf(said, sizeof said, "cuda_fp16.h(7): error: this is wrong\n");
    return fails ? COMPILATION : OK;
}

#define GETS(Name, text)                                             \
    EXPORT int nvrtcGet##Name##Size(void *program, size_t *ret_size) \
    {                                                                \
        (void)program;                                               \
        *ret_size = strlen(text) + 1;                                \
        return OK;                                                   \
    }                                                                \
    EXPORT int nvrtcGet##Name(void *program, char *ret)              \
    {                                                                \
        (void)program;                                               \
        strcpy(ret, text);                                           \
        return OK;                                                   \
    }
GETS(ProgramLog, said)
GETS(CUBIN, "non") /* no cubin, of four bytes */

EXPORT const char *nvrtcGetErrorString(int result)
{
    return result == INTERNAL_ERROR ? "NVRTC_ERROR_INTERNAL_ERROR" : "NVRTC_ERROR_INVALID_OPTION";
}
