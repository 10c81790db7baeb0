/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of tests/operations/l1_norm on the CPU: their entries, the reference among them.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#include "operations/l1_norm/l1_norm_params.h"

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

/* Two bytes; false: they lie in no block. */
static bool clear(uint64_t address)
{
    uint16_t *at = fake_memory(address, sizeof *at, true);
    if (at != NULL)
        *at = 0;
    return at != NULL;
}

/* y, or the reference's in fp32, from the sums of its rows' parts; NULL: it adds them up itself. */
static bool write_output(const struct rows *r, const float *sums, bool fp32,
                         const struct fake_damage *damage)
{
    const uint64_t address = (uint64_t)(uintptr_t)r->p.y;
    void *y = fake_memory(address, r->count * (fp32 ? 4 : 2), true);
    size_t i = 0, end = r->count - damage->unwritten;
    for (int row = 0; y != NULL && row < r->p.rows; row++) {
        float sum = sums == NULL ? magnitudes(r, row, 0, r->p.columns) : 0;
        for (int part = 0; sums != NULL && part < r->build->parts; part++)
            sum += sums[row * r->build->parts + part];
        float by = sum / (float)r->p.columns + r->p.epsilon;
        for (int c = 0; c < r->p.columns && i < end; c++, i++) {
            float scaled = value(r->build, r->w[c]) * value(r->build, r->x[i]) / by;
            if (fp32)
                ((float *)y)[i] = scaled;
            else
                ((uint16_t *)y)[i] = storage(r->build, scaled);
        }
    }
    if (y == NULL || r->count == 0)
        return y != NULL;
    uint16_t *first = y;
    if (damage->wrong)
        first[0] = storage(r->build, value(r->build, first[0]) + 1.0f);
    if (damage->nan)
        first[r->count - 1] = 0x7fff;
    return (!damage->overrun || clear(address + r->count * 2)) &&
           (!damage->underrun || clear(address - 2)) &&
           (!damage->spoil || clear((uint64_t)(uintptr_t)r->p.x));
}

bool fake_rows_run(const char *entry, const struct fake_build *build, void **arguments,
                   const struct fake_damage *damage)
{
    struct rows r;
    bool first = strcmp(entry, "l1_norm_sums") == 0, fp32 = strcmp(entry, "reference") == 0;
    if (!map_rows(build, arguments, &r))
        return false;
    if (fp32 || strcmp(entry, "l1_norm_rows") == 0)
        return write_output(&r, NULL, fp32, damage);
    /* The first of two launches leaves the sums in the workspace, where the second finds them. */
    int parts = build->parts, part = (build->columns + parts - 1) / (parts > 0 ? parts : 1);
    size_t count = (size_t)r.p.rows * (size_t)parts + (damage->overrun && first ? 1 : 0);
    uint64_t workspace = *(uint64_t *)arguments[1];
    float *sums = fake_memory(workspace, count * sizeof *sums, first);
    struct fake_damage of_output = *damage;
    of_output.overrun = of_output.underrun = false; /* what it writes outside is its workspace */
    if (sums == NULL || !first)
        return sums != NULL && write_output(&r, sums, false, &of_output);
    for (int row = 0; row < r.p.rows; row++)
        for (int i = 0; i < parts; i++)
            sums[row * parts + i] = magnitudes(&r, row, i * part, (i + 1) * part);
    if (damage->overrun)
        sums[count - 1] = 0;
    return !damage->underrun || clear(workspace - 2);
}
