/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: options, the store, the templates. Cheap to open: no GPU, no NVRTC, no process.
 */
#include "session.h"

#include "driver.h"
#include "manifest.h"
#include "spec.h"
#include "options.h"
#include "store.h"

#include "compile_pool.h"
#include "error.h"
#include "source.h"
#include "tunable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts forks seen from inside the child, so that a check costs a load and no system call. */
static atomic_int forks;

static void after_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

int fa_tuner_check_with(const fa_tuner *tuner, bool given, const char *names, fa_diag *diag)
{
    int rc = fa_tuner_check(tuner, diag);
    return rc == 0 && !given ? fa_fail(diag, FA_EINVAL, "%s is NULL", names) : rc;
}

int fa_tuner_check(const fa_tuner *tuner, fa_diag *diag)
{
    if (tuner == NULL)
        return fa_fail(diag, FA_EINVAL, "tuner is NULL: open one with fa_open");
    if (tuner->forks != atomic_load_explicit(&forks, memory_order_relaxed))
        return fa_fail(diag, FA_EFORKED,
                       "this tuner was opened before a fork: open one in the child, before CUDA");
    return 0;
}

void fa_note(fa_tuner *tuner, const char *format, ...)
{
    fa_diag text;
    char sentence[sizeof text.text];
    va_list args;
    if (tuner->log == NULL)
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fa_fail(&text, 0, "%s", sentence); /* escapes control bytes */
    tuner->log(tuner->log_context, text.text);
}

int fa_tuner_driver(fa_tuner *tuner, fa_diag *diag)
{
    if (tuner->driver != NULL)
        return 0;
    int rc = fa_driver_open(&tuner->driver, diag);
    if (rc == 0)
        atomic_store_explicit(&tuner->launch_driver, tuner->driver, memory_order_release);
    return rc;
}

int fa_tuner_families(fa_tuner *tuner, fa_diag *diag)
{
    if (tuner->families.count != 0)
        return 0;
    fa_values_untrusted(tuner->strict_ms > 0);
    int rc = fa_families_load(tuner->templates, NULL, &tuner->families, diag);
    fa_values_untrusted(false);
    return rc;
}

const fa_templates *fa_templates_for(const fa_tuner *tuner, const fa_problem *problem)
{
    const fa_spec *spec = fa_spec_of(fa_operation_of(problem));
    return spec != NULL ? spec->templates : tuner->templates;
}

const fa_family_list *fa_families_for(const fa_tuner *tuner, const fa_problem *problem)
{
    const fa_spec *spec = fa_spec_of(fa_operation_of(problem));
    return spec != NULL ? &spec->families : &tuner->families;
}

int32_t fa_strict_ms_for(const fa_tuner *tuner, const fa_problem *problem)
{
    return fa_operation_is_untrusted(fa_operation_of(problem)) ? tuner->compile_timeout_ms
                                                               : tuner->strict_ms;
}

void fa_tuner_pause(fa_tuner *tuner)
{
    pthread_mutex_unlock(&tuner->work);
}

void fa_tuner_resume(fa_tuner *tuner)
{
    pthread_mutex_lock(&tuner->work);
}

int fa_tuner_enumerate(fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu,
                       fa_space *ret_space, fa_diag *diag)
{
    int rc = fa_tuner_families(tuner, diag);
    if (rc != 0)
        return rc;
    fa_tuner_pause(tuner);
    rc = fa_space_enumerate(fa_families_for(tuner, problem), problem, gpu, ret_space, diag);
    fa_tuner_resume(tuner);
    return rc;
}

static int open_store(fa_tuner *tuner, bool existing, fa_diag *diag)
{
    fa_diag note = {{0}}, reason = {{0}};
    fa_store_mode mode = existing ? FA_STORE_EXISTING : FA_STORE_READ_WRITE;
    int rc = fa_store_open(tuner->store_path, mode, &tuner->store, &note, &reason);
    if (rc == FA_EREADONLY) {
        rc = fa_store_open(tuner->store_path, FA_STORE_READ_ONLY, &tuner->store, &note, diag);
        if (rc == 0)
            fa_note(tuner, "%s; using it read-only, nothing new is kept", reason.text);
        else if (rc == FA_ENOTFOUND) /* none is there, because none can be made there */
            rc = fa_fail(diag, FA_EREADONLY, "%s", reason.text);
    } else if (rc != 0) {
        fa_fail(diag, rc, "%s", reason.text);
    }
    if (note.text[0] != 0)
        fa_note(tuner, "%s", note.text);
    if (rc == 0 && fa_store_is_absent(tuner->store) && !fa_sources_are_elsewhere(tuner))
        fa_note(tuner, "there is no store at %s yet", tuner->store_path);
    return rc;
}

static int set_up(fa_tuner *tuner, const fa_options *options, fa_source_maker *const *makers,
                  int count, fa_diag *diag)
{
    tuner->forks = atomic_load(&forks);
    tuner->seed = options->seed;
    tuner->log = options->log;
    tuner->log_context = options->log_context;
    tuner->compile_timeout_ms =
        options->compile_timeout_ms > 0 ? options->compile_timeout_ms : FA_COMPILE_TIMEOUT_MS;
    tuner->trial_timeout_ms =
        options->trial_timeout_ms > 0 ? options->trial_timeout_ms : FA_TRIAL_TIMEOUT_MS;
    if (options->compile_nice < 0 || options->compile_nice > 19)
        return fa_fail(diag, FA_EINVAL, "compile_nice is %d: use 0 to 19", options->compile_nice);
    tuner->compile_nice = options->compile_nice;
    if (options->untrusted_templates)
        tuner->strict_ms = tuner->compile_timeout_ms;
    if (options->compile_workers < 0 || options->compile_workers > FA_WORKERS_MAX)
        return fa_fail(diag, FA_EINVAL, "compile_workers is %d: use 1 to %d, or 0 for one per core",
                       options->compile_workers, FA_WORKERS_MAX);
    tuner->compile_workers =
        options->compile_workers > 0 ? options->compile_workers : fa_usable_cores();
    int rc = fa_options_worker(options, tuner->worker_path, diag);
    if (rc == 0)
        rc = fa_options_store(options, tuner->store_path, diag);
    for (int i = 0; i < count && rc == 0; i++) {
        fa_source *source = NULL;
        rc = makers[i](tuner, options, &source, diag);
        if (source != NULL)
            fa_source_add(tuner, source);
    }
    if (rc == 0)
        rc = fa_templates_open(fa_options_templates(options), &tuner->templates, diag);
    if (rc == 0 && tuner->strict_ms > 0)
        rc = fa_templates_keep_apart(tuner->templates, diag);
    if (rc == 0)
        rc = open_store(tuner, options->existing_store, diag);
    return rc;
}

int fa_session_open(const fa_options *options, fa_source_maker *const *makers, int count,
                    fa_tuner **ret_tuner, fa_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    fa_options known;
    if (ret_tuner == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_tuner is NULL");
    int rc = fa_options_copy(options, &known, diag);
    if (rc != 0)
        return rc;
    fa_tuner *tuner = calloc(1, sizeof *tuner);
    if (tuner == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tuner");
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&tuner->work, NULL);
    pthread_mutex_init(&tuner->tuning, NULL);
    rc = set_up(tuner, &known, makers, count, diag);
    if (rc != 0)
        fa_close(&tuner);
    else
        *ret_tuner = tuner;
    return rc;
}

void fa_close(fa_tuner **tuner)
{
    if (tuner == NULL || *tuner == NULL)
        return;
    fa_tuner *t = *tuner;
    fa_kernel_table_free(&t->kernels);
    for (int i = 0; i < t->source_count; i++)
        t->source[i]->is->close(t->source[i]);
    fa_store_close(&t->store);
    fa_families_free(&t->families);
    fa_templates_close(&t->templates);
    fa_driver_close(&t->driver);
    pthread_mutex_destroy(&t->work);
    pthread_mutex_destroy(&t->tuning);
    free(t);
    *tuner = NULL;
}

const char *fa_store_file(const fa_tuner *tuner)
{
    return tuner != NULL ? tuner->store_path : "";
}

const char *fa_store_location(const fa_tuner *tuner)
{
    if (tuner == NULL)
        return "";
    const char *shared = fa_sources_location(tuner);
    return shared != NULL ? shared : tuner->store_path;
}

void fa_tuner_ignore_system(fa_tuner *tuner, bool ignore)
{
    pthread_mutex_lock(&tuner->work);
    tuner->ignore_system = ignore;
    pthread_mutex_unlock(&tuner->work);
}
