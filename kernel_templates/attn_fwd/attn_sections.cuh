// SPDX-License-Identifier: Apache-2.0
//
// The order in which blocks that draw their tiles one after another come to the tiles of several heads.
//
// Purpose: keys and values are read from L2, and all blocks end together.
// Invariants: heads come in sections whose keys and values fit in L2 together. A section begins with its last queries, whose tiles
// are the longest under a causal mask. The last section has three tiles or more for each block, or all heads: with fewer, the GPU would
// wait for its longest tile. Of the others the first is the one that may be smaller.
#ifndef ATTN_SECTIONS_CUH
#define ATTN_SECTIONS_CUH

#include "fa_numeric.cuh"

struct HeadTile {
    u32 head, tile;
};

// The tile with this number, of `heads` that have `tiles` each, where the keys and values of `fit` heads fit in L2.
FA_DEVICE HeadTile find_head_tile(u32 number, u32 heads, u32 tiles, float fit) {
    const u32 section = fit < 1.0f ? 1 : fit < (float)heads ? (u32)fit : heads, filling = (3 * gridDim.x + tiles - 1) / tiles;
    const u32 last = filling < section ? section : filling < heads ? filling : heads, others = heads - last;
    u32 first = others, here = last;
    if (number < others * tiles) {
        const u32 sections = (others + section - 1) / section, each = (others + sections - 1) / sections, lacking = sections * each - others;
        const u32 above = (number + lacking * tiles) / (each * tiles) * each;   // heads, with those that the first section lacks
        first = above == 0 ? 0 : above - lacking, here = above == 0 ? each - lacking : each;
    }
    const u32 rest = number - first * tiles;
    return {first + rest % here, tiles - 1 - rest / here};
}

#endif
