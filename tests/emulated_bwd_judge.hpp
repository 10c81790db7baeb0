// SPDX-License-Identifier: Apache-2.0
//
// What the judge of attention backward (emulated_bwd_judge.cpp) is told of a rendered kernel. It is compiled once for all of them, with the
// operation's fa_attn_bwd_params in front of this.
#ifndef FA_TESTS_EMULATED_BWD_JUDGE_HPP
#define FA_TESTS_EMULATED_BWD_JUDGE_HPP

#include "emulator_hopper.hpp"

namespace test {

struct Arguments {
    fa_attn_bwd_params p;
    void *workspace;
};
enum Kind { kReference, kAmpere, kHopper, kWide, kShort };   // attn_bwd_ref, _sm80, _sm90a, _wide_sm90a, _short_sm90a
struct Rendered {
    Kind kind;
    bool bf16, varlen, window, softcap, sinks, deterministic, in_passing, dropout;
    int causal, head_dim, head_dim_v, block_m, block_n, dq_keys, columns, columns_v;
    int parts, part_floats, arrivals;   // Hopper's: of a group; of a tile of keys the sums of a part, and the counters
    emu::u32 side_threads;
    int wanted;   // bits: of which buffers gradients are, as Held compares them
    void (*prepare)(Arguments), (*main)(Arguments), (*dq)(Arguments), (*finish)(Arguments);   // of a kernel,
    void (*reference)(fa_attn_bwd_params), (*inputs)(fa_attn_bwd_params);                     // of the reference
    double (*bend)(double score, const int place[7]);   // a user's score and mask of b, h, hk, q, k, len_q and len_k; or null
    bool (*mask)(const int place[7]);
    long long (*start_of)(long long b, long long n, long long rows, int period);
};
inline const void *held;   // what the texts of a problem read
// The exit status. `words`: the numbers of the problem and of the launch (test_emulated_bwd.py).
int judge(const Rendered &kernel, char **words);

}  // namespace test

#endif
