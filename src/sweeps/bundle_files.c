/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners that travel: exported from the store, each with its cubin and its evidence; imported from a bundle, or from lines,
 * each rendered and compiled with today's templates and checked as a tune checks it; and pushed to a server from the local
 * file, which served while that did not answer: exported there, and imported as this user's own.
 *
 * A measured line is one kernel on one GPU: it stays measured while its config renders to the cubin key that was measured,
 * and proved where this NVRTC compiles it. Any other becomes predicted.
 *
 * Workload: some thousand winners that share some hundred cubins, a quarter of a second each where one is compiled.
 *
 * Invariants: nobody changes a winner between its weighing and its replacement, and a better one stays. An import is all
 * or nothing: a compile worker that dies fails the whole, so that the result never depends on the load of the machine. A
 * push leaves the file as it is, so that one that ends in the middle is made again.
 */
#include "bundle_files.h"

#include "buf.h"
#include "builds.h"
#include "catalogue.h"
#include "compile_pool.h"
#include "error.h"
#include "job.h"
#include "json.h"
#include "lookup.h"
#include "model.h"
#include "nvrtc.h"
#include "op.h"
#include "problem.h"
#include "store.h"
#include "trial.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 262144,
    SAMPLED_MAX = 8, /* evidence is a few kilobytes for a winner, not a copy of the store */
};

/* Whether a file begins as such a file does. */
static bool is_lines(const char *path)
{
    char first = 0;
    FA_ENDS(fa_close_at)
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    return fd >= 0 && read(fd, &first, 1) == 1 && first == '{';
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

/* ---- lines: a winner ----------------------------------------------------------------------*/
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
    FA_OR_RETURN(fa_struct_from_json(json, line_members, answer, "winner", diag));
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

/* ---- lines: a baseline --------------------------------------------------------------------*/
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

/* ---- lines: the file ----------------------------------------------------------------------*/
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
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_ENDS(fa_lines_free) fa_lines lines = {0};
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
    if (rc == FA_EINVAL) /* whoever names the file has asked rightly */
        rc = FA_ECORRUPT;
    if (rc != 0)
        return fa_fail(diag, rc, "%.256s, line %d: %s", source->file, whole ? 1 : at.line,
                       why.text);
    if (lines.count + lines.baselines == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "%s holds no winner that is asked for: nothing is written", source->file);
    *ret_lines = lines;
    lines = (fa_lines){0};
    return 0;
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
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    fa_scope scope = {.problem = fa_problem_bucket(&answer->problem)};
    fa_gpu_silicon(&answer->gpu, scope.silicon);
    snprintf(scope.templates, sizeof scope.templates, "%s",
             fa_templates_hash(tuner->templates, fa_operation_of(&answer->problem)));
    snprintf(scope.policy, sizeof scope.policy, "%s", FA_MEASURE_POLICY);
    FA_OR_RETURN(fa_records_winner(answer, &scope, &winner, diag));
    snprintf(winner.entry, sizeof winner.entry, "%s", family->launch[0].entry);
    if (line->trials > 0)
        FA_OR_RETURN(fa_trials_join(line->trial, line->trials, &winner.evidence, diag));
    const int rc = fa_bundle_add(making->lines->part, &winner, build->cubin, build->size, diag);
    making->lines->failed += rc > 0; /* `show --json` has the newest first */
    return rc < 0 ? rc : 0;
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
    FA_OR_RETURN(fa_have(making->build != NULL, "winners", diag));
    FA_OR_RETURN(fa_tuner_families(tuner, diag));
    FA_OR_RETURN(fa_compiler_choose(tuner->worker_path, sm, &making->nvrtc, NULL, diag));
    FA_OR_RETURN(fa_portable_new(&making->lines->part, diag));
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

/* Reads them and compiles what they say: with at least one winner `part` holds them. */
static int read_and_make(fa_tuner *tuner, const fa_import_options *source, fa_lines *ret_lines,
                         fa_diag *diag)
{
    FA_ENDS(fa_lines_free) fa_lines lines = {0};
    struct making making = {.tuner = tuner, .lines = &lines, .source = source};
    FA_OR_RETURN(fa_lines_read(source, &lines, diag));
    const int rc = FA_HELD(tuner, lines.count > 0 ? make_lines(&making, diag) : 0);
    fa_builds_free(making.build, making.builds);
    FA_OR_RETURN(rc);
    *ret_lines = lines;
    lines = (fa_lines){0};
    return 0;
}

/* ---- trials as evidence ---------------------------------------------------------------------*/
/* Measured trials of a winner's scope, best first, the first few with samples and circumstances. */
static size_t choose_trials(fa_study_trial *record, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (record[i].trial.status == FA_STATUS_MEASURED)
            record[left++] = record[i];
    if (left > 0)
        qsort(record, left, sizeof *record, fa_configs_compare);
    left = left < FA_TRIAL_LIST_MAX ? left : FA_TRIAL_LIST_MAX;
    for (size_t i = SAMPLED_MAX; i < left; i++) {
        record[i].samples_us = NULL;
        record[i].environment = record[i].clocks = NULL;
        record[i].sample_count = 0;
    }
    return left;
}

int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_study_trial *record = NULL;
    size_t count = 0;
    if (winner->evidence == NULL)
        return 0;
    FA_OR_RETURN(fa_trials_from_evidence(winner->evidence, &record, &count, diag));
    if (count == 0) { /* not imported */
        FA_OR_RETURN(fa_store_trials(store, &winner->scope, &record, &count, diag));
        count = choose_trials(record, count);
    }
    return count > 0 ? fa_trials_join(record, count, &winner->evidence, diag) : 0;
}

/* ---- exporting ------------------------------------------------------------------------------*/
/* The same winner with an evidence of its own. */
static int copy_winner(const fa_winner_record *stored, fa_winner_record *ret_winner, fa_diag *diag)
{
    *ret_winner = *stored;
    ret_winner->evidence = stored->evidence != NULL ? strdup(stored->evidence) : NULL;
    return stored->evidence != NULL && ret_winner->evidence == NULL
               ? fa_fail(diag, FA_ENOMEM, "out of memory for evidence")
               : 0;
}

/* Adds a winner of a store to the bundle's part, or leaves it out. */
static int export_one(fa_tuner *tuner, fa_store *from, const fa_export_options *options,
                      fa_store *part, const fa_winner_record *stored, fa_bundle_info *told,
                      fa_diag *diag)
{
    fa_answer answer;
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    FA_OR_RETURN(fa_records_answer(stored, NULL, &answer, diag));
    if (options->keep != NULL && !options->keep(options->context, &answer))
        return 0;
    int rc = copy_winner(stored, &winner, diag);
    if (rc == 0)
        rc = fa_store_cubin_get(from, winner.cubin_key, &cubin, diag);
    if (rc == 0)
        rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, diag);
    if (rc == 0)
        rc = fa_bundle_add_trials(from, &winner, diag);
    if (rc == 0)
        rc = fa_bundle_add(part, &winner, cubin.bytes, cubin.size, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT) {
        fa_note(tuner, "a winner is left out: %s", diag->text);
        told->skipped++;
        rc = 0;
    }
    return rc;
}

/* `work` is held. */
static int export_stored(fa_tuner *tuner, fa_store *from, const fa_export_options *options,
                         fa_store **ret_part, fa_bundle_info *told, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_winner_record *rows = NULL;
    size_t count = 0, unread = 0;
    FA_OR_RETURN(fa_portable_new(ret_part, diag));
    FA_OR_RETURN(fa_store_winners_by_cubin(from, &rows, &count, &unread, diag));
    told->unread = (int32_t)unread;
    for (size_t i = 0; i < count; i++)
        FA_OR_RETURN(export_one(tuner, from, options, *ret_part, &rows[i], told, diag));
    return 0;
}

int fa_export(fa_tuner *tuner, const fa_export_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    fa_diag reason = {{0}};
    FA_ENDS(fa_lines_free) fa_lines lines = {0};
    fa_secret_key secret = {.algorithm = {0}};
    char signature[FA_STORE_PATH_MAX];
    fa_bundle_info told = {0};
    diag = diag != NULL ? diag : &reason;
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_export_options)");
    const fa_import_options source = {.file = options->lines,
                                      .keep = options->keep,
                                      .progress = options->progress,
                                      .context = options->context};
    int rc = fa_output_check(options->file, true, diag);
    if (rc == 0)
        rc = fa_bundle_signature_path(options->file, signature, diag);
    if (rc == 0)
        rc = fa_output_check(signature, false, diag);
    if (rc == 0 && !options->no_signature) /* a missing key is reported before any work is done */
        rc = fa_keys_secret(options->key, &secret, diag);
    if (rc == 0 && source.file != NULL) {
        rc = read_and_make(tuner, &source, &lines, diag);
    } else if (rc == 0) {
        rc = FA_HELD(tuner, export_stored(tuner, tuner->store, options, &lines.part, &told, diag));
    }
    if (rc == 0 && lines.part == NULL)
        rc = fa_fail(diag, FA_ENOTFOUND, "%s holds no winner", source.file);
    if (rc == 0)
        rc = fa_bundle_write(lines.part, options->file, options->no_signature ? NULL : &secret,
                             ret_info, diag);
    if (rc == 0 && ret_info != NULL) {
        ret_info->trusted = ret_info->is_signed;
        ret_info->skipped = told.skipped;
        ret_info->unread = told.unread;
        ret_info->failed = lines.failed;
        ret_info->baselines = (int32_t)lines.baselines;
    }
    explicit_bzero(&secret, sizeof secret);
    return rc;
}

/* Imports a bundle in one transaction: each winner is checked, compared with the store's and written. One that is not
 * valid undoes it. */
struct importing {
    fa_tuner *tuner;
    fa_bundle *bundle;
    fa_bundle_info info;
    bool dry_run;
    bool own;                    /* this user's winners, made elsewhere: they stay what they are */
    char cubin_key[FA_HASH_HEX]; /* of the last winner */
    bool other_bytes;            /* the store has others under its key */
    bool put;                    /* it is in the store */
};

/* ---- checking, weighing and writing ---------------------------------------------------------*/
/* Whether the store has others under the cubin's key, which is a hash of the source, not of the bytes. */
static int has_other_bytes(fa_store *store, const fa_cubin_record *cubin, bool *ret_other,
                           fa_diag *diag)
{
    FA_ENDS(fa_cubin_record_free) fa_cubin_record stored = {0};
    int rc = fa_store_cubin_get(store, cubin->key, &stored, diag);
    *ret_other = rc == 0 && (stored.size != cubin->size ||
                             memcmp(stored.bytes, cubin->bytes, cubin->size) != 0);
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
}

/* What a winner from elsewhere is to the store's of its scope. A winner that cannot be served (its cubin is gone,
 * its row is invalid) does not count. */
static int weigh_here(fa_store *store, const fa_winner_record *winner, fa_bundle_change *ret_change,
                      fa_diag *diag)
{
    FA_ENDS(fa_winner_record_free) fa_winner_record stored = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    int rc = fa_store_winner_get(store, &winner->scope, &stored, &cubin, diag);
    *ret_change = rc == 0 ? fa_bundle_weigh(&stored, winner) : FA_BUNDLE_ADDED;
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
}

static int take_one(struct importing *importing, const fa_winner_record *winner,
                    const fa_cubin_record *cubin, fa_diag *diag)
{
    fa_bundle_info *info = &importing->info;
    fa_store *store = importing->tuner->store;
    fa_answer answer;
    fa_bundle_change change = FA_BUNDLE_KEPT;
    FA_ENDS(fa_winner_record_free) fa_winner_record here = {0};
    FA_OR_RETURN(fa_bundle_check_cubin(winner, cubin->bytes, cubin->size, diag));
    FA_OR_RETURN(fa_records_answer(winner, NULL, &answer, diag));
    if (strcmp(cubin->key, importing->cubin_key) != 0) {
        memcpy(importing->cubin_key, cubin->key, sizeof importing->cubin_key);
        importing->put = false;
        FA_OR_RETURN(has_other_bytes(store, cubin, &importing->other_bytes, diag));
    }
    info->unserved +=
        !fa_templates_match(fa_templates_for(importing->tuner, &winner->scope.problem),
                            &winner->scope.problem, winner->scope.templates) ||
        !FA_POLICY_IS_OURS(winner->scope.policy);
    FA_OR_RETURN(copy_winner(winner, &here, diag));
    if (!importing->own)
        FA_OR_RETURN(fa_bundle_adopt(&here, info->trusted ? info->key : "unsigned", diag));
    /* The proof of an imported winner is believed if its signer is trusted and the store has the very bytes that were
     * proved; the store keeps the bytes that it has. Other winners are proved here before their first launch. */
    if (!(info->trusted || importing->own) || importing->other_bytes)
        here.driver_version = 0;
    if (!importing->dry_run)
        FA_OR_RETURN(fa_store_winner_hold(store, &here.scope, diag));
    FA_OR_RETURN(weigh_here(store, &here, &change, diag));
    if ((change == FA_BUNDLE_ADDED || change == FA_BUNDLE_REPLACED) && !importing->dry_run) {
        FA_OR_RETURN(importing->put ? 0 : fa_store_cubin_put(store, cubin, diag));
        importing->put = true;
        FA_OR_RETURN(fa_store_winner_put(store, &here, NULL, true, NULL, diag));
    }
    info->added += change == FA_BUNDLE_ADDED;
    info->replaced += change == FA_BUNDLE_REPLACED;
    info->kept += change == FA_BUNDLE_KEPT;
    info->same += change == FA_BUNDLE_SAME;
    return 0;
}

static int take_all(struct importing *importing, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_winner_record *rows = NULL;
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    size_t count = 0;
    importing->info =
        *fa_bundle_get_info(importing->bundle); /* counts anew: a change may be tried again */
    importing->cubin_key[0] = 0;
    FA_OR_RETURN(fa_bundle_winners(importing->bundle, &rows, &count, diag));
    for (size_t i = 0; i < count; i++) {
        FA_OR_RETURN(fa_bundle_cubin_of(importing->bundle, &rows[i], &cubin, diag));
        FA_OR_RETURN(take_one(importing, &rows[i], &cubin, diag));
    }
    return 0;
}

static int import_bundle(struct importing *importing, fa_bundle_info *ret_info, fa_diag *diag)
{
    fa_tuner *tuner = importing->tuner;
    int rc;
    FA_HOLDS(&tuner->work);
    if (importing->dry_run)
        rc = take_all(importing, diag);
    else if (fa_store_is_read_only(tuner->store))
        rc = fa_fail(diag, FA_EREADONLY, "the store %s cannot be written", tuner->store_path);
    else
        rc = FA_CHANGED(tuner->store, diag, take_all(importing, diag));
    if (rc == 0 && ret_info != NULL)
        *ret_info = importing->info;
    return rc;
}

/* Imports the winners of lines as an unsigned bundle, and then the baselines. */
static int import_lines(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
                        fa_diag *diag)
{
    FA_ENDS(fa_lines_free) fa_lines lines = {0};
    struct importing importing = {.tuner = tuner, .dry_run = options->dry_run};
    fa_bundle_info info = {0};
    int rc = read_and_make(tuner, options, &lines, diag);
    if (rc == 0 && lines.part != NULL)
        rc = fa_bundle_of(&lines.part, options->file, &importing.bundle, diag);
    if (rc == 0 && importing.bundle != NULL)
        rc = import_bundle(&importing, &info, diag);
    fa_bundle_close(&importing.bundle);
    if (rc == 0 && !options->dry_run) {
        rc = FA_HELD(tuner,
                     fa_store_baselines_put(tuner->store, lines.baseline, lines.baselines, diag));
    }
    info.failed = lines.failed;
    info.baselines = (int32_t)lines.baselines;
    info.from_lines = true;
    if (rc == 0 && ret_info != NULL)
        *ret_info = info;
    return rc;
}

int fa_import(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    struct importing importing = {.tuner = tuner};
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_import_options)");
    if (is_lines(options->file))
        return import_lines(tuner, options, ret_info, diag);
    if (options->keep != NULL)
        return fa_fail(
            diag, FA_EINVAL,
            "a bundle is imported whole: only of a file of lines can a GPU or a problem be chosen");
    /* The signer is checked before anything in the bundle is read. */
    int rc = fa_bundle_open_whole(options->file, options, &importing.bundle, diag);
    importing.dry_run = options->dry_run;
    if (rc == 0)
        rc = import_bundle(&importing, ret_info, diag);
    fa_bundle_close(&importing.bundle);
    return rc;
}

/* ---- pushing --------------------------------------------------------------------------------*/
int fa_push(fa_tuner *tuner, fa_bundle_info *ret_pushed, fa_diag *diag)
{
    const fa_export_options all = {.size = sizeof all};
    struct importing importing = {.tuner = tuner, .own = true};
    fa_bundle_info pushed = {0}, told = {0};
    fa_store *file = NULL, *part = NULL;
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_pushed != NULL, "ret_pushed", diag));
    if (tuner->spare_path[0] == 0)
        return fa_fail(diag, FA_ESTORE,
                       "the store %s is a file: set FA_TUNE_STORE to the server's address, "
                       "postgresql://USER@HOST/DATABASE",
                       tuner->store_path);
    pthread_mutex_lock(&tuner->work);
    int rc = fa_tuner_need_server(tuner, diag);
    if (rc == 0)
        rc = fa_store_open(tuner->spare_path, FA_STORE_EXISTING, NULL, &file, NULL, diag);
    if (rc == 0)
        rc = export_stored(tuner, file, &all, &part, &told, diag);
    fa_store_close(&file);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0)
        rc = fa_bundle_of(&part, tuner->spare_path, &importing.bundle, diag);
    if (rc == 0)
        rc = import_bundle(&importing, &pushed, diag);
    fa_bundle_close(&importing.bundle);
    fa_store_close(&part);
    if (rc != 0 && rc != FA_ENOTFOUND) /* there is no winner */
        return rc;
    pushed.skipped = told.skipped;
    *ret_pushed = pushed;
    return 0;
}
