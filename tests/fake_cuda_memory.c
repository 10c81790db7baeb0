/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory of the fake CUDA driver: host blocks at addresses that no host memory has.
 *
 * Invariant: whatever an address is used for, the range must lie inside one block.
 */
#include "fake_cuda_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GRANULE = 2 << 20, LARGE = 4 << 20 };

static struct block *find_block(uint64_t address)
{
    for (struct block *b = fake.blocks; b != NULL; b = b->next)
        if (address >= b->address && address - b->address < b->size)
            return b;
    return NULL;
}

static void fill_host(uint8_t *to, uint32_t pattern, size_t bytes)
{
    size_t i = 0;
    for (; i + 4 <= bytes; i += 4)
        memcpy(to + i, &pattern, 4);
    memcpy(to + i, &pattern, bytes - i);
}

void *fake_memory(uint64_t address, size_t size, bool write)
{
    struct block *b = find_block(address);
    if (b == NULL || size > b->size - (size_t)(address - b->address))
        return NULL;
    if (b->pending) {
        fill_host(b->host, b->fill, b->size);
        b->pending = false;
    }
    if (write)
        b->version = ++fake.next_version;
    return b->host + (address - b->address);
}

uint64_t fake_memory_version(uint64_t address)
{
    struct block *b = find_block(address);
    return b == NULL ? 0 : b->version;
}

/* A large block costs nothing until it is touched; calloc() would fill it where MALLOC_PERTURB_ is set. */
static uint8_t *make_host(size_t size)
{
    if (size < LARGE)
        return calloc(1, size);
    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return host != MAP_FAILED ? host : NULL;
}

static void free_host(uint8_t *host, size_t size)
{
    if (size < LARGE)
        free(host);
    else if (host != NULL)
        munmap(host, size);
}

void fake_free_block(struct block **link)
{
    struct block *b = *link;
    *link = b->next;
    fake.used[b->device] -= b->size;
    free_host(b->host, b->size);
    free(b);
}

struct block *fake_make_block(size_t size)
{
    int device = fake_current()->device;
    struct block *b = calloc(1, sizeof *b);
    uint8_t *host = make_host(size);
    if (b == NULL || host == NULL) {
        free(b);
        free_host(host, size);
        return NULL;
    }
    *b = (struct block){.next = fake.blocks, .address = fake.next_address, .size = size,
                        .host = host, .device = device, .version = ++fake.next_version};
    fake.next_address += (size + 2 * GRANULE - 1) / GRANULE * GRANULE; /* a gap behind each */
    fake.used[device] += size;
    fake.blocks = b;
    return b;
}

CUDA cuMemAlloc_v2(uint64_t *ret, size_t size)
{
    ENTER;
    if (!fake_may_allocate())
        return FAKE_CAPTURE_UNSUPPORTED;
    int device = fake_current()->device;
    if (size == 0)
        return FAKE_INVALID_VALUE;
    if (size > fake.script.device[device].memory - fake.used[device]) {
        fake_note("out_of_memory %zu", size);
        return FAKE_OUT_OF_MEMORY;
    }
    struct block *b = fake_make_block(size);
    if (b == NULL)
        return FAKE_OUT_OF_MEMORY;
    *ret = b->address;
    return FAKE_OK;
}

CUDA cuMemFree_v2(uint64_t address)
{
    ENTER;
    for (struct block **link = &fake.blocks; *link != NULL; link = &(*link)->next) {
        if ((*link)->address != address)
            continue;
        fake_free_block(link);
        return FAKE_OK;
    }
    return address == 0 ? FAKE_OK : FAKE_INVALID_VALUE;
}

CUDA cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
    ENTER;
    int device = fake_current()->device;
    *ret_total = fake.script.device[device].memory;
    *ret_free = *ret_total - fake.used[device];
    return FAKE_OK;
}

CUDA cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
    ENTER;
    fake_hang_if_told();
    void *host = fake_memory(to, size, true);
    if (host == NULL)
        return FAKE_INVALID_VALUE;
    memcpy(host, from, size);
    return FAKE_OK;
}

CUDA cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    ENTER;
    fake_hang_if_told();
    const void *host = fake_memory(from, size, false);
    if (host == NULL)
        return FAKE_INVALID_VALUE;
    memcpy(to, host, size);
    return FAKE_OK;
}

CUDA cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream)
{
    ENTER;
    (void)stream;
    const void *source = fake_memory(from, size, false);
    void *target = fake_memory(to, size, true);
    if (source == NULL || target == NULL)
        return FAKE_INVALID_VALUE;
    memcpy(target, source, size);
    fake_note("copy %zu", size);
    return FAKE_OK;
}

/* A fill of a whole block waits until somebody reads it: flushing a cache costs nothing. */
static int fill(uint64_t address, uint32_t pattern, size_t count, size_t width)
{
    struct block *b = find_block(address);
    if (address % width != 0 || count > SIZE_MAX / 4 || b == NULL ||
        count * width > b->size - (size_t)(address - b->address))
        return FAKE_INVALID_VALUE;
    fake.clock_us += 1 + (double)(count * width) / 300e3; /* 300 GB/s */
    if (address == b->address && count * width == b->size) {
        b->pending = true;
        b->fill = pattern;
        b->version = ++fake.next_version;
        return FAKE_OK;
    }
    fill_host(fake_memory(address, count * width, true), pattern, count * width);
    return FAKE_OK;
}

CUDA cuMemsetD8Async(uint64_t address, unsigned char value, size_t count, void *stream)
{
    ENTER;
    (void)stream;
    return fill(address, value * 0x01010101u, count, 1);
}

CUDA cuMemsetD16Async(uint64_t address, unsigned short value, size_t count, void *stream)
{
    ENTER;
    (void)stream;
    return fill(address, value * 0x00010001u, count, 2);
}

CUDA cuMemsetD32Async(uint64_t address, unsigned value, size_t count, void *stream)
{
    ENTER;
    (void)stream;
    return fill(address, value, count, 4);
}
