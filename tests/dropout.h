/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout's bits, as attn_dropout.cuh describes them, written anew.
 */
#ifndef FA_TESTS_DROPOUT_H
#define FA_TESTS_DROPOUT_H

#include <math.h>
#include <stdint.h>

/* What a weight is multiplied by; p from 0 up to less than 1, head: of all sequences. */
static inline double dropout_factor(double p, const uint64_t seed[2], int64_t head, int64_t q,
                                    int64_t k)
{
    const int64_t row = q % 16, column = k % 16;
    uint32_t x[4] = {(uint32_t)(q / 16 * 4 + row % 8 / 2), (uint32_t)(k / 16 * 4 + column % 8 / 2),
                     (uint32_t)head, (uint32_t)seed[1]};
    for (uint32_t i = 0; i < 7; i++) {
        const uint64_t a = x[0] * (uint64_t)3528531795u, b = x[2] * (uint64_t)3449720151u;
        const uint32_t keys[2] = {(uint32_t)seed[0] + i * 2654435769u,
                                  (uint32_t)(seed[0] >> 32) + i * 3144134277u};
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ keys[0], x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ keys[1], x[3] = (uint32_t)a;
    }
    const int64_t word = row / 8 * 2 + (row + k / 16) % 2,
                  at = column / 8 * 2 + (column + q / 16) % 2;
    const int byte = (int)(x[word] >> 8 * at & 255);
    const int t = (int)fmin(p * 256 + 0.5, 255);
    return byte < t ? 0 : 256.0 / (256 - t);
}

#endif
