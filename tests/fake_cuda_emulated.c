/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that emulate.py has made into libraries, launched by the fake CUDA driver: a module's marker names the
 * library (emulated=PATH;).
 *
 * Invariant: the kernel sees host addresses inside the blocks that its arguments point into; what it asks of any
 * other address is a fault.
 */
#include "fake_cuda_emulated.h"

#include "fake_cuda_state.h"

#include "attn_serving_params.h"
#include "attn_tensor_maps.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef const char *launch_function(const char *entry, const void *params, const void *maps,
                                    const unsigned *grid, unsigned threads, unsigned bytes,
                                    bool (*granted)(const void *, size_t, bool));

static bool granted(const void *address, size_t size, bool write)
{
    uintptr_t at = (uintptr_t)address;
    (void)write;
    for (const struct block *b = fake.blocks; b != NULL; b = b->next)
        if (at >= (uintptr_t)b->host && at - (uintptr_t)b->host < b->size)
            return size <= b->size - (at - (uintptr_t)b->host);
    return false;
}

void *fake_on_host(const void *device, bool write)
{
    return device == NULL ? NULL : fake_memory((uint64_t)(uintptr_t)device, 1, write);
}

static struct fa_attn_serving_params translated(const void *params, unsigned bytes)
{
    struct fa_attn_serving_params p = {0};
    memcpy(&p, params, bytes < sizeof p ? bytes : sizeof p);
    p.dense.q = fake_on_host(p.dense.q, false);
    p.dense.k = fake_on_host(p.dense.k, false);
    p.dense.v = fake_on_host(p.dense.v, false);
    p.dense.o = fake_on_host(p.dense.o, true);
    p.dense.lse = fake_on_host(p.dense.lse, true);
    p.cu_seqlens_q = fake_on_host(p.cu_seqlens_q, false);
    p.cu_seqlens_k = fake_on_host(p.cu_seqlens_k, false);
    p.seqused_k = fake_on_host(p.seqused_k, false);
    p.block_table = fake_on_host(p.block_table, false);
    p.sinks = fake_on_host(p.sinks, false);
    p.k_scale = fake_on_host(p.k_scale, false);
    p.v_scale = fake_on_host(p.v_scale, false);
    p.workspace = fake_on_host(p.workspace, true);
    p.counters = fake_on_host(p.counters, true);
    for (int i = 0; i < FA_ATTN_BUFFERS; i++)
        if (fake_on_host(p.buffer[i].at, false) != NULL) /* a number else */
            p.buffer[i].at = fake_on_host(p.buffer[i].at, false);
    return p;
}

/* One library at a time: a proof launches one kernel again and again. */
static struct {
    char path[FAKE_TEXT];
    void *handle;
    launch_function *launch;
    unsigned parameter_bytes, map_bytes;
} loaded;

static bool load(const char *path)
{
    if (loaded.handle != NULL && strcmp(loaded.path, path) == 0)
        return true;
    if (loaded.handle != NULL)
        dlclose(loaded.handle);
    loaded.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const unsigned *bytes =
        loaded.handle != NULL ? dlsym(loaded.handle, "emulated_parameter_bytes") : NULL;
    if (bytes == NULL) {
        printf("# emulated: %s\n", dlerror());
        return false;
    }
    snprintf(loaded.path, sizeof loaded.path, "%s", path);
    loaded.parameter_bytes = *bytes;
    loaded.map_bytes = *(const unsigned *)dlsym(loaded.handle, "emulated_map_bytes");
    *(void **)&loaded.launch = dlsym(loaded.handle, "emulated_launch");
    return loaded.launch != NULL;
}

bool fake_emulated_path(const char *marker, char ret_path[FAKE_TEXT])
{
    const char *at = strstr(marker, "emulated=");
    if (at == NULL)
        return false;
    at += strlen("emulated=");
    snprintf(ret_path, FAKE_TEXT, "%.*s", (int)strcspn(at, ";"), at);
    return true;
}

bool fake_emulated_run(const char *path, const char *entry, const unsigned grid[3],
                       unsigned threads, unsigned bytes, void **arguments)
{
    if (!load(path))
        return false;
    struct fa_attn_serving_params p = translated(arguments[0], loaded.parameter_bytes);
    unsigned char maps[4][128];
    for (size_t i = 0; i < loaded.map_bytes / sizeof *maps; i++)
        fake_map_on_host((const struct fa_tensor_map *)arguments[1] + i, i == 3, maps[i]);
    const char *wrong = loaded.launch(entry, &p, maps, grid, threads, bytes, granted);
    if (wrong != NULL)
        printf("# emulated: %s\n", wrong);
    return wrong == NULL;
}
