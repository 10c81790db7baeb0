/* SPDX-License-Identifier: Apache-2.0 */
#include "filter.h"

#include "fa_tune.h"

#include <strings.h>

bool cli_gpu_is(const char *asked, const char *name)
{
    fa_gpu one, other;
    if (asked == NULL)
        return true;
    return strcasecmp(fa_gpu_find(asked, &one, NULL) == 0 ? one.name : asked,
                      fa_gpu_find(name, &other, NULL) == 0 ? other.name : name) == 0;
}

bool cli_filter_keeps(const cli_options *options, const fa_problem *is, const char *gpu)
{
    const fa_problem *want = &options->problem;
    uint32_t given = options->given | options->given_also;
    if ((given != 0 || options->operation != NULL) && fa_operation_of(is) != fa_operation_of(want))
        return false;
    for (int i = 0; i < FA_PROBLEM_VALUES; i++)
        if ((given >> i & 1) && is->value[i] != want->value[i])
            return false;
    return cli_gpu_is(options->gpu, gpu);
}
