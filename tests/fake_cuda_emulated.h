/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel templates on the CPU, launched by the fake CUDA driver.
 */
#ifndef FA_TESTS_FAKE_CUDA_EMULATED_H
#define FA_TESTS_FAKE_CUDA_EMULATED_H

#include "fake_cuda.h"

/* Whether a marker names a library, and which. */
bool fake_emulated_path(const char *marker, char ret_path[FAKE_TEXT]);
/* Runs its kernel; false: it did what no kernel may, and a line on standard output says what. */
bool fake_emulated_run(const char *path, const unsigned grid[3], unsigned threads, unsigned bytes,
                       void **arguments);

#endif
