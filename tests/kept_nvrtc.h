/* SPDX-License-Identifier: Apache-2.0
 *
 * What kept_nvrtc.c and kept_compiler.c say to one another.
 */
#ifndef FA_KEPT_NVRTC_H
#define FA_KEPT_NVRTC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Then `size` bytes of texts, each with its NUL: source, name, each header's name and text, options. */
struct kept_request {
    uint32_t headers, options;
    uint64_t size;
};

/* Then the log's bytes and the cubin's. */
struct kept_answer {
    int32_t result;
    char error[64];
    uint64_t log_size, cubin_size;
};

static inline bool kept_read(int fd, void *to, size_t size)
{
    char *at = to;
    while (size > 0) {
        ssize_t n = read(fd, at, size);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static inline bool kept_write(int fd, const void *from, size_t size)
{
    const char *at = from;
    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

#endif
