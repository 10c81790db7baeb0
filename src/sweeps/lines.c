/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners of lines: each is read, its config rendered and compiled with today's templates and checked as a tune checks it;
 * it becomes a winner with its cubin.
 *
 * A measured line is one kernel on one GPU: it stays measured while its config renders to the cubin key that was measured,
 * and proved where this NVRTC compiles it. Any other becomes predicted.
 *
 * Workload: some thousand lines that share some hundred cubins. The cubins take a quarter of a second each to
 * compile. Invariant: a compile worker that dies fails the whole, so that the result never depends on the load of the
 * machine.
 */
#include "lines.h"

#include "buf.h"
#include "catalogue.h"
#include "compile_pool.h"
#include "error.h"
#include "job.h"
#include "json.h"
#include "lookup.h"
#include "model.h"
#include "nvrtc.h"
#include "op.h"
#include "store.h"
#include "problem.h"
#include "session.h"
#include "trial.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 262144 };

bool fa_is_lines(const char *path)
{
    char first = 0;
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    bool is = fd >= 0 && read(fd, &first, 1) == 1 && first == '{';
    if (fd >= 0)
        close(fd);
    return is;
}

void fa_lines_free(fa_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->line[i].trial);
    free(lines->line);
    free(lines->baseline);
    fa_store_close(&lines->part);
    *lines = (fa_lines){0};
}

/* ---- a winner -------------------------------------------------------------------------------*/
/* The catalogue's entry of this name and, where the line says it, this silicon, or of the silicon alone. */
static int read_gpu(const cJSON *json, void *ret_gpu, fa_diag *diag)
{
    char silicon[FA_SILICON_MAX] = "", other[FA_SILICON_MAX];
    fa_gpu *listed = ret_gpu, gpu = {0};
    const char *name, *refused;
    int rc = fa_json_text(json, "name", &name, "gpu", diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? fa_fail(diag, FA_EINVAL, "\"gpu\" has no \"name\"") : rc;
    if (fa_struct_from_json(json, fa_gpu_members, &gpu, "gpu", NULL) == 0)
        fa_gpu_silicon(&gpu, silicon);
    rc = fa_catalogue_find(name, listed, diag);
    if (rc != 0 && silicon[0] == 0)
        return rc;
    if (rc == 0)
        fa_gpu_silicon(listed, other);
    if (rc == 0 && (silicon[0] == 0 || strcmp(silicon, other) == 0))
        return 0;
    for (int i = 0; i < fa_catalogue_count(); i++) {
        fa_catalogue_at(i, listed, &refused);
        fa_gpu_silicon(listed, other);
        if (refused == NULL && strcmp(silicon, other) == 0)
            return 0;
    }
    return fa_fail(diag, FA_EINVAL, "no GPU of the catalogue is %s: %s", name, silicon);
}

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define MAYBE .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_NULL
#define COUNT(member) ROW(member, COUNT, MAYBE)

static const fa_member answer_members[] = {
    ROW(origin, CHOICE, .names = fa_origin_names),
    ROW(trial, PART, .members = fa_timed_members),
    ROW(cubin_key, TEXT, MAYBE),
    ROW(nvrtc, TEXT, MAYBE),
    COUNT(driver_version),
    ROW(unix_time, COUNT64, .most = (int64_t)1 << 40),
    ROW(undated, FLAG, MAYBE),
    ROW(default_us, REAL, MAYBE),
    COUNT(ties),
    COUNT(ties_differ),
    ROW(same_bits, TEXT, MAYBE),
    ROW(strategy, TEXT, MAYBE),
    {.key = "funnel",
     .kind = FA_MEMBER_STRUCT,
     .rules = FA_MEMBER_OPTIONAL,
     .members = fa_funnel_members},
    {.key = NULL},
};

static const fa_member line_members[] = {
    ROW(problem, OTHER, .read = fa_member_read_problem),
    ROW(gpu, OTHER, .read = read_gpu),
    {.key = "answer", .kind = FA_MEMBER_STRUCT, .members = answer_members},
    {.key = NULL},
};
#undef ROW

static int read_winner(const cJSON *json, fa_line *line, fa_diag *diag)
{
    fa_answer *answer = &line->answer;
    answer->size = sizeof *answer;
    int rc = fa_struct_from_json(json, line_members, answer, "winner", diag);
    if (rc != 0)
        return rc;
    if (answer->origin == FA_ORIGIN_MEASURED_SAME_SILICON)
        answer->origin = FA_ORIGIN_MEASURED;
    if (answer->origin == FA_ORIGIN_NEAREST) /* what a lookup says, not what a winner is */
        return fa_fail(diag, FA_EINVAL, "no winner is stored as \"%s\"",
                       fa_origin_name(answer->origin));
    if (answer->origin > FA_ORIGIN_IMPORTED)
        return 0;
    return fa_trial_is_timed(&answer->trial)
               ? fa_trials_from_json(fa_json_member(json, "trials"), &line->trial, &line->trials,
                                     diag)
               : fa_fail(diag, FA_EINVAL, "its median does not lie in its interval");
}

static int add_winner(const cJSON *json, const fa_import_options *source, fa_lines *lines,
                      fa_diag *diag)
{
    fa_line line = {.build = -1};
    int rc = read_winner(json, &line, diag);
    /* A config is compiled here, and that whose bits it had would be, perhaps by another compiler: not proved again. */
    const bool wanted = rc == 0 && line.answer.same_bits[0] == 0 &&
                        (source->keep == NULL || source->keep(source->context, &line.answer));
    if (wanted && lines->count == FA_LINES_MAX)
        rc = fa_fail(diag, FA_EINVAL, "more than %d winners", FA_LINES_MAX);
    else if (wanted &&
             fa_append(&lines->line, &lines->count, &lines->capacity, &line, sizeof line) != 0)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for winners");
    if (rc != 0 || !wanted)
        free(line.trial);
    return rc;
}

/* ---- a baseline -----------------------------------------------------------------------------*/
static int read_any_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    if (json == NULL)
        return fa_fail(diag, FA_EINVAL, "\"problem\" is missing");
    int rc = fa_problem_from_json(json, true, "*", ret_problem, diag);
    for (const cJSON *item = rc == 0 ? json->child : NULL; item != NULL; item = item->next)
        if ((fa_operation_field_index(fa_operation_of(ret_problem), item->string) >= 0 ||
             strcmp(item->string, "operation") == 0) &&
            cJSON_GetObjectItemCaseSensitive(json, item->string) != item)
            return fa_fail(diag, FA_EINVAL, "problem: the key \"%.40s\" appears twice",
                           item->string);
    return rc;
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_baseline, member, __VA_ARGS__),
static const fa_member baseline_members[] = {
    FA_BASELINE_FIELDS(ROW)
        FA_MEMBER("problem", OTHER, fa_baseline, problem, .read = read_any_problem),
    {.key = NULL},
};
#undef ROW

static int add_baseline(const cJSON *json, const fa_import_options *source, fa_lines *lines,
                        fa_diag *diag)
{
    fa_baseline baseline = {.unix_time = (int64_t)time(NULL)};
    fa_answer answer;
    fa_gpu gpu;
    bool dry_run = false; /* lines that show the form alone say so, and are no evidence */
    int rc = fa_json_bool(json, "dry_run", &dry_run, "baseline", diag);
    if (rc == 0 && dry_run)
        rc = fa_fail(diag, FA_EINVAL, "its time is made up (\"dry_run\"), not measured");
    if ((rc != 0 && rc != FA_ENOTFOUND) ||
        (rc = fa_struct_from_json(json, baseline_members, &baseline, "baseline", diag)) != 0 ||
        (rc = fa_baseline_check(&baseline, diag)) != 0)
        return rc;
    if (fa_catalogue_find(baseline.gpu_name, &gpu, NULL) == 0)
        memcpy(baseline.gpu_name, gpu.name, sizeof gpu.name);
    answer = (fa_answer){.problem = baseline.problem};
    memcpy(answer.gpu.name, baseline.gpu_name, sizeof answer.gpu.name);
    if (source->keep != NULL && !source->keep(source->context, &answer))
        return 0;
    if (lines->baselines == FA_LINES_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d baselines", FA_LINES_MAX);
    rc = fa_append(&lines->baseline, &lines->baselines, &lines->baseline_capacity, &baseline,
                   sizeof baseline);
    return rc == 0 ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for baselines");
}

/* ---- the file -------------------------------------------------------------------------------*/
static int take(const cJSON *json, const fa_import_options *source, fa_lines *lines, fa_diag *diag)
{
    const cJSON *winners = fa_json_member(json, "winners"), *item;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "must be a JSON object");
    if (cJSON_HasObjectItem(json, "fa_tune_records"))
        return fa_fail(
            diag, FA_EVERSION,
            "records of an earlier form: import them with the fa-tune that made them, and "
            "export a bundle");
    if (cJSON_HasObjectItem(json, "peer"))
        return add_baseline(json, source, lines, diag);
    if (!cJSON_IsArray(winners))
        return add_winner(json, source, lines, diag);
    int rc = 0;
    cJSON_ArrayForEach (item, winners)
        if (rc == 0)
            rc = add_winner(item, source, lines, diag);
    return rc;
}

int fa_lines_read(const fa_import_options *source, fa_lines *ret_lines, fa_diag *diag)
{
    fa_buf text;
    fa_lines lines = {0};
    fa_diag why = {{0}};
    cJSON *json = NULL;
    int rc = fa_input_read(&text, source->file, FA_LINES_BYTES_MAX, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "winners %s", source->file);
    fa_json_lines at = {.at = text.data, .end = text.data + text.size};
    const bool whole = fa_json_parse(text.data, text.size, "", &json, NULL) == 0 &&
                       cJSON_HasObjectItem(json, "winners");
    if (whole)
        rc = take(json, source, &lines, &why);
    cJSON_Delete(json);
    while (!whole && rc == 0 && (rc = fa_json_next_line(&at, LINE_MAX_BYTES, &json, &why)) == 0 &&
           json != NULL) {
        rc = take(json, source, &lines, &why);
        cJSON_Delete(json);
    }
    fa_buf_free(&text);
    if (rc == FA_EINVAL) /* whoever names the file has asked rightly */
        rc = FA_ECORRUPT;
    if (rc != 0)
        fa_fail(diag, rc, "%.256s, line %d: %s", source->file, whole ? 1 : at.line, why.text);
    else if (lines.count + lines.baselines == 0)
        rc = fa_fail(diag, FA_ENOTFOUND, "%s holds no winner that is asked for: nothing is written",
                     source->file);
    if (rc != 0)
        fa_lines_free(&lines);
    else
        *ret_lines = lines;
    return rc;
}

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
        fa_compile_task task;
        fa_cubin_record stored = {0};
        int32_t at = 0; /* of its build */
        line->build = -1;
        if (fa_record_render(making->tuner, &line->answer, making->nvrtc.identity, &line->candidate,
                             &task, NULL) != 0)
            continue;
        memcpy(line->key, task.key, sizeof line->key);
        while (at < making->builds && strcmp(making->build[at].task.key, task.key) != 0)
            at++;
        line->build = at;
        if (at == making->builds) {
            fa_build *build = &making->build[making->builds++];
            build->task = task;
            task.source = NULL;
            if (fa_store_cubin_get(making->tuner->store, task.key, &stored, NULL) == 0) {
                build->cubin = stored.bytes;
                build->size = stored.size;
                build->log = stored.log;
                free(build->task.source);
                build->task.source = NULL;
            }
        }
        free(task.source);
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
