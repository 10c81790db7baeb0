/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of kernel_templates/vocabulary/fa_check.cuh on the CPU.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#include "fa_check.h"
#include "buf.h"

static const uint64_t failed = UINT64_MAX, differs = UINT64_MAX - 1;
enum { FP16, BF16, FP32, FP64, INT8, UINT8 = 8, E4M3 = 12, E5M2, COMPLEX64, COMPLEX128 };

static size_t size_of(int element)
{
    static const size_t sizes[] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 1, 4, 8};
    return sizes[element];
}

/* The sum of four 16-bit uniforms: bit for bit what the kernel makes. */
INLINE float normal_number(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ull; /* splitmix64, as fa_random */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    int sum =
        (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

WIDE static void draw_normals(const struct fa_check_values *v, bool bf16, uint64_t first,
                              uint64_t count, uint16_t *ret)
{
    for (uint64_t i = 0; i < count; i++) {
        float x = normal_number(v->seed, first + i) * v->scale;
        ret[i] = bf16 ? bf16_bits(x) : half_bits(x);
    }
}

static uint64_t drawn_bits(const struct fa_check_values *v, int element, uint64_t i)
{
    uint64_t z = fa_random(v->seed, i), bits;
    struct fake_build build = {.bf16 = element == BF16};
    int sum = (int)(z & 127) + (int)(z >> 16 & 127) + (int)(z >> 32 & 127) + (int)(z >> 48 & 127);
    double x = v->span > 1    ? (double)(v->from + (int64_t)(z % v->span))
               : v->scale > 0 ? (double)(normal_number(v->seed, i) * v->scale)
                              : (sum - 254) / 64.0;
    if (element == E4M3 || element == E5M2)
        return fp8_bits(v->scale > 0 ? (float)x : (float)((sum - 254) / 32) / 2, element == E4M3);
    if (element >= INT8 && element < E4M3)
        return v->span > 0       ? (uint64_t)(v->from + (int64_t)(z % v->span))
               : element < UINT8 ? (uint64_t)(int64_t)((sum - 254) / 2)
                                 : (uint64_t)(sum / 2);
    memcpy(&bits, &x, sizeof bits);
    return element == FP64 || element == COMPLEX128  ? bits
           : element == FP32 || element == COMPLEX64 ? float_bits((float)x)
                                                     : storage(&build, (float)x);
}

static uint64_t row_bits(const struct fa_check_tensor *t, const struct fa_check_values *v,
                         uint64_t unit)
{
    uint64_t column = unit - t->first, at = column;
    for (int level = 0; level < t->levels; level++)
        column %= t->order[level] != 3 ? t->stride[t->order[level]] : UINT64_MAX;
    const uint64_t byte = column < 512 ? 0 : column % (column < 528 ? 4 : 2);
    const float scale = 0.5f + (float)(fa_random(v->seed, at - byte) & 65535) / 65536;
    if (column >= 512 && column < 528)
        return float_bits(scale) >> 8 * byte & 255;
    return drawn_bits(v, column < 512 ? E4M3 : BF16, at - byte) >> 8 * byte & 255;
}

static double element_value(const void *tensor, uint64_t i, int element)
{
    const struct fake_build build = {.bf16 = element == BF16};
    size_t size = size_of(element);
    uint64_t bits = 0;
    double wide;
    memcpy(&bits, (const char *)tensor + i * size, size);
    if (element == E4M3 || element == E5M2)
        return (double)fp8_value((uint8_t)bits, element == E4M3);
    if (element >= UINT8 && element < E4M3)
        return (double)bits;
    if (element >= INT8 && element < E4M3)
        return (double)((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
    memcpy(&wide, &bits, sizeof wide);
    return element == FP64 || element == COMPLEX128  ? wide
           : element == FP32 || element == COMPLEX64 ? (double)bits_float((uint32_t)bits)
                                                     : (double)value(&build, (uint16_t)bits);
}

/* ---- places ----------------------------------------------------------------------------------*/
static uint64_t place_of(const struct fa_check_tensor *t, uint64_t i)
{
    uint64_t at = t->first;
    for (int d = 3; i > 0; d--) {
        at += i % t->extent[d] * t->stride[d];
        i /= t->extent[d];
    }
    return at;
}

/* Units from this one on that are alike: elements, if *ret_elements, or what lies between such. `used`: on the host, or NULL. */
static uint64_t run_of(const struct fa_check_tensor *t, const int32_t *used, uint64_t unit,
                       bool *ret_elements)
{
    uint64_t rest = unit - t->first, block = 0, row = 0, left = 1;
    *ret_elements = false;
    if (unit < t->first)
        return t->first - unit;
    for (int level = 0; level < t->levels; level++) {
        const int d = t->order[level];
        const uint64_t index = rest / t->stride[d];
        if (index >= t->extent[d]) { /* to the next index of the level above, or to the end */
            uint64_t next = level > 0 ? t->stride[t->order[level - 1]] - rest : t->units;
            return next < t->units - unit ? next : t->units - unit;
        }
        rest -= index * t->stride[d];
        left = t->stride[d] == 1 ? t->extent[d] - index : 1;
        block = d == 0 ? index : block;
        row = d == 2 ? index : row;
    }
    *ret_elements = rest == 0 && (used == NULL || (int64_t)row < used[block]);
    return rest == 0 || t->levels > 0 ? left : t->units - unit;
}

static uint64_t poison_at(const struct fa_check_tensor *t, uint64_t unit)
{
    const uint64_t poison = t->poison * UINT64_C(0x0001000100010001);
    return size_of(t->element) == 1 ? poison >> 8 * (unit & 1) : poison;
}

/* Whether units from this one on hold the poison. */
static bool is_poisoned(const struct fa_check_tensor *t, const char *bytes, uint64_t unit,
                        uint64_t count)
{
    enum { WORDS = 2048 };
    static uint16_t poison[WORDS + 1];
    const size_t size = size_of(t->element), odd = size == 1 ? unit & 1 : 0;
    if (poison[0] != t->poison)
        for (int i = 0; i <= WORDS; i++)
            poison[i] = (uint16_t)t->poison;
    for (size_t at = unit * size, left = count * size, part; left > 0; at += part, left -= part) {
        part = left < 2 * WORDS ? left : 2 * WORDS;
        if (memcmp(bytes + at, (const char *)poison + odd, part) != 0)
            return false;
    }
    return true;
}

/* The memory of a tensor; *ret_used: how much of it has elements; false: something lies in no block. */
static bool map_tensor(const struct fa_check_tensor *t, bool write, char **ret_bytes,
                       const int32_t **ret_used)
{
    *ret_used = t->used == NULL ? NULL
                                : fake_memory((uint64_t)(uintptr_t)t->used,
                                              t->extent[0] * sizeof(int32_t), false);
    *ret_bytes = fake_memory((uint64_t)(uintptr_t)t->base, t->units * size_of(t->element), write);
    return *ret_bytes != NULL && (t->used == NULL || *ret_used != NULL || t->extent[0] == 0);
}

enum { PIECE = 512 };

/* Elements of an input, or poison, from a unit on. */
static void make_units(const struct fa_check_tensor *t, const struct fa_check_values *v,
                       const char *given, bool elements, uint64_t unit, uint64_t count,
                       uint64_t *ret)
{
    const size_t size = size_of(t->element);
    const uint64_t first = unit - t->first;
    if (elements && given != NULL)
        memcpy(ret, given + first * size, count * size);
    else if (elements && t->element <= BF16 && v->scale > 0)
        draw_normals(v, t->element == BF16, first, count, (uint16_t *)ret);
    else
        for (uint64_t i = 0; i < count; i++) {
            uint64_t bits = !elements ? poison_at(t, unit + i)
                            : t->element == E4M3 && v->span > 0
                                ? row_bits(t, v, unit + i)
                                : drawn_bits(v, t->element, first + i);
            memcpy((char *)ret + i * size, &bits, size);
        }
}

/* Fills an input with its values, or compares it with them. */
static bool walk_input(const struct fa_check_tensor *t, const struct fa_check_values *v, bool write,
                       bool *ret_right)
{
    const size_t size = size_of(t->element);
    const int32_t *used;
    const char *given = NULL;
    char *bytes;
    uint64_t piece[PIECE];
    if (!map_tensor(t, write, &bytes, &used))
        return false;
    for (uint64_t i = 0, count; i < t->units && (write || *ret_right); i += count) {
        bool elements;
        count = run_of(t, used, i, &elements);
        if (!elements && used == NULL && i - t->first < t->dense)
            return false; /* a gap between elements of which there are said to be none */
        if (elements && v->given != NULL && given == NULL &&
            (given = fake_memory((uint64_t)(uintptr_t)v->given, count * size, false)) == NULL)
            return false;
        count = count < PIECE ? count : PIECE;
        make_units(t, v, given, elements, i, count, piece);
        if (write)
            memcpy(bytes + i * size, piece, count * size);
        else
            *ret_right = *ret_right && memcmp(bytes + i * size, piece, count * size) == 0;
    }
    return true;
}

/* ---- the kernels -----------------------------------------------------------------------------*/
static bool find_largest(void **arguments)
{
    uint64_t count = word_of(arguments[1]);
    int element = int_of(arguments[2]);
    const void *wanted = fake_memory(word_of(arguments[0]), count * size_of(element), false);
    float *largest = fake_memory(word_of(arguments[3]), sizeof *largest, true);
    for (uint64_t i = 0; wanted != NULL && largest != NULL && i < count; i++) {
        float magnitude = (float)fabs(element_value(wanted, i, element));
        if (isfinite(magnitude) && magnitude > *largest)
            *largest = magnitude;
    }
    return wanted != NULL && largest != NULL;
}

static bool take_result(uint64_t address, uint64_t worst)
{
    uint64_t *result = fake_memory(address, sizeof *result, true);
    if (result != NULL && worst > *result)
        *result = worst;
    return result != NULL;
}

/* The largest difference of elements of 16 bits that lie side by side, as the bits of a float, whose order is that of numbers. */
WIDE static uint32_t largest_difference(bool bf16, const uint16_t *got, const float *wanted,
                                        uint64_t count)
{
    int32_t most = 0;
    for (uint64_t i = 0; i < count; i++) {
        float x = bf16 ? bf16_value(got[i]) : half_value(got[i]);
        int32_t bits = (int32_t)(float_bits(x - wanted[i]) & 0x7fffffff);
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

static uint64_t key_of(double error, double allowed)
{
    double ratio = error / allowed;
    return ratio <= 1 ? (uint64_t)float_bits((float)ratio) << 32 | float_bits((float)allowed)
                      : differs;
}

static bool check_output(void **arguments)
{
    const struct fa_check_tensor *t = arguments[0];
    const struct fa_check_wanted *w = arguments[1];
    const int32_t *used;
    char *output;
    uint64_t worst = 0;
    const char *wanted =
        fake_memory((uint64_t)(uintptr_t)w->at, w->count * size_of(w->element), false);
    const float *largest = fake_memory((uint64_t)(uintptr_t)w->largest, sizeof *largest, false);
    const long long *rows = w->rows == NULL
                                ? NULL
                                : fake_memory((uint64_t)(uintptr_t)w->rows,
                                              w->count / w->columns * sizeof *rows, false);
    if (!map_tensor(t, false, &output, &used) || wanted == NULL || largest == NULL ||
        (rows == NULL && w->rows != NULL))
        return false;
    const double base = fmax(1e-30, w->absolute + w->of_largest * (double)*largest);
    const bool plain =
        size_of(t->element) == 2 && t->element < FP32 && w->element == FP32 && !(w->relative > 0);
    uint64_t run = 0;
    for (uint64_t i = 0; i < w->count; i += run) { /* elements that lie side by side */
        uint64_t at =
            rows == NULL ? i : (uint64_t)rows[i / w->columns] * w->columns + i % w->columns;
        uint64_t place = place_of(t, at), row_end = w->columns - i % w->columns;
        run = t->stride[3] == 1 ? t->extent[3] - at % t->extent[3] : 1;
        run = run < row_end ? run : row_end;
        uint32_t most = plain ? largest_difference(t->element == BF16,
                                                   (const uint16_t *)(const void *)output + place,
                                                   (const float *)(const void *)wanted + i, run)
                              : UINT32_MAX;
        if (most < 0x7f800000) {
            uint64_t key = key_of((double)bits_float(most), base);
            worst = key > worst ? key : worst;
            continue;
        }
        for (uint64_t j = i; j < i + run; j++) {
            double got = element_value(output, place + (j - i), t->element);
            double wants = element_value(wanted, j, w->element);
            double beside = t->element >= COMPLEX64 ? element_value(wanted, j ^ 1, w->element) : 0;
            double magnitude = beside != 0 && isfinite(beside) ? hypot(wants, beside) : fabs(wants);
            bool same = isinf(wants) && !isnan(got) && !(got < wants) && !(got > wants);
            uint64_t key = key_of(same ? 0 : fabs(got - wants),
                                  base + (isinf(wants) ? 0 : w->relative * magnitude));
            worst = key > worst ? key : worst;
        }
    }
    return take_result(word_of(arguments[2]), worst);
}

static bool check_around(void **arguments)
{
    const struct fa_check_tensor *t = arguments[0];
    const int32_t *used;
    char *bytes;
    bool right = true;
    if (!map_tensor(t, false, &bytes, &used))
        return false;
    for (uint64_t i = 0, count; i < t->units; i += count) {
        bool elements;
        count = run_of(t, used, i, &elements);
        right = right && (elements || is_poisoned(t, bytes, i, count));
        for (uint64_t u = i; u < i + count && elements && right && int_of(arguments[1]); u++) {
            const double x = element_value(bytes, u, t->element);
            right = !is_poisoned(t, bytes, u, 1) && !isnan(x) &&
                    (!isinf(x) || (x < 0 && t->element == FP32));
        }
    }
    return take_result(word_of(arguments[2]), right ? 0 : failed);
}

/* Inputs that were right, by what they are and the memory they lie in: they seldom change. */
static bool check_input(void **arguments)
{
    static struct memo {
        struct fa_check_tensor t;
        struct fa_check_values v;
        uint64_t version;
    } memos[256];
    static unsigned next;
    struct memo memo;
    if (word_of(arguments[2]) == 0)
        return walk_input(arguments[0], arguments[1], true, NULL);
    memset(&memo, 0, sizeof memo);
    memcpy(&memo.t, arguments[0], sizeof memo.t);
    memcpy(&memo.v, arguments[1], sizeof memo.v);
    memo.version = fake_memory_version((uint64_t)(uintptr_t)memo.t.base);
    bool right = true;
    for (size_t i = 0; i < sizeof memos / sizeof *memos; i++)
        if (memcmp(&memos[i], &memo, sizeof memo) == 0)
            return true;
    if (!walk_input(arguments[0], arguments[1], false, &right) ||
        !take_result(word_of(arguments[2]), right ? 0 : failed))
        return false;
    if (right)
        memos[next++ % (sizeof memos / sizeof *memos)] = memo;
    return true;
}

static bool hash_bits(void **arguments)
{
    const uint64_t count = word_of(arguments[1]);
    const uint64_t *words = fake_memory(word_of(arguments[0]), count * sizeof *words, false);
    uint64_t *sum = fake_memory(word_of(arguments[2]), sizeof *sum, true);
    for (uint64_t i = 0; words != NULL && sum != NULL && i < count; i++)
        *sum += fa_random(words[i], i);
    return words != NULL && sum != NULL;
}

static const struct {
    const char *entry;
    bool (*run)(void **arguments);
} checks[] = {{"fa_check_input", check_input},
              {"fa_check_largest", find_largest},
              {"fa_check_output", check_output},
              {"fa_check_around", check_around},
              {"fa_check_bits", hash_bits}};

bool fake_checks_run(const char *entry, const struct fake_build *build, void **arguments,
                     const struct fake_damage *damage)
{
    (void)build, (void)damage;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (strcmp(checks[i].entry, entry) == 0)
            return checks[i].run(arguments);
    return false;
}
