/* SPDX-License-Identifier: Apache-2.0
 *
 * From a kernel specification to an operation with one family.
 *
 * Workload: a few specifications in a process; each costs some milliseconds.
 * Invariant: a specification lives as long as its operation, which the process keeps. The same text is one of both.
 */
#include "spec.h"

#include "family.h"
#include "nvrtc.h"
#include "spec_reading.h"

#include "problem.h"
#include "tensors.h"
#include "trial.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 20, SHORT_HASH = 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all cases */

/* ---- from texts to a specification -----------------------------------------------------------*/
static int read_identity(struct fa_spec_reading *r)
{
    static const char *const keys[] = {
        "name",    "kernel",       "source",  "arguments", "sizes",    "tune",
        "default", "restrictions", "defines", "block",     "grid",     "shared_memory",
        "answer",  "rtol",         "atol",    "flops",     "bytes",    "include",
        "options", "launches",     "work",    "cluster",   "strategy", "evaluations",
        "seconds", "cooperative",  NULL};
    int rc = fa_spec_check_keys(r, r->json, "", keys);
    const char *name = fa_spec_text(r->json, "name");
    if (rc == 0 && name[0] != 0)
        snprintf(r->name, sizeof r->name, "%s", name);
    if (rc == 0 && !fa_spec_is_name(r->name, FA_NAME_MAX - 8))
        rc = fa_spec_fault(
            r, "\"name\" is \"%.60s\": use at most %d of a-z, 0-9 and _, a letter first",
            name[0] != 0 ? name : r->name, FA_NAME_MAX - 9);
    return rc;
}

/* ---- sources ---------------------------------------------------------------------------------*/
/* The text as it is compiled: with the instances of templates, and a line that names, for every key and
 * hash that covers the text, what else goes into its compile. */
static int finish_source(struct fa_spec_reading *r, const char *file, const char *text,
                         const char *const *instance, int count, const char *before,
                         char **ret_text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-+ ";
    fa_buf out = {0};
    const cJSON *option;
    char hash[FA_HASH_HEX];
    fa_includes_hash(r->includes, hash);
    fa_buf_text(&out, before);
    if (file[0] != 0 && strspn(file, plain) == strlen(file)) /* the compiler tells its lines */
        fa_buf_printf(&out, "#line 1 \"%s\"\n", file);
    else if (before[0] != 0)
        fa_buf_text(&out, "#line 1\n");
    fa_buf_printf(&out, "%s\n", text);
    for (int i = 0; i < count; i++)
        fa_buf_printf(&out,
                      "#line 1 \"the name of the kernel\"\n"
                      "template __global__ decltype(%s) %s;\n",
                      instance[i], instance[i]);
    fa_buf_printf(&out, "// compiled with files of hash %s and", hash);
    cJSON_ArrayForEach (option, fa_spec_member(r->json, "options"))
        fa_buf_printf(&out, " %s", option->valuestring);
    fa_buf_text(&out, "\n");
    if (out.failed) {
        fa_buf_free(&out);
        return fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    }
    *ret_text = out.data;
    return 0;
}

static const char *answer_named(struct fa_spec_reading *r)
{
    const cJSON *answer = fa_spec_member(r->json, "answer");
    return cJSON_IsString(answer) ? answer->valuestring : fa_spec_text(answer, "kernel");
}

/* Finds the kernel and the answer's, which is of the same text unless it has its own. A cubin has one instance of a template:
 * the answer is then compiled from a text of its own. */
static int find_kernels(struct fa_spec_reading *r, bool answer_source)
{
    const cJSON *answer = fa_spec_member(r->json, "answer");
    char where[512];
    bool template = false;
    r->launches = fa_spec_check_launches(r);
    int rc = r->rc;
    r->answered = answer != NULL && fa_spec_member(answer, "given") == NULL;
    snprintf(where, sizeof where, "%.400s: answer", r->where);
    if (rc == 0 && r->answered && !answer_source && answer_named(r)[0] == 0)
        return fa_spec_fault(r, "\"answer\" must name a kernel, or say {\"kernel\", \"source\"}");
    if (rc == 0 && r->answered)
        rc = fa_source_kernel(where, r->cut, answer_source, answer_named(r), "", r->answer,
                              &r->answer_template, r->diag);
    for (int i = 0; i < r->launches && rc == 0; i++) {
        const char *kernel = fa_spec_text(fa_spec_launch(r, i), "kernel");
        char place[32] = "";
        if (fa_spec_member(r->json, "launches") != NULL)
            snprintf(place, sizeof place, ": launches[%d]", i);
        snprintf(where, sizeof where, "%.400s%s%s", r->where, place,
                 kernel[0] != 0 ? ": kernel" : "");
        rc = fa_source_kernel(where, r->cut, 0, kernel, !answer_source ? r->answer : "",
                              r->entry[i], &template, r->diag);
        if (rc == 0 && template)
            r->instance[r->instances++] = kernel;
        if (rc == 0 && r->answered && !answer_source && strcmp(r->entry[i], r->answer) == 0 &&
            (!template || strcmp(answer_named(r), kernel) == 0))
            return fa_spec_fault(r,
                                 "answer: %s is the kernel itself: name another, or leave "
                                 "\"answer\" out, and the configs must agree",
                                 answer_named(r));
    }
    return rc;
}

static int make_sources(struct fa_spec_reading *r, bool answer_source, const char *before)
{
    const char *source = fa_includes_source(r->includes, 0), *named = answer_named(r);
    int rc = finish_source(r, r->file, source, r->instance, r->instances, before, &r->source);
    if (rc == 0 && r->answered && (answer_source || r->instances > 0 || r->answer_template))
        rc = finish_source(
            r, answer_source ? fa_spec_text(fa_spec_member(r->json, "answer"), "source") : r->file,
            fa_includes_source(r->includes, answer_source), &named, r->answer_template, before,
            &r->answer_source);
    return rc;
}

/* The macro that an option sets has its value from the specification. */
static int check_macro(struct fa_spec_reading *r, const char *option)
{
    static const char *const spellings[] = {"-define-macro=", "-undefine-macro=", "-D", "-U"};
    const char *dash = option + (option[1] == '-'), *key;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        size_t size = strlen(spellings[i]);
        if (strncmp(dash, spellings[i], size) == 0 &&
            fa_spec_macro(r->json, dash + size, strcspn(dash + size, "="), &key) != NULL)
            return fa_spec_fault(r, "options: %.60s names %s of \"%s\", which has its value there",
                                 option, strcmp(key, "tune") == 0 ? "a tunable" : "a macro", key);
    }
    return 0;
}

static int check_options(struct fa_spec_reading *r)
{
    int rc = 0;
    const cJSON *option, *options = fa_spec_member(r->json, "options");
    if (options != NULL &&
        (!cJSON_IsArray(options) || cJSON_GetArraySize(options) > FA_OPTIONS_MAX))
        return fa_spec_fault(r, "\"options\" must be an array of at most %d options of NVRTC",
                             FA_OPTIONS_MAX);
    cJSON_ArrayForEach (option, options) {
        if (!cJSON_IsString(option) || !fa_nvrtc_allows(option->valuestring))
            return fa_spec_fault(
                r,
                "options: \"%.60s\" may not be set: use -std=, -D, -U, -use_fast_math, -fmad=, "
                "-maxrregcount= and others of the kind, each with its value in one text",
                cJSON_IsString(option) ? option->valuestring : "");
        if (rc == 0)
            rc = check_macro(r, option->valuestring);
        r->keeps_host = r->keeps_host || strstr(option->valuestring, "-default-device") != NULL ||
                        strstr(option->valuestring, "-device-as-default") != NULL;
    }
    return rc;
}

/* ---- what is known ---------------------------------------------------------------------------*/
const fa_spec *fa_spec_of(const fa_operation *operation)
{
    return operation->spec;
}

const char *fa_spec_fault_of(const fa_operation *operation)
{
    return operation->spec != NULL ? operation->spec->fault : "";
}

int fa_spec_set_cases(const fa_operation *operation, fa_case_function *function, void *context,
                      int32_t contents, fa_diag *diag)
{
    fa_spec *spec = operation->spec;
    if (spec == NULL || contents < 0)
        return fa_fail(diag, FA_EINVAL,
                       "%s is no kernel specification of this process, or the hash is negative",
                       operation->name);
    pthread_mutex_lock(&mutex);
    spec->cases = function;
    spec->cases_context = context;
    pthread_mutex_unlock(&mutex);
    atomic_store(&((fa_operation *)(uintptr_t)operation)->contents, contents);
    return 0;
}

fa_case_function *fa_spec_cases_of(const fa_operation *operation, void **ret_context)
{
    const fa_spec *spec = operation->spec;
    pthread_mutex_lock(&mutex);
    fa_case_function *function = spec != NULL ? spec->cases : NULL;
    *ret_context = spec != NULL ? spec->cases_context : NULL;
    pthread_mutex_unlock(&mutex);
    return function;
}

static void free_spec(fa_spec *spec)
{
    if (spec == NULL)
        return;
    fa_families_free(&spec->families);
    fa_templates_close(&spec->templates);
    fa_includes_close(&spec->includes);
    fa_buf_free(&spec->left);
    fa_buf_free(&spec->macro);
    free(spec);
}

/* What it is compiled with, from the reading and the operation's document. */
static int take_compiled_with(struct fa_spec_reading *r, const fa_operation *operation,
                              fa_spec *spec)
{
    static const char *const keys[] = {"tune", "defines"};
    const cJSON *option, *macro;
    fa_compiled_with *with = &spec->with;
    fa_buf_text(&spec->macro, " ");
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach (macro, fa_spec_member(r->json, keys[i]))
            fa_buf_printf(&spec->macro, "%s ", macro->string);
    fa_buf_text(&r->left, "");
    spec->left = r->left;
    spec->includes = r->includes;
    r->left = (fa_buf){0};
    r->includes = NULL;
    with->macro = spec->macro.data;
    with->left = spec->left.data;
    with->header = fa_includes_files(spec->includes, &with->header_count);
    with->cuda_headers = fa_includes_cuda(spec->includes);
    with->option = spec->option;
    if (!r->keeps_host) /* for what is constexpr */
        spec->option[with->option_count++] = "-default-device";
    cJSON_ArrayForEach (option, fa_spec_member(operation->document, "options"))
        spec->option[with->option_count++] = option->valuestring;
    return spec->macro.failed || spec->left.failed
               ? fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where)
               : 0;
}

/* What the answer is launched with and what a launch counts for, for their places are not told where they are read. */
static int check_expressions(struct fa_spec_reading *r, const fa_operation *operation)
{
    static const char *const keys[] = {"grid", "block", "flops", "bytes"};
    const cJSON *tunable, *document = operation->document,
                          *answer = fa_spec_member(document, "answer");
    for (int i = 0; i < 4; i++) {
        const cJSON *is = fa_spec_member(i < 2 ? answer : document, keys[i]);
        const bool list = cJSON_IsArray(is);
        for (is = list ? is->child : is; is != NULL; is = list ? is->next : NULL) {
            char room[32];
            const char *text = fa_json_expression(is, room);
            const char *place = i < 2 ? "answer: " : "";
            fa_expr *expr = NULL;
            if (text == NULL)
                return fa_spec_fault(r, "%s\"%s\" must be one to three expressions", place,
                                     keys[i]);
            int rc = fa_operation_expr(operation, text, &expr, r->diag);
            fa_expr_free(&expr);
            cJSON_ArrayForEach (tunable, fa_spec_member(r->json, "tune"))
                if (rc != 0 && fa_code_find(text, tunable->string) != NULL)
                    return fa_spec_fault(
                        r,
                        "%s%s: uses the unknown name %s: it is a tunable, and an answer, one "
                        "kernel for all configs, knows sizes alone",
                        place, keys[i], tunable->string);
            if (rc != 0)
                return fa_fail_in(r->diag, rc == FA_EINVAL ? FA_EMANIFEST : rc, "%s: %s%s",
                                  r->where, place, keys[i]);
        }
    }
    return 0;
}

/* Makes all of it with an operation that nobody else sees: what is wrong is told before it has a place for good. The hash
 * stands for the texts that it is made of. */
static int fill_spec(struct fa_spec_reading *r, const fa_operation *operation, fa_spec *spec)
{
    char identity[FA_NAME_MAX + 16], source[FA_NAME_MAX + 8], answer[FA_NAME_MAX + 16];
    const fa_template_text files[] = {
        {identity, r->hash}, {source, r->source}, {answer, r->answer_source}};
    fa_problem problem = fa_problem_some(operation);
    fa_config config = {.count = 0};
    fa_tensor_list tensors;
    int rc = fa_tensors_read(&problem, &tensors, r->diag);
    if (rc != 0)
        return rc;
    fa_tensors_free(&tensors);
    snprintf(identity, sizeof identity, "%s.specification", r->name);
    snprintf(source, sizeof source, "%s.cu", r->name);
    snprintf(answer, sizeof answer, "%s_answer.cu", r->name);
    snprintf(spec->fault, sizeof spec->fault, "%s", r->found.text);
    if ((rc = check_expressions(r, operation)) != 0 ||
        (rc = take_compiled_with(r, operation, spec)) != 0 ||
        (rc = fa_templates_of(r->name, files, r->answer_source != NULL ? 3 : 2, &spec->with,
                              &spec->templates, r->diag)) != 0 ||
        (rc = fa_families_make(spec->templates, r, operation, &spec->families)) != 0)
        return rc;
    /* A stated default config stays, for sizes that it holds for; without one the first that holds for the default sizes is
     * it. */
    fa_family *family = spec->families.family[0];
    rc = fa_space_first(&spec->families, &problem, &config, r->diag);
    for (int i = 0; i < config.count && rc == 0 && fa_spec_member(r->json, "default") == NULL; i++)
        rc = fa_family_preset(family, i, config.tunable[i].value, r->diag);
    return rc;
}

/* The operation of the same text, or a new one. */
static int make_spec(struct fa_spec_reading *r, const fa_operation **ret_operation)
{
    char name[FA_NAME_MAX + FA_HASH_HEX];
    fa_operation *operation = NULL;
    snprintf(name, sizeof name, "%s@%s", r->name, r->hash);
    int rc = fa_spec_make_operation(r);
    if (rc != 0 || fa_operation_find(name, ret_operation, NULL) == 0)
        return rc;
    fa_spec *spec = calloc(1, sizeof *spec);
    if (spec == NULL || !fa_json_is_whole(r->operation)) {
        free(spec);
        return fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    }
    rc = fa_operation_make(r->operation, r->where, &operation, r->diag);
    r->operation = NULL;
    if (rc == 0 && (rc = fill_spec(r, operation, spec)) == 0) {
        operation->spec = spec;
        rc = fa_operation_add(operation, r->where, ret_operation, r->diag);
        if (rc == 0 && (*ret_operation)->spec == spec) /* no other thread was sooner */
            return 0;
        operation = NULL;
    }
    free_spec(spec);
    fa_operation_free(operation);
    return rc;
}

static void hash_texts(struct fa_spec_reading *r, const char *json, const char *source,
                       const char *answer_source)
{
    fa_hash hash;
    char files[FA_HASH_HEX];
    fa_includes_hash(r->includes, files);
    fa_hash_init(&hash);
    fa_hash_text(&hash, r->name);
    fa_hash_text(&hash, json);
    fa_hash_text(&hash, source);
    fa_hash_text(&hash, answer_source);
    fa_hash_text(&hash, files);
    fa_hash_final(&hash, r->hash);
    r->hash[SHORT_HASH] = 0;
}

/* The author's files, cut to their device part, and all that this includes. */
static int read_sources(struct fa_spec_reading *r, const char *source, const char *answer_source,
                        fa_buf *ret_before)
{
    char *const copies[] = {strdup(source), strdup(answer_source != NULL ? answer_source : "")};
    struct fa_cut_text *texts = NULL;
    fa_buf macros = {0};
    int rc = fa_includes_read_own(r->includes, copies, &texts, r->diag);
    fa_spec_put_macros(r, &macros);
    if (rc == 0 && (macros.failed || fa_cut_read(texts, macros.data, r->keeps_host, &r->cut) != 0))
        rc = fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    if (rc == 0 && (rc = find_kernels(r, answer_source != NULL)) == 0)
        rc = fa_spec_reach(r);
    if (rc == 0) {
        fa_spec_check_macros(r);
        if (fa_cut_apply(r->cut, ret_before) != 0)
            rc = fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    }
    if (rc == 0) {
        fa_buf_text(&r->left, fa_cut_left(r->cut));
        rc = fa_includes_read(r->includes, r->cut, &r->left, r->diag);
    }
    fa_cut_free(&r->cut);
    fa_buf_free(&macros);
    free(texts);
    return rc;
}

/* answer_source: NULL where it is the same text's. */
static int read_texts(struct fa_spec_reading *r, const char *json, const char *folder,
                      const char *source, const char *answer_source,
                      const fa_operation **ret_operation)
{
    static const char *const named[] = {"tune", "defines"};
    fa_buf before = {0};
    int rc;
    for (int i = 0; i < 2; i++)
        if (fa_spec_member(r->json, named[i]) != NULL &&
            !cJSON_IsObject(fa_spec_member(r->json, named[i])))
            return fa_spec_fault(r, "\"%s\" must be an object, whose keys are macros", named[i]);
    if (cJSON_GetArraySize(fa_spec_member(r->json, "tune")) > FA_MAX_TUNABLES)
        return fa_spec_fault(r, "more than %d tunables", FA_MAX_TUNABLES);
    if (cJSON_GetArraySize(fa_spec_member(r->json, "defines")) > FA_DEFINES_MAX)
        return fa_spec_fault(r, "more than %d \"defines\"", FA_DEFINES_MAX);
    if ((rc = read_identity(r)) != 0 || (rc = check_options(r)) != 0 ||
        (rc = fa_includes_open(r->where, folder, r->json, &r->includes, r->diag)) != 0)
        return rc;
    rc = read_sources(r, source, answer_source, &before);
    if (r->found.text[0] != 0)
        fa_spec_locate(r->where, r->name, json, r->beside, &r->found);
    if (rc == 0) {
        hash_texts(r, json, fa_includes_source(r->includes, 0), fa_includes_source(r->includes, 1));
        rc = make_sources(r, answer_source != NULL, before.data != NULL ? before.data : "");
    }
    if (rc == 0)
        rc = make_spec(r, ret_operation);
    fa_buf_free(&before);
    fa_buf_free(&r->left);
    fa_includes_close(&r->includes);
    return rc;
}

/* ---- files -----------------------------------------------------------------------------------*/
/* A file beside the specification, by a plain name; what names it, "" for the specification itself, is told. */
static int read_named(struct fa_spec_reading *r, const char *folder, const char *name,
                      const char *named_by, char **ret_text)
{
    char path[4096];
    fa_buf file = {0};
    if (folder == NULL || name[0] == 0 || name[0] == '.' || strchr(name, '/') != NULL)
        return fa_spec_fault(
            r, folder == NULL ? "a text names no file: give the source itself"
                              : "\"source\" must be the name of a file beside the specification");
    int length = snprintf(path, sizeof path, "%s%s", folder, name);
    int rc = length >= (int)sizeof path ? fa_fail(r->diag, FA_EINVAL, "its path is too long")
                                        : fa_input_read(&file, path, TEXT_MAX, r->diag);
    if (rc == 0 && memchr(file.data, 0, file.size) != NULL)
        rc = fa_fail(r->diag, FA_EINVAL, "it is no text: it holds a NUL byte");
    if (rc == 0) {
        *ret_text = file.data;
        return 0;
    }
    fa_buf_free(&file);
    return named_by[0] == 0 ? fa_fail_in(r->diag, rc, "%s", r->where)
                            : fa_fail_in(r->diag, rc, "%s: %s: %s", r->where, named_by, path);
}

/* What a specification may be read from. */
struct texts {
    const char *where, *name, *text;
    const char *source; /* NULL: `text` is CUDA C++ itself, or names it */
    /* of the files that it names, with a slash at its end; NULL: it may name none */
    const char *folder;
    bool cuda; /* `text` is CUDA C++ with the JSON in its head */
};

/* The kernel's name where the specification has none: its file's, in small letters. */
static void name_kernel(const char *file, char ret_name[FA_NAME_MAX])
{
    snprintf(ret_name, FA_NAME_MAX - 8, "%s%.*s", isalpha((unsigned char)file[0]) ? "" : "k_",
             (int)strcspn(file, "."), file);
    for (char *at = ret_name; *at != 0; at++)
        *at = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '_';
}

/* `json` is the text of what was parsed. */
static int read_parsed(struct fa_spec_reading *r, const struct texts *from, const char *json,
                       const fa_operation **ret_operation)
{
    const char *of_answer = fa_spec_text(fa_spec_member(r->json, "answer"), "source");
    const char *source = from->cuda ? from->text : from->source;
    char *named = NULL, *answer = NULL;
    int rc = 0;
    if (!cJSON_IsObject(r->json))
        return fa_spec_fault(r, "a specification is a JSON object");
    if (from->cuda && fa_spec_member(r->json, "source") != NULL)
        return fa_spec_fault(r, "\"source\" is given in the source itself: leave it out");
    if (source == NULL) {
        rc = read_named(r, from->folder, fa_spec_text(r->json, "source"), "\"source\"", &named);
        source = named;
    }
    if (rc == 0 && of_answer[0] != 0)
        rc = read_named(r, from->folder, of_answer, "answer: source", &answer);
    if (rc == 0)
        rc = read_texts(r, json, from->folder, source, answer, ret_operation);
    free(named);
    free(answer);
    return rc;
}

static int read_all(const struct texts *from, const fa_operation **ret_operation, fa_diag *diag)
{
    struct fa_spec_reading r = {.where = from->where, .beside = from->source != NULL, .diag = diag};
    cJSON *json = NULL;
    char *head = from->cuda ? fa_source_head(from->text, diag) : NULL;
    const char *text = from->cuda ? head : from->text;
    name_kernel(from->name, r.name);
    if (text == NULL)
        fa_source_propose(from->text, diag);
    int rc = text == NULL ? fa_fail_in(diag, FA_EMANIFEST, "%s", from->where)
                          : fa_json_parse(text, strlen(text), from->where, &json, diag);
    if (rc == 0) {
        r.json = json;
        r.file = from->cuda ? from->where : fa_spec_text(json, "source");
        rc = read_parsed(&r, from, text, ret_operation);
    }
    if ((rc == FA_EMANIFEST || rc == FA_EINVAL || rc == FA_ENOTFOUND) && text != NULL &&
        diag != NULL)
        fa_spec_locate(from->where, r.name, text, r.beside, diag);
    cJSON_Delete(r.operation);
    cJSON_Delete(json);
    free(r.source);
    free(r.answer_source);
    free(head);
    return rc == FA_EINVAL ? FA_EMANIFEST : rc;
}

/* The folder of a path, with a slash at its end; NULL: no memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? strndup(path, (size_t)(slash + 1 - path)) : strdup("./");
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

int fa_spec_open(const char *path, const fa_operation **ret_operation, fa_diag *diag)
{
    const char *name = name_of(path);
    size_t size = strlen(name);
    bool cuda = size > 3 && strcmp(name + size - 3, ".cu") == 0;
    struct fa_spec_reading r = {.where = path, .diag = diag};
    char *folder = folder_of(path), *text = NULL;
    int rc = folder == NULL   ? fa_fail(diag, FA_ENOMEM, "%s: out of memory", path)
             : name[0] == '.' ? fa_spec_fault(&r, "a specification is a file NAME.cu or NAME.json")
                              : read_named(&r, folder, name, "", &text);
    if (rc == 0)
        rc = read_all(
            &(struct texts){
                .where = name, .name = name, .text = text, .folder = folder, .cuda = cuda},
            ret_operation, diag);
    free(folder);
    free(text);
    return rc;
}

int fa_spec_make(const char *where, const char *text, const char *source,
                 const fa_operation **ret_operation, fa_diag *diag)
{
    const char *name = name_of(where);
    const bool has_folder = where != name;
    char *folder = has_folder ? folder_of(where) : NULL;
    const struct texts from = {.where = name,
                               .name = name,
                               .text = text,
                               .source = source,
                               .folder = folder,
                               .cuda = source == NULL};
    int rc = has_folder && folder == NULL ? fa_fail(diag, FA_ENOMEM, "%s: out of memory", where)
                                          : read_all(&from, ret_operation, diag);
    free(folder);
    return rc;
}
