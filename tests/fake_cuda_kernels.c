/* SPDX-License-Identifier: Apache-2.0
 *
 * The entries of kernel_templates/attn_ref.cu on the CPU, and the table of all entries.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"
#include "fake_cuda_serving.h"

#include "attn_check.h"

#include <stdlib.h>

/* For the vectoriser: no floating-point exception is asked for. */
#pragma GCC optimize("O3", "no-trapping-math")

/* The list of row ids, or NULL for 0, 1, 2, … */
static bool map_rows(const long long *address, int count, const long long **ret)
{
    *ret = NULL;
    if (address == NULL || count == 0)
        return true;
    *ret = fake_memory((uint64_t)(uintptr_t)address, (size_t)count * sizeof **ret, false);
    return *ret != NULL;
}

static bool run_reference(const struct fake_build *build, void **arguments, bool lowp)
{
    const struct fa_attn_serving_params p = fake_serving_params(build, arguments[0]);
    const long long *rows;
    int count, columns = fake_columns(build);
    memcpy(&count, arguments[2], sizeof count);
    if (count <= 0 || !map_rows(*(const long long *const *)arguments[1], count, &rows))
        return count == 0;
    float *o = fake_memory(*(uint64_t *)arguments[3],
                           (size_t)count * (size_t)columns * sizeof(float), true);
    float *lse = fake_memory(*(uint64_t *)arguments[4], (size_t)count * sizeof(float), true);
    return o != NULL && lse != NULL && fake_serving_attend(&p, build, rows, count, lowp, o, lse);
}

/* Magnitudes order as their bits do; those beyond are not finite. */
enum { LARGEST = 0x7f7fffff };

INLINE int32_t magnitude(float x)
{
    return (int32_t)(float_bits(x) & 0x7fffffff);
}

INLINE void compare_as(bool bf16, const uint16_t *restrict row, const float *restrict wanted,
                       const float *restrict lowp, size_t count, struct fa_attn_compare *result)
{
    int32_t most = 0, most_lowp = 0, nonfinite = 0;
    for (size_t d = 0; d < count; d++) {
        int32_t error = magnitude((bf16 ? bf16_value(row[d]) : half_value(row[d])) - wanted[d]);
        int32_t error_lowp = magnitude(lowp[d] - wanted[d]);
        nonfinite += (error > LARGEST) + (error_lowp > LARGEST);
        error = error > LARGEST ? 0 : error;
        error_lowp = error_lowp > LARGEST ? 0 : error_lowp;
        most = error > most ? error : most;
        most_lowp = error_lowp > most_lowp ? error_lowp : most_lowp;
    }
    result->nonfinite += (unsigned)nonfinite;
    result->max_error = fmaxf(result->max_error, bits_float((uint32_t)most));
    result->max_error_lowp = fmaxf(result->max_error_lowp, bits_float((uint32_t)most_lowp));
}

/* One row: the largest differences, and how many are not finite. */
WIDE static void compare_row(const struct fake_build *build, const uint16_t *row,
                             const float *wanted, const float *lowp, size_t count,
                             struct fa_attn_compare *result)
{
    if (build->bf16)
        compare_as(true, row, wanted, lowp, count, result);
    else
        compare_as(false, row, wanted, lowp, count, result);
}

WIDE static void check_row(const struct fake_build *build, const uint16_t *row, int count,
                           uint16_t poison, struct fa_attn_compare *result)
{
    const uint16_t infinite = build->bf16 ? 0x7f80 : 0x7c00;
    unsigned unwritten = 0, nonfinite = 0;
    for (int d = 0; d < count; d++) {
        unwritten += row[d] == poison;
        nonfinite += row[d] != poison && (row[d] & infinite) == infinite;
    }
    result->unwritten += unwritten;
    result->nonfinite += nonfinite;
}

static bool run_compare(const struct fake_build *build, void **arguments)
{
    const struct fa_attn_serving_params p = fake_serving_params(build, arguments[0]);
    const long long *rows;
    int count;
    memcpy(&count, arguments[2], sizeof count);
    size_t d_count = (size_t)fake_columns(build), n = count < 0 ? 0 : (size_t)count;
    struct fa_attn_compare *result = fake_memory(*(uint64_t *)arguments[6], sizeof *result, true);
    if (count == 0)
        return result != NULL;
    const float *ref_o = fake_memory(*(uint64_t *)arguments[3], n * d_count * 4, false);
    const float *ref_lse = fake_memory(*(uint64_t *)arguments[4], n * 4, false);
    const float *lowp_o = fake_memory(*(uint64_t *)arguments[5], n * d_count * 4, false);
    if (count < 0 || result == NULL || ref_o == NULL || ref_lse == NULL || lowp_o == NULL ||
        !map_rows(*(const long long *const *)arguments[1], count, &rows))
        return false;
    for (size_t i = 0; i < n; i++) {
        float *lse = NULL;
        const uint16_t *row =
            fake_serving_output(&p, build, rows == NULL ? (int64_t)i : rows[i], false, &lse);
        if (row == NULL)
            return false;
        compare_row(build, row, ref_o + i * d_count, lowp_o + i * d_count, d_count, result);
        if (lse == NULL || (*lse == ref_lse[i] && *lse == -INFINITY))
            continue;
        if (magnitude(*lse - ref_lse[i]) > LARGEST)
            result->nonfinite++;
        else
            result->max_error_lse = fmaxf(result->max_error_lse, fabsf(*lse - ref_lse[i]));
        if (isfinite(ref_lse[i]))
            result->max_magnitude_lse = fmaxf(result->max_magnitude_lse, fabsf(ref_lse[i]));
    }
    return true;
}

static bool run_check_written(const struct fake_build *build, void **arguments)
{
    const struct fa_attn_serving_params p = fake_serving_params(build, arguments[0]);
    const int64_t count = fake_serving_rows(&p, build);
    uint16_t poison;
    memcpy(&poison, arguments[1], sizeof poison);
    struct fa_attn_compare *result = fake_memory(*(uint64_t *)arguments[2], sizeof *result, true);
    if (result == NULL)
        return false;
    for (int64_t i = 0; i < count; i++) {
        float *lse = NULL;
        const uint16_t *row = fake_serving_output(&p, build, i, false, &lse);
        if (row == NULL)
            return false;
        check_row(build, row, fake_columns(build), poison, result);
        if (lse == NULL)
            continue;
        if (float_bits(*lse) == FA_POISON_LSE)
            result->unwritten++;
        else if (!isfinite(*lse) && *lse != -INFINITY)
            result->nonfinite++;
    }
    return true;
}

static bool run_check_guard(void **arguments)
{
    uint64_t count = *(uint64_t *)arguments[1];
    uint8_t expect = *(uint8_t *)arguments[2];
    struct fa_attn_compare *result = fake_memory(*(uint64_t *)arguments[3], sizeof *result, true);
    const uint8_t *bytes =
        count == 0 ? (const uint8_t *)"" : fake_memory(*(uint64_t *)arguments[0], count, false);
    if (result == NULL || bytes == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++)
        result->guard_damaged += bytes[i] != expect;
    return true;
}

/* How many elements from i on lie in the tensor side by side; 0: i lies in a gap. */
static uint64_t in_tensor(const struct fa_attn_region *region, uint64_t i)
{
    if (i < region->first)
        return 0;
    uint64_t rest = i - region->first, left = 1;
    for (int level = 0; level < region->levels; level++) {
        uint64_t index = rest / region->stride[level];
        if (index >= region->extent[level])
            return 0;
        rest -= index * region->stride[level];
        left = region->stride[level] == 1 ? region->extent[level] - index : 1;
    }
    return left;
}

/* Fills the gaps with poison, or counts those that no longer hold it. */
static bool walk_gaps(const struct fa_attn_region *region, bool fill, unsigned *damaged)
{
    static const uint16_t poisoned[16] = {[0 ... 15] = FA_POISON_ELEMENT};
    if (region->count == 0)
        return true;
    uint16_t *x = fake_memory((uint64_t)(uintptr_t)region->base, region->count * 2, fill);
    for (uint64_t i = 0; x != NULL && i < region->count; i++) {
        while (i + 16 < region->count && memcmp(x + i, poisoned, sizeof poisoned) == 0)
            i += 16; /* most gaps are long */
        uint64_t inside = x[i] == FA_POISON_ELEMENT ? 0 : in_tensor(region, i);
        if (inside > 0)
            i += inside - 1;
        else if (x[i] != FA_POISON_ELEMENT && fill)
            x[i] = FA_POISON_ELEMENT;
        else if (x[i] != FA_POISON_ELEMENT)
            (*damaged)++;
    }
    return x != NULL;
}

static bool run_poison_gaps(void **arguments)
{
    struct fa_attn_region region;
    memcpy(&region, arguments[0], sizeof region);
    return walk_gaps(&region, true, NULL);
}

static bool run_check_gaps(void **arguments)
{
    struct fa_attn_region o, lse;
    memcpy(&o, arguments[0], sizeof o);
    memcpy(&lse, arguments[1], sizeof lse);
    struct fa_attn_compare *result = fake_memory(*(uint64_t *)arguments[2], sizeof *result, true);
    return result != NULL && walk_gaps(&o, false, &result->guard_damaged) &&
           walk_gaps(&lse, false, &result->guard_damaged);
}

/* splitmix64 by index; the sum of four 16-bit uniforms: bit for bit what the kernel makes. */
float fake_normal(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    int sum =
        (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

WIDE static void fill(const struct fake_build *build, uint64_t seed, float scale, uint16_t *x,
                      uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        x[i] = storage(build, fake_normal(seed, i) * scale);
}

static bool run_fill(const struct fake_build *build, void **arguments)
{
    uint64_t count = *(uint64_t *)arguments[1], seed = *(uint64_t *)arguments[2];
    float scale = *(float *)arguments[3];
    uint16_t *x = count == 0 ? NULL : fake_memory(*(uint64_t *)arguments[0], count * 2, true);
    if (x == NULL)
        return count == 0;
    fill(build, seed, scale, x, count);
    return true;
}

static const char *const known[] = {"attn_fwd",     "attn_ref_fp32",      "attn_ref_lowp",
                                    "attn_compare", "attn_check_written", "attn_check_guard",
                                    "attn_fill",    "attn_poison_gaps",   "attn_check_gaps",
                                    "reference",    "attn_fill_keys"};

bool fake_kernel_known(const char *entry)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], entry) == 0)
            return true;
    return fake_rows_known(entry) || fake_checks_known(entry) || fake_specified_known(entry) ||
           fake_backward_known(entry);
}

bool fake_kernel_is_tuned(const char *entry)
{
    return strcmp(entry, "attn_fwd") == 0 || fake_rows_known(entry) ||
           strncmp(entry, "attn_bwd", 8) == 0 ||
           (fake_specified_known(entry) && strstr(entry, "_naive") == NULL);
}

bool fake_kernel_run(const char *entry, const struct fake_build *build, void **arguments,
                     const struct fake_damage *damage)
{
    if (fake_rows_known(entry))
        return fake_rows_run(entry, build, arguments, damage);
    if (fake_specified_known(entry))
        return fake_specified_run(entry, build, arguments, damage);
    if (fake_checks_known(entry))
        return fake_checks_run(entry, arguments);
    if (strcmp(entry, "reference") == 0)
        return build->columns > 0 ? fake_rows_reference(build, arguments)
                                  : fake_backward_reference(build, arguments);
    if (strcmp(entry, "inputs") == 0)
        return fake_backward_inputs(build, arguments);
    if (fake_backward_known(entry))
        return fake_backward_run(entry, build, arguments, damage);
    if (strcmp(entry, "attn_fwd") == 0)
        return fake_serving_forward(build, arguments, damage);
    if (strcmp(entry, "attn_fill_keys") == 0)
        return fake_serving_fill(build, arguments);
    if (strcmp(entry, "attn_ref_fp32") == 0)
        return run_reference(build, arguments, false);
    if (strcmp(entry, "attn_ref_lowp") == 0)
        return run_reference(build, arguments, true);
    if (strcmp(entry, "attn_compare") == 0)
        return run_compare(build, arguments);
    if (strcmp(entry, "attn_check_written") == 0)
        return run_check_written(build, arguments);
    if (strcmp(entry, "attn_check_guard") == 0)
        return run_check_guard(arguments);
    if (strcmp(entry, "attn_poison_gaps") == 0)
        return run_poison_gaps(arguments);
    if (strcmp(entry, "attn_check_gaps") == 0)
        return run_check_gaps(arguments);
    return run_fill(build, arguments);
}
