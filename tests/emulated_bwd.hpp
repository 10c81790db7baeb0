// SPDX-License-Identifier: Apache-2.0
//
// The end of the program that test_emulated_bwd.py makes of a backward kernel on the CPU: what the judge (emulated_bwd_judge.cpp) is to know
// of the kernels in the text in front of this one.
#include "emulated_bwd_judge.hpp"

namespace test {

#ifdef REFERENCE
inline void give(Rendered &r) {
    r.kind = kReference, r.side_threads = kThreads;
    r.reference = reference, r.inputs = inputs, r.start_of = start_of;
}
#elif defined(SHORT)
inline void main_launch(Arguments a) { attn_bwd(a.p); }
inline void give(Rendered &r) { r.kind = kShort, r.block_n = ROWS, r.parts = ROLES, r.main = main_launch; }
#else
inline void prepare(Arguments a) { attn_bwd_prepare(a.p, a.workspace); }
inline void main_launch(Arguments a) { attn_bwd(a.p, a.workspace); }
#ifdef RING
inline void give(Rendered &r) { r.kind = kShort, r.block_n = kN, r.prepare = prepare, r.side_threads = kSideThreads, r.main = main_launch; }
#else
inline void finish(Arguments a) { attn_bwd_finish(a.p, a.workspace); }
#ifdef WIDE
inline void dq_launch(Arguments a) { attn_bwd_dq(a.p, a.workspace); }
#endif
inline void give(Rendered &r) {
    r.side_threads = kSideThreads, r.block_m = kM, r.block_n = kN, r.columns = kD, r.columns_v = kDv;
    r.prepare = prepare, r.main = main_launch, r.finish = finish;
#if defined(WIDE)
    r.kind = kWide, r.dq = dq_launch, r.dq_keys = DQ_BLOCK_N, r.parts = kParts, r.part_floats = kPartFloats, r.arrivals = kArrivals;
#elif defined(HOPPER)
    r.kind = kHopper, r.in_passing = kInPassing, r.parts = kParts, r.part_floats = kPartFloats, r.arrivals = kArrivals;
#else
    r.kind = kAmpere;
#endif
}
#endif
#endif

}  // namespace test

int main(int, char **words) {
    test::Rendered r = {};
    r.bf16 = DTYPE_BF16, r.varlen = VARLEN, r.causal = CAUSAL, r.window = WINDOW, r.softcap = SOFTCAP, r.sinks = SINKS;
    r.deterministic = DETERMINISTIC, r.head_dim = HEAD_DIM, r.head_dim_v = HEAD_DIM_V;
#define PLACE at[0], at[1], at[2], at[3], at[4], at[5], at[6] HELD
#if BUFFER_COUNT
    r.wanted = D_BUFFERS == 4096 ? 15 : D_BUFFERS == 2048 ? 3 : D_BUFFERS == 1536 ? 4 : 0;
#define HELD , (const fa_attn_buffer_params *)test::held
#else
#define HELD
#endif
#if DROPOUT
    r.dropout = true;
#endif
#if SCORE_SNIPPET
    r.bend = [](double score, const int at[7]) { return (double)snippet_score<SnippetPlain<double>>(score, PLACE); };
#endif
#if MASK_SNIPPET
    r.mask = [](const int at[7]) { return (bool)snippet_mask<SnippetPlain<double>>(PLACE); };
#endif
    test::give(r);
    return test::judge(r, words);
}
