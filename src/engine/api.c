/* SPDX-License-Identifier: Apache-2.0
 *
 * The small public functions: names, versions, the catalogue, lists, contexts and streams.
 *
 * Workload: fa_enter_device() before each call of an attention layer: one driver call where the context is
 * right, as it nearly always is.
 */
#include "source.h"

#include "catalogue.h"
#include "driver.h"
#include "error.h"
#include "hash.h"
#include "problem.h"
#include "session.h"
#include "store.h"
#include "stored.h"

#include <stdlib.h>

const char *fa_version(void)
{
    return FA_TUNE_VERSION;
}

const char *fa_strerror(int code)
{
    return fa_error_text(code);
}

#define NAME(kind)                                 \
    const char *fa_name_of_##kind(fa_##kind value) \
    {                                              \
        return fa_##kind##_name(value);            \
    }
NAME(status)
NAME(origin)
NAME(dtype)
NAME(causal)
NAME(layout)
NAME(sweep_state)
NAME(item_state)

int fa_gpu_type(int32_t index, fa_gpu *ret_gpu, const char **ret_refused)
{
    if (ret_gpu == NULL)
        return FA_EINVAL;
    if (index < 0 || index >= fa_catalogue_count())
        return FA_ENOTFOUND;
    fa_catalogue_at(index, ret_gpu, ret_refused);
    return 0;
}

int fa_gpu_find(const char *name, fa_gpu *ret_gpu, fa_diag *diag)
{
    if (name == NULL || ret_gpu == NULL)
        return fa_fail(diag, FA_EINVAL, "name or ret_gpu is NULL");
    return fa_catalogue_find(name, ret_gpu, diag);
}

int fa_gpu_device(int32_t ordinal, fa_gpu *ret_gpu, fa_diag *diag)
{
    fa_driver *driver = NULL;
    if (ret_gpu == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_gpu is NULL");
    int rc = fa_driver_open(&driver, diag);
    if (rc == 0)
        rc = fa_driver_device(driver, ordinal, ret_gpu, diag);
    fa_driver_close(&driver);
    return rc;
}

void fa_bucket(const fa_problem *problem, fa_problem *ret_bucket)
{
    *ret_bucket = fa_problem_bucket(problem);
}

struct listing {
    fa_tuner *tuner;
    fa_answer_visit *visit;
    void *context;
    fa_diag *diag;
};

static int list_one(void *context, fa_store *store, const fa_winner_record *winner)
{
    struct listing *listing = context;
    fa_answer answer;
    int rc = fa_records_answer(winner, NULL, &answer, listing->diag);
    answer.in_fleet = store != listing->tuner->store;
    if (rc == 0 && answer.in_fleet)
        answer.in_local =
            fa_records_hold(listing->tuner->store, &winner->scope, winner->cubin_key, NULL) == 0;
    return rc != 0 ? rc : listing->visit(listing->context, &answer);
}

int fa_answer_cubin_hash(fa_tuner *tuner, const fa_answer *answer, char ret_sha256[65],
                         size_t *ret_size, fa_diag *diag)
{
    void *bytes = NULL;
    int rc = fa_tuner_check_with(tuner, answer != NULL && ret_sha256 != NULL && ret_size != NULL,
                                 "answer, ret_sha256 or ret_size", diag);
    if (rc != 0)
        return rc;
    rc = fa_answer_cubin(tuner, answer, &bytes, ret_size, diag);
    if (rc == 0)
        fa_sha256(bytes, *ret_size, ret_sha256);
    free(bytes);
    return rc;
}

int fa_list_winners(fa_tuner *tuner, fa_answer_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    rc = fa_sources_winners(tuner, visit, context, diag);
    if (rc != FA_SOURCE_NONE)
        return rc;
    struct listing listing = {tuner, visit, context, diag};
    pthread_mutex_lock(&tuner->work);
    rc = fa_listed_winners_each(tuner, list_one, &listing, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_answer_cubin(fa_tuner *tuner, const fa_answer *answer, void **ret_bytes, size_t *ret_size,
                    fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, answer != NULL && ret_bytes != NULL && ret_size != NULL,
                                 "answer, ret_bytes or ret_size", diag);
    if (rc != 0)
        return rc;
    fa_cubin_record cubin = {0};
    rc = fa_sources_answer_cubin(tuner, answer->cubin_key, ret_bytes, ret_size, diag);
    if (rc != FA_SOURCE_NONE)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_records_cubin(tuner, answer->cubin_key, &cubin, diag);
    const fa_source_class *shared;
    if (rc == FA_ENOTFOUND && fa_sources_store(tuner, &shared) != NULL &&
        fa_sources_fetch_cubin(tuner, answer->cubin_key, &cubin) == 0)
        rc = 0;
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0)
        return rc;
    *ret_bytes = cubin.bytes;
    *ret_size = cubin.size;
    cubin.bytes = NULL;
    fa_cubin_record_free(&cubin);
    return 0;
}

/* ---- contexts and streams, for callers that link no CUDA -------------------------------------*/
/* The driver of the tuner, opened where it has not been. */
static int take_driver(fa_tuner *tuner, fa_driver **ret_driver, fa_diag *diag)
{
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    *ret_driver = atomic_load_explicit(&tuner->launch_driver, memory_order_acquire);
    if (*ret_driver != NULL)
        return 0;
    pthread_mutex_lock(&tuner->work);
    rc = fa_tuner_driver(tuner, diag);
    *ret_driver = tuner->driver;
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_enter_device(fa_tuner *tuner, int32_t ordinal, bool *ret_entered, fa_diag *diag)
{
    fa_driver *driver = NULL;
    int rc = ret_entered == NULL ? fa_fail(diag, FA_EINVAL, "ret_entered is NULL")
                                 : take_driver(tuner, &driver, diag);
    if (rc != 0)
        return rc;
    *ret_entered = false;
    if (fa_driver_is_on(driver, ordinal))
        return 0;
    rc = fa_driver_enter(driver, ordinal, diag);
    *ret_entered = rc == 0;
    return rc;
}

void fa_leave_device(fa_tuner *tuner)
{
    fa_driver *driver = NULL;
    if (take_driver(tuner, &driver, NULL) == 0)
        fa_driver_leave(driver);
}

int fa_stream_is_captured(fa_tuner *tuner, void *stream, bool *ret_captured, fa_diag *diag)
{
    fa_driver *driver = NULL;
    int rc = ret_captured == NULL ? fa_fail(diag, FA_EINVAL, "ret_captured is NULL")
                                  : take_driver(tuner, &driver, diag);
    return rc == 0 ? fa_stream_captured(driver, stream, ret_captured, diag) : rc;
}

int fa_wait_for_stream(fa_tuner *tuner, void *stream, fa_diag *diag)
{
    fa_driver *driver = NULL;
    int rc = take_driver(tuner, &driver, diag);
    return rc == 0 ? fa_stream_synchronize(driver, stream, diag) : rc;
}
