// SPDX-License-Identifier: Apache-2.0
//
// Which keys the rows of a tile see, and in which order the tiles of a problem start.
//
// Purpose: what every attention family decides in the same way, whatever it computes with. Includers define HEAD_DIM,
// CAUSAL and the let L2_SECTION_KB.
#ifndef ATTN_TILES_CUH
#define ATTN_TILES_CUH

#include "attn_params.h"
#include "fa_numeric.cuh"

// The keys that some rows meet, in steps of some keys: [0, steps), of which [0, clear_steps) need no mask.
struct Visible {
    int steps, clear_steps;
};

FA_DEVICE Visible find_visible(const fa_attn_params &p, int row0, int rows, int keys_a_step) {
    int seen = p.seq_k, clear = p.seq_k;   // keys visible to some of the rows, to every one
    if constexpr (CAUSAL != 0) {
        const i64 first = (i64)row0 + p.causal_offset + 1, last = first + rows - 1;
        clear = first < 0 ? 0 : first < p.seq_k ? (int)first : p.seq_k;
        seen = last < 0 ? 0 : last < p.seq_k ? (int)last : p.seq_k;
    }
    return {(seen + keys_a_step - 1) / keys_a_step, clear / keys_a_step};
}

// How many keys from `key` on a row sees; 0 or less: none.
FA_DEVICE int keys_seen_from(const fa_attn_params &p, int row, int key) {
    const int offset = p.causal_offset < p.seq_k ? p.causal_offset : p.seq_k;   // a larger one sees no more, and could wrap
    const int see = row + offset + 1;
    return (CAUSAL != 0 && see < p.seq_k ? see : p.seq_k) - key;
}

// The tile and the head (of all batches) that the index-th block to start works on, of heads * tiles blocks. Causal
// tiles start longest first, within a section of heads whose keys and values fit in L2 together.
FA_DEVICE void place_tile(const fa_attn_params &p, u32 index, u32 tiles, u32 &tile, u32 &head) {
    if constexpr (CAUSAL != 0) {
        const u32 heads = (u32)p.heads_q * (u32)p.batch;
        const u64 head_bytes = (u64)p.seq_k * (HEAD_DIM * 4) + 1;
        const u64 fit = (u64)L2_SECTION_KB * 1024 / head_bytes * (u32)(p.heads_q / p.heads_kv);
        const u32 section = fit < 1 ? 1 : fit > heads ? heads : (u32)fit;
        const u32 first = index / (section * tiles) * section, within = index % (section * tiles);
        const u32 here = heads - first < section ? heads - first : section;
        tile = tiles - 1 - within / here;
        head = first + within % here;
    } else {
        tile = index % tiles;
        head = index / tiles;
    }
}

#endif
