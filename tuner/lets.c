/* SPDX-License-Identifier: Apache-2.0
 *
 * The names that a family's expressions read: what is given, and in which order its lets can be computed, and which of
 * them kernels learn from their launch.
 */
#include "family.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

/* Every remaining let needs another remaining one: following them leads to one a second time, which names
 * the cycle. */
static int name_cycle(const fa_family *f, uint64_t done, fa_diag *diag)
{
    char text[600];
    int path[FA_MAX_LETS], length = 0, at = 0;
    uint64_t seen = 0;
    while ((done >> at & 1) != 0)
        at++;
    while ((seen >> at & 1) == 0) {
        seen |= (uint64_t)1 << at;
        path[length++] = at;
        int next = 0;
        while (((f->let[at].uses & ~done) >> next & 1) == 0)
            next++;
        at = next;
    }
    int first = 0;
    while (path[first] != at)
        first++;
    size_t n = 0;
    for (int i = first; i < length && n + FA_NAME_MAX + 8 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s needs ", f->let[path[i]].name);
    snprintf(text + n, sizeof text - n, "%s", f->let[at].name);
    return fa_fail(diag, FA_EMANIFEST, "lets in a circle: %s", text);
}

int fa_family_order_lets(fa_family *family, fa_diag *diag)
{
    uint64_t done = 0;
    for (int placed = 0; placed < family->let_count;) {
        int before = placed;
        for (int i = 0; i < family->let_count; i++) {
            fa_let *let = &family->let[i];
            if ((done >> i & 1) != 0 || (let->uses & ~done) != 0)
                continue;
            for (int j = 0; j < family->let_count; j++) {
                if ((let->uses >> j & 1) == 0)
                    continue;
                if (let->depth < family->let[j].depth)
                    let->depth = family->let[j].depth;
                let->sized = let->sized || family->let[j].sized;
                let->run_time = let->run_time || family->let[j].run_time;
            }
            done |= (uint64_t)1 << i;
            family->order[placed++] = i;
        }
        if (placed == before)
            return name_cycle(family, done, diag);
    }
    return 0;
}

int fa_family_add_run_time(fa_family *family, const char *name, fa_diag *diag)
{
    int at = 0;
    while (at < family->tunable_count && strcmp(family->tunable[at].name, name) != 0)
        at++;
    if (at == family->tunable_count)
        return fa_fail(diag, FA_EMANIFEST, "\"run_time\": \"%.60s\" is no tunable", name);
    if (family->tunable[at].run_time)
        return fa_fail(diag, FA_EMANIFEST, "\"run_time\": \"%s\" appears twice", name);
    family->tunable[at].run_time = family->runs_late = true;
    return 0;
}

bool fa_family_at_run_time(const fa_family *family, uint64_t uses)
{
    bool found = false;
    uses >>= family->given.count;
    for (int i = 0; i < family->tunable_count; i++)
        found = found || ((uses >> i & 1) != 0 && family->tunable[i].run_time);
    uses >>= family->tunable_count;
    for (int i = 0; i < family->let_count; i++)
        found = found || ((uses >> i & 1) != 0 && family->let[i].run_time);
    return found;
}

int fa_family_depth(const fa_family *family, uint64_t uses)
{
    int depth = 0;
    uses >>= family->given.count;
    for (int i = 0; i < family->tunable_count; i++)
        depth = (uses >> i & 1) != 0 ? i + 1 : depth;
    uses >>= family->tunable_count;
    for (int i = 0; i < family->let_count; i++)
        if ((uses >> i & 1) != 0 && depth < family->let[i].depth)
            depth = family->let[i].depth;
    return depth;
}

/* ---- given ------------------------------------------------------------------------------------*/
static void add_name(fa_given *given, const char *name, int64_t value)
{
    given->name[given->count] = name;
    given->value[given->count++] = value;
}

void fa_given_make(const fa_operation *operation, uint32_t takes, const fa_problem *problem,
                   const fa_gpu *gpu, fa_given *ret_given)
{
    static const fa_problem no_problem;
    static const fa_gpu no_gpu;
    fa_given given = {0};
    const fa_problem *p = problem != NULL ? problem : &no_problem;
    const fa_gpu *g = gpu != NULL ? gpu : &no_gpu;
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        if (field->macro[0] == 0 || (field->feature && !(takes >> i & 1)))
            continue;
        if (!field->shapes_source)
            given.sized |= (uint64_t)1 << given.count;
        add_name(&given, field->macro, fa_field_shown(field->macro_as, p->value[i]));
    }
    add_name(&given, "SM", g->sm);
    add_name(&given, "SMS", g->sm_count);
    add_name(&given, "SMEM_PER_BLOCK", g->smem_per_block);
    add_name(&given, "SMEM_PER_SM", g->smem_per_sm);
    add_name(&given, "REGS_PER_SM", g->regs_per_sm);
    add_name(&given, "THREADS_PER_SM", g->threads_per_sm);
    *ret_given = given;
}
