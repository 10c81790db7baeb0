/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets share. Each is one file with an LLVMFuzzerTestOneInput, built twice: with
 * clang's libFuzzer (`./dev fuzz SECONDS`), and with replay.c's main, which runs a target over its
 * corpus and some thousands of changes to it in every test run, whatever compiler there is.
 *
 * A target never returns anything but 0; what it finds, it aborts on (FUZZ_CHECK) or a
 * sanitizer does.
 */
#ifndef FA_TESTS_FUZZ_H
#define FA_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* How often a reader took what it was given: so that replay.c sees that a corpus is still read, and
 * not refused for the lack of a key. */
extern long fuzz_taken;

#define FUZZ_CHECK(condition)                                                        \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
            abort();                                                                 \
        }                                                                            \
    } while (0)

/* A file that holds these bytes, for readers that want a path; the same one each time. */
static inline const char *fuzz_file(const void *bytes, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        snprintf(path, sizeof path, "%s",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm/fa-tune-fuzz-XXXXXX"
                                               : "/tmp/fa-tune-fuzz-XXXXXX");
        fd = mkstemp(path);
        FUZZ_CHECK(fd >= 0);
        unlink(path); /* it lives as long as we do */
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0);
    FUZZ_CHECK(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    return path;
}

/* Changes bytes as an input says: {u16 offset (little endian), u8 value}, over and over. */
static inline void fuzz_patch(uint8_t *bytes, size_t size, const uint8_t *patch, size_t patch_size)
{
    for (size_t i = 0; i + 3 <= patch_size; i += 3) {
        size_t at = (size_t)patch[i] | (size_t)patch[i + 1] << 8;
        if (at < size)
            bytes[at] = patch[i + 2];
    }
}

#endif
