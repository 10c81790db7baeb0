/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the fake CUDA driver share. See fake_cuda.c.
 */
#ifndef FA_TESTS_FAKE_CUDA_H
#define FA_TESTS_FAKE_CUDA_H

#include "snippet_values.h"

enum {
    FAKE_OK = 0,
    FAKE_INVALID_VALUE = 1,
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_NOT_INITIALIZED = 3,
    FAKE_NO_DEVICE = 100,
    FAKE_INVALID_DEVICE = 101,
    FAKE_INVALID_IMAGE = 200,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_NO_BINARY = 209,
    FAKE_INVALID_HANDLE = 400,
    FAKE_CAPTURE_UNSUPPORTED = 900,
    FAKE_NOT_FOUND = 500,
    FAKE_NOT_READY = 600,
    FAKE_UNCORRECTABLE = 214,
    FAKE_ILLEGAL_ADDRESS = 700,
    FAKE_OUT_OF_RESOURCES = 701,
    FAKE_COOPERATIVE_TOO_LARGE = 720,
};

/* ---- the script ------------------------------------------------------------------------------*/
enum { FAKE_DEVICES = 8, FAKE_LINES = 256, FAKE_TEXT = 512, FAKE_VALLEYS = 16 };

struct fake_device {
    fa_gpu gpu;
    size_t memory;       /* bytes */
    int memory_clock_khz;
    int board;           /* tells its UUID from another machine's */
};

enum fake_fault_kind {
    FAKE_LOAD_FAILURE,
    FAKE_LAUNCH_FAILURE,
    FAKE_FAULT_ILLEGAL_ADDRESS,
    FAKE_FAULT_ECC,
    FAKE_HANG,
    FAKE_FAULT_OUT_OF_MEMORY,
    FAKE_CRASH,
    FAKE_WRONG,
    FAKE_NAN,
    FAKE_UNWRITTEN,
    FAKE_OVERRUN,
    FAKE_UNDERRUN, /* these two of l1_norm alone: in front of its output or workspace, */
    FAKE_SPOIL,    /* and into its input */
    FAKE_FLAKY,
    FAKE_ONE_BIT, /* of the first element: of attention's LSE, and of axpy */
    FAKE_KINDS
};

struct fake_fault {
    char match[FAKE_TEXT];
    enum fake_fault_kind kind;
    long after, times; /* skips the first `after`, then strikes `times` (-1: for ever) */
    long seen;
};

struct fake_time {
    char match[FAKE_TEXT];
    double us;
};

struct fake_valley {
    char name[64]; /* ";NAME=" */
    double best, share;
};

struct fake_script {
    struct fake_device device[FAKE_DEVICES];
    int device_count, driver_version;
    bool no_device, init_once, no_zero_strides;
    struct fake_fault fault[FAKE_LINES];
    int fault_count;
    struct fake_time time[FAKE_LINES];
    int time_count;
    struct fake_valley valley[FAKE_VALLEYS];
    int valley_count;
    double drift_us, drift_factor; /* 0: none */
    char log[FAKE_TEXT];
};

/* Reads the file that FAKE_CUDA_SCRIPT names, or gives the defaults. A bad line ends the process
 * with a sentence: a misspelt test must not pass. */
void fake_script_read(struct fake_script *ret_script);
/* True when a fault of this kind strikes this marker now; counts. */
bool fake_script_fault(struct fake_script *script, const char *marker, enum fake_fault_kind kind);
/* Microseconds of one launch that begins at clock_us: scripted, or made up from the marker; with up to
 * 1% of jitter that depends on `launch` alone. */
double fake_script_time(const struct fake_script *script, const char *marker, uint64_t launch,
                        double clock_us);

/* ---- device memory ---------------------------------------------------------------------------*/
/* The host address of [address, address + size), or NULL when it is not inside one block. */
void *fake_memory(uint64_t address, size_t size, bool write);
/* Changes whenever the block that holds the address is written; 0: no block. */
uint64_t fake_memory_version(uint64_t address);

/* ---- kernels ---------------------------------------------------------------------------------*/
/* What the marker of a module says of its kernels. */
struct fake_build {
    int head_dim, bf16, causal; /* of attention */
    /* Of attention as serving engines call it; `serving`: one of these is not 0. */
    int serving, varlen, lengths_k, page, window, softcap, sinks, fp8, q_fp8, head_dim_v, d_lse;
    struct snippet score, mask;
    char buffers[128];               /* their list */
    int columns, parts;         /* of l1_norm; 0: it is none */
    int filter_w, filter_h;     /* of a specification's convolution */
    int blocks;                 /* of its sums */
    uint64_t variable; /* the module's, once somebody has asked where it lies; 0: it holds zeros */
};

/* One launch's faults in its result. */
struct fake_damage {
    bool wrong, nan, unwritten, overrun, underrun, spoil, one_bit;
};

/* Runs an entry; false: it touched memory outside the blocks. */
typedef bool fake_kernel(const char *entry, const struct fake_build *build, void **arguments,
                         const struct fake_damage *damage);
/* Of attention forward and its references, attention backward, tests/operations/l1_norm, tests/specifications, and the kernels
 * that check outputs of any operation. */
fake_kernel fake_serving_forward, fake_serving_reference, fake_backward_run, fake_rows_run,
    fake_specified_run, fake_checks_run;
/* Whether the entry is one that can be run, and whether faults and times are for it: it is what is
 * tuned, not what checks it. */
bool fake_kernel_known(const char *entry);
bool fake_kernel_is_tuned(const char *entry);
fake_kernel fake_kernel_run;   /* damage: NULL for none */
void fake_kernel_forget(void); /* frees remembered results */

#endif
