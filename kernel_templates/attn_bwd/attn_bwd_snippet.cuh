// SPDX-License-Identifier: Apache-2.0
//
// A user's score and mask (fa_snippet.cuh) in attention backward: weights and their slopes, and which tiles some query sees.
//
// Purpose: what the families share that take snippets; attn_bwd_tiles.cuh includes it where there is one.
// Invariants: with SKIPS the first launch lists the tiles of queries that see a tile of keys, by ranges or (MASK_LISTS) by all elements; all who
// walk the steps of that tile read the list. attn_bwd_wide_sm90a lists the tiles of keys of each tile of queries, too. With DETERMINISTIC=1
// turns of other families go from each tile of keys to the next, so that none is skipped.
#ifndef ATTN_BWD_SNIPPET_CUH
#define ATTN_BWD_SNIPPET_CUH

#include "attn_snippet.cuh"

namespace {

FA_DEVICE Places places_of(const fa_attn_bwd_params &p, const Sequence &s, int index, int head) {
    return {index, head, head / (p.heads_q / p.heads_kv), s.seq_q, s.seq_k AND_BUFFERS(p.buffer)};
}
// At which key the first query stands.
FA_DEVICE int place_of_query(const Sequence &s) { return CAUSAL == 2 ? 0 : s.seq_k - s.seq_q; }
#if SCORE_SNIPPET || MASK_SNIPPET
// Of a row or key `ahead` of a thread's first one.
FA_DEVICE SnippetCount<SnippetLine> line_place(int first, int ahead) { return {first + ahead, {(float)first, 1.0f, ahead}}; }

// As Curve::weight. What weighs nothing has no slope, whatever the text says there.
template <class Q, class K> FA_DEVICE float weigh(const fa_attn_bwd_params &p, const Curve &curve, const Places &w, Q q, K k, float score, float lse, float &slope) {
#if SCORE_SNIPPET
    SnippetSlope<float> natural = {score * p.softmax_scale, 1.0f};
    if constexpr (kSoftcap) {
        const float tangent = 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(score * curve.rate));
        natural = {p.softcap * tangent, 1.0f - tangent * tangent};
    }
    const auto bent = snippet_score<SnippetSlopes<SnippetFast, float>>(natural, w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k AND_BUFFERS(w.buffers));
    slope = snippet_slope(bent);
    return exp2_fast(snippet_value(bent) * kLog2e - lse);
#else
    return curve.weight(score, lse, slope);
#endif
}
#endif
// Whether all queries of a tile exist and see all of a tile's keys, but for a mask's text: what texts say of rows that do not exist may be anything.
FA_DEVICE bool is_clear(const Meets &meets, int tile, int seq_q) { return tile >= meets.first_clear && tile < meets.end_clear && (tile + 1) * kM <= seq_q; }
FA_DEVICE float slope_at(float weight, float slope) { return weight > 0.0f ? slope : 1.0f; }

#if SKIPS
// Of a family: where the list is.
FA_DEVICE u32 *list_of(const fa_attn_bwd_params &p, void *workspace);

// What is known of a head of queries and a tile of keys: how many tiles of queries see it, which is the first of them, and the word of that one.
struct ListedRow {
    u32 count, first, word, unused;
};
#ifndef MASK_LISTS
#define MASK_LISTS 0
#endif
#ifndef MASK_NAMES
#define MASK_NAMES 7
#endif
// Lists are made once for all heads and batches that the mask does not name: MASK_NAMES has a bit for each place that it names, b, h, hk first.
// By a mask that reads a tensor of queries and keys (MASK_LISTS) no range says what is seen: its elements are looked at, by a block for each 32
// tiles; who walks counts a row's bits, for no block sees a whole one.
constexpr bool kLooksAtAll = MASK_LISTS != 0, kListsHeads = MASK_NAMES / 2 % 4 != 0, kListsBatches = MASK_NAMES % 2 != 0;
FA_DEVICE u32 batches_in_lists(const fa_attn_bwd_params &p) { return kListsBatches && !kVarlen ? opaque((u32)p.batch) : 1; }
FA_DEVICE u32 heads_in_lists(const fa_attn_bwd_params &p) { return kListsHeads ? opaque((u32)p.heads_q) : 1; }

// A row for each head (of all batches) and tile of keys (of all sequences), then of each row for each 16 tiles a word, in whose low half are bits
// of those which see it, in its high half of those which see it whole. Or (kOfKeys false), behind these, of each tile of queries the tiles of keys
// that it sees. Numbers take no registers meanwhile.
template <bool kOfKeys_, int kOwn_, int kStep_> struct ListedOf {
    static constexpr bool kOfKeys = kOfKeys_;
    static constexpr int kOwn = kOwn_, kStep = kStep_;
    ListedRow *rows;
    u32 apart, words;   // rows from head to head, and words of a row

    __device__ __forceinline__ ListedOf(const fa_attn_bwd_params &p, void *workspace) : rows((ListedRow *)list_of(p, workspace)) {
        const u32 batch = opaque((u32)p.batch), own = opaque((u32)(kOfKeys ? p.seq_k : p.seq_q)), walked = opaque((u32)(kOfKeys ? p.seq_q : p.seq_k));
        apart = kVarlen ? own / kOwn + batch : (own + kOwn - 1) / kOwn;
        words = ((kVarlen ? walked / kStep + batch : (walked + kStep - 1) / kStep) + 31) / 32 * 2;
        if constexpr (!kOfKeys) {
            const ListedOf<true, kN, kM> before(p, workspace);
            rows = (ListedRow *)before.word(p, before.count(p, before.apart), 0);
        }
    }
    FA_DEVICE u32 count(const fa_attn_bwd_params &p, u32 apart) { return apart * (heads_in_lists(p) * batches_in_lists(p)); }
    // head: of all batches; own_tile: of all sequences.
    __device__ __forceinline__ u32 row_of(const fa_attn_bwd_params &p, u32 head, u32 own_tile) const {
        if constexpr (!kListsHeads || !kListsBatches) {
            const u32 heads = opaque((u32)p.heads_q), batch = head / heads;
            head = (kListsBatches ? batch * heads_in_lists(p) : 0) + (kListsHeads ? head - batch * heads : 0);
        }
        return head * apart + own_tile;
    }
    __device__ __forceinline__ u32 *word(const fa_attn_bwd_params &p, u32 row, int at) const {
        return (u32 *)(rows + count(p, apart)) + (i64)row * words + at;
    }
    __device__ __forceinline__ ListedRow find(const fa_attn_bwd_params &p, u32 row) const {
        if constexpr (!kLooksAtAll) return rows[row];
        ListedRow own = {};
#pragma unroll 1
        for (u32 at = 0; at < words; ++at) {
            const u32 x = *word(p, row, (int)at);
            u32 count = (x & 0x5555) + (x >> 1 & 0x5555);   // of its lower 16 bits
            count = (count & 0x3333) + (count >> 2 & 0x3333), count = (count & 0xf0f) + (count >> 4 & 0xf0f);
            if (own.count == 0) own.first = at * 16, own.word = x;
            own.count += (count & 255) + (count >> 8);
        }
        return own;
    }
    // As find_meets(), of a tile of queries from `row` on: tiles of keys.
    FA_DEVICE Meets find_met(const Sequence &s, const Band &band, int row) {
        const i64 end_row = row + kOwn < s.seq_q ? row + kOwn : s.seq_q, end = end_row + band.high, clear = end_row - 1 + band.low;
        return {clamp(row + band.low, s.seq_k) / kStep, (clamp(end, s.seq_k) + kStep - 1) / kStep, (clamp(clear, s.seq_k) + kStep - 1) / kStep,
                row + kOwn <= s.seq_q ? clamp(row + band.high + 1, s.seq_k) / kStep : 0};
    }
};
using Listed = ListedOf<true, kN, kM>;

// Whether some of the queries at the places [from, to] see the keys [key, last], and whether all see all, by a warp.
template <int kKeys> FA_DEVICE SnippetSpan<int> look_at_all(const Places &w, int from, int to, int key, int last) {
    constexpr int kRows = 8, kWide = (kKeys + 31) / 32;
    int seen = 0, looked = 0;   // by this lane
#pragma unroll 1
    for (; from <= to && !(warp_any(seen > 0) && warp_any(seen < looked)); from += kRows, looked += kRows * kWide)
#pragma unroll
        for (int i = 0; i < kRows * kWide; ++i) {
            const int q = from + i / kWide, k = key + i % kWide * 32 + (int)threadIdx.x % 32;
            seen += is_visible(w, query_place(q < to ? q : to), query_place(k < last ? k : last));
        }
    return {!warp_any(seen < looked), warp_any(seen > 0)};
}

// By the first launch: a warp makes a row, or a block, which has kSideThreads / 32 pairs of words at kLooksAt, two words of one.
constexpr int kLooksAt = 512;
template <class L> FA_DEVICE void list_tiles(const fa_attn_bwd_params &p, void *workspace) {
    const L listed(p, workspace);
    constexpr u32 kWarps = kSideThreads / 32, kTeams = kLooksAtAll ? 1 : kWarps;
    const u32 parts = kLooksAtAll ? listed.words / 2 : 1, units = L::count(p, listed.apart) * parts, warp = threadIdx.x / 32;
    const int lane = (int)(threadIdx.x % 32);
    for (u32 unit = blockIdx.x * kTeams + warp % kTeams; unit < units; unit += gridDim.x * kTeams) {
        const u32 row = unit / parts, plane = row / listed.apart, heads = heads_in_lists(p);
        i64 own_tile = row % listed.apart;
        const int index = find_index<L::kOwn>(p, L::kOfKeys ? p.cu_seqlens_k : p.cu_seqlens_q, (int)(plane / heads), own_tile);
        const Sequence s = sequence_of(p, index);
        const Places w = places_of(p, s, index, (int)(plane % heads));
        ListedRow own = {};
        const bool is_there = own_tile * L::kOwn < (L::kOfKeys ? s.seq_k : s.seq_q);
        if (kLooksAtAll || is_there) {
            constexpr int kRows = L::kOfKeys ? kM : L::kOwn, kKeys = L::kOfKeys ? kN : L::kStep;
            const int first = (int)own_tile * L::kOwn, offset = place_of_query(s);
            Meets meets = {};
            if (is_there) meets = L::kOfKeys ? find_meets(s, find_band(s), first) : L::find_met(s, find_band(s), first);
            const auto look = [&](int tile, bool at_all) {
                const int from = L::kOfKeys ? tile * kM : first, to = (from + kRows < s.seq_q ? from + kRows : s.seq_q) - 1, key = L::kOfKeys ? first : tile * L::kStep;
                return at_all ? look_at_all<kKeys>(w, from + offset, to + offset, key, (key + kKeys < s.seq_k ? key + kKeys : s.seq_k) - 1)
                              : SeenSteps<kKeys>::look(w, from + offset, to + offset, key);
            };
            for (int word = kLooksAtAll ? (int)(unit % parts) : meets.first / 32; kLooksAtAll ? word == (int)(unit % parts) : word * 32 < meets.end; ++word) {
                const int tile = word * 32 + lane;
                const bool is = tile >= meets.first && tile < meets.end;
                const SnippetSpan<int> sees = look(is ? tile : meets.first, false);   // all lanes: they read together
                u32 seen = warp_ballot(is && sees.high != 0), whole = warp_ballot(is && sees.low != 0);
                if constexpr (kLooksAtAll) {
                    u32 hidden = 0, all = 0, (*told)[2] = (u32(*)[2])(shared_memory + kLooksAt);
                    for (u32 left = seen & ~whole; left != 0; left &= left - 1) {
                        const u32 bit = left & (0 - left);
                        const int number = highest_bit(bit);
                        if ((u32)number % kWarps != warp) continue;
                        const SnippetSpan<int> now = look(word * 32 + number, true);
                        hidden |= now.high == 0 ? bit : 0, all |= now.low != 0 ? bit : 0;
                    }
                    if (lane == 0) told[warp][0] = hidden, told[warp][1] = all;
                    block_sync();
                    for (u32 i = 0; i < kWarps; ++i) seen &= ~told[i][0], whole |= told[i][1];
                    block_sync();
                }
                whole &= warp_ballot(is && is_clear(meets, tile, L::kOfKeys ? s.seq_q : 2147483647));
                const u32 low = (seen & 0xffff) | whole << 16, high = seen >> 16 | (whole & 0xffff0000u);
                if (own.count == 0 && seen != 0) own.first = (u32)(word * 32 + highest_bit(seen & (0 - seen))), own.word = (seen & 0xffff) != 0 ? low : high;
                for (u32 left = seen; left != 0; left &= left - 1) ++own.count;
                if (lane < 2) *listed.word(p, row, word * 2 + lane) = lane == 0 ? low : high;
            }
        }
        if (!kLooksAtAll && lane == 0) listed.rows[row] = own;
    }
}

// The steps of a tile that are listed: upwards, head after head.
template <class Listed> struct ListedWalkOf {
    int tile, head;

    ListedWalkOf() = default;
    // first_head: of queries, of all batches; own_tile: of all sequences. ret_steps: how many there are.
    __device__ __forceinline__ ListedWalkOf(const fa_attn_bwd_params &p, void *workspace, u32 first_head, u32 own_tile, int group, int &ret_steps)
        : tile(0), head(0), p(&p), workspace(workspace), row(0), word(0), left(0) {
        ret_steps = 0;
        if (group == 0) return;   // a part of a group without heads
        const Listed listed(p, workspace);
        row = listed.row_of(p, first_head, own_tile);
        begin(listed.find(*this->p, row));
        u32 sum = left;
#pragma unroll 1
        for (int i = 1; i < group; ++i) sum += kListsHeads ? listed.find(p, row + i * listed.apart).count : left;
        ret_steps = (int)sum;
        next(sum > 0);
    }
    // Whether all queries and keys of the step exist, and all are seen by all.
    __device__ __forceinline__ bool whole() const { return (word >> (16 + tile % 16) & 1) != 0; }
    // more: there is another one.
    __device__ __forceinline__ void next(bool more) {
        if (!more) return;
#pragma unroll 1
        while ((word & 0xffff) == 0) {
            const Listed listed(*p, workspace);
            if (left == 0) {
                row += kListsHeads ? listed.apart : 0, ++head;
                if (row >= Listed::count(*p, listed.apart)) return;
                begin(listed.find(*this->p, row));
            } else {
                tile = (tile | 15) + 1;
                if ((u32)tile >= listed.words * 16) return;
                word = *listed.word(*p, row, tile / 16);
            }
        }
        tile = (tile & ~15) + highest_bit(word & (0 - word));
        word &= word - 1, --left;
    }

private:
    const fa_attn_bwd_params *p;
    void *workspace;
    u32 row;    // of this head
    u32 word;   // of 16 tiles, without those up to this one
    u32 left;   // of this head behind this one

    __device__ __forceinline__ void begin(const ListedRow &of) { left = of.count, word = left > 0 ? of.word : 0, tile = (int)of.first & ~15; }
};
using ListedWalk = ListedWalkOf<Listed>;
#endif

} // namespace

#endif
