/* SPDX-License-Identifier: Apache-2.0
 *
 * A caller's request: checked and completed, and its wait for a lock.
 */
#include "request.h"

#include "lock.h"

#include "error.h"

#include <string.h>

int fa_copy_sized(void *ret, size_t size, const void *given, const char *why, fa_diag *diag)
{
    size_t given_size = given != NULL ? *(const size_t *)given : 0;
    memset(ret, 0, size);
    if (given_size < sizeof(size_t) || given_size > 4096)
        return fa_fail(diag, FA_EINVAL, "%s", why);
    memcpy(ret, given, given_size < size ? given_size : size);
    return 0;
}

int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag)
{
    int rc = fa_copy_sized(ret_request, sizeof *ret_request, request,
                           "request.size is not sizeof(fa_request)", diag);
    if (rc != 0)
        return rc;
    if (ret_request->effort < FA_EFFORT_CACHED || ret_request->effort > FA_EFFORT_PATIENT)
        return fa_fail(diag, FA_EINVAL, "effort is %d: use FA_EFFORT_CACHED to FA_EFFORT_PATIENT",
                       (int)ret_request->effort);
    return 0;
}

struct waiting {
    fa_tuner *tuner;
    const fa_request *request;
    fa_progress progress;
};

static bool give_up(void *context)
{
    struct waiting *waiting = context;
    const fa_request *request = waiting->request;
    waiting->progress.elapsed_s += 0.02;
    if (request->progress == NULL)
        return false;
    pthread_mutex_lock(&waiting->tuner->work); /* as all callbacks of a tune run */
    bool stop = request->progress(request->context, &waiting->progress) != 0;
    pthread_mutex_unlock(&waiting->tuner->work);
    return stop;
}

static struct waiting waiting_of(fa_tuner *tuner, const fa_request *request)
{
    return (struct waiting){
        .tuner = tuner,
        .request = request,
        .progress = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_WAIT, .left_s = -1}};
}

int fa_request_wait(fa_tuner *tuner, const fa_request *request, const char *name,
                    fa_lock **ret_lock, bool *ret_waited, fa_diag *diag)
{
    struct waiting waiting = waiting_of(tuner, request);
    pthread_mutex_unlock(&tuner->work);
    int rc =
        fa_lock_acquire(tuner->store_path, name, -1, give_up, &waiting, ret_lock, ret_waited, diag);
    pthread_mutex_lock(&tuner->work);
    if (rc == FA_ECANCELED)
        return fa_fail(diag, rc, "canceled while another tune of this key was under way");
    return rc;
}

int fa_request_share_tunes(fa_tuner *tuner, const fa_request *request, fa_lock **ret_lock,
                           fa_diag *diag)
{
    struct waiting waiting = waiting_of(tuner, request);
    pthread_mutex_unlock(&tuner->work);
    int rc = fa_lock_share(tuner->store_path, FA_TUNES_LOCK, -1, give_up, &waiting, ret_lock, diag);
    pthread_mutex_lock(&tuner->work);
    if (rc == FA_ECANCELED)
        return fa_fail(diag, rc, "canceled while winners of this store were forgotten");
    return rc;
}

int fa_answer_check(const fa_answer *answer, fa_diag *diag)
{
    if (answer == NULL || answer->size < sizeof(size_t) || answer->size > 1 << 20)
        return fa_fail(diag, FA_EINVAL,
                       "ret_answer is NULL, or its size is not sizeof(fa_answer)");
    return 0;
}

void fa_answer_give(const fa_answer *answer, fa_answer *ret_answer)
{
    size_t size = ret_answer->size < sizeof *answer ? ret_answer->size : sizeof *answer;
    memcpy(ret_answer, answer, size);
    ret_answer->size = size;
}
