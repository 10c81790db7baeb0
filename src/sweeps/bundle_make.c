/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes winners of lines: of each the config is rendered and compiled with today's templates, checked as a tune checks
 * it, and becomes a winner with its cubin.
 *
 * A measured line is one kernel on one GPU: it stays measured while its config renders to the cubin key that was measured,
 * and proved where this NVRTC compiles it. Any other becomes predicted.
 *
 * Workload: some thousand lines that share some hundred cubins. The cubins take a quarter of a second each to
 * compile. Invariant: a compile worker that dies fails the whole, so that the result never depends on the load of the
 * machine.
 */
#include "lines.h"

#include "candidate.h"
#include "compile_pool.h"
#include "error.h"
#include "family.h"
#include "job.h"
#include "lookup.h"
#include "model.h"
#include "nvrtc.h"
#include "op.h"
#include "portable.h"
#include "problem.h"
#include "session.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines to winners -----------------------------------------------------------------------*/
struct making {
    fa_tuner *tuner;
    fa_nvrtc_location nvrtc;
    fa_lines *lines;
    const fa_import_options *source;
    fa_build *build;
    int32_t builds;
};

static int report_build(void *context, int done, int count)
{
    const fa_import_options *source = context;
    return source->progress != NULL ? source->progress(source->context, "compiling", done, count)
                                    : 0;
}

static void render_all(struct making *making)
{
    for (size_t i = 0; i < making->lines->count; i++) {
        fa_line *line = &making->lines->line[i];
        fa_rendered rendered = {.key = ""};
        fa_cubin_record stored = {0};
        int32_t at = 0; /* of its build */
        line->build = -1;
        if (fa_record_render(making->tuner, &line->answer, making->nvrtc.identity, &line->candidate,
                             &rendered, NULL) != 0) {
            fa_buf_free(&rendered.source);
            continue;
        }
        memcpy(line->key, rendered.key, sizeof line->key);
        while (at < making->builds && strcmp(making->build[at].key, rendered.key) != 0)
            at++;
        line->build = at;
        if (at == making->builds) {
            fa_build *build = &making->build[making->builds++];
            memcpy(build->key, rendered.key, sizeof build->key);
            memcpy(build->architecture, rendered.architecture, sizeof build->architecture);
            /* The key is a hash of everything that goes into a compile. */
            if (fa_store_cubin_get(making->tuner->store, build->key, &stored, NULL) == 0) {
                build->cubin = stored.bytes;
                build->size = stored.size;
                build->log = stored.log;
            } else {
                build->source = rendered.source.data; /* the buffer's memory goes on */
                rendered.source = (fa_buf){0};
            }
        }
        fa_buf_free(&rendered.source);
    }
}

/* Checks the cubin and fills in its registers and spills; false: the line is left out. */
static bool finish_trial(const struct making *making, fa_line *line, fa_trial *trial)
{
    const fa_answer *answer = &line->answer;
    fa_cubin_info cubin;
    char reason[256];
    if (line->build < 0)
        return false;
    const fa_build *build = &making->build[line->build];
    *trial = line->candidate.trial;
    if (build->cubin == NULL ||
        fa_op_read_cubin(making->tuner->families.family[line->candidate.family], &line->candidate,
                         &answer->problem, build->cubin, build->size, &cubin, NULL) != 0 ||
        fa_gate_cubin(&answer->gpu, &line->candidate, &cubin, build->log, reason, sizeof reason) !=
            FA_STATUS_COMPILED)
        return false;
    trial->registers = cubin.registers;
    trial->spill_bytes = cubin.stack_bytes;
    fa_model_predict(&line->candidate, &answer->problem, &answer->gpu, trial);
    trial->status = FA_STATUS_COMPILED;
    return true;
}

/* Makes the line's answer what is known of its kernel as it was compiled here. */
static void complete_answer(const struct making *making, fa_line *line, const fa_trial *trial)
{
    fa_answer *answer = &line->answer;
    const fa_trial said = answer->trial;
    bool measured = answer->origin <= FA_ORIGIN_IMPORTED && fa_record_holds(making->tuner, answer);
    answer->trial = *trial;
    if (measured) {
        answer->trial.status = FA_STATUS_MEASURED;
        fa_trial_take_times(&answer->trial, &said);
    } else {
        if (answer->origin != FA_ORIGIN_TRANSFERRED)
            answer->origin = fa_origin_untimed(trial);
        answer->default_us = 0;
        line->trials = 0;
    }
    /* The proof is valid for the proved bytes only, and another compiler may produce others. */
    if (!measured || strcmp(answer->cubin_key, line->key) != 0)
        answer->driver_version = 0;
    memcpy(answer->cubin_key, line->key, sizeof answer->cubin_key);
    snprintf(answer->nvrtc, sizeof answer->nvrtc, "%s", making->nvrtc.identity);
}

static int add_line(struct making *making, fa_line *line, fa_diag *diag)
{
    fa_trial trial;
    fa_tuner *tuner = making->tuner;
    const fa_answer *answer = &line->answer;
    if (!finish_trial(making, line, &trial)) {
        making->lines->failed++;
        return 0;
    }
    complete_answer(making, line, &trial);
    const fa_build *build = &making->build[line->build];
    const fa_family *family = tuner->families.family[line->candidate.family];
    fa_winner_record winner;
    fa_scope scope = {.problem = fa_problem_bucket(&answer->problem)};
    fa_gpu_silicon(&answer->gpu, scope.silicon);
    snprintf(scope.templates, sizeof scope.templates, "%s",
             fa_templates_hash(tuner->templates, fa_operation_of(&answer->problem)));
    snprintf(scope.policy, sizeof scope.policy, "%s", FA_MEASURE_POLICY);
    int rc = fa_records_winner(answer, &scope, &winner, diag);
    snprintf(winner.entry, sizeof winner.entry, "%s", family->launch[0].entry);
    if (rc == 0 && line->trials > 0)
        rc = fa_trials_join(line->trial, line->trials, &winner.evidence, diag);
    if (rc == 0)
        rc = fa_bundle_add(making->lines->part, &winner, build->cubin, build->size, diag);
    fa_winner_record_free(&winner);
    return rc;
}

static int make_lines(struct making *making, fa_diag *diag)
{
    fa_tuner *tuner = making->tuner;
    const fa_lines *lines = making->lines;
    int rc, sm = 0; /* the one that needs the newest NVRTC */
    for (size_t i = 0; i < lines->count; i++)
        if (fa_nvrtc_since(lines->line[i].answer.gpu.sm) > fa_nvrtc_since(sm))
            sm = lines->line[i].answer.gpu.sm;
    making->build = calloc(lines->count, sizeof *making->build);
    if (making->build == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %zu winners", lines->count);
    if ((rc = fa_tuner_families(tuner, diag)) != 0 ||
        (rc = fa_compiler_choose(tuner->worker_path, sm, &making->nvrtc, NULL, diag)) != 0 ||
        (rc = fa_portable_new(&making->lines->part, diag)) != 0)
        return rc;
    render_all(making);
    rc = fa_builds_run(tuner, tuner->templates, &making->nvrtc, making->build, making->builds,
                       report_build, (void *)(uintptr_t)making->source, diag);
    /* A failure by chance or by load must not leave a winner out. */
    for (int i = 0; rc == 0 && i < making->builds; i++)
        if (making->build[i].rc == FA_EWORKER)
            rc = fa_fail(diag, FA_EWORKER, "%s; nothing is written: try again",
                         making->build[i].diag.text);
    for (size_t i = 0; rc == 0 && i < lines->count; i++)
        rc = add_line(making, &lines->line[i], diag);
    return rc;
}

int fa_lines_make(fa_tuner *tuner, const fa_import_options *source, fa_lines *ret_lines,
                  fa_diag *diag)
{
    fa_lines lines = {0};
    struct making making = {.tuner = tuner, .lines = &lines, .source = source};
    int rc = fa_lines_read(source, &lines, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    if (lines.count > 0)
        rc = make_lines(&making, diag);
    pthread_mutex_unlock(&tuner->work);
    fa_builds_free(making.build, making.builds);
    if (rc != 0)
        fa_lines_free(&lines);
    else
        *ret_lines = lines;
    return rc;
}
