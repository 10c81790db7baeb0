/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel templates on the CPU, launched by the fake CUDA driver.
 */
#ifndef FA_TESTS_FAKE_CUDA_EMULATED_H
#define FA_TESTS_FAKE_CUDA_EMULATED_H

#include "fake_cuda.h"

struct fa_tensor_map;

/* Whether a marker names a library, and which. */
bool fake_emulated_path(const char *marker, char ret_path[FAKE_TEXT]);
/* Runs its kernel; false: it did what no kernel may, and a line on standard output says what. */
bool fake_emulated_run(const char *path, const char *entry, const unsigned grid[3],
                       unsigned threads, unsigned bytes, void **arguments);
/* What an argument says in device addresses, in host addresses. */
void *fake_on_host(const void *device, bool write);
/* A map of the host, as the emulator reads it. */
void fake_map_on_host(const struct fa_tensor_map *given, bool write, unsigned char ret[128]);

#endif
