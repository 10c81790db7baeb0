/* SPDX-License-Identifier: Apache-2.0
 *
 * The small public functions: names, versions, the catalogue, lists, contexts and streams, and
 * problems by the names of their fields.
 *
 * Workload: fa_enter_device() before each call of an attention layer: one driver call where the context is
 * right, as it nearly always is.
 *
 * And what explains answers: the configs on record of a problem, ranked, with the rest of its space as it stands today; and
 * the steps of a lookup.
 *
 * Workload: a few hundred trials; a large space that was tried whole has 20,000. Nothing is evaluated for the ranking
 * behind an answer, unless the model is asked about other lengths than the bucket's.
 */
#include "fa_problem.h"

#include "catalogue.h"
#include "error.h"
#include "lookup.h"
#include "model.h"
#include "problem.h"
#include "spec.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fa_version(void)
{
    return FA_TUNE_VERSION;
}

const char *fa_strerror(int code)
{
    return fa_error_text(code);
}

const char *fa_name_of_origin(fa_origin origin)
{
    return fa_origin_name(origin);
}

int fa_gpu_type(int32_t index, fa_gpu *ret_gpu, const char **ret_refused)
{
    if (ret_gpu == NULL)
        return FA_EINVAL;
    if (index < 0 || index >= fa_catalogue_count())
        return FA_ENOTFOUND;
    fa_catalogue_at(index, ret_gpu, ret_refused);
    return 0;
}

int fa_gpu_find(const char *name, int32_t ordinal, fa_gpu *ret_gpu, fa_diag *diag)
{
    FA_ENDS(fa_driver_close) fa_driver *driver = NULL;
    FA_OR_RETURN(fa_expect(ret_gpu != NULL, "ret_gpu", diag));
    if (name != NULL)
        return fa_catalogue_find(name, ret_gpu, diag);
    FA_OR_RETURN(fa_driver_open(&driver, diag));
    return fa_driver_device(driver, ordinal, ret_gpu, diag);
}

int fa_list_winners(fa_tuner *tuner, fa_answer **ret_answers, size_t *ret_count, size_t *ret_unread,
                    fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_winner_record *rows = NULL;
    fa_list list = {0};
    fa_answer answer;
    size_t count = 0;
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_answers != NULL && ret_count != NULL,
                                     "ret_answers or ret_count", diag));
    int rc = FA_HELD(tuner, fa_store_winners(tuner->store, NULL, &rows, &count, ret_unread, diag));
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = fa_records_answer(&rows[i], NULL, &answer, diag);
        if (rc == 0)
            fa_list_add(&list, &answer, sizeof answer);
    }
    return fa_list_end(&list, rc, NULL, ret_answers, ret_count, diag);
}

int fa_answer_cubin(fa_tuner *tuner, const fa_answer *answer, void **ret_bytes, size_t *ret_size,
                    fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check_with(tuner, answer != NULL && ret_bytes != NULL && ret_size != NULL,
                                     "answer, ret_bytes or ret_size", diag));
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    int rc = tuner->service == NULL
                 ? FA_SOURCE_NONE
                 : tuner->service->cubin(tuner, answer->cubin_key, ret_bytes, ret_size, diag);
    if (rc != FA_SOURCE_NONE && rc != FA_ENOTFOUND)
        return rc;
    FA_OR_RETURN(FA_HELD(tuner, fa_records_cubin(tuner, answer->cubin_key, &cubin, diag)));
    *ret_bytes = cubin.bytes;
    *ret_size = cubin.size;
    cubin.bytes = NULL;
    return 0;
}

/* ---- contexts and streams, for callers that link no CUDA -------------------------------------*/
/* The driver of the tuner, opened where it has not been. */
static int take_driver(fa_tuner *tuner, fa_driver **ret_driver, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    *ret_driver = atomic_load_explicit(&tuner->launch_driver, memory_order_acquire);
    if (*ret_driver != NULL)
        return 0;
    FA_HOLDS(&tuner->work);
    int rc = fa_tuner_driver(tuner, diag);
    *ret_driver = tuner->driver;
    return rc;
}

int fa_enter_device(fa_tuner *tuner, int32_t ordinal, bool *ret_entered, fa_diag *diag)
{
    fa_driver *driver = NULL;
    FA_OR_RETURN(fa_expect(ret_entered != NULL, "ret_entered", diag));
    FA_OR_RETURN(take_driver(tuner, &driver, diag));
    *ret_entered = false;
    if (fa_driver_is_on(driver, ordinal))
        return 0;
    int rc = fa_driver_enter(driver, ordinal, diag);
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
    FA_OR_RETURN(fa_expect(ret_captured != NULL, "ret_captured", diag));
    FA_OR_RETURN(take_driver(tuner, &driver, diag));
    return fa_stream_captured(driver, stream, ret_captured, diag);
}

int fa_wait_for_stream(fa_tuner *tuner, void *stream, fa_diag *diag)
{
    fa_driver *driver = NULL;
    FA_OR_RETURN(take_driver(tuner, &driver, diag));
    return fa_stream_synchronize(driver, stream, diag);
}

/* ---- problems by the names of their fields (fa_problem.h) ------------------------------------*/
static const fa_operation *or_default(const fa_operation *operation)
{
    return operation != NULL ? operation : fa_operation_of(NULL);
}

int fa_find_operation(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    FA_OR_RETURN(fa_expect(name != NULL && ret_operation != NULL, "name or ret_operation", diag));
    return fa_operation_find(name, ret_operation, diag);
}

int fa_load_operations(const char *templates, fa_diag *diag)
{
    FA_OR_RETURN(fa_expect(templates != NULL, "templates", diag));
    int rc = fa_templates_open(templates, NULL, diag);
    return rc == FA_ENOTFOUND || rc == FA_EIO ? 0 : rc; /* it has no operation */
}

int fa_spec_load(const char *path, const fa_operation **ret_operation, fa_diag *diag)
{
    FA_OR_RETURN(fa_expect(path != NULL && ret_operation != NULL, "path or ret_operation", diag));
    return fa_spec_open(path, ret_operation, diag);
}

int fa_spec_read(const char *where, const char *text, const char *source,
                 const fa_operation **ret_operation, fa_diag *diag)
{
    FA_OR_RETURN(fa_expect(where != NULL && text != NULL && ret_operation != NULL,
                           "where, text or ret_operation", diag));
    return fa_spec_make(where, text, source, ret_operation, diag);
}

int fa_spec_name(const fa_operation *operation, char *ret_name, size_t size, fa_diag *diag)
{
    operation = or_default(operation);
    const char *hash = operation->specification;
    int length = ret_name == NULL ? -1
                 : hash[0] == 0   ? snprintf(ret_name, size, "%s", operation->name)
                                  : snprintf(ret_name, size, "%s@%s", operation->name, hash);
    return length >= 0 && (size_t)length < size
               ? 0
               : fa_fail(diag, FA_EINVAL, "the name of %s does not fit", operation->name);
}

int fa_spec_cases(const fa_operation *operation, fa_case_function *function, void *context,
                  int32_t contents, fa_diag *diag)
{
    return fa_spec_set_cases(or_default(operation), function, context, contents, diag);
}

const char *fa_name_of_value(int32_t value, char *room)
{
    return fa_value_words(value, room);
}

int fa_operation_field(const fa_operation *operation, int32_t index, fa_field_info *ret_info)
{
    operation = or_default(operation);
    if (ret_info == NULL || ret_info->size < sizeof *ret_info)
        return FA_EINVAL;
    if (index < 0 || index >= operation->field_count)
        return FA_ENOTFOUND;
    static const char *const any[] = {NULL};
    const fa_field *f = &operation->field[index];
    *ret_info = (fa_field_info){.size = sizeof *ret_info,
                                .name = f->name,
                                .choices = f->kind == FA_FIELD_CHOICE ? f->choice
                                           : f->kind == FA_FIELD_TEXT ? any
                                                                      : NULL,
                                .boolean = f->kind == FA_FIELD_BOOLEAN,
                                .min = f->min,
                                .max = f->max > INT32_MAX ? INT32_MAX : (int32_t)f->max,
                                .multiple = f->multiple,
                                .preset = fa_field_number(f, f->preset) > INT32_MAX ? 0 : f->preset,
                                .required = f->required};
    return 0;
}

int fa_make_problem(const fa_operation *operation, fa_problem *ret_problem)
{
    if (ret_problem == NULL)
        return FA_EINVAL;
    *ret_problem = (fa_problem){.operation = operation};
    fa_problem_fill(ret_problem, 0);
    return 0;
}

int fa_set_field(fa_problem *problem, const char *name, const char *text, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    int index = problem != NULL && name != NULL ? fa_operation_field_index(operation, name) : -1;
    if (index < 0)
        return fa_fail(diag, FA_EINVAL, "a problem of %s has no field \"%.40s\"", operation->name,
                       name != NULL ? name : "");
    const fa_field *f = &operation->field[index];
    if (text == NULL)
        return fa_fail(diag, FA_EINVAL, "no value for %s is given", f->name);
    char *end = NULL, room[FA_FIELD_RANGE_MAX];
    long value = 0;
    if (f->kind == FA_FIELD_TEXT)
        return fa_value_of_line(text, &problem->value[index], diag);
    if (f->kind == FA_FIELD_CHOICE)
        value = fa_field_choice(f, text);
    else if (f->kind == FA_FIELD_BOOLEAN)
        value = strcmp(text, "true") == 0 ? 1 : strcmp(text, "false") == 0 ? 0 : -1;
    else
        value = strtol(text, &end, 10);
    bool whole = end == NULL || (end != text && *end == 0);
    if (!whole || value < f->min || value > f->max || value % f->multiple != 0)
        return fa_fail(diag, FA_EINVAL, "%s cannot be \"%.40s\"%s", f->name, text,
                       whole && f->kind == FA_FIELD_INTEGER ? fa_field_range(f, value, room) : "");
    return fa_field_keep(f, value, &problem->value[index], diag);
}

int fa_problem_write(const fa_problem *problem, char **ret_text, fa_diag *diag)
{
    FA_OR_RETURN(fa_expect(problem != NULL && ret_text != NULL, "problem or ret_text", diag));
    char *text = fa_json_finish(fa_problem_to_json(problem));
    FA_OR_RETURN(fa_have(text != NULL, "a problem", diag));
    *ret_text = text;
    return 0;
}

int fa_problem_read(const char *text, size_t size, fa_problem *ret_problem, fa_diag *diag)
{
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    fa_problem problem = {0};
    FA_OR_RETURN(fa_expect(text != NULL && ret_problem != NULL, "text or ret_problem", diag));
    FA_OR_RETURN(fa_json_parse(text, size, "problem", &json, diag));
    FA_OR_RETURN(fa_problem_from_json(json, true, NULL, &problem, diag));
    *ret_problem = problem;
    return 0;
}

/* ---- values of other tuners in the store, and who makes one that is missing --------------------*/
static int check_key(const char *key, char ret_name[FA_HOLD_NAME_MAX], fa_diag *diag)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const size_t length = key != NULL ? strlen(key) : 0;
    if (length < 1 || length > 64 || strspn(key, letters) != length)
        return fa_fail(diag, FA_EINVAL,
                       "the key of a value has 1 to 64 letters, digits, '-' and '_'");
    snprintf(ret_name, FA_HOLD_NAME_MAX, "kept-%s", key);
    return 0;
}

static int take_hold(fa_tuner *tuner, const char *name, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_hold *hold = calloc(1, sizeof *hold);
    FA_OR_RETURN(fa_have(hold != NULL, "a lock", diag));
    FA_OR_RETURN(fa_store_lock(tuner->store, name, false, &hold->lock, diag));
    snprintf(hold->name, sizeof hold->name, "%s", name);
    hold->next = tuner->holds;
    tuner->holds = hold, hold = NULL;
    return 0;
}

int fa_list_kept(fa_tuner *tuner, const char *key, bool hold, fa_kept **ret_kept, size_t *ret_count,
                 fa_diag *diag)
{
    char name[FA_HOLD_NAME_MAX];
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_kept != NULL && ret_count != NULL,
                                     "ret_kept or ret_count", diag));
    if (key != NULL)
        FA_OR_RETURN(check_key(key, name, diag));
    fa_kept *kept = NULL;
    size_t count = 0;
    FA_HOLDS(&tuner->work);
    if (key != NULL && !hold)
        fa_tuner_let_go(tuner, name);
    FA_OR_RETURN(fa_store_kept(tuner->store, key, &kept, &count, diag));
    if (count == 0 && key != NULL && hold) {
        FA_OR_RETURN(take_hold(tuner, name, diag));
        const int rc = fa_store_kept(tuner->store, key, &kept, &count, diag); /* meanwhile */
        if (rc != 0 || count > 0)
            fa_tuner_let_go(tuner, name);
        FA_OR_RETURN(rc);
    }
    if (key != NULL && count == 0)
        return FA_ENOTFOUND;
    *ret_kept = kept;
    *ret_count = count;
    return 0;
}

int fa_keep(fa_tuner *tuner, const fa_kept *value, fa_diag *diag)
{
    char name[FA_HOLD_NAME_MAX];
    FA_OR_RETURN(fa_tuner_check_with(
        tuner,
        value != NULL && (value->bytes == NULL || (value->tuner != NULL && value->name != NULL &&
                                                   value->gpu != NULL && value->made != NULL)),
        "value, or a text of it,", diag));
    FA_OR_RETURN(check_key(value->key, name, diag));
    FA_HOLDS(&tuner->work);
    int rc = fa_store_is_absent(tuner->store) && value->bytes == NULL
                 ? 0
                 : fa_store_kept_put(tuner->store, value, diag);
    fa_tuner_let_go(tuner, name);
    return rc;
}

/* ---- explaining: configs ------------------------------------------------------------------*/
static fa_study_trial *rows_of(fa_list *list)
{
    return (fa_study_trial *)(void *)list->records.data;
}

/* The trials that were imported with a winner. */
static int read_brought(fa_tuner *tuner, const fa_scope *scope, fa_study_trial **ret_record,
                        size_t *ret_count, fa_diag *diag)
{
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    rc = fa_trials_from_evidence(winner.evidence, ret_record, ret_count, diag);
    for (size_t i = 0; rc == 0 && i < *ret_count; i++)
        (*ret_record)[i].unix_time = winner.unix_time;
    return rc;
}

/* Lists what is on record of the target's scope. A winner that was imported may have brought its trials, and is no trial
 * itself. */
static int read_record(fa_tuner *tuner, const fa_target *target, const fa_answer *winner,
                       fa_list *list, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_study_trial *record = NULL;
    fa_study_trial own = {.rank = 0};
    size_t count = 0;
    FA_OR_RETURN(fa_store_trials(tuner->store, &target->scope, &record, &count, diag));
    bool listed = winner == NULL || !fa_problem_equal(&winner->from_problem, &target->problem);
    const bool brought = count == 0 && !listed;
    if (brought)
        FA_OR_RETURN(read_brought(tuner, &target->scope, &record, &count, diag));
    if (!listed) {
        own.trial = winner->trial;
        own.trial.compile_ms = 0; /* not here */
        own.unix_time = winner->unix_time;
        memcpy(own.cubin_key, winner->cubin_key, sizeof own.cubin_key);
    }
    for (size_t i = 0; i < count; i++) {
        fa_study_trial *row = &record[i];
        if (!listed && fa_config_equal(&row->trial.config, &own.trial.config)) {
            listed = true;
            if (brought) {
                row->trial = own.trial;
                memcpy(row->cubin_key, own.cubin_key, sizeof row->cubin_key);
            }
        }
        fa_trials_add(list, row);
    }
    if (!listed)
        fa_trials_add(list, &own);
    return 0;
}

/* Equal for equal configs, whatever the order of their tunables. */
static int64_t digest_config(const fa_config *config)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < config->count; i++)
        sum += (int64_t)config->tunable[i].value * config->tunable[i].name[0];
    return sum;
}

/* Adds the configs of the space that are not on record; of a space that is searched none. */
static int add_rest(fa_tuner *tuner, const fa_target *target, fa_list *list,
                    fa_explained *ret_space, fa_diag *diag)
{
    FA_ENDS(fa_space_free) fa_space space = {0};
    const size_t tried = list->count;
    FA_OR_RETURN(fa_tuner_enumerate(tuner, &target->problem, &target->gpu, &space, diag));
    ret_space->configs = space.held > 0 ? space.held : space.count;
    ret_space->is_searched = space.held > 0;
    FA_ENDS(fa_free_at) int64_t *digests = calloc(tried + 1, sizeof *digests);
    if (digests == NULL || list->records.failed)
        return fa_fail(diag, FA_ENOMEM, "out of memory after %zu configs", tried);
    for (size_t i = 0; i < tried; i++)
        digests[i] = digest_config(&rows_of(list)[i].trial.config);
    for (int i = 0; i < space.count && !list->records.failed; i++) {
        fa_candidate *candidate = &space.candidate[i];
        const int64_t wanted = digest_config(&candidate->trial.config);
        fa_study_trial *row = rows_of(list);
        size_t at = 0;
        while (at < tried && (digests[at] != wanted ||
                              !fa_config_equal(&row[at].trial.config, &candidate->trial.config)))
            at++;
        if (at < tried) { /* a winner's grid is that of the asked lengths */
            row[at].is_default = candidate->is_default;
            memcpy(row[at].trial.grid, candidate->trial.grid, sizeof row[at].trial.grid);
            continue;
        }
        if (candidate->trial.status == FA_STATUS_PENDING)
            fa_model_predict(candidate, &target->problem, &target->gpu, &candidate->trial);
        const fa_study_trial added = {.trial = candidate->trial,
                                      .is_default = candidate->is_default};
        fa_list_add(list, &added, sizeof added);
    }
    return 0;
}

int fa_configs_compare(const void *a, const void *b)
{
    return fa_trial_compare(&((const fa_study_trial *)a)->trial,
                            &((const fa_study_trial *)b)->trial);
}

/* What answers for the asked lengths stands first: a tie was broken its way, or it is not the bucket's winner. */
static void rank(fa_study_trial *row, size_t count, const fa_answer *winner)
{
    if (count > 0)
        qsort(row, count, sizeof *row, fa_configs_compare);
    for (size_t i = 1; winner != NULL && i < count && fa_trial_finished(&row[i].trial); i++) {
        const fa_study_trial chosen = row[i];
        if (!fa_config_equal(&chosen.trial.config, &winner->trial.config))
            continue;
        memmove(&row[1], &row[0], i * sizeof chosen);
        row[0] = chosen;
        break;
    }
    for (size_t i = 0; i < count && fa_trial_finished(&row[i].trial); i++)
        row[i].rank = (int32_t)i + 1;
}

int fa_configs_read(fa_tuner *tuner, const fa_target *target, const fa_answer *winner, bool rest,
                    fa_study_trial **ret_rows, size_t *ret_count, fa_explained *ret_space,
                    fa_diag *diag)
{
    fa_list list = {0};
    fa_explained space = {.gpu = target->gpu};
    int rc = read_record(tuner, target, winner, &list, diag);
    if (rc == 0 && rest) {
        rc = add_rest(tuner, target, &list, &space, diag);
        if (list.count > 0 && rc != FA_ENOMEM && rc != FA_EIO) /* the space may be no more */
            rc = 0;
    }
    FA_OR_RETURN(fa_trials_end(&list, rc, ret_rows, ret_count, diag));
    /* The model's times of what nobody timed are for the asked lengths, which the space's may stand for. What does not run at
     * these keeps what it has. */
    const bool same = fa_problem_equal(&target->asked, &target->problem);
    for (size_t i = 0; i < *ret_count && !same; i++) {
        fa_trial *trial = &(*ret_rows)[i].trial;
        if (trial->status == FA_STATUS_PENDING || trial->status == FA_STATUS_COMPILED)
            fa_target_predict(tuner, target, trial);
    }
    rank(*ret_rows, *ret_count, winner);
    if (ret_space != NULL)
        *ret_space = space;
    return 0;
}

int fa_configs_rank(fa_tuner *tuner, const fa_request *request, const fa_answer *winner, bool rest,
                    fa_study_trial **ret_rows, size_t *ret_count, fa_explained *ret_space,
                    fa_diag *diag)
{
    fa_target target;
    FA_ENDS(fa_lookup_free) fa_lookup found = {.count = 0};
    FA_HOLDS(&tuner->work);
    FA_OR_RETURN(fa_target_resolve(tuner, request, &target, diag));
    if (winner == NULL && fa_look(tuner, &target, false, &found, NULL) == 0)
        winner = &found.answer;
    return fa_configs_read(tuner, &target, winner, rest, ret_rows, ret_count, ret_space, diag);
}

int fa_explain(fa_tuner *tuner, const fa_request *request, fa_study_trial **ret_configs,
               size_t *ret_count, fa_explained *ret_space, fa_diag *diag)
{
    fa_request known;
    FA_OR_RETURN(fa_request_take(tuner, ret_configs != NULL && ret_count != NULL,
                                 "ret_configs or ret_count", request, &known, diag));
    return fa_configs_rank(tuner, &known, NULL, true, ret_configs, ret_count, ret_space, diag);
}

/* ---- explaining: why ----------------------------------------------------------------------*/
static void add_match(fa_list *list, const fa_target *target, const fa_match *match, bool taken,
                      const char *name)
{
    fa_step step = {.kind = match->kind, .found = true, .taken = taken, .answer = match->answer};
    const bool unproved = taken && match->answer.driver_version == 0 && target->gpu.present;
    const char *more = unproved        ? "; it is not launched before this GPU has proved it "
                                         "(effort predict)"
                       : taken         ? ""
                       : match->usable ? "something above is trusted more"
                                       : match->why;
    snprintf(step.name, sizeof step.name, "%s", name);
    snprintf(step.why, sizeof step.why, "%s%s%.240s", match->answer.why,
             taken ? "" : "; passed over: ", more);
    fa_list_add(list, &step, sizeof step);
}

int fa_why(fa_tuner *tuner, const fa_request *request, fa_step **ret_steps, size_t *ret_count,
           fa_gpu *ret_gpu, fa_diag *diag)
{
    static const struct {
        fa_step_kind kind;
        const char *name, *nothing;
    } kinds[] = {
        {FA_STEP_EXACT, "exact", "no winner is stored for these very lengths"},
        {FA_STEP_BUCKET, "bucket", "nothing measured is stored for this problem's bucket"},
        {FA_STEP_PREDICTED, "predicted", "no prediction is stored for this bucket and GPU"},
    };
    fa_request known;
    fa_target target;
    FA_ENDS(fa_lookup_free) fa_lookup found = {.count = 0};
    fa_list list = {0};
    FA_OR_RETURN(fa_request_take(tuner, ret_steps != NULL && ret_count != NULL,
                                 "ret_steps or ret_count", request, &known, diag));
    FA_HOLDS(&tuner->work);
    FA_OR_RETURN(fa_target_resolve(tuner, &known, &target, diag));
    if (ret_gpu != NULL)
        *ret_gpu = target.gpu;
    int rc = fa_look(tuner, &target, true, &found, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        rc = 0;
    for (size_t k = 0; rc == 0 && k < sizeof kinds / sizeof *kinds; k++) {
        const fa_problem bucket = fa_problem_bucket(&target.asked);
        /* The lengths may be the bucket's own: then there is no more exact problem. */
        bool missed = kinds[k].kind != FA_STEP_EXACT || !fa_problem_equal(&bucket, &target.asked);
        for (int i = 0; i < found.count; i++)
            if (found.own[i].kind == kinds[k].kind) {
                add_match(&list, &target, &found.own[i], found.taken == i + 1, kinds[k].name);
                missed = false;
            }
        fa_step none = {.kind = kinds[k].kind};
        snprintf(none.name, sizeof none.name, "%s", kinds[k].name);
        snprintf(none.why, sizeof none.why, "%s", kinds[k].nothing);
        if (missed)
            fa_list_add(&list, &none, sizeof none);
    }
    return fa_list_end(&list, rc, NULL, ret_steps, ret_count, diag);
}
