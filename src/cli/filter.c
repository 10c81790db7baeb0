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
    const int32_t fields[][2] = {
        {(int32_t)want->dtype, (int32_t)is->dtype},
        {(int32_t)want->causal, (int32_t)is->causal},
        {(int32_t)want->layout, (int32_t)is->layout},
        {want->head_dim, is->head_dim},
        {want->batch, is->batch},
        {want->heads_q, is->heads_q},
        {want->heads_kv, is->heads_kv},
        {want->seq_q != CLI_UNSET ? want->seq_q : options->seq, is->seq_q},
        {want->seq_k != CLI_UNSET ? want->seq_k : options->seq, is->seq_k},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i][0] != CLI_UNSET && fields[i][0] != fields[i][1])
            return false;
    return (is->want_lse || !want->want_lse) && (is->unaligned || !want->unaligned) &&
           cli_gpu_is(options->gpu, gpu);
}
