/* SPDX-License-Identifier: Apache-2.0
 *
 * The small public functions: names, versions, the catalogue, lists, contexts and streams, and
 * problems by the names of their fields.
 *
 * Workload: fa_enter_device() before each call of an attention layer: one driver call where the context is
 * right, as it nearly always is.
 */
#include "fa_problem.h"

#include "catalogue.h"
#include "driver.h"
#include "error.h"
#include "json.h"
#include "lookup.h"
#include "problem.h"
#include "session.h"
#include "spec.h"
#include "store.h"
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
    fa_driver *driver = NULL;
    if (ret_gpu == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_gpu is NULL");
    if (name != NULL)
        return fa_catalogue_find(name, ret_gpu, diag);
    int rc = fa_driver_open(&driver, diag);
    if (rc == 0)
        rc = fa_driver_device(driver, ordinal, ret_gpu, diag);
    fa_driver_close(&driver);
    return rc;
}

int fa_list_winners(fa_tuner *tuner, fa_answer **ret_answers, size_t *ret_count, fa_diag *diag)
{
    fa_winner_record *rows = NULL;
    fa_list list = {0};
    fa_answer answer;
    size_t count = 0;
    int rc = fa_tuner_check_with(tuner, ret_answers != NULL && ret_count != NULL,
                                 "ret_answers or ret_count", diag);
    if (rc != 0)
        return rc;
    rc = FA_HELD(tuner, fa_store_winners(tuner->store, NULL, &rows, &count, diag));
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = fa_records_answer(&rows[i], NULL, &answer, diag);
        if (rc == 0)
            fa_list_add(&list, &answer, sizeof answer);
    }
    free(rows);
    return fa_list_end(&list, rc, NULL, ret_answers, ret_count, diag);
}

int fa_answer_cubin(fa_tuner *tuner, const fa_answer *answer, void **ret_bytes, size_t *ret_size,
                    fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, answer != NULL && ret_bytes != NULL && ret_size != NULL,
                                 "answer, ret_bytes or ret_size", diag);
    if (rc != 0)
        return rc;
    fa_cubin_record cubin = {0};
    rc = tuner->service == NULL
             ? FA_SOURCE_NONE
             : tuner->service->cubin(tuner, answer->cubin_key, ret_bytes, ret_size, diag);
    if (rc != FA_SOURCE_NONE && rc != FA_ENOTFOUND)
        return rc;
    rc = FA_HELD(tuner, fa_records_cubin(tuner, answer->cubin_key, &cubin, diag));
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

/* ---- problems by the names of their fields (fa_problem.h) ------------------------------------*/
static const fa_operation *or_default(const fa_operation *operation)
{
    return operation != NULL ? operation : fa_operation_of(NULL);
}

int fa_find_operation(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    if (name == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "name or ret_operation is NULL");
    return fa_operation_find(name, ret_operation, diag);
}

int fa_load_operations(const char *templates, fa_diag *diag)
{
    if (templates == NULL)
        return fa_fail(diag, FA_EINVAL, "templates is NULL");
    fa_templates *read = NULL;
    int rc = fa_templates_open(templates, &read, diag);
    fa_templates_close(&read);
    return rc == FA_ENOTFOUND || rc == FA_EIO ? 0 : rc; /* it has no operation */
}

int fa_spec_load(const char *path, const fa_operation **ret_operation, fa_diag *diag)
{
    if (path == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "path or ret_operation is NULL");
    return fa_spec_open(path, ret_operation, diag);
}

int fa_spec_read(const char *where, const char *text, const char *source,
                 const fa_operation **ret_operation, fa_diag *diag)
{
    if (where == NULL || text == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "where, text or ret_operation is NULL");
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
    if (problem == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "problem or ret_text is NULL");
    char *text = fa_json_finish(fa_problem_to_json(problem));
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a problem");
    *ret_text = text;
    return 0;
}

int fa_problem_read(const char *text, size_t size, fa_problem *ret_problem, fa_diag *diag)
{
    cJSON *json = NULL;
    fa_problem problem = {0};
    if (text == NULL || ret_problem == NULL)
        return fa_fail(diag, FA_EINVAL, "text or ret_problem is NULL");
    int rc = fa_json_parse(text, size, "problem", &json, diag);
    if (rc == 0)
        rc = fa_problem_from_json(json, true, NULL, &problem, diag);
    cJSON_Delete(json);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
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
    fa_hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = fa_store_lock(tuner->store, name, false, &hold->lock, diag);
    if (rc != 0) {
        free(hold);
        return rc;
    }
    snprintf(hold->name, sizeof hold->name, "%s", name);
    hold->next = tuner->holds;
    tuner->holds = hold;
    return 0;
}

int fa_list_kept(fa_tuner *tuner, const char *key, bool hold, fa_kept **ret_kept, size_t *ret_count,
                 fa_diag *diag)
{
    char name[FA_HOLD_NAME_MAX];
    int rc = fa_tuner_check_with(tuner, ret_kept != NULL && ret_count != NULL,
                                 "ret_kept or ret_count", diag);
    if (rc == 0 && key != NULL)
        rc = check_key(key, name, diag);
    if (rc != 0)
        return rc;
    fa_kept *kept = NULL;
    size_t count = 0;
    pthread_mutex_lock(&tuner->work);
    if (key != NULL && !hold)
        fa_tuner_let_go(tuner, name);
    rc = fa_store_kept(tuner->store, key, &kept, &count, diag);
    if (rc == 0 && count == 0 && key != NULL && hold &&
        (rc = take_hold(tuner, name, diag)) == 0) { /* or it was kept meanwhile */
        rc = fa_store_kept(tuner->store, key, &kept, &count, diag);
        if (rc != 0 || count > 0)
            fa_tuner_let_go(tuner, name);
    }
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0 || (key != NULL && count == 0))
        return rc != 0 ? rc : FA_ENOTFOUND;
    *ret_kept = kept;
    *ret_count = count;
    return 0;
}

int fa_keep(fa_tuner *tuner, const fa_kept *value, fa_diag *diag)
{
    char name[FA_HOLD_NAME_MAX];
    int rc = fa_tuner_check_with(
        tuner,
        value != NULL && (value->bytes == NULL || (value->tuner != NULL && value->name != NULL &&
                                                   value->gpu != NULL && value->made != NULL)),
        "value, or a text of it,", diag);
    if (rc == 0)
        rc = check_key(value->key, name, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_is_absent(tuner->store) && value->bytes == NULL
             ? 0
             : fa_store_kept_put(tuner->store, value, diag);
    fa_tuner_let_go(tuner, name);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}
