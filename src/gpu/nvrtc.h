/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC, opened at run time: source in, cubin out. Used inside compile workers only (a compile
 * cannot be stopped from inside, and NVRTC reads any file its source names); the parent process
 * only asks where it is and what its identity is.
 */
#ifndef FA_GPU_NVRTC_H
#define FA_GPU_NVRTC_H

#include "buf.h"
#include "fa_types.h"

typedef struct fa_nvrtc_location {
    char library[4096];  /* absolute path of libnvrtc.so.13 (or .12) */
    char builtins[4096]; /* absolute path of libnvrtc-builtins.so.X.Y */
    int major, minor;    /* from the builtins' file name */
    /* "13.0 <build-id of libnvrtc> <build-id of builtins>"; SHA-256 where a file has no build-id.
     * This, not nvrtcVersion, is what cubin keys are made of. */
    char identity[256];
} fa_nvrtc_location;

/* What an NVRTC is to be good for. */
typedef struct fa_nvrtc_judge {
    int since; /* fa_nvrtc_since() of the GPU; 0: any version will do */
    /* Whether it compiles; asked only where there are several. NULL: all are taken to. */
    int (*try)(void *context, const fa_nvrtc_location *location, fa_diag *diag);
    void *context;
    fa_buf *passed; /* NULL, or gets a line for each that is there and was not taken for a reason */
} fa_nvrtc_judge;

/* The NVRTC to use, found without loading it. Search order: FA_TUNE_NVRTC (a directory; nothing else is then looked for), the
 * directory recorded at build time (the local wheel folder), the Python packages that this library is
 * installed among (PyTorch's own CUDA, nvidia-cuda-nvrtc), CUDA_HOME/CUDA_PATH lib64,
 * /usr/local/cuda*, the dynamic linker's folders. Never globs libnvrtc*. What an NVRTC makes is loaded by
 * drivers of its major version and newer. The first that suits driver and GPU and compiles is taken, else the first that
 * compiles. */
int fa_nvrtc_choose(const fa_nvrtc_judge *judge, fa_nvrtc_location *ret_location, fa_diag *diag);
int fa_nvrtc_locate(fa_nvrtc_location *ret_location, fa_diag *diag); /* for any GPU, untried */
/* The first version that knows the SM and what our kernels for it use, as 100 * major + minor; 0: every one does. */
int fa_nvrtc_since(int sm);
/* How to get one that the driver here goes with. */
const char *fa_nvrtc_advice(void);

typedef struct fa_cuda_headers {
    char folder[4096]; /* absolute; "": there are none */
    int version;       /* 13000 for CUDA 13.0; 0: it cannot be told */
    enum {
        FA_HEADERS_NONE,
        FA_HEADERS_OTHER,
        FA_HEADERS_SAME_MAJOR,
        FA_HEADERS_SAME
    } fit; /* with NVRTC; the best is taken */
} fa_cuda_headers;
/* Looks beside the NVRTC that fa_nvrtc_locate() finds, in CUDA_HOME and CUDA_PATH, among the Python packages that this
 * library is installed among, where NVRTC was at build time, in /usr/local/cuda* and /usr. */
void fa_cuda_headers_find(fa_cuda_headers *ret_headers);

/* dlopens the builtins by absolute path first, then the library: for good, one at a time. */
int fa_nvrtc_open(const fa_nvrtc_location *location, fa_diag *diag);

typedef struct fa_compile_request {
    const char *source;
    const char *name; /* fixed program name, for byte-identical cubins */
    const char *const *header_names, *const *header_texts;
    int header_count;
    const char *architecture; /* "sm_89", "sm_90a" */
    /* Options beside the fixed ones, in place of those of their kind, each one that fa_nvrtc_allows(); NULL: the source is
     * one of ours, which need less than all of the language. */
    const char *const *options;
    int option_count;
    int cuda_headers; /* the version of CUDA's own among the headers: 13000 for 13.0; 0: none are, or it is not known */
} fa_compile_request;

/* Whether this option may come from outside: of the language and of the code, none that names a file. */
bool fa_nvrtc_allows(const char *option);

/* The fixed option list with its architecture, for cubin keys: NUL-terminated, space-separated. */
void fa_nvrtc_options(const char *architecture, char *ret_text, size_t size);

/* On success ret_cubin holds the cubin and ret_log the log, which may carry warnings. On
 * FA_ECOMPILE ret_log holds the errors and diag their first line. FA_ENOTSUP: this NVRTC does not
 * know the architecture; FA_ENONVRTC: it does not know an option (too old). The log is raw bytes of
 * the compiler: escape control bytes before showing it. */
int fa_nvrtc_compile(const fa_compile_request *request, fa_buf *ret_cubin, fa_buf *ret_log,
                     fa_diag *diag);

#endif
