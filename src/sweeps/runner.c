/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep.h"

#include "pool.h"
#include "tune.h"

#include <stdio.h>

double fa_runner_now_s(void)
{
    return (double)fa_clock_ns() / 1e9;
}

bool fa_runner_gives_back(int rc)
{
    static const int codes[] = {FA_ECANCELED, FA_ENOMEM,   FA_EIO,     FA_ENODRIVER,
                                FA_ENODEVICE, FA_ENONVRTC, FA_ESTORE,  FA_EVERSION,
                                FA_EREADONLY, FA_EFULL,    FA_EFORKED, FA_EMANIFEST};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == rc)
            return true;
    return false;
}

fa_item_request fa_item_request_of(const fa_sweep_request *sweep)
{
    fa_item_request how = {.effort = sweep->effort,
                           .again = sweep->again,
                           .exact = sweep->exact,
                           .price = sweep->budget.price,
                           .evaluations = sweep->evaluations,
                           .seconds_each = sweep->seconds_each};
    snprintf(how.strategy, sizeof how.strategy, "%s",
             sweep->strategy != NULL ? sweep->strategy : "");
    return how;
}

/* What an event of a tune adds to the account. */
static fa_sweep_spent spent_of_event(fa_progress *seen, const fa_progress *tune)
{
    int64_t compiled = tune->compiled - tune->reused - (seen->compiled - seen->reused);
    int64_t reused = tune->reused - seen->reused;
    if (tune->kind == FA_EVENT_STAGE && tune->stage == FA_STAGE_TUNE)
        compiled = reused = 0; /* what is on record from earlier runs */
    *seen = *tune;
    return (fa_sweep_spent){
        .trials = tune->kind == FA_EVENT_TRIAL && tune->stage == FA_STAGE_TUNE,
        .compiled = compiled > 0 ? compiled : 0,
        .reused = reused > 0 ? reused : 0,
    };
}

/* Adds that, and the time since the last call. */
static void account(fa_runner *r, fa_sweep_spent more)
{
    fa_sweep_spent *const accounts[] = {&r->unwritten, &r->item.spent, &r->sweep.spent};
    double now = fa_runner_now_s();
    more.seconds = now - r->accounted_s;
    more.cost = r->here ? more.seconds * r->how.price / 3600 : 0;
    r->accounted_s = now;
    for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++) {
        accounts[i]->seconds += more.seconds;
        accounts[i]->cost += more.cost;
        accounts[i]->trials += more.trials;
        accounts[i]->compiled += more.compiled;
        accounts[i]->reused += more.reused;
    }
}

/* An fa_request.progress: runs inside fa_tune(), which holds `work` and has no transaction open. */
static int on_progress(void *context, const fa_progress *tune)
{
    fa_runner *r = context;
    account(r, spent_of_event(&r->seen, tune));
    return r->feed->progress(r, tune);
}

fa_request fa_runner_request(fa_runner *r)
{
    const fa_item_request *how = &r->how;
    return (fa_request){.size = sizeof(fa_request),
                        .problem = r->item.problem,
                        .gpu = r->on_device || r->item.gpu[0] == 0 ? NULL : r->item.gpu,
                        .ordinal = r->ordinal,
                        .effort = how->effort,
                        .again = how->again,
                        .exact = how->exact,
                        .strategy = how->strategy[0] != 0 ? how->strategy : NULL,
                        .evaluations = how->evaluations,
                        .seconds = how->seconds_each,
                        .progress = on_progress,
                        .context = r};
}

int fa_runner_run(fa_runner *r, fa_diag *diag)
{
    for (;;) {
        fa_diag why = {{0}};
        int rc = r->feed->next(r, diag);
        if (rc != 0)
            return rc == FA_ENOTFOUND ? 0 : rc;
        r->item.state = FA_ITEM_RUNNING;
        r->item.spent = r->unwritten = (fa_sweep_spent){0};
        r->seen = (fa_progress){0};
        r->answer = (fa_answer){.size = sizeof(fa_answer)};
        r->accounted_s = fa_runner_now_s();
        rc = r->feed->begin(r, &why);
        if (rc == 0) {
            fa_request request = fa_runner_request(r); /* `how` may be known only now */
            rc = fa_tune_here(r->tuner, &request, &r->answer, &why);
            account(r, (fa_sweep_spent){0});
        }
        rc = r->feed->end(r, rc, &why, diag);
        if (rc != 0)
            return rc;
    }
}
