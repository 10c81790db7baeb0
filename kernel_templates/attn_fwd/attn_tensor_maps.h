/* SPDX-License-Identifier: Apache-2.0
 *
 * The second argument of an attention forward kernel that moves its tiles with TMA: one tensor map
 * for each tensor, and what the kernel says of the boxes that it moves.
 *
 * Included by the kernel templates (compiled by NVRTC) and by the host code that makes the maps.
 * A template that takes maps says so, with the boxes of this config, by
 *
 *     extern "C" __constant__ fa_attn_boxes fa_attn_boxes_wanted = {64, 128, 1, 96, 96, 64};
 *     extern "C" __global__ void attn_fwd(const __grid_constant__ fa_attn_params p,
 *                                         const __grid_constant__ fa_attn_tensor_maps maps)
 *
 * and the host reads the constant out of the cubin. A kernel without it gets one argument.
 *
 * Coordinates of a map, innermost first: (column, row, head, batch). With q_heads > 1 those of q
 * and o are (column, head in group, row, kv head, batch), so that one box holds the rows of several
 * query heads that share keys. What a box reaches beyond a tensor reads as 0 and is not written.
 * Boxes of 32, 64 and 128 bytes a row lie in shared memory with the swizzle of that width.
 */
#ifndef FA_ATTN_TENSOR_MAPS_H
#define FA_ATTN_TENSOR_MAPS_H

#ifdef __cplusplus
#define FA_TENSOR_MAP_ALIGNED alignas(64)
#else
#define FA_TENSOR_MAP_ALIGNED _Alignas(64)
#endif

struct fa_tensor_map {
    FA_TENSOR_MAP_ALIGNED unsigned long long opaque[16]; /* a CUtensorMap */
};

struct fa_attn_tensor_maps {
    struct fa_tensor_map q, k, v, o;
};

/* Sizes of boxes, in elements. With head_dim beyond `columns` a row takes several boxes. */
struct fa_attn_boxes {
    unsigned columns; /* 16, 32 or 64 */
    unsigned q_rows;  /* this and all below: 1..256 */
    unsigned q_heads; /* query heads in a box of q or o */
    unsigned k_rows, v_rows, o_rows;
};

#endif
