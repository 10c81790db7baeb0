// SPDX-License-Identifier: Apache-2.0
//
// The kernels that fill inputs and check outputs of any operation, behind the reference of every one that operation.json
// describes.
//
// Workload: whole tensors, after each launch of a proof; any grid. Includes nothing and has names of its own, because
// the reference in front of it is a user's. A tensor lies between two fences of poison. `element`: 0 fp16, 1 bf16,
// 2 fp32. Results are maxima: 0 at first, kFailed where something is wrong.
namespace fa_check {

typedef unsigned long long u64;

constexpr u64 kFailed = ~0ull;
constexpr unsigned short kPoison = 0x7fa5;

static __device__ inline u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ inline u64 step() { return (u64)gridDim.x * blockDim.x; }

static __device__ inline unsigned bits_of(float x) { return __float_as_uint(x); }

static __device__ inline float load(const void *tensor, u64 i, int element) {
    if (element == 2) return ((const float *)tensor)[i];
    const unsigned short bits = ((const unsigned short *)tensor)[i];
    if (element == 1) return __uint_as_float((unsigned)bits << 16);
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// Bits of the i-th element of an input: k / 64 with |k| < 256, nearly normal, exact in every type. As generic.c makes it.
static __device__ inline unsigned input_bits(u64 seed, u64 i, int element) {
    u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;   // splitmix64 (Steele, Lea, Flood 2014)
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    const int sum = (int)(z & 127) + (int)(z >> 16 & 127) + (int)(z >> 32 & 127) + (int)(z >> 48 & 127);
    const float x = (float)(sum - 254) / 64.0f;
    if (element == 2) return bits_of(x);
    if (element == 1) return bits_of(x) >> 16;
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

static __device__ inline unsigned stored_bits(const void *tensor, u64 i, int element) {
    return element == 2 ? ((const unsigned *)tensor)[i] : ((const unsigned short *)tensor)[i];
}

// Before and behind a tensor of `words` 16-bit words.
static __device__ inline bool is_fenced(const unsigned short *fenced, u64 fence, u64 words) {
    bool right = true;
    for (u64 i = first(); i < fence; i += step())
        right = right && fenced[i] == kPoison && fenced[fence + words + i] == kPoison;
    return right;
}

}  // namespace fa_check

extern "C" __global__ void fa_check_fill(void *tensor, unsigned long long count, int element, unsigned long long seed) {
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step()) {
        const unsigned bits = fa_check::input_bits(seed, i, element);
        if (element == 2) ((unsigned *)tensor)[i] = bits;
        else ((unsigned short *)tensor)[i] = (unsigned short)bits;
    }
}

// The largest finite magnitude; non-negative floats order as their bits do.
extern "C" __global__ void fa_check_largest(const float *wanted, unsigned long long count, unsigned *largest) {
    unsigned most = 0;
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step()) {
        const unsigned bits = fa_check::bits_of(wanted[i]) & 0x7fffffffu;
        if (bits < 0x7f800000u && bits > most) most = bits;
    }
    if (most) atomicMax(largest, most);
}

// |o - wanted| <= absolute + relative * |wanted| + of_largest * largest; an infinity is met by itself alone. The result is
// of the element that is nearest to its bound: (error / bound, bound) as two floats.
extern "C" __global__ void fa_check_output(const unsigned short *fenced, unsigned long long fence, unsigned long long count,
                                           int element, const float *wanted, const unsigned *largest, double relative,
                                           double of_largest, double absolute, unsigned long long *result) {
    fa_check::u64 worst = 0;
    const double base = absolute + of_largest * __uint_as_float(*largest);
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step()) {
        const double right = wanted[i], got = fa_check::load(fenced + fence, i, element);
        const bool infinite = (fa_check::bits_of(wanted[i]) & 0x7fffffffu) == 0x7f800000u;
        const double allowed = base + (infinite ? 0 : relative * fabs(right));
        const double error = infinite && got == right ? 0 : fabs(got - right), ratio = error / allowed;
        const fa_check::u64 key = ratio <= 1 ? (fa_check::u64)fa_check::bits_of((float)ratio) << 32 |
                                                   fa_check::bits_of((float)allowed)
                                             : fa_check::kFailed;
        if (key > worst) worst = key;
    }
    if (!fa_check::is_fenced(fenced, fence, count * (element == 2 ? 2 : 1))) worst = fa_check::kFailed;
    if (worst) atomicMax(result, worst);
}

// An input is as fa_check_fill made it.
extern "C" __global__ void fa_check_input(const unsigned short *fenced, unsigned long long fence, unsigned long long count,
                                          int element, unsigned long long seed, unsigned long long *result) {
    bool right = fa_check::is_fenced(fenced, fence, count * (element == 2 ? 2 : 1));
    for (fa_check::u64 i = fa_check::first(); i < count; i += fa_check::step())
        right = right && fa_check::stored_bits(fenced + fence, i, element) == fa_check::input_bits(seed, i, element);
    if (!right) atomicMax(result, fa_check::kFailed);
}
