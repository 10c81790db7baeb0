// SPDX-License-Identifier: Apache-2.0
//
// The program that test_emulated_gemm.py makes of a kernel of C = A B^T on the CPU: it holds C of one problem against sums in
// double. Rows lie apart with NaN between them and around them; C and the workspace are NaN before the launches, and the gaps of C
// must be so afterwards. The text in front of this one has the kernel, and says with KERNEL which.
#include "emulated_matrix.hpp"

namespace test {

struct Arguments {
    fa_gemm_params p;
    float *workspace;
};
#if KERNEL == 1
inline void first(Arguments a) { gemm_sm80(a.p); }
#elif KERNEL == 2
inline void first(Arguments a) { gemm_sums(a.p, a.workspace); }
inline void second(Arguments a) { gemm_add(a.p, a.workspace); }
#elif KERNEL == 3
inline void first(Arguments a) { gemm_sm90a(a.p, (fa_tensor_map *)a.workspace); }
#else
inline void first(Arguments a) { reference(a.p); }
#endif

inline int prove(int m, int n, int k, int gap, u32 threads, u32 bytes, u32 tiles, u32 splits) {
    Matrix a(m, k, gap), b(n, k, 2 * gap), c(m, n, gap);
    a.draw(), b.draw();
    readable[0] = &a, readable[1] = &b;
    emu::granted = granted;
    // Of Hopper's kernel three tensor maps a block.
    const size_t floats = KERNEL == 3 ? tiles * 3 * 32 : (size_t)splits * m * n;
    std::vector<float> space(floats + 48, NAN), packed(KERNEL == 0 ? (size_t)m * n + 1 : 0, NAN);
    float *workspace = (float *)(((uintptr_t)space.data() + 127) & ~(uintptr_t)127);
    Arguments arguments = {{a.at(0), b.at(0), KERNEL == 0 ? (void *)packed.data() : c.at(0), a.stride, b.stride, c.stride, m, n, k},
                           workspace};
    const u32 grid[3] = {tiles, splits, 1};
    run(emu::launch(first, &arguments, grid, threads, bytes));
#if KERNEL == 2
    const u32 adds[3] = {(u32)((i64)m * n + 1023) / 1024, 1, 1};
    run(emu::launch(second, &arguments, adds, 256, 0));
#endif
    int failures = 0;
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            double wanted = 0, size = 0;
            for (int i = 0; i < k; i++) {
                const double x = (double)to_float<kBf16>(a.at(row)[i]) * to_float<kBf16>(b.at(column)[i]);
                wanted += x, size += fabs(x);
            }
            u16 &stored = c.at(row)[column];
            const double got = KERNEL == 0 ? packed[(size_t)row * n + column] : to_float<kBf16>(stored);
            const double allowed = (KERNEL == 0 ? 0 : fabs(wanted) * (kBf16 ? 0x1p-8 : 0x1p-11)) + size * 1e-6;
            if (!(fabs(got - wanted) <= allowed) && failures++ < 8) printf("C[%d][%d] is %g, wanted %g\n", row, column, got, wanted);
            stored = 0x7fff;
        }
    for (u16 x : c.memory)
        if (x != 0x7fff && failures++ < 8) printf("a gap of C was written to\n");
    if (KERNEL == 0 && packed.back() == packed.back()) failures++, printf("the end of C was passed\n");
    for (float *x = workspace + floats; x < space.data() + space.size(); x++)
        if (*x == *x && failures++ < 8) printf("the end of the workspace was passed\n");
    return failures == 0 ? 0 : 1;
}

}  // namespace test

int main(int, char **words) { return test::judge(words, test::prove); }
