/* SPDX-License-Identifier: Apache-2.0
 *
 * One loop over the sources for each question.
 */
#include "source.h"

#include <assert.h>

/* Sets rc to the answer of the first source that can `what` and says something else than `none`. */
#define ASK(rc, what, none, ...)                                  \
    int rc = none;                                                \
    for (int i = 0; i < tuner->source_count && rc == (none); i++) \
        if (tuner->source[i]->is->what != NULL)                   \
            rc = tuner->source[i]->is->what(__VA_ARGS__)

void fa_source_add(fa_tuner *tuner, fa_source *source)
{
    assert(tuner->source_count < FA_SOURCES_MAX);
    tuner->source[tuner->source_count++] = source;
}

fa_source *fa_source_of(const fa_tuner *tuner, const void *id)
{
    for (int i = 0; i < tuner->source_count; i++)
        if (tuner->source[i]->id == id)
            return tuner->source[i];
    return NULL;
}

int fa_sources_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer,
                    fa_diag *diag)
{
    ASK(rc, tune, FA_SOURCE_NONE, tuner, request, ret_answer, diag);
    return rc;
}

int fa_sources_answer_cubin(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                            fa_diag *diag)
{
    ASK(rc, answer_cubin, FA_SOURCE_NONE, tuner, key, ret_bytes, ret_size, diag);
    return rc;
}

int fa_sources_find(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                    fa_cubin_record *ret_cubin)
{
    ASK(rc, find, FA_ENOTFOUND, tuner, target, ret_answer, ret_cubin);
    return rc;
}

int fa_sources_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin)
{
    ASK(rc, cubin, FA_ENOTFOUND, tuner, key, ret_cubin);
    return rc;
}

int fa_sources_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context)
{
    ASK(rc, each, 0, tuner, like, visit, context);
    return rc;
}
