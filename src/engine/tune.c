/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to its answer: what is stored, where that is enough, else a tune. Nothing is loaded.
 */
#include "error.h"
#include "job.h"
#include "problem.h"

#include <string.h>

/* Something is going to be compiled for the GPU that is here, unless something fails: the driver takes a
 * while to start, and the compile workers can load meanwhile. Of a server's store others may be about to tune it. */
static bool sure_to_tune(fa_tuner *tuner, const fa_request *request)
{
    if (fa_tuner_is_on_server(tuner) || request->gpu != NULL ||
        request->effort < FA_EFFORT_PREDICT || tuner->driver != NULL ||
        fa_store_is_read_only(tuner->store) || fa_problem_check(&request->problem, NULL) != 0)
        return false;
    fa_problem asked, key;
    fa_target_problems(tuner, request, &asked, &key);
    return fa_request_is_again(request) ||
           fa_store_winner_any(tuner->store, &key,
                               fa_templates_hash(fa_templates_for(tuner, &key),
                                                 fa_operation_of(&key))) == FA_ENOTFOUND;
}

/* Sets tuning->known to what is stored; *ret_answered: that is enough for the request. FA_ENOTFOUND and FA_ECORRUPT
 * only for one that may not tune. */
static int look_up(fa_tuning *tuning, bool *ret_answered, fa_diag *diag)
{
    const fa_request *request = tuning->request;
    *ret_answered = false;
    if (fa_request_is_again(request))
        return 0;
    int rc = fa_look(tuning->tuner, &tuning->target, false, &tuning->known, diag);
    *ret_answered = rc == 0 && fa_answer_satisfies(&tuning->known.answer, request);
    bool nothing = rc == FA_ENOTFOUND || rc == FA_ECORRUPT;
    return nothing && request->effort != FA_EFFORT_CACHED ? 0 : rc;
}

/* From the store, else from a tune. */
static int answer_request(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    bool answered = false;
    if (sure_to_tune(tuner, tuning->request) &&
        fa_job_new(tuner, tuning->request, 0, &tuning->job, NULL) == 0)
        fa_job_compile_prestart(tuning->job);
    int rc = fa_target_resolve(tuner, tuning->request, &tuning->target, diag);
    const bool begun = tuning->job != NULL;
    if (rc == 0 && begun &&
        100 * tuning->job->nvrtc.major + tuning->job->nvrtc.minor <
            fa_nvrtc_since(tuning->target.gpu.sm))
        fa_job_free(&tuning->job); /* another NVRTC may know the GPU */
    if (rc == 0 && !begun)
        rc = look_up(tuning, &answered, diag);
    if (rc != 0)
        return rc;
    if (answered) {
        *ret_answer = tuning->known.answer;
        return 0;
    }
    return fa_tune_target(tuning, ret_answer, diag);
}

int fa_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    fa_request known;
    fa_answer answer;
    FA_OR_RETURN(fa_request_take(
        tuner,
        ret_answer != NULL && ret_answer->size >= sizeof(size_t) && ret_answer->size <= 1 << 20,
        "ret_answer's size is not sizeof(fa_answer), or it", request, &known, diag));
    int rc = tuner->service != NULL ? tuner->service->tune(tuner, &known, &answer, diag)
                                    : FA_SOURCE_NONE;
    bool elsewhere = rc != FA_SOURCE_NONE;
    if (!elsewhere)
        rc = fa_tune_here(tuner, &known, &answer, diag);
    if (rc != 0)
        return rc;
    answer.size = ret_answer->size < sizeof answer ? ret_answer->size : sizeof answer;
    memcpy(ret_answer, &answer, answer.size);
    if (known.ret_ranking == NULL || known.ret_ranked == NULL)
        return 0;
    *known.ret_ranking = NULL;
    *known.ret_ranked = 0;
    if (elsewhere)
        return 0;
    rc = fa_configs_rank(tuner, &known, &answer, false, known.ret_ranking, known.ret_ranked, NULL,
                         diag);
    while (rc == 0 && *known.ret_ranked > 0 &&
           (*known.ret_ranking)[*known.ret_ranked - 1].rank == 0)
        --*known.ret_ranked;
    return rc;
}

int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    int rc = FA_EIO;
    FA_HOLDS(&tuner->work);
    for (int tries = 0; tries < 2 && rc == FA_EIO && (tries == 0 || fa_store_is_lost(tuner->store));
         tries++) {
        fa_tuning tuning = {.tuner = tuner, .request = request};
        rc = answer_request(&tuning, ret_answer, diag);
        fa_lookup_free(&tuning.known);
        fa_job_free(&tuning.job);
    }
    return rc;
}

int fa_find(fa_tuner *tuner, const fa_request *request, fa_found *ret_found, fa_diag *diag)
{
    fa_request known;
    FA_OR_RETURN(fa_request_take(tuner, ret_found != NULL && ret_found->size == sizeof *ret_found,
                                 "ret_found's size is not sizeof(fa_found), or it", request, &known,
                                 diag));
    fa_tuning tuning = {.tuner = tuner, .request = &known};
    fa_found found = {.size = sizeof found};
    FA_HOLDS(&tuner->work);
    FA_OR_RETURN(fa_target_resolve(tuner, &known, &tuning.target, diag));
    found.gpu = tuning.target.gpu;
    int rc = look_up(&tuning, &found.answered, diag);
    found.answer = tuning.known.answer;
    found.answer.size = sizeof found.answer;
    fa_lookup_free(&tuning.known);
    if (rc == 0)
        *ret_found = found;
    return rc;
}
