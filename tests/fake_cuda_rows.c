/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of tests/operations/l1_norm on the CPU: their entries, the reference among them.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#include "operations/l1_norm/l1_norm_params.h"

#include <stdlib.h>

struct rows {
    struct l1_norm_params p;
    const struct fake_build *build;
    const uint16_t *x, *w;
    size_t count; /* elements of x */
};

static bool map_rows(const struct fake_build *build, void **arguments, struct rows *ret)
{
    struct rows r = {.build = build};
    memcpy(&r.p, arguments[0], sizeof r.p);
    r.count = (size_t)r.p.rows * (size_t)r.p.columns;
    r.x = fake_memory((uint64_t)(uintptr_t)r.p.x, r.count * 2, false);
    r.w = fake_memory((uint64_t)(uintptr_t)r.p.w, (size_t)r.p.columns * 2, false);
    *ret = r;
    return r.p.columns == build->columns && r.x != NULL && r.w != NULL;
}

/* Sum of magnitudes of columns first..end of a row. */
static float magnitudes(const struct rows *r, int row, int first, int end)
{
    float sum = 0;
    for (int c = first; c < end && c < r->p.columns; c++)
        sum += fabsf(value(r->build, r->x[(size_t)row * (size_t)r->p.columns + (size_t)c]));
    return sum;
}

/* What the elements of a row with this sum are divided by. */
static float divisor(const struct rows *r, float sum)
{
    return sum / (float)r->p.columns + r->p.epsilon;
}

static float scaled(const struct rows *r, size_t i, size_t column)
{
    return value(r->build, r->w[column]) * value(r->build, r->x[i]);
}

bool fake_rows_reference(const struct fake_build *build, void **arguments)
{
    struct rows r;
    if (!map_rows(build, arguments, &r))
        return false;
    float *y = fake_memory((uint64_t)(uintptr_t)r.p.y, r.count * sizeof(float), true);
    size_t i = 0;
    for (int row = 0; y != NULL && row < r.p.rows; row++) {
        float by = divisor(&r, magnitudes(&r, row, 0, r.p.columns));
        for (int c = 0; c < r.p.columns; c++, i++)
            y[i] = scaled(&r, i, (size_t)c) / by;
    }
    return y != NULL;
}

/* Two bytes; false: they lie in no block. */
static bool clear(uint64_t address)
{
    uint16_t *at = fake_memory(address, sizeof *at, true);
    if (at != NULL)
        *at = 0;
    return at != NULL;
}

/* y from the sums of its rows' parts, `parts` of each. */
static bool write_output(const struct rows *r, const float *sums, int parts,
                         const struct fake_damage *damage)
{
    uint16_t *y = fake_memory((uint64_t)(uintptr_t)r->p.y, r->count * 2, true);
    size_t i = 0, end = r->count - (damage->unwritten ? 1 : 0);
    for (int row = 0; y != NULL && row < r->p.rows; row++) {
        float sum = 0;
        for (int part = 0; part < parts; part++)
            sum += sums[row * parts + part];
        float by = divisor(r, sum);
        for (int c = 0; c < r->p.columns && i < end; c++, i++)
            y[i] = storage(r->build, scaled(r, i, (size_t)c) / by);
    }
    if (y == NULL || r->count == 0)
        return y != NULL;
    if (damage->wrong)
        y[0] = storage(r->build, value(r->build, y[0]) + 1.0f);
    if (damage->nan)
        y[r->count - 1] = 0x7fff;
    uint64_t address = (uint64_t)(uintptr_t)r->p.y;
    return (!damage->overrun || clear(address + r->count * 2)) &&
           (!damage->underrun || clear(address - 2)) &&
           (!damage->spoil || clear((uint64_t)(uintptr_t)r->p.x));
}

/* One launch: from x to y. */
static bool run_rows(const struct fake_build *build, void **arguments,
                     const struct fake_damage *damage)
{
    struct rows r;
    if (!map_rows(build, arguments, &r))
        return false;
    float *sums = calloc((size_t)r.p.rows + 1, sizeof *sums);
    for (int row = 0; sums != NULL && row < r.p.rows; row++)
        sums[row] = magnitudes(&r, row, 0, r.p.columns);
    bool ok = sums != NULL && write_output(&r, sums, 1, damage);
    free(sums);
    return ok;
}

/* The first of two launches leaves the sums in the workspace, where the second finds them. */
static bool run_split(const struct fake_build *build, void **arguments, bool first,
                      const struct fake_damage *damage)
{
    struct rows r;
    int parts = build->parts, part = parts > 0 ? (build->columns + parts - 1) / parts : 0;
    if (parts < 1 || !map_rows(build, arguments, &r))
        return false;
    size_t count = (size_t)r.p.rows * (size_t)parts + (damage->overrun && first ? 1 : 0);
    float *sums = fake_memory(*(uint64_t *)arguments[1], count * sizeof *sums, first);
    if (sums == NULL)
        return false;
    struct fake_damage of_output = *damage;
    of_output.overrun = of_output.underrun = false; /* what it writes outside is its workspace */
    if (!first)
        return write_output(&r, sums, parts, &of_output);
    for (int row = 0; row < r.p.rows; row++)
        for (int i = 0; i < parts; i++)
            sums[row * parts + i] = magnitudes(&r, row, i * part, (i + 1) * part);
    if (damage->overrun)
        sums[count - 1] = 0;
    return !damage->underrun || clear(*(uint64_t *)arguments[1] - 2);
}

bool fake_rows_known(const char *entry)
{
    return strncmp(entry, "l1_norm_", 8) == 0;
}

bool fake_rows_run(const char *entry, const struct fake_build *build, void **arguments,
                   const struct fake_damage *damage)
{
    if (strcmp(entry, "l1_norm_rows") == 0)
        return run_rows(build, arguments, damage);
    return run_split(build, arguments, strcmp(entry, "l1_norm_sums") == 0, damage);
}
