/* SPDX-License-Identifier: Apache-2.0
 *
 * fp16, bf16 and fp8 on the CPU, by hand: exact to float, to nearest even from float.
 */
#ifndef FA_TESTS_FAKE_CUDA_NUMBERS_H
#define FA_TESTS_FAKE_CUDA_NUMBERS_H

#include "fake_cuda.h"

#include <math.h>
#include <string.h>

/* In vectors of 64 or 32 bytes where the processor has them. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && __GNUC__ >= 12
#define WIDE __attribute__((target_clones("avx512f", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif
/* Compiled for the processor of whom it is part of. */
#define INLINE static inline __attribute__((always_inline))

/* What a snippet reads in a launch. The read of an element whose number is `site` gets `step` more, and says what it was of. */
struct fake_held {
    const struct fa_attn_buffer_params *buffers;
    fa_buffer list[FA_ATTN_BUFFERS];
    int site, reads, buffer;
    int64_t element;
    double step;
};
double fake_read_held(const void *held, int buffer, const int64_t index[]);
/* What dropout makes of a weight, with the list read; 1 without the buffers that ask for it. head: of all sequences. */
double fake_dropout(const struct fake_held *held, int64_t head, int64_t q, int64_t k);

/* An argument of a launch. */
INLINE int int_of(const void *argument)
{
    int number;
    memcpy(&number, argument, sizeof number);
    return number;
}

INLINE uint64_t word_of(const void *argument)
{
    uint64_t word;
    memcpy(&word, argument, sizeof word);
    return word;
}

INLINE float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The exponents of both formats are 112 apart; the product is exact, of subnormal numbers too. */
INLINE float half_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    uint32_t finite = float_bits(bits_float(rest << 13) * 0x1p112f);
    return bits_float(sign | (rest >= 0x7c00 ? 0x7f800000 | rest << 13 : finite));
}

/* Round to nearest even; overflow to infinity. Below 2^-14 a half counts in units of 2^-24, as a float from 0.5 on does. */
INLINE uint16_t half_bits(float x)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t small = float_bits(bits_float(rest) + 0.5f) - 0x3f000000;
    uint32_t rounded = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
    uint32_t finite = rest < 0x38800000 ? small : rounded;
    return rest > 0x7f800000 ? 0x7fff
                             : (uint16_t)(sign | (rest >= 0x477ff000 /* 65520 */ ? 0x7c00 : finite));
}

INLINE float bf16_value(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

INLINE uint16_t bf16_bits(float x)
{
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* e5m2 is fp16's upper half; e4m3 has fp16's bits between its sign and 256 times its value, and one NaN. */
static inline float fp8_value(uint8_t h, bool e4m3)
{
    return !e4m3                ? half_value((uint16_t)(h << 8))
           : (h & 0x7f) == 0x7f ? NAN
                                : 256 * half_value((uint16_t)((h & 0x80) << 8 | (h & 0x7f) << 7));
}

/* The nearest, ties to even; too large to the largest. */
static inline uint8_t fp8_bits(float x, bool e4m3)
{
    const int fraction = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const uint32_t largest = e4m3 ? 0x7e : 0x7b, sign = signbit(x) ? 0x80 : 0;
    const int own = (int)(float_bits(x) >> 23 & 255) - 127,
              exponent = own > 1 - bias ? own : 1 - bias;
    if (!(own < 128)) /* infinite or NaN */
        return (uint8_t)(isnan(x) ? 0x7f : sign | largest);
    uint32_t units = (uint32_t)nearbyintf(ldexpf(fabsf(x), fraction - exponent));
    uint32_t bits = ((uint32_t)(exponent + bias - 1) << fraction) + units;
    return (uint8_t)(sign | (bits < largest ? bits : largest));
}

INLINE float value(const struct fake_build *build, uint16_t bits)
{
    return build->bf16 ? bf16_value(bits) : half_value(bits);
}

INLINE uint16_t storage(const struct fake_build *build, float x)
{
    return build->bf16 ? bf16_bits(x) : half_bits(x);
}

#endif
