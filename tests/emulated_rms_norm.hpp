// SPDX-License-Identifier: Apache-2.0
//
// The program that test_emulated_rms_norm.py makes of an RMS norm kernel on the CPU: it holds y, and x + residual, of one problem
// against sums in double. Rows lie apart with NaN between them and around them, so do the outputs before the launches, and their gaps
// must be NaN afterwards. The text in front of this one has the kernel, and says with KERNEL which.
#include "emulated_matrix.hpp"

namespace test {

struct Arguments {
    fa_rms_norm_params p;
    float *workspace;
};
#if KERNEL == 1
inline void first(Arguments a) { rms_norm_rows(a.p); }
#elif KERNEL == 2
inline void first(Arguments a) { rms_norm_sums(a.p, a.workspace); }
inline void second(Arguments a) { rms_norm_scale(a.p, a.workspace); }
#else
inline void first(Arguments a) { reference(a.p); }
#endif

inline int failures;
inline void expect(bool right, const char *what, int row, int column, double got, double wanted) {
    if (!right && failures++ < 8) printf("%s[%d][%d] is %g, wanted %g\n", what, row, column, got, wanted);
}

// The packed floats of the reference, or the elements of a matrix: `allowed`, of each element's size.
inline void compare(const char *what, Matrix &m, const std::vector<float> &packed, const std::vector<double> &wanted, double allowed) {
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.columns; c++) {
            const size_t i = (size_t)r * m.columns + c;
            const double got = KERNEL == 0 ? packed[i] : to_float<kBf16>(m.at(r)[c]);
            expect(fabs(got - wanted[i]) <= fabs(wanted[i]) * allowed, what, r, c, got, wanted[i]);
            m.at(r)[c] = 0x7fff;
        }
    for (u16 x : m.memory) expect(x == 0x7fff, "a gap of ", 0, 0, x, 0x7fff);
    if (KERNEL == 0) expect(packed.back() != packed.back(), "the end of ", m.rows, 0, packed.back(), NAN);
}

// In place: y is x, and sum the residual. `first`: elements between a multiple of 16 bytes and the tensors.
inline int prove(int rows, int gap, int first_element, bool in_place, u32 threads, u32 bytes, u32 blocks, u32 parts) {
    Matrix x(rows, COLUMNS, gap, first_element), w(1, COLUMNS, 0, first_element), residual(rows, COLUMNS, 2 * gap, first_element);
    Matrix y(rows, COLUMNS, gap, first_element), sum(rows, COLUMNS, 3 * gap, first_element);
    x.draw(), w.draw(), residual.draw();
    std::vector<double> of_sum, of_y;
    const float epsilon = 0.01f;
    for (int r = 0; r < rows; r++) {
        double squares = 0;
        for (int c = 0; c < COLUMNS; c++) {
            float e = to_float<kBf16>(x.at(r)[c]);
            if (RESIDUAL) e = to_float<kBf16>(from_float<kBf16>(e + to_float<kBf16>(residual.at(r)[c])));
            of_sum.push_back(e);
            squares += (double)e * e;
        }
        for (int c = 0; c < COLUMNS; c++)
            of_y.push_back(of_sum[(size_t)r * COLUMNS + c] / sqrt(squares / COLUMNS + epsilon) * to_float<kBf16>(w.at(0)[c]));
    }
    Matrix &to = in_place ? x : y, &sum_to = in_place ? residual : sum;
    readable[0] = &w;
    if (!in_place) readable[1] = &x, readable[2] = &residual;
    emu::granted = granted;
    const size_t count = KERNEL == 0 ? (size_t)rows * COLUMNS + 1 : 0;
    std::vector<float> packed(count, NAN), packed_sum(count, NAN), workspace((size_t)rows * parts + 1, NAN);
    Arguments arguments = {{x.at(0), w.at(0), RESIDUAL ? residual.at(0) : nullptr, KERNEL == 0 ? (void *)packed.data() : to.at(0),
                            !RESIDUAL ? nullptr : KERNEL == 0 ? (void *)packed_sum.data() : sum_to.at(0), x.stride, residual.stride, to.stride,
                            sum_to.stride, epsilon, rows, COLUMNS}, workspace.data()};
    const u32 grid[3] = {blocks, parts, 1};
    run(emu::launch(first, &arguments, grid, threads, bytes));
#if KERNEL == 2
    run(emu::launch(second, &arguments, grid, threads, 0));
#endif
    compare("y", to, packed, of_y, (KERNEL == 0 ? 0 : kBf16 ? 0x1p-8 : 0x1p-11) + 2e-6);
    if (RESIDUAL) compare("sum", sum_to, packed_sum, of_sum, 0);
    expect(workspace.back() != workspace.back(), "the end of the workspace", 0, 0, workspace.back(), NAN);
    return failures == 0 ? 0 : 1;
}

}  // namespace test

int main(int, char **words) { return test::judge(words, test::prove); }
