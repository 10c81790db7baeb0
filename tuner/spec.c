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

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 20, SHORT_HASH = 16 };

/* ---- from texts to a specification -----------------------------------------------------------*/
static void read_identity(struct fa_spec_reading *r)
{
    static const char *const keys[] = {
        "name",    "kernel",       "source",  "arguments",   "sizes", "tune",
        "default", "restrictions", "defines", "block",       "grid",  "shared_memory",
        "answer",  "rtol",         "atol",    "flops",       "bytes", "include",
        "options", "launches",     "work",    "cooperative", NULL};
    const char *name = fa_spec_text(r->json, "name");
    fa_spec_check_keys(r, r->json, "", keys);
    if (name[0] == 0 && fa_json_member(r->json, "name") != NULL)
        fa_spec_fault(r, "\"name\" must be a text, or left out");
    if (r->rc == 0 && name[0] != 0)
        snprintf(r->name, sizeof r->name, "%s", name);
    if (!fa_spec_is_name(r->name, FA_NAME_MAX - 8))
        fa_spec_fault(r, "\"name\" is \"%.60s\": use at most %d of a-z, 0-9 and _, a letter first",
                      name[0] != 0 ? name : r->name, FA_NAME_MAX - 9);
}

/* ---- sources ---------------------------------------------------------------------------------*/
static const char *entry_of(const struct fa_spec_reading *r, int launch)
{
    return launch == FA_THE_ANSWER ? r->answer : r->entry[launch];
}

/* The text as it is compiled: with the instances of templates among the kernels of some launches, and a line that names, for
 * every key and hash that covers the text, what else goes into its compile. What FA_AT_… stands for is put before it when the
 * arguments are known. */
static char *finish_source(struct fa_spec_reading *r, const char *file, const char *text, int from,
                           int to, const fa_buf *before)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-+ ";
    fa_buf out = {0};
    const cJSON *option;
    char hash[FA_HASH_HEX];
    fa_includes_hash(r->spec->includes, hash);
    fa_buf_append(&out, before->data, before->size);
    if (file[0] != 0 && strspn(file, plain) == strlen(file)) /* the compiler tells its lines */
        fa_buf_printf(&out, "#line 1 \"%s\"\n", file);
    else
        fa_buf_text(&out, "#line 1\n");
    for (const char *at = text; *at != 0; at++) {
        const int of = *at - FA_SPEC_MARK;
        const bool stands = of >= 0 && of <= FA_THE_ANSWER && r->end[of] != 0;
        fa_buf_append(&out, stands ? &r->end[of] : at, 1);
        for (int i = 0; stands && i <= FA_THE_ANSWER; i++)
            if (r->called[i] != NULL && strcmp(r->called[i], entry_of(r, of)) == 0)
                fa_buf_printf(&out, " FA_AT_%d", i);
    }
    fa_buf_text(&out, "\n");
    for (int i = from; i < to; i++)
        if (strchr(r->called[i], '<') != NULL)
            fa_buf_printf(&out,
                          "#line 1 \"the name of the kernel\"\n"
                          "template __global__ decltype(%s) %s; FA_AT_%d\n",
                          r->called[i], r->called[i], i);
    fa_buf_printf(&out, "// compiled with files of hash %s and", hash);
    cJSON_ArrayForEach (option, fa_json_member(r->json, "options"))
        fa_buf_printf(&out, " %s", option->valuestring);
    fa_buf_text(&out, "\n");
    fa_spec_memory(r, !out.failed);
    return out.data;
}

static void check_options(struct fa_spec_reading *r)
{
    const cJSON *option, *options = fa_json_member(r->json, "options");
    if (options != NULL &&
        (!cJSON_IsArray(options) || cJSON_GetArraySize(options) > FA_OPTIONS_MAX))
        fa_spec_fault(r, "\"options\" must be an array of at most %d options of NVRTC",
                      FA_OPTIONS_MAX);
    cJSON_ArrayForEach (option, options) {
        const char *text = cJSON_IsString(option) ? option->valuestring : "";
        if (text[0] == 0 || !fa_nvrtc_allows(text))
            fa_spec_fault(
                r,
                "options: \"%.60s\" may not be set: use -std=, -D, -U, -use_fast_math, -fmad=, "
                "-maxrregcount= and others of the kind, each with its value in one text",
                text);
        r->keeps_host = r->keeps_host || strstr(text, "-default-device") != NULL ||
                        strstr(text, "-device-as-default") != NULL;
    }
}

/* ---- what is known ---------------------------------------------------------------------------*/
/* What it is compiled with, from the reading and the operation's document. */
static void take_compiled_with(struct fa_spec_reading *r)
{
    const cJSON *option;
    fa_spec *spec = r->spec;
    fa_compiled_with *with = &spec->with;
    with->left = spec->left.data != NULL ? spec->left.data : "";
    fa_includes_with(spec->includes, with);
    with->option = spec->option;
    if (!r->keeps_host) /* for what is constexpr */
        spec->option[with->option_count++] = "-default-device";
    cJSON_ArrayForEach (option, fa_json_member(r->json, "options"))
        spec->option[with->option_count++] = option->valuestring;
    fa_spec_memory(r, !spec->left.failed);
}

/* What a launch counts for, in sizes. */
static void check_expressions(struct fa_spec_reading *r, const fa_operation *operation)
{
    static const char *const keys[] = {"flops", "bytes"};
    for (int i = 0; i < 2 && r->rc == 0; i++) {
        char room[32];
        const cJSON *is = fa_json_member(operation->document, keys[i]);
        const char *text = fa_json_expression(is, room);
        FA_ENDS(fa_expr_free) fa_expr *expr = NULL;
        int rc = text != NULL ? fa_operation_expr(operation, text, &expr, r->diag) : 0;
        if (is != NULL && text == NULL)
            fa_spec_fault(r, "\"%s\" must be an expression", keys[i]);
        else if (rc != 0)
            r->rc = fa_fail_in(r->diag, rc == FA_EINVAL ? FA_EMANIFEST : rc, "%s: %s", r->where,
                               keys[i]);
    }
}

/* Puts before a source what lets the compiler compare the arguments that its kernels take with those that they are passed. */
static void state_arguments(struct fa_spec_reading *r, const fa_tensor_list *list, int from, int to,
                            char **source)
{
    fa_buf out = {0};
    fa_buf_text(&out, fa_arguments);
    for (int l = 0; l <= FA_THE_ANSWER; l++) {
        const bool has = l >= from && l < to && r->called[l] != NULL;
        fa_buf_printf(&out, "#define FA_AT_%d", l);
        for (int i = 0; has && i < list->taken[l].count; i++) {
            const int at = list->taken[l].at[i];
            const bool array = at < FA_TENSORS_MAX;
            if (at < FA_PARAMETERS_MAX) /* else a struct, whose fields the compiler does not tell */
                fa_buf_printf(&out,
                              " %s(%d, \"" FA_SPEC_REFUSED "argument %d of %s, %s,\", %s, %s)",
                              array ? "FA_ARRAY" : "FA_SCALAR", i, i + 1, entry_of(r, l),
                              fa_tensors_name(list, at),
                              fa_element_name(array ? list->at[at].element
                                                    : list->scalar[at - FA_TENSORS_MAX].element),
                              r->called[l]);
        }
        fa_buf_text(&out, "\n");
    }
    fa_buf_text(&out, *source);
    fa_spec_memory(r, !out.failed);
    free(*source);
    *source = out.data;
}

/* Makes all of it with an operation that nobody else sees: what is wrong is told before it has a place for good. The hash
 * stands for the texts that it is made of. */
static void fill_spec(struct fa_spec_reading *r, const fa_operation *operation)
{
    fa_spec *spec = r->spec;
    char identity[FA_NAME_MAX + 16], source[FA_NAME_MAX + 8], answer[FA_NAME_MAX + 16];
    fa_problem problem = fa_problem_some(operation);
    fa_config config = {.count = 0};
    fa_tensor_list tensors;
    if ((r->rc = fa_tensors_read(&problem, &tensors, r->diag)) != 0)
        return;
    state_arguments(r, &tensors, 0, r->apart ? r->launches : FA_THE_ANSWER + 1, &r->source);
    if (r->answer_source != NULL)
        state_arguments(r, &tensors, r->apart ? FA_THE_ANSWER : 0, FA_THE_ANSWER + 1,
                        &r->answer_source);
    fa_tensors_free(&tensors);
    snprintf(identity, sizeof identity, "%s.specification", r->name);
    snprintf(source, sizeof source, "%s.cu", r->name);
    snprintf(answer, sizeof answer, "%s_answer.cu", r->name);
    check_expressions(r, operation);
    take_compiled_with(r);
    const fa_template_text files[] = {
        {identity, r->hash}, {source, r->source}, {answer, r->answer_source}};
    FA_TRY(r, fa_templates_of(r->name, files, r->answer_source != NULL ? 3 : 2, &spec->with,
                              &spec->templates, r->diag));
    FA_TRY(r, fa_families_make(spec->templates, r, operation, &spec->families));
    /* A stated default config stays, for sizes that it holds for; without one the first that holds for the default sizes is
     * it. */
    FA_TRY(r, fa_space_first(&spec->families, &problem, &config, r->diag));
    for (int i = 0; r->rc == 0 && i < config.count && fa_json_member(r->json, "default") == NULL;
         i++)
        spec->families.family[0]->tunable[i].preset_value = config.tunable[i].value;
}

/* The operation of the same text, or a new one. */
static void make_spec(struct fa_spec_reading *r, const fa_operation **ret_operation)
{
    char name[FA_NAME_MAX + FA_HASH_HEX];
    FA_ENDS(fa_operation_free) fa_operation *operation = NULL;
    snprintf(name, sizeof name, "%s@%s", r->name, r->hash);
    fa_spec_make_operation(r);
    if (r->rc != 0 || fa_operation_find(name, ret_operation, NULL) == 0)
        return;
    fa_spec_memory(r, fa_json_is_whole(r->json));
    if (r->rc != 0)
        return;
    r->rc = fa_operation_make(r->json, r->json, r->where, &operation, r->diag);
    if (r->rc == 0)
        fill_spec(r, operation);
    r->json = NULL; /* the operation's, or gone */
    if (r->rc == 0) {
        operation->spec = r->spec;
        r->rc = fa_operation_add(operation, r->where, ret_operation, r->diag);
        if (r->rc == 0 && (*ret_operation)->spec == r->spec) /* no other thread was sooner */
            r->spec = NULL;
        operation = NULL;
    }
}

/* The author's files, cut to their device part, and all that this includes. */
static void read_sources(struct fa_spec_reading *r, const char *source, const char *answer_source,
                         fa_buf *ret_before)
{
    FA_ENDS(fa_free_at) struct fa_cut_text *texts = fa_includes_read_own(r, source, answer_source);
    FA_ENDS(fa_buf_free) fa_buf macros = {0};
    fa_source_put_macros(r, &macros);
    if (r->rc == 0)
        fa_spec_memory(r, !macros.failed && fa_cut_read(texts, fa_usual, macros.data, r->keeps_host,
                                                        &r->cut) == 0);
    if (r->rc == 0)
        fa_source_look(r, answer_source != NULL);
    if (r->rc == 0)
        fa_spec_memory(r, fa_cut_apply(r->cut, ret_before) == 0);
    if (r->rc == 0) {
        fa_buf_text(&r->spec->left, fa_cut_left(r->cut));
        fa_includes_read(r);
    }
    fa_cut_free(&r->cut);
}

/* answer_source: NULL where it is the same text's. */
static void read_texts(struct fa_spec_reading *r, const char *source, const char *answer_source,
                       const fa_operation **ret_operation)
{
    static const struct {
        const char *key, *words;
        int most;
    } named[] = {{"tune", "tunables", FA_MAX_TUNABLES}, {"defines", "\"defines\"", FA_DEFINES_MAX}};
    const cJSON *macro;
    FA_ENDS(fa_buf_free) fa_buf before = {0};
    fa_hash hash;
    char files[FA_HASH_HEX];
    bool instances = false;
    r->apart = answer_source != NULL;
    for (int i = 0; i < 2; i++) {
        const cJSON *macros = fa_json_member(r->json, named[i].key);
        if (macros != NULL && !cJSON_IsObject(macros))
            fa_spec_fault(r, "\"%s\" must be an object, whose keys are macros", named[i].key);
        if (cJSON_GetArraySize(macros) > named[i].most)
            fa_spec_fault(r, "more than %d %s", named[i].most, named[i].words);
        cJSON_ArrayForEach (macro, macros)
            if (cJSON_IsNull(macro))
                fa_spec_fault(r, "%s %s has no value: leave it out", named[i].key, macro->string);
    }
    read_identity(r);
    check_options(r);
    fa_includes_open(r);
    if (r->rc == 0)
        read_sources(r, source, answer_source, &before);
    if (r->spec->fault.text[0] != 0)
        fa_spec_locate(r->where, r->name, r->text, r->beside, &r->spec->fault);
    if (r->rc == 0) {
        const char *const text[] = {fa_includes_source(r->spec->includes, 0),
                                    fa_includes_source(r->spec->includes, 1)};
        fa_includes_hash(r->spec->includes, files);
        fa_hash_init(&hash);
        fa_hash_text(&hash, r->name);
        fa_hash_text(&hash, r->text);
        fa_hash_text(&hash, text[0]);
        fa_hash_text(&hash, text[1]);
        fa_hash_text(&hash, files);
        fa_hash_final(&hash, r->hash);
        r->hash[SHORT_HASH] = 0;
        r->source = finish_source(r, r->file, text[0], 0, r->launches, &before);
        for (int i = 0; i <= FA_THE_ANSWER; i++)
            instances = instances || (r->called[i] != NULL && strchr(r->called[i], '<') != NULL);
        if (r->answered && (r->apart || instances))
            r->answer_source = finish_source(
                r, r->apart ? fa_spec_text(fa_json_member(r->json, "answer"), "source") : r->file,
                text[r->apart], FA_THE_ANSWER, FA_THE_ANSWER + 1, &before);
    }
    if (r->rc == 0)
        make_spec(r, ret_operation);
}

/* ---- files -----------------------------------------------------------------------------------*/
/* A file beside the specification, by a plain name; what names it, "" for the specification itself, is told. */
static char *read_named(struct fa_spec_reading *r, const char *name, const char *named_by)
{
    char path[PATH_MAX];
    fa_buf file = {0};
    if (r->folder == NULL || name[0] == 0 || name[0] == '.' || strchr(name, '/') != NULL)
        fa_spec_fault(r, r->folder == NULL
                             ? "a text names no file: give the source itself"
                             : "\"source\" must be the name of a file beside the specification");
    if (r->rc != 0)
        return NULL;
    int length = snprintf(path, sizeof path, "%s%s", r->folder, name);
    r->rc = length >= (int)sizeof path ? fa_fail(r->diag, FA_EINVAL, "its path is too long")
                                       : fa_source_read(&file, path, TEXT_MAX, r->diag);
    if (r->rc != 0)
        fa_fail_in(r->diag, r->rc, named_by[0] == 0 ? "%s" : "%s: %s: %s", r->where, named_by,
                   path);
    return file.data;
}

/* `source` is NULL where `text` is CUDA C++ with the JSON in its head (`cuda`), or names the file; the folder of the files that
 * it names, with a slash at its end, where it may name any. */
static int read_all(const char *name, const char *folder, const char *text, const char *source,
                    bool cuda, const fa_operation **ret_operation, fa_diag *diag)
{
    struct fa_spec_reading r = {.where = name,
                                .folder = folder,
                                .beside = source != NULL,
                                .diag = diag,
                                .spec = calloc(1, sizeof *r.spec)};
    char *head = cuda ? fa_source_head(text, diag) : NULL, *named = NULL, *answer = NULL;
    r.text = cuda ? head : text;
    /* where the specification has none: its file's, in small letters */
    snprintf(r.name, sizeof r.name - 8, "%s%.*s", isalpha((unsigned char)name[0]) ? "" : "k_",
             (int)strcspn(name, "."), name);
    for (char *at = r.name; *at != 0; at++)
        *at = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '_';
    r.rc = r.text == NULL ? fa_fail_in(diag, FA_EMANIFEST, "%s", name)
                          : fa_json_parse(r.text, strlen(r.text), name, &r.json, diag);
    r.file = cuda ? name : fa_spec_text(r.json, "source");
    const char *of_answer = fa_spec_text(fa_json_member(r.json, "answer"), "source");
    fa_spec_memory(&r, r.spec != NULL);
    if (!cJSON_IsObject(r.json))
        fa_spec_fault(&r, "a specification is a JSON object");
    if (cuda && fa_json_member(r.json, "source") != NULL)
        fa_spec_fault(&r, "\"source\" is given in the source itself: leave it out");
    if (cuda)
        source = text;
    else if (source == NULL)
        source = named = read_named(&r, fa_spec_text(r.json, "source"), "\"source\"");
    if (of_answer[0] != 0)
        answer = read_named(&r, of_answer, "answer: source");
    if (r.rc == 0)
        read_texts(&r, source, answer, ret_operation);
    if ((r.rc == FA_EMANIFEST || r.rc == FA_EINVAL || r.rc == FA_ENOTFOUND) && r.text != NULL &&
        diag != NULL)
        fa_spec_locate(name, r.name, r.text, r.beside, diag);
    if (r.spec != NULL) {
        fa_families_free(&r.spec->families);
        fa_templates_close(&r.spec->templates);
        fa_includes_close(&r.spec->includes);
        fa_buf_free(&r.spec->left);
        free(r.spec);
    }
    cJSON_Delete(r.json);
    for (int i = 0; i <= FA_THE_ANSWER; i++)
        free(r.called[i]);
    free(r.source);
    free(r.answer_source);
    free(named);
    free(answer);
    free(head);
    return r.rc == FA_EINVAL ? FA_EMANIFEST : r.rc;
}

/* The name in a path, whose folder goes into `folder`, with a slash at its end. */
static const char *split(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    snprintf(folder, PATH_MAX, "%.*s", slash != NULL ? (int)(name - path) : 2,
             slash != NULL ? path : "./");
    return name;
}

int fa_spec_open(const char *path, const fa_operation **ret_operation, fa_diag *diag)
{
    char folder[PATH_MAX];
    const char *name = split(path, folder);
    const size_t size = strlen(name);
    struct fa_spec_reading r = {.where = path, .folder = folder, .diag = diag};
    if (name[0] == '.')
        fa_spec_fault(&r, "a specification is a file NAME.cu or NAME.json");
    FA_ENDS(fa_free_at) char *text = read_named(&r, name, "");
    if (r.rc == 0)
        r.rc = read_all(name, folder, text, NULL, size > 3 && strcmp(name + size - 3, ".cu") == 0,
                        ret_operation, diag);
    return r.rc;
}

int fa_spec_make(const char *where, const char *text, const char *source,
                 const fa_operation **ret_operation, fa_diag *diag)
{
    char folder[PATH_MAX];
    const char *name = split(where, folder);
    return read_all(name, name != where ? folder : NULL, text, source, source == NULL,
                    ret_operation, diag);
}
