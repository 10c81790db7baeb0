// SPDX-License-Identifier: Apache-2.0
//
// The kernels that fill inputs and check outputs of any operation, beside its reference.
//
// Workload: whole tensors, after each launch of a proof; any grid. Includes nothing but its structs and has names of its own,
// because the reference beside it is a user's. `element`: 0 fp16, 1 bf16, 2 fp32, 3 fp64, 4 to 7 int8 to int64, 8 to 11 uint8 to
// uint64, 12 fp8 e4m3, 13 e5m2, and of complex numbers, which count as their two parts, 14 fp32, 15 fp64. Results are maxima: 0
// at first, kDiffers where an output is not what is wanted, kFailed where something else is wrong.
#include "fa_check.h"

namespace fa_check {

typedef unsigned long long u64;

constexpr u64 kFailed = ~0ull, kDiffers = ~1ull;

static __device__ inline u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ inline u64 step() { return (u64)gridDim.x * blockDim.x; }

static __device__ inline unsigned bits_of(float x) { return __float_as_uint(x); }

static __device__ inline int size_of(int element) { return 0x8411842184218422ull >> 4 * element & 15; }
static __device__ inline bool is_integer(int element) { return element >= 4 && element < 12; }

static __device__ inline u64 stored_bits(const void *tensor, u64 i, int element) {
    const int size = size_of(element);
    return size == 2   ? ((const unsigned short *)tensor)[i]
           : size == 4 ? ((const unsigned *)tensor)[i]
           : size == 8 ? ((const u64 *)tensor)[i]
                       : ((const unsigned char *)tensor)[i];
}

static __device__ inline void store_bits(void *tensor, u64 i, int element, u64 bits) {
    const int size = size_of(element);
    if (size == 2) ((unsigned short *)tensor)[i] = (unsigned short)bits;
    else if (size == 4) ((unsigned *)tensor)[i] = (unsigned)bits;
    else if (size == 8) ((u64 *)tensor)[i] = bits;
    else ((unsigned char *)tensor)[i] = (unsigned char)bits;
}

static __device__ inline double load(const void *tensor, u64 i, int element) {
    const u64 bits = stored_bits(tensor, i, element);
    if (is_integer(element) && element >= 8) return (double)bits;
    if (is_integer(element)) {
        const int unused = 64 - 8 * size_of(element);
        return (double)((long long)(bits << unused) >> unused);
    }
    if (element == 3 || element == 15) return __longlong_as_double((long long)bits);
    if (element == 2 || element == 14) return __uint_as_float((unsigned)bits);
    if (element == 1) return __uint_as_float((unsigned)bits << 16);
    const u64 half = element == 12 ? (bits & 0x80) << 8 | (bits & 0x7f) << 7 : element == 13 ? bits << 8 : bits;
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)half));
    if (element != 12) return x;
    return (bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu) : 256 * x;   // its one NaN, which has no infinity
}

static __device__ inline bool is_infinite(double x) { return fabs(x) > 1.7976931348623157e308; }

// Bits, without the sign, of the nearest number of a type with so many bits of fraction; ties to even.
static __device__ inline u64 narrowed(float x, int fraction, int bias) {
    const int own = (int)(bits_of(x) >> 23 & 255) - 127, exponent = own > 1 - bias ? own : 1 - bias;
    const double units = fabs((double)x) * __longlong_as_double((long long)(1023 + fraction - exponent) << 52);
    return ((u64)(exponent + bias - 1) << fraction) + (u64)__double2ll_rn(units);
}

// A division of 32 bits takes a fraction of the time.
static __device__ inline u64 divided(u64 a, u64 b) { return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b; }

// splitmix64 (Steele, Lea, Flood 2014): the i-th number after a seed.
static __device__ inline u64 mixed(u64 seed, u64 i) {
    u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// Bits of an input's element at the i-th place. Floating-point: k / 64 with |k| < 256, nearly normal, exact in every type,
// halves of up to 7 in fp8; or with a scale the sum of four 16-bit uniforms, centred, which ends at 3.46 standard deviations.
// As case_data.c makes it.
static __device__ inline u64 drawn_bits(const fa_check_values &v, int element, u64 i) {
    const u64 z = mixed(v.seed, i);
    const int mask = v.scale > 0.0f ? 65535 : 127;
    const int sum = (int)(z & mask) + (int)(z >> 16 & mask) + (int)(z >> 32 & mask) + (int)(z >> 48 & mask);
    if (is_integer(element)) {
        const long long value = v.span ? v.from + (long long)(z - divided(z, v.span) * v.span) : element < 8 ? (sum - 254) / 2 : sum / 2;
        const int unused = 64 - 8 * size_of(element);
        return (u64)value << unused >> unused;
    }
    const bool e4m3 = element == 12, e5m2 = element == 13;
    const float x = v.span > 1     ? (float)(v.from + (long long)(z - divided(z, v.span) * v.span))
                    : v.scale > 0.0f ? (float)(sum - 2 * 65535) * (1.7320508f / 65536.0f) * v.scale
                    : e4m3 || e5m2 ? (float)((sum - 254) / 32) / 2.0f
                                   : (float)(sum - 254) / 64.0f;
    if (element == 3 || element == 15) return (u64)__double_as_longlong((double)x);
    if (element == 2 || element == 14) return bits_of(x);
    const u64 magnitude = narrowed(x, e4m3 ? 3 : e5m2 ? 2 : element == 1 ? 7 : 10, e4m3 ? 7 : element == 1 ? 127 : 15);
    return magnitude | (u64)(bits_of(x) >> 31) << (8 * size_of(element) - 1);
}

// Where element i lies.
static __device__ inline u64 place_of(const fa_check_tensor &t, u64 i) {
    u64 at = t.first;
#pragma unroll 1
    for (int d = 3; i > 0; d--) {
        const u64 rest = divided(i, t.extent[d]);
        at += (i - rest * t.extent[d]) * t.stride[d];
        i = rest;
    }
    return at;
}

// Whether an element lies at the unit.
static __device__ inline bool is_element(const fa_check_tensor &t, u64 unit) {
    u64 rest = unit - t.first, block = 0, row = 0;
    if (unit < t.first) return false;
    if (rest < t.dense && !t.used) return true;
#pragma unroll 1
    for (int level = 0; level < t.levels; level++) {
        const int d = t.order[level];
        const u64 index = divided(rest, t.stride[d]);
        if (index >= t.extent[d]) return false;
        rest -= index * t.stride[d];
        if (d == 0) block = index;
        if (d == 2) row = index;
    }
    return rest == 0 && (!t.used || row < (u64)t.used[block]);
}

static __device__ inline u64 poison_at(const fa_check_tensor &t, u64 unit) {
    const int size = size_of(t.element);
    const u64 poison = t.poison * 0x0001000100010001ull >> (size == 1 ? 8 * (unit & 1) : 0);
    return size == 8 ? poison : poison & ((1ull << 8 * size) - 1);
}

static __device__ inline u64 input_bits(const fa_check_tensor &t, const fa_check_values &v, u64 unit) {
    u64 i = unit - t.first;
    if (!is_element(t, unit)) return poison_at(t, unit);
    if (v.given) return stored_bits(v.given, i, t.element);
    int element = t.element, byte = 0;
    const bool in_row = element == 12 && v.span;
    if (in_row) {   // of a cache that is "fp8_ds_mla": 512 numbers of e4m3, four scales of fp32 between 1/2 and 3/2, and numbers of bf16
        u64 column = i;
#pragma unroll 1
        for (int level = 0; level < t.levels; level++)
            if (t.order[level] != 3) column -= divided(column, t.stride[t.order[level]]) * t.stride[t.order[level]];
        element = column < 512 ? 12 : column < 528 ? 2 : 1;
        byte = (int)column & size_of(element) - 1;
        i -= byte;
    }
    const u64 bits = in_row && element == 2 ? bits_of(0.5f + (float)(mixed(v.seed, i) & 65535) / 65536.0f) : drawn_bits(v, element, i);
    return in_row ? bits >> 8 * byte & 255 : bits;
}

}  // namespace fa_check

// Elements and all that lies around them: written, or with a result they are looked at, whether they are still so. What is given has no gaps
// between its elements.
extern "C" __global__ void fa_check_input(const __grid_constant__ fa_check_tensor t, const __grid_constant__ fa_check_values values,
                                          unsigned long long *result) {
    bool right = true;
#pragma unroll 1
    for (fa_check::u64 i = fa_check::first(); i < t.units; i += fa_check::step()) {
        const fa_check::u64 bits = fa_check::input_bits(t, values, i);
        if (result) right = right && fa_check::stored_bits(t.base, i, t.element) == bits;
        else        fa_check::store_bits(t.base, i, t.element, bits);
    }
    if (!right) atomicMax(result, fa_check::kFailed);
}

// The largest finite magnitude; non-negative floats order as their bits do.
extern "C" __global__ void fa_check_largest(const void *wanted, unsigned long long count, int element, unsigned *largest) {
    unsigned most = 0;
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step()) {
        const unsigned bits = fa_check::bits_of((float)fabs(fa_check::load(wanted, i, element)));
        if (bits < 0x7f800000u && bits > most) most = bits;
    }
    if (most) atomicMax(largest, most);
}

// Of complex numbers each part has the magnitude of the two as |wanted|; an infinity is met by itself alone. `wanted` is of its own
// type. The result is of the element that is nearest to its bound: (error / bound, bound) as two floats.
extern "C" __global__ void fa_check_output(const __grid_constant__ fa_check_tensor t, const __grid_constant__ fa_check_wanted wanted,
                                           unsigned long long *result) {
    fa_check::u64 worst = 0;
    const double base = fmax(1e-30, wanted.absolute + wanted.of_largest * __uint_as_float(*wanted.largest));
#pragma unroll 1
    for (fa_check::u64 i = fa_check::first(); i < wanted.count; i += fa_check::step()) {
        const fa_check::u64 at =
            wanted.rows ? (fa_check::u64)wanted.rows[i / wanted.columns] * wanted.columns + i % wanted.columns : i;
        const double right = fa_check::load(wanted.at, i, wanted.element);
        const double got = fa_check::load(t.base, fa_check::place_of(t, at), t.element);
        const bool infinite = fa_check::is_infinite(right);
        const double beside = t.element < 14 ? 0 : fa_check::load(wanted.at, i ^ 1, wanted.element);
        const double magnitude = fabs(beside) <= 1.7976931348623157e308 ? hypot(right, beside) : fabs(right);
        const double allowed = base + (infinite ? 0 : wanted.relative * (t.element < 14 ? fabs(right) : magnitude));
        const double error = infinite && got == right ? 0 : fabs(got - right), ratio = error / allowed;
        const fa_check::u64 key = ratio <= 1 ? (fa_check::u64)fa_check::bits_of((float)ratio) << 32 |
                                                   fa_check::bits_of((float)allowed)
                                             : fa_check::kDiffers;
        if (key > worst) worst = key;
    }
    if (worst) atomicMax(result, worst);
}

// What lies around an output's elements is as it was; and where not all of them are compared, each is written, and is a number,
// finite but for minus infinity of fp32.
extern "C" __global__ void fa_check_around(const __grid_constant__ fa_check_tensor t, int elements, unsigned long long *result) {
    bool right = true;
#pragma unroll 1
    for (fa_check::u64 i = fa_check::first(); i < t.units; i += fa_check::step()) {
        if (!fa_check::is_element(t, i)) {
            right = right && fa_check::stored_bits(t.base, i, t.element) == fa_check::poison_at(t, i);
        } else if (elements) {
            const double x = fa_check::load(t.base, i, t.element);
            right = right && fa_check::stored_bits(t.base, i, t.element) != fa_check::poison_at(t, i) &&
                    x <= 1.7976931348623157e308 && (x >= -1.7976931348623157e308 || t.element == 2);
        }
    }
    if (!right) atomicMax(result, fa_check::kFailed);
}

// A hash of all these words: the sum, in any order, of a number for each word and place. Blocks are of whole warps.
extern "C" __global__ void fa_check_bits(const unsigned long long *words, unsigned long long count, unsigned long long *result) {
    fa_check::u64 sum = 0;
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step()) sum += fa_check::mixed(words[i], i);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(result, sum);
}
