// SPDX-License-Identifier: Apache-2.0
//
// Matrices of 16-bit elements for the programs that judge kernels on the CPU: rows lie apart with NaN between them and around them.
// Kernels may read what is in `readable`, and nothing beyond its rows.
#include <vector>

namespace test {

struct Matrix {
    int rows, columns;
    i64 stride;
    int first;   // elements in front of it
    std::vector<u16> memory;

    Matrix(int rows, int columns, int gap, int first = 0)
        : rows(rows), columns(columns), stride(columns + gap), first(first), memory((size_t)(rows * stride + 64), 0x7fff) {}
    u16 *at(int row) { return memory.data() + first + row * stride; }
    void draw() {
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < columns; i++) at(r)[i] = from_float<kBf16>((float)(rand() % 255 - 127) / 32.0f);
    }
};

inline const Matrix *readable[4];
inline bool granted(const void *address, size_t bytes, bool write) {
    for (const Matrix *m : readable) {
        const i64 at = m == nullptr ? -1 : (const u16 *)address - m->memory.data() - m->first;
        if (at >= 0 && at < (i64)m->memory.size())
            return !write && at / m->stride < m->rows && at % m->stride + (i64)bytes / 2 <= m->columns;
    }
    return true;
}

inline void run(const char *wrong) {
    if (wrong != nullptr) printf("%s\n", wrong), exit(1);
}

// The exit status of a judge: its nine words are eight numbers of the problem and the launch, and a seed.
template <class Prove> int judge(char **words, Prove prove) {
    int x[9];
    for (int i = 0; i < 9; i++) x[i] = atoi(words[i + 1]);
    srand((unsigned)x[8]);
    emu::dice = (u32)x[8];
    return prove(x[0], x[1], x[2], x[3], (u32)x[4], (u32)x[5], (u32)x[6], (u32)x[7]);
}

}  // namespace test
