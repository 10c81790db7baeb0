/* SPDX-License-Identifier: Apache-2.0 */
#include "given.h"

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
