/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps of the fake CUDA driver: the encoder refuses what the real one's documentation
 * forbids and writes what it was told into the map; a launch compares that with its first argument.
 *
 * Whether a kernel takes maps is told by the number of its parameters, as the real driver knows it.
 */
#include "fake_cuda_emulated.h"
#include "fake_cuda_state.h"

#include "attn_serving_params.h"
#include "attn_tensor_maps.h"

#include <string.h>

#define MAP_MAGIC 0x70616d2d656b6166ull /* "fake-map" */

enum { RANK = 5, UINT8 = 0, FLOAT16 = 6, BFLOAT16 = 9, SWIZZLE_128 = 3 };

struct fake_map {
    uint64_t magic, address;
    uint64_t stride[RANK - 1];
    uint32_t last[RANK]; /* extent - 1 */
    uint16_t box[RANK];
    uint8_t rank, dtype, swizzle;
};

_Static_assert(sizeof(struct fake_map) <= sizeof(struct fa_tensor_map), "it must fit");

/* ---- encoding --------------------------------------------------------------------------------*/

static bool sizes_are_good(uint32_t rank, const uint64_t *extent, const uint64_t *stride,
                           const uint32_t *box, const uint32_t *step)
{
    for (uint32_t i = 0; i < rank; i++) {
        if (extent[i] < 1 || extent[i] > (uint64_t)1 << 32 || box[i] < 1 || box[i] > 256 ||
            step[i] < 1 || step[i] > 8)
            return false;
        if (i > 0 && (stride[i - 1] % 16 != 0 || stride[i - 1] >= (uint64_t)1 << 40 ||
                      (stride[i - 1] == 0 && fake.script.no_zero_strides)))
            return false;
    }
    return true;
}

CUDA cuTensorMapEncodeTiled(void *ret, int dtype, uint32_t rank, uint64_t address,
                            const uint64_t *extent, const uint64_t *stride, const uint32_t *box,
                            const uint32_t *step, int interleave, int swizzle, int promotion,
                            int out_of_bounds)
{
    static const uint32_t width[] = {0, 32, 64, 128};
    const uint32_t row_bytes = box[0] * (dtype == UINT8 ? 1 : 2);
    if ((uintptr_t)ret % 64 != 0 || address == 0 || address % 16 != 0 ||
        (dtype != UINT8 && dtype != FLOAT16 && dtype != BFLOAT16) || rank < 1 || rank > RANK || interleave != 0 ||
        swizzle < 0 || swizzle > SWIZZLE_128 || promotion < 0 || promotion > 3 ||
        out_of_bounds < 0 || out_of_bounds > 1)
        return FAKE_INVALID_VALUE;
    if (!sizes_are_good(rank, extent, stride, box, step) || row_bytes % 16 != 0 ||
        (swizzle != 0 && row_bytes > width[swizzle]))
        return FAKE_INVALID_VALUE;
    struct fake_map map = {.magic = MAP_MAGIC, .address = address, .rank = (uint8_t)rank,
                           .dtype = (uint8_t)dtype, .swizzle = (uint8_t)swizzle};
    for (uint32_t i = 0; i < rank; i++) {
        map.last[i] = (uint32_t)(extent[i] - 1);
        map.box[i] = (uint16_t)box[i];
        if (i > 0)
            map.stride[i - 1] = stride[i - 1];
    }
    memset(ret, 0, sizeof(struct fa_tensor_map));
    memcpy(ret, &map, sizeof map);
    return FAKE_OK;
}

/* The same as tests/emulator_hopper.hpp has it. A map that nobody has made stays without a type that it takes. */
struct emulated_map {
    const void *address;
    uint32_t rank, box[4], extent[4], element_stride[4], type, interleave, swizzle, fill;
    uint64_t stride[3];
};

void fake_map_on_host(const struct fa_tensor_map *given, bool write, unsigned char ret[128])
{
    struct fake_map map;
    memcpy(&map, given, sizeof map);
    memset(ret, 0, 128);
    if (map.magic != MAP_MAGIC || map.rank != 4)
        return;
    struct emulated_map m = {.address = fake_on_host((void *)(uintptr_t)map.address, write),
                             .rank = 3,
                             .element_stride = {1, 1, 1, 1},
                             .type = map.dtype,
                             .swizzle = map.swizzle};
    for (int i = 0; i < 4; i++) {
        m.box[i] = map.box[i];
        m.extent[i] = map.last[i] + 1;
        if (i > 0)
            m.stride[i - 1] = map.stride[i - 1];
    }
    memcpy(ret, &m, sizeof m);
}

/* ---- launching -------------------------------------------------------------------------------*/

/* What a map of this launch must say. Extents and strides (in elements) are innermost first. */
struct wanted {
    const char *name;
    const void *address;
    int rank;
    long long extent[RANK], stride[RANK];
    unsigned box[RANK];
};

static bool agrees(const struct fa_tensor_map *given, const struct wanted *wanted, int dtype)
{
    const unsigned element = dtype == UINT8 ? 1 : 2;
    struct fake_map map;
    memcpy(&map, given, sizeof map);
    if (map.magic != MAP_MAGIC || map.address != (uint64_t)(uintptr_t)wanted->address ||
        map.rank != wanted->rank || map.dtype != dtype ||
        (16u << map.swizzle) != wanted->box[0] * element)
        return false;
    for (int i = 0; i < wanted->rank; i++) {
        long long extent = (long long)map.last[i] + 1;
        if (map.box[i] != wanted->box[i] || extent != wanted->extent[i] ||
            (i > 0 && extent > 1 && (long long)map.stride[i - 1] != element * wanted->stride[i]))
            return false;
    }
    return true;
}

/* Strides and sizes are of batch, head and row. */
static struct wanted tensor_map(const char *name, const void *address, const long long stride[3],
                                const int size[3], unsigned columns, unsigned rows)
{
    return (struct wanted){.name = name,
                           .address = address,
                           .rank = 4,
                           .extent = {0, size[2], size[1], size[0]},
                           .stride = {1, stride[2], stride[1], stride[0]},
                           .box = {columns, rows, 1, 1}};
}

/* Splits the heads in groups; a box then has rows of several heads of one group. */
static void group_heads(struct wanted *w, int group, unsigned box_heads)
{
    w->rank = 5;
    w->extent[4] = w->extent[3];
    w->extent[3] = w->extent[2] / group;
    w->extent[2] = w->extent[1];
    w->extent[1] = group;
    w->stride[4] = w->stride[3];
    w->stride[3] = w->stride[2] * group;
    long long head_stride = w->stride[2];
    w->stride[2] = w->stride[1];
    w->stride[1] = head_stride;
    w->box[2] = w->box[1];
    w->box[1] = box_heads;
    w->box[3] = w->box[4] = 1;
}

int fake_check_maps(const struct function *f, void **arguments)
{
    struct fa_attn_serving_params serving = {0};
    struct fa_attn_tensor_maps maps;
    struct fa_attn_boxes b;
    const struct module *m = f->module;
    const struct fake_build *build = &m->build;
    const int32_t *size = f->info.parameter_size; /* a workspace's address may stand behind them */
    uint64_t is[2] = {MAP_MAGIC};                 /* magic, address: of a struct's second tensor */
    if (size[1] == sizeof(struct fa_tensor_map))
        memcpy(is, arguments[1], sizeof is);
    if (is[0] != MAP_MAGIC || (is[1] != 0 && memcmp(&is[1], (char *)arguments[0] + 8, 8) != 0))
        return FAKE_INVALID_VALUE;
    if (f->info.parameter_count < 2 || size[1] < (int32_t)sizeof maps)
        return FAKE_OK;
    if (arguments[1] == NULL ||
        fa_cubin_constant(m->image, m->size, "fa_attn_boxes_wanted", &b, sizeof b, NULL) != 0)
        return FAKE_INVALID_VALUE;
    memcpy(&serving, arguments[0], build->serving ? sizeof serving : sizeof serving.dense);
    const struct fa_attn_params p = serving.dense;
    const bool packed_k = build->lengths_k == 1 && build->page == 0; /* behind one another */
    memcpy(&maps, arguments[1], sizeof maps);
    const long long q[] = {p.q_batch_stride, p.q_head_stride, p.q_row_stride};
    const long long k[] = {p.k_batch_stride, p.k_head_stride, p.k_row_stride};
    const long long v[] = {p.v_batch_stride, p.v_head_stride, p.v_row_stride};
    const long long o[] = {p.o_batch_stride, p.o_head_stride, p.o_row_stride};
    const int queries[] = {build->varlen ? 1 : p.batch, p.heads_q, build->varlen ? serving.total_q : p.seq_q};
    const int keys[] = {build->page > 0 ? serving.num_pages : packed_k ? 1 : p.batch, p.heads_kv,
                        build->page > 0 ? build->page : packed_k ? serving.total_k : p.seq_k};
    struct wanted wanted[] = {
        tensor_map("q", p.q, q, queries, b.columns, b.q_rows),
        tensor_map("o", p.o, o, queries, b.columns < 64 ? b.columns : 64, b.o_rows),
        tensor_map("k", p.k, k, keys, b.columns, b.k_rows),
        tensor_map("v", p.v, v, keys, b.columns, b.v_rows)};
    const struct fa_tensor_map *given[] = {&maps.q, &maps.o, &maps.k, &maps.v};
    for (int i = 0; i < (p.seq_k > 0 ? 4 : 2); i++) { /* without keys nothing is loaded of them */
        wanted[i].extent[0] = i % 2 == 1 && build->head_dim_v > 0 ? build->head_dim_v : build->head_dim;
        if (i < 2 && b.q_heads > 1)
            group_heads(&wanted[i], p.heads_q / p.heads_kv, b.q_heads);
        if (!agrees(given[i], &wanted[i],
                    (i >= 2 ? build->fp8 : i == 0 && build->q_fp8) ? UINT8
                    : build->bf16                                  ? BFLOAT16
                                                                   : FLOAT16)) {
            fake_note("map of %s does not agree with the launch", wanted[i].name);
            return FAKE_INVALID_VALUE;
        }
    }
    fake_note("maps agree");
    return FAKE_OK;
}
