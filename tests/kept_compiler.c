/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles with the real NVRTC what kept_nvrtc.c has not kept, in a process of its own: no sanitizer follows each
 * of NVRTC's allocations, which doubled the time, and the library is loaded (12 ms) only when something is to be compiled.
 *
 * Standard input is a socket; a message is a struct of kept_nvrtc.h and the bytes that it counts. Ends with its parent.
 */
#include "kept_nvrtc.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static struct {
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*destroy)(void **);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
    int (*cubin)(void *, char *);
    const char *(*error_text)(int);
} real;

static void load(void)
{
    static const struct {
        void *function;
        const char *name;
    } names[] = {
        {&real.create, "nvrtcCreateProgram"},   {&real.destroy, "nvrtcDestroyProgram"},
        {&real.compile, "nvrtcCompileProgram"}, {&real.log_size, "nvrtcGetProgramLogSize"},
        {&real.log, "nvrtcGetProgramLog"},      {&real.cubin_size, "nvrtcGetCUBINSize"},
        {&real.cubin, "nvrtcGetCUBIN"},         {&real.error_text, "nvrtcGetErrorString"},
    };
    /* The library opens its builtins by their bare name. */
    if (real.create != NULL || dlopen(REAL_BUILTINS, RTLD_NOW | RTLD_LOCAL) == NULL)
        return;
    void *library = dlopen(REAL_NVRTC, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = library == NULL ? NULL : dlsym(library, names[i].name);
        if (function == NULL)
            abort(); /* its worker reads no answer, ends, and the test says so */
        memcpy(names[i].function, &function, sizeof function);
    }
}

static const char *take(const char **at)
{
    const char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

/* The texts: source, name, each header's name and text, options. Returns the log and the cubin, to be freed.
 * A reference, of which no test asks how fast it would be, is hardly optimised: a third of the time. Of a candidate registers and
 * local memory matter. */
static char *compile(const struct kept_request *request, const char *at, struct kept_answer *answer)
{
    const char **texts = calloc(2 * request->headers + request->options + 1, sizeof *texts);
    const char **names = texts, **headers = names + request->headers,
               **options = headers + request->headers;
    const char *source = take(&at), *name = take(&at);
    for (uint32_t i = 0; i < request->headers; i++) {
        names[i] = take(&at);
        headers[i] = take(&at);
    }
    for (uint32_t i = 0; i < request->options; i++)
        options[i] = take(&at);
    const bool reference = strcmp(name, "reference.cu") == 0;
    options[request->options] = reference ? "--Ofast-compile=max" : NULL;
    void *program = NULL;
    size_t log_size = 0, cubin_size = 0;
    char *bytes = NULL;
    answer->result = real.create(&program, source, name, (int)request->headers, headers, names);
    if (answer->result == 0) {
        answer->result = real.compile(program, (int)request->options + reference, options);
        real.log_size(program, &log_size);
        if (answer->result == 0)
            real.cubin_size(program, &cubin_size);
        bytes = malloc(log_size + cubin_size + 1);
        real.log(program, bytes);
        if (answer->result == 0)
            real.cubin(program, bytes + log_size);
        real.destroy(&program);
    }
    answer->log_size = log_size;
    answer->cubin_size = cubin_size;
    strncpy(answer->error, real.error_text(answer->result), sizeof answer->error - 1);
    free(texts);
    return bytes;
}

int main(void)
{
    struct kept_request request;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the program that is tested */
    while (kept_read(0, &request, sizeof request)) {
        struct kept_answer answer = {0};
        char *texts = malloc(request.size);
        if (texts == NULL || !kept_read(0, texts, request.size))
            return 1;
        load();
        char *bytes = compile(&request, texts, &answer);
        if (!kept_write(0, &answer, sizeof answer) ||
            !kept_write(0, bytes, answer.log_size + answer.cubin_size))
            return 1;
        free(bytes);
        free(texts);
    }
    return 0;
}
