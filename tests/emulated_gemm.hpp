// SPDX-License-Identifier: Apache-2.0
//
// The program that test_emulated_gemm.py makes of a kernel of C = A B^T on the CPU: it holds C of one problem against sums in
// double. Rows lie apart with NaN between them and around them; C and the workspace are NaN before the launches, and the gaps of C
// must be so afterwards. The text in front of this one has the kernel, and says with KERNEL which.
#include "emulated_matrix.hpp"

namespace test {

struct Arguments { fa_gemm_params p; float *workspace; u32 *counters; };
#if KERNEL == 3
inline fa_tensor_map maps[3];
inline void make_map(int which, Matrix &x) {
    emu::TensorMap map = {(const unsigned char *)x.at(0), 3, {64, fa_maps_wanted[which].box[1], 1, 1}, {(u32)x.columns, (u32)x.rows, 1, 1}, {1, 1, 1, 1}, kBf16 ? 10u : 6u, 0, 3, 0, {(u64)x.stride * 2, 16, 16}};
    memcpy(&maps[which], &map, sizeof map);
}
inline void first(Arguments a) { gemm_sm90a(a.p, maps[0], maps[1], maps[2], a.workspace, a.counters); }
#else
inline void make_map(int, Matrix &) {}
#if KERNEL == 1
inline void first(Arguments a) { gemm_sm80(a.p); }
#elif KERNEL == 2
inline void first(Arguments a) { gemm_splitk(a.p, a.workspace, a.counters); }
#else
inline void first(Arguments a) { reference(a.p); }
#endif
#endif

inline int prove(int m, int n, int k, int gap, u32 threads, u32 bytes, u32 tiles, u32 splits) {
    Matrix a(m, k, gap), b(n, k, 2 * gap), c(m, n, gap);
    a.draw(), b.draw(), emu::granted = granted, readable[0] = &a, readable[1] = &b;
    make_map(0, a), make_map(1, b), make_map(2, c);
    emu::blocks_at_once = emu::cluster = CLUSTER_M * CLUSTER_N * CLUSTER_K;
    const u32 shared = KERNEL == 3 ? CLUSTER_M * CLUSTER_N : 1;   // by so many blocks, whose tiles are cut together
    const size_t all = (size_t)((m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M)) * ((n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N)), cut = shared * (KERNEL == 3 ? all % (tiles / shared) : all);
    const size_t floats = splits > 1 ? cut * splits * BLOCK_M * BLOCK_N : 0; std::vector<u32> counters(3 * cut);   // floats: the sums of tiles that are cut
    std::vector<float> space(floats + 48, NAN), packed(KERNEL == 0 ? (size_t)m * n + 1 : 0, NAN);
    float *workspace = (float *)(((uintptr_t)space.data() + 127) & ~(uintptr_t)127);
    Arguments arguments = {{a.at(0), b.at(0), KERNEL == 0 ? (void *)packed.data() : c.at(0), a.stride, b.stride, c.stride, m, n, k}, workspace, counters.data()};
    const u32 grid[3] = {tiles, KERNEL == 3 ? 1 : splits, 1};
    int failures = (run(emu::launch(first, &arguments, grid, threads, bytes)), 0);
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            double wanted = 0, size = 0, x;
            for (int i = 0; i < k; i++) x = (double)to_float<kBf16>(a.at(row)[i]) * to_float<kBf16>(b.at(column)[i]), wanted += x, size += fabs(x);
            u16 &stored = c.at(row)[column];
            const double got = KERNEL == 0 ? packed[(size_t)row * n + column] : to_float<kBf16>(stored);
            const double allowed = (KERNEL == 0 ? 0 : fabs(wanted) * (kBf16 ? 0x1p-8 : 0x1p-11)) + size * 1e-6;
            if (!(fabs(got - wanted) <= allowed) && failures++ < 8) printf("C[%d][%d] is %g, wanted %g\n", row, column, got, wanted);   stored = 0x7fff;
        }
    for (u16 x : c.memory) if (x != 0x7fff && failures++ < 8) printf("a gap of C was written to\n");
    if (KERNEL == 0 && packed.back() == packed.back()) failures++, printf("the end of C was passed\n");
    for (u32 x : counters) if (x != 0 && failures++ < 8) printf("a counter is left at %u\n", x);
    for (float *x = workspace + floats; x < space.data() + space.size(); x++) if (*x == *x && failures++ < 8) printf("the end of the workspace was passed\n");
    return failures == 0 ? 0 : 1;
}

}  // namespace test

int main(int, char **words) { return test::judge(words, test::prove); }
