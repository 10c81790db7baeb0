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

int fa_sources_fetch_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin)
{
    ASK(rc, fetch_cubin, FA_ENOTFOUND, tuner, key, ret_cubin);
    return rc;
}

int fa_sources_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context)
{
    ASK(rc, each, 0, tuner, like, visit, context);
    return rc;
}

int fa_sources_remember(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag)
{
    ASK(rc, remember, 0, tuner, scope, diag);
    return rc;
}

bool fa_sources_share(const fa_tuner *tuner)
{
    for (int i = 0; i < tuner->source_count; i++)
        if (tuner->source[i]->is->look != NULL)
            return true;
    return false;
}

bool fa_sources_look(fa_tuner *tuner, const fa_target *target)
{
    bool some = false;
    for (int i = 0; i < tuner->source_count; i++)
        if (tuner->source[i]->is->look != NULL)
            some = tuner->source[i]->is->look(tuner, target) || some;
    return some;
}

fa_store *fa_sources_store(fa_tuner *tuner, const fa_source_class **ret_class)
{
    for (int i = 0; i < tuner->source_count; i++) {
        const fa_source_class *is = tuner->source[i]->is;
        fa_store *store = is->store != NULL ? is->store(tuner) : NULL;
        if (store != NULL) {
            *ret_class = is;
            return store;
        }
    }
    return NULL;
}

const char *fa_sources_location(const fa_tuner *tuner)
{
    const char *location = NULL;
    for (int i = 0; i < tuner->source_count && location == NULL; i++)
        if (tuner->source[i]->is->location != NULL)
            location = tuner->source[i]->is->location(tuner);
    return location;
}

int fa_sources_lease_take(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                          fa_source_leases *leases, bool *ret_found, fa_answer *ret_answer,
                          fa_diag *diag)
{
    int rc = 0;
    for (int i = 0; i < tuner->source_count && rc == 0 && !*ret_found; i++)
        if (tuner->source[i]->is->lease_take != NULL)
            rc = tuner->source[i]->is->lease_take(tuner, request, target, &leases->of[i], ret_found,
                                                  ret_answer, diag);
    return rc;
}

void fa_sources_lease_end(fa_tuner *tuner, fa_source_leases *leases)
{
    for (int i = 0; i < tuner->source_count; i++)
        if (tuner->source[i]->is->lease_end != NULL)
            tuner->source[i]->is->lease_end(tuner, &leases->of[i]);
}

void fa_sources_publish(fa_tuner *tuner, const fa_scope *scope, const fa_source_leases *leases)
{
    for (int i = 0; i < tuner->source_count; i++)
        if (tuner->source[i]->is->publish != NULL)
            tuner->source[i]->is->publish(tuner, scope, leases->of[i]);
}
