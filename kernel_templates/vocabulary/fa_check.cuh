// SPDX-License-Identifier: Apache-2.0
//
// The kernels that fill inputs and check outputs of any operation, beside the reference of every one that operation.json
// describes.
//
// Workload: whole tensors, after each launch of a proof; any grid. Includes nothing and has names of its own, because
// the reference beside it is a user's. A tensor lies between two fences of poison. `element`: 0 fp16, 1 bf16, 2 fp32,
// 3 fp64, 4 to 7 int8 to int64, 8 to 11 uint8 to uint64, 12 fp8 e4m3, 13 e5m2, and of complex numbers, which count as their two
// parts, 14 fp32, 15 fp64. Results are maxima: 0 at first, kFailed where something is wrong.
namespace fa_check {

typedef unsigned long long u64;

constexpr u64 kFailed = ~0ull;
constexpr unsigned short kPoison = 0x7fa5;

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

// Bits of the i-th element of an input. Floating-point: k / 64 with |k| < 256, nearly normal, exact in every type; halves of
// up to 7 in fp8. Integers: from..from + span, or where span is 0 nearly normal ones of 8 bits. As case_data.c makes it.
static __device__ inline u64 input_bits(u64 seed, u64 i, int element, long long from, u64 span) {
    u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;   // splitmix64 (Steele, Lea, Flood 2014)
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    const int sum = (int)(z & 127) + (int)(z >> 16 & 127) + (int)(z >> 32 & 127) + (int)(z >> 48 & 127);
    if (is_integer(element)) {
        const long long value = span ? from + (long long)(z % span) : element < 8 ? (sum - 254) / 2 : sum / 2;
        const int unused = 64 - 8 * size_of(element);
        return (u64)value << unused >> unused;
    }
    const bool is_fp8 = element == 12 || element == 13;
    const float x = is_fp8 ? (float)((sum - 254) / 32) / 2.0f : (float)(sum - 254) / 64.0f;
    if (is_fp8) {   // of e4m3 with 3 bits behind the exponent, of which the bias is 7; of e5m2 with 2, and 15
        const int fraction = element == 12 ? 3 : 2, bias = element == 12 ? 7 : 15;
        const unsigned sign = bits_of(x) >> 31 << 7, magnitude = bits_of(x) & 0x7fffffffu;
        return magnitude ? sign | ((magnitude >> (23 - fraction)) - ((127u - bias) << fraction)) : sign;
    }
    if (element == 3 || element == 15) return (u64)__double_as_longlong((double)x);
    if (element == 2 || element == 14) return bits_of(x);
    if (element == 1) return bits_of(x) >> 16;
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// 16-bit words before a tensor and behind it.
static __device__ inline bool is_fenced(const unsigned short *fenced, u64 fence, u64 count, int element) {
    const u64 words = (count * size_of(element) + 1) / 2;
    bool right = true;
    for (u64 i = first(); i < fence; i += step())
        right = right && fenced[i] == kPoison && fenced[fence + words + i] == kPoison;
    return right;
}

}  // namespace fa_check

// `given`: the elements, where they are not drawn.
extern "C" __global__ void fa_check_fill(void *tensor, unsigned long long count, int element, unsigned long long seed,
                                         long long from, unsigned long long span, const void *given) {
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step())
        fa_check::store_bits(tensor, i, element, given ? fa_check::stored_bits(given, i, element)
                                                       : fa_check::input_bits(seed, i, element, from, span));
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

// |o - wanted| <= absolute + relative * |wanted| + of_largest * largest, of each part of a complex number with the magnitude of
// the two as |wanted|; an infinity is met by itself alone. `wanted` is of its own type. The result is of the element that is nearest to its bound: (error / bound, bound) as two floats.
extern "C" __global__ void fa_check_output(const unsigned short *fenced, unsigned long long fence, unsigned long long count,
                                           int element, const void *wanted, int wanted_element, const unsigned *largest,
                                           double relative, double of_largest, double absolute,
                                           unsigned long long *result) {
    fa_check::u64 worst = 0;
    const double base = fmax(1e-30, absolute + of_largest * __uint_as_float(*largest));
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step()) {
        const double right = fa_check::load(wanted, i, wanted_element), got = fa_check::load(fenced + fence, i, element);
        const bool infinite = fa_check::is_infinite(right);
        const double beside = element < 14 ? 0 : fa_check::load(wanted, i ^ 1, wanted_element);
        const double magnitude = fabs(beside) <= 1.7976931348623157e308 ? hypot(right, beside) : fabs(right);
        const double allowed = base + (infinite ? 0 : relative * (element < 14 ? fabs(right) : magnitude));
        const double error = infinite && got == right ? 0 : fabs(got - right), ratio = error / allowed;
        const fa_check::u64 key = ratio <= 1 ? (fa_check::u64)fa_check::bits_of((float)ratio) << 32 |
                                                   fa_check::bits_of((float)allowed)
                                             : fa_check::kFailed;
        if (key > worst) worst = key;
    }
    if (!fa_check::is_fenced(fenced, fence, count, element)) worst = fa_check::kFailed;
    if (worst) atomicMax(result, worst);
}

// An input is as fa_check_fill made it.
extern "C" __global__ void fa_check_input(const unsigned short *fenced, unsigned long long fence, unsigned long long count,
                                          int element, unsigned long long seed, long long from, unsigned long long span,
                                          const void *given, unsigned long long *result) {
    bool right = fa_check::is_fenced(fenced, fence, count, element);
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step())
        right = right && fa_check::stored_bits(fenced + fence, i, element) ==
                             (given ? fa_check::stored_bits(given, i, element)
                                    : fa_check::input_bits(seed, i, element, from, span));
    if (!right) atomicMax(result, fa_check::kFailed);
}
