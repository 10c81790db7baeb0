// SPDX-License-Identifier: Apache-2.0
//
// A tile of queries of one head on mma.sync: its output, and the kernel.
//
// Purpose: what attn_fwd_prefill_sm80 and attn_fwd_fp8_sm89 do alike around their softmax and product with V. Included behind
// attn_prefill_tiles.cuh and the includer's settle_scores and multiply_pv.
#ifndef ATTN_PREFILL_KERNEL_CUH
#define ATTN_PREFILL_KERNEL_CUH

namespace {

// Rounds this thread's part of a row to where it is staged. `stage`: of the warp's columns.
FA_DEVICE void stage_row(u32 stage, u32 row, const float (&o)[kOwnDv / 8][4], int half, float inverse) {
    const u32 t = threadIdx.x % 4;
#pragma unroll
    for (int d = 0; d < kOwnDv / 8; d += 2) {
        const float(&x)[4] = o[d], (&y)[4] = o[d + 1];
        const int a = half * 2, b = half * 2 + 1;
        if constexpr (kFp8) {   // columns 8d + 4t on: x has the even ones, y the odd ones
            const u32 to = stage + OutLayout::place(row, d + t / 2) + t % 2 * 8;
            store_shared(to, pack2<kBf16>(x[a] * inverse, y[a] * inverse));
            store_shared(to + 4, pack2<kBf16>(x[b] * inverse, y[b] * inverse));
        } else {
            store_shared(stage + OutLayout::place(row, d) + t * 4, pack2<kBf16>(x[a] * inverse, x[b] * inverse));
            store_shared(stage + OutLayout::place(row, d + 1) + t * 4, pack2<kBf16>(y[a] * inverse, y[b] * inverse));
        }
    }
}

// Divides by the row sums, rounds, stages the warp's rows and columns and stores them in 16-byte chunks; the LSE beside
// the first columns.
FA_DEVICE void store_output(const fa_attn_serving_params &p, const Work &w, const Output &o, const Rows &rows, u32 smem,
                            int warp_row, u32 column_warp) {
    const fa_attn_params &d = p.dense;
    const u32 lane = threadIdx.x % 32, stage = smem + column_warp * columns_of_a_warp<OutLayout, 2>();
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp_row + i * 16 + half * 8 + (int)lane / 4;
            const Total total = {rows.reference[i][half], quad_sum(rows.sum[i][half])};
            const Closed row_end = close_row(p, w.batch, w.kv_head, w.head, total);
            stage_row(stage, (u32)row, o[i], half, row_end.inverse);
            if (d.lse && column_warp == 0 && lane % 4 == 0 && row < w.rows)
                d.lse[w.sequence.lse + w.head * w.sequence.lse_head + w.row0 + row] = row_end.lse;
        }
    warp_sync();

    u16 *out = (u16 *)d.o + w.sequence.o + w.head * d.o_head_stride + w.row0 * d.o_row_stride +
               column_warp * kOwnDv;
#pragma unroll
    for (int r = (int)lane / OutLayout::kPhase; r < kSlabs * 16; r += 32 / OutLayout::kPhase) {
        const int row = warp_row + r;
        if (row >= w.rows) break;
#pragma unroll
        for (u32 chunk = lane % OutLayout::kPhase; chunk < kOwnDv / 8; chunk += OutLayout::kPhase) {
            if (column_warp * kOwnDv + chunk * 8 >= HEAD_DIM_V) break;
            u32 x[4];
            load_shared(x, stage + OutLayout::place((u32)row, chunk));
            store_chunk<kAligned>(out + row * d.o_row_stride + chunk * 8, x);
        }
    }
}

}  // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
attn_fwd(const __grid_constant__ fa_attn_serving_params p) {
    Work w;
    if (!find_work(w, p)) return;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, column_warp = warp % kColumnWarps;
    const int warp_row = (int)(warp / kColumnWarps) * kSlabs * 16;   // this warp's first row
    const u32 smem = shared_address(shared_memory), slots = smem + kQBytes, slots_end = slots + kStages * kSlotBytes;
    const u32 q_tile = smem + (u32)warp_row * QLayout::kPitch;
    const u32 v_columns = kKBytes + column_warp * columns_of_a_warp<VLayout, kElement>();   // this warp's, in a slot
    const LaneOffsets<QLayout> q_lanes(lane, false);
    const LaneOffsets<KLayout> k_lanes(lane, true);
    const LaneOffsets<VLayout> v_lanes(lane, false);
    const int steps = w.end > w.begin ? (w.end - w.begin + kN - 1) / kN : 0;

    // Q, then the first tiles; one group of copies each.
    Stream stream(p, w, steps);
    copy_q(p, w, smem);
    cp_async_commit();
    u32 load_slot = slots;
    stream.next<true>(p, w, load_slot);
#pragma unroll
    for (int t = 1; t < kStages - 1; ++t) stream.next<false>(p, w, load_slot += kSlotBytes);
    QFragments q;
    if constexpr (kQInRegs) {
        cp_async_wait<kStages - 1>();
        block_sync();
#pragma unroll
        for (int d = 0; d < kDimSteps; ++d) load_q(q, d, q_tile, q_lanes, d);
    }

    Output o = {};
    Rows rows = no_keys_seen();
    const Scale scale = find_scale(p, w.batch, w.kv_head);
    const float exponent = SCORE_SNIPPET != 0 ? kLog2E : scale.exponent;
    u32 slot = slots;
    Steps own_steps(steps);
    int key;
    bool whole = true;
#pragma unroll 1
    while (own_steps.next(w, key, whole)) {
        // This tile has landed for the whole block, and every warp has left the slot filled next.
        cp_async_wait<kStages - 2>();
        block_sync();
        load_slot = load_slot + kSlotBytes == slots_end ? slots : load_slot + kSlotBytes;
        stream.next<false>(p, w, load_slot);

        Scores s;
        multiply_qk(s, q, q_tile, slot, q_lanes, k_lanes);
        if constexpr (SOFTCAP != 0) cap_scores(s, scale.cap_rate);
        const int row = warp_row + (int)lane / 4, own_key = key + (int)lane % 4 * 2;
#if SCORE_SNIPPET || MASK_SNIPPET
        apply_snippets(s, w, row, own_key, scale.exponent * kLn2, whole);
#endif
        const bool masked = key < w.clear_begin || key + kN > w.clear_end;
        settle_scores(s, rows, o, exponent, masked, p, w, row, own_key);
#if DROPOUT
        const Dropout dropout(p.buffer, (i64)w.batch * p.dense.heads_q + w.head);
#pragma unroll
        for (int i = 0; i < kSlabs; ++i) rows.dropped[i].find(dropout, w.query(warp_row) + i * 16, key);
#endif
        multiply_pv(o, s, rows, exponent, slot + v_columns, v_lanes);
        slot = slot + kSlotBytes == slots_end ? slots : slot + kSlotBytes;
    }

    cp_async_wait<0>();
    block_sync();   // everybody is done with the bytes that the output is staged in
    store_output(p, w, o, rows, smem, warp_row, column_warp);
}

#endif
