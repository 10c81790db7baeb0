/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune: finds, proves and remembers the fastest CUDA kernel for a problem on a GPU.
 *
 *     fa_tuner *tuner;
 *     const fa_kernel *kernel;
 *     fa_diag diag;
 *     if (fa_open(NULL, &tuner, &diag) == 0 &&
 *         fa_get_best_kernel(tuner, &problem, FA_EFFORT_MEASURE, &kernel, &diag) == 0)
 *         fa_launch(kernel, &arguments, stream, &diag);
 *
 * Caveats first:
 * - A tune starts worker processes (fa-tune-worker); candidates run there, never in the caller.
 * - The process that forks after using a tuner must not use it in the child: FA_EFORKED.
 * - No function prints, exits or installs a signal handler. Device pointers passed to fa_launch
 *   are trusted; everything else is checked.
 * - Thread-safety: one fa_tuner serves any number of threads, except that fa_close must come last.
 *   What is stored is found while another thread tunes; tunes of one tuner run one after another. An
 *   fa_case_function may use the tuner that calls it, and tune; a request's progress may look up, and is
 *   refused a tune (FA_EBUSY); other callbacks (log, keep) may not use that tuner.
 * - An array that a function returns is one block with all that it points to: free() frees it. Of nothing it is NULL.
 * - A structure that begins with `size` may grow at its end in a later version. Whoever provides its
 *   memory sets `size` to its sizeof: the caller for what is passed or filled, the library for what it
 *   hands out a pointer to; nothing beyond `size` bytes is read or written. fa_problem has its size for
 *   good. All other structures stay as they are for as long as the library's soname does.
 *
 * Returns: 0 or a negative FA_E… code; the sentence is in `diag`, which may be NULL.
 */
#ifndef FA_TUNE_H
#define FA_TUNE_H

#include "fa_bundle.h"      /* winners in signed files */
#include "fa_problem.h"     /* problems of any operation, by the names of their fields */
#include "fa_report_data.h" /* what is stored about each problem */
#include "fa_service.h"     /* what a service and its clients say to each other */
#include "fa_sweep.h"       /* grids of problems, hosts that share a store, times of others' kernels */
#include "fa_tuner.h"       /* the session: lookups, tunes, launches */
#include "fa_types.h"       /* plain types */
#endif
