/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of tests/specifications on the CPU: each takes its arguments one by one.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

static float *floats(const void *argument, size_t count, bool write)
{
    return fake_memory(word_of(argument), count * sizeof(float), write);
}

/* convolution(out, in, filter, w, h) */
static bool convolve(const struct fake_build *build, void **arguments,
                     const struct fake_damage *damage)
{
    const size_t w = (size_t)int_of(arguments[3]), h = (size_t)int_of(arguments[4]);
    const size_t fw = (size_t)build->filter_w, fh = (size_t)build->filter_h, pitch = w + fw - 1;
    float *out = floats(arguments[0], w * h, true);
    const float *in = floats(arguments[1], (h + fh - 1) * pitch, false);
    const float *filter = floats(arguments[2], fw * fh, false);
    if (out == NULL || in == NULL || filter == NULL)
        return false;
    for (size_t i = 0; i < w * h - damage->unwritten; i++) {
        const float *window = in + i / w * pitch + i % w;
        float total = damage->wrong && i == 0 ? 1 : 0;
        for (size_t y = 0; y < fh; y++)
            for (size_t x = 0; x < fw; x++)
                total += window[y * pitch + x] * filter[y * fw + x];
        out[i] = total;
    }
    if (damage->nan)
        out[w * h - 1] = NAN;
    return true;
}

/* axpy(y, x, a, n): y += a * x, and axpy_64(y, x, a) */
static bool add(const char *entry, void **arguments, const struct fake_damage *damage)
{
    const int n = strncmp(entry, "axpy_64", 7) == 0 ? 64 : int_of(arguments[3]);
    float a, *y = floats(arguments[0], (size_t)n, true);
    const float *x = floats(arguments[1], (size_t)n, false);
    memcpy(&a, arguments[2], sizeof a);
    for (int i = 0; y != NULL && x != NULL && i < n - damage->unwritten; i++)
        y[i] += a * x[i] + (damage->wrong ? 1.0f : damage->nan && i == 0 ? NAN : 0.0f);
    if (y != NULL && damage->one_bit)
        y[0] = nextafterf(y[0], INFINITY);
    if (y != NULL && x != NULL && damage->spoil)
        *floats(arguments[1], 1, true) = 1e9f;
    return y != NULL && x != NULL;
}

/* gather(out, table, index, n): 64-bit integers by 32-bit indexes, n of each */
static bool gather(void **arguments, const struct fake_damage *damage)
{
    const int n = int_of(arguments[3]);
    uint64_t address[3];
    for (int i = 0; i < 3; i++)
        memcpy(&address[i], arguments[i], sizeof *address);
    int64_t *out = fake_memory(address[0], (size_t)n * sizeof *out, true);
    const int64_t *table = fake_memory(address[1], (size_t)n * sizeof *table, false);
    const int32_t *index = fake_memory(address[2], (size_t)n * sizeof *index, false);
    for (int i = 0; out != NULL && table != NULL && index != NULL && i < n; i++) {
        if (index[i] < 0 || index[i] >= n)
            return false;
        out[i] = table[index[i]] + damage->wrong;
    }
    return out != NULL && table != NULL && index != NULL;
}

/* blur(out, in, n), whose weights are the module's alone; blurred(out, in, weights, n) reads the module's, too, and
 * blurred_naive() those that it is passed */
static bool blur(const char *entry, const struct fake_build *build, void **arguments,
                 const struct fake_damage *damage)
{
    enum { WIDTH = 5 };
    static const float zeros[WIDTH];
    const bool passed = strncmp(entry, "blurred", 7) == 0;
    const size_t n = (size_t)int_of(arguments[2 + passed]);
    float *out = floats(arguments[0], n, true);
    const float *in = floats(arguments[1], n + WIDTH - 1, false);
    const float *weights = strcmp(entry, "blurred_naive") == 0 ? floats(arguments[2], WIDTH, false)
                           : build->variable == 0
                               ? zeros
                               : fake_memory(build->variable, WIDTH * sizeof(float), false);
    for (size_t i = 0; out != NULL && in != NULL && weights != NULL && i < n; i++) {
        out[i] = (float)damage->wrong;
        for (size_t k = 0; k < WIDTH; k++)
            out[i] += in[i + k] * weights[k];
    }
    return out != NULL && in != NULL && weights != NULL;
}

/* sums(out, x, n): one of each block, which takes every BLOCKS-th element */
static bool sum(const struct fake_build *build, void **arguments, const struct fake_damage *damage)
{
    const size_t blocks = (size_t)build->blocks, n = (size_t)int_of(arguments[2]);
    float *out = floats(arguments[0], blocks, true);
    const float *x = floats(arguments[1], n, false);
    for (size_t b = 0; out != NULL && x != NULL && b < blocks; b++) {
        out[b] = (float)damage->wrong;
        for (size_t i = b; i < n; i += blocks)
            out[b] += x[i];
    }
    return out != NULL && x != NULL;
}

/* packed({y, x, n, scale}) */
static bool packed(void **arguments, const struct fake_damage *damage)
{
    struct {
        float *y, *x;
        int n;
        double scale;
    } p;
    memcpy(&p, arguments[0], sizeof p);
    float *y = floats(&p.y, (size_t)p.n, true), *x = floats(&p.x, (size_t)p.n, false);
    for (int i = 0; y != NULL && x != NULL && i < p.n; i++)
        y[i] = (float)((double)x[i] * p.scale) + (float)damage->wrong;
    return y != NULL && x != NULL;
}

/* large(y, n): how many of n numbers are before each 2^30th */
static bool large(void **arguments, const struct fake_damage *damage)
{
    const int64_t n = (int64_t)word_of(arguments[1]);
    const size_t count = (size_t)((n + (1 << 30) - 1) >> 30);
    int64_t *y = fake_memory(word_of(arguments[0]), count * sizeof *y, true);
    for (size_t i = 0; y != NULL && i < count; i++)
        y[i] = n - ((int64_t)i << 30) + damage->wrong;
    return y != NULL;
}

/* sum_parts(x, parts, n): one of each block, which sum_parts_added() adds; sum_total(y, parts), which sum_total_zeroed() leaves
 * zeros behind; sum_whole(y, x, n); sum_device(x, n) into the module's variable, sum_device_added() to what it holds */
static bool split(const char *entry, const struct fake_build *build, void **arguments,
                  const struct fake_damage *damage)
{
    const bool total = strncmp(entry, "sum_total", 9) == 0,
               parts = strncmp(entry, "sum_parts", 9) == 0,
               device = strncmp(entry, "sum_device", 10) == 0,
               added = strstr(entry, "_added") != NULL;
    const size_t blocks = parts || total ? (size_t)build->blocks : 1;
    const size_t n = total ? blocks : (size_t)int_of(arguments[2 - device]);
    float *out = device ? fake_memory(build->variable, sizeof *out, true)
                        : floats(arguments[parts], parts ? blocks : 1, true);
    const float *x = floats(arguments[!parts && !device], n, false);
    for (size_t b = 0; out != NULL && x != NULL && b < (parts ? blocks : 1); b++) {
        out[b] = (added ? out[b] : 0) + (float)damage->wrong;
        for (size_t i = b; i < n; i += parts ? blocks : 1)
            out[b] += x[i];
    }
    if (x != NULL && strcmp(entry, "sum_total_zeroed") == 0)
        memset(floats(arguments[1], n, true), 0, n * sizeof *x);
    return out != NULL && x != NULL;
}

/* mixed(y, v, w, x, u, z, where, n): y = -x and v = -u of fp8, w = i z of complex numbers where it is true, else 0 */
static bool mix(void **arguments, const struct fake_damage *damage)
{
    static const size_t sizes[] = {1, 1, 8, 1, 1, 16, 1};
    const int n = int_of(arguments[7]);
    void *at[7];
    for (int i = 0; i < 7; i++) {
        at[i] = fake_memory(word_of(arguments[i]), (size_t)n * sizes[i], i < 3);
        if (at[i] == NULL)
            return false;
    }
    uint8_t *y = at[0], *v = at[1];
    const uint8_t *x = at[3], *u = at[4], *where = at[6];
    float(*w)[2] = at[2];
    const double(*z)[2] = at[5];
    for (int i = 0; i < n - damage->unwritten; i++) {
        y[i] = damage->nan && i == 0 ? 0x7f : x[i] ^ 0x80;
        v[i] = u[i] ^ 0x80;
        if (where[i] > 1)
            return false;
        w[i][0] = where[i] ? (float)-z[i][1] : 0;
        w[i][1] = (where[i] ? (float)z[i][0] : 0) + (float)damage->wrong;
    }
    return true;
}

bool fake_specified_run(const char *entry, const struct fake_build *build, void **arguments,
                        const struct fake_damage *damage)
{
    return entry[0] == 'c'   ? convolve(build, arguments, damage)
           : entry[0] == 'a' ? add(entry, arguments, damage)
           : entry[0] == 'b' ? blur(entry, build, arguments, damage)
           : entry[3] == '_' ? split(entry, build, arguments, damage)
           : entry[0] == 'l' ? large(arguments, damage)
           : entry[0] == 'p' ? packed(arguments, damage)
           : entry[0] == 's' ? sum(build, arguments, damage)
           : entry[0] == 'm' ? mix(arguments, damage)
                             : gather(arguments, damage);
}
