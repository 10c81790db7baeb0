/* SPDX-License-Identifier: Apache-2.0
 *
 * From a kernel specification to an operation with one family.
 *
 * Workload: a few specifications in a process; each costs some milliseconds.
 * Invariants: the list only grows; readers take its count first and need no lock. The same text is one specification.
 */
#include "spec.h"

#include "family.h"
#include "spec_source.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "json_make.h"
#include "problem.h"
#include "tensors.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPECS_MAX = 512, TEXT_MAX = 1 << 20, SHORT_HASH = 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static fa_spec *known[SPECS_MAX];
static atomic_int known_count;

/* A specification that is being read. */
struct reading {
    const char *where;
    const cJSON *json;
    char name[FA_NAME_MAX], entry[FA_NAME_MAX], answer[FA_NAME_MAX];
    char *source;        /* with the linkage that is needed */
    char *answer_source; /* NULL: it is in the same file */
    char hash[FA_HASH_HEX];
    cJSON *operation, *manifest;
    fa_diag *diag;
};

static int fault(const struct reading *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int fault(const struct reading *r, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

static const cJSON *member(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static const char *text_of(const cJSON *json, const char *key)
{
    const char *text = cJSON_GetStringValue(member(json, key));
    return text != NULL ? text : "";
}

/* As fa_json_check_keys(), of the specification's own kind of failure. */
static int check_keys(const struct reading *r, const cJSON *object, const char *place,
                      const char *const *keys)
{
    char where[300];
    snprintf(where, sizeof where, "%.200s%s%.60s", r->where, place[0] != 0 ? ": " : "", place);
    return fa_json_check_keys(object, keys, where, r->diag) == 0 ? 0 : FA_EMANIFEST;
}

/* An expression as text, of a text or a number; NULL: it is neither. */
static const char *expression(const cJSON *item, char room[32])
{
    if (cJSON_IsString(item))
        return item->valuestring;
    if (!cJSON_IsNumber(item))
        return NULL;
    snprintf(room, 32, "%.17g", item->valuedouble);
    return room;
}

/* ---- sizes -----------------------------------------------------------------------------------*/
static bool names(const char *text, const char *name)
{
    size_t size = strlen(name);
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
        if ((at == text || strchr(word, at[-1]) == NULL) &&
            (at[size] == 0 || strchr(word, at[size]) == NULL))
            return true;
    return false;
}

/* Whether a macro is made of the size: problems that differ in it are then other kernels. */
static bool is_defined(const struct reading *r, const char *size)
{
    const cJSON *item;
    char room[32];
    cJSON_ArrayForEach (item, member(r->json, "defines")) {
        const char *text = expression(item, room);
        if (text != NULL && names(text, size))
            return true;
    }
    return false;
}

static int add_size(const struct reading *r, cJSON *fields, const cJSON *size)
{
    static const char *const keys[] = {"default", "fixed", "multiple", "max", NULL};
    cJSON *field = cJSON_CreateObject();
    char option[FA_NAME_MAX + 4];
    const cJSON *preset = cJSON_IsObject(size) ? member(size, "default") : size;
    if (!fa_is_identifier(size->string) || fa_expr_is_word(size->string) ||
        strcmp(size->string, "operation") == 0 || (preset != NULL && !cJSON_IsNumber(preset)) ||
        (preset == NULL && !cJSON_IsObject(size))) {
        cJSON_Delete(field);
        return fault(r, "size \"%.60s\" must be a name with a number, or with an object",
                     size->string);
    }
    int rc = check_keys(r, cJSON_IsObject(size) ? size : NULL, size->string, keys);
    fa_json_add_text(field, "name", size->string);
    fa_json_add_text(field, "kind", "integer");
    fa_json_add_number(field, "min", 1);
    for (int i = 0; i < 4; i++)
        if (i != 1 && member(size, keys[i]) != NULL)
            fa_json_add(field, keys[i], cJSON_Duplicate(member(size, keys[i]), false));
    if (!cJSON_IsObject(size))
        fa_json_add_number(field, "default", size->valuedouble);
    fa_json_add_text(field, "macro", size->string);
    snprintf(option, sizeof option, "--%s", size->string);
    fa_json_add_text(field, "option", option);
    fa_json_add_text(field, "option_help", "size of the kernel's arguments");
    if (cJSON_IsTrue(member(size, "fixed")) || is_defined(r, size->string)) {
        fa_json_add_bool(field, "shapes_source", true);
        fa_json_add_bool(field, "unnamed", true);
    }
    return fa_json_push(fields, field) ? rc : FA_ENOMEM;
}

static int add_sizes(const struct reading *r)
{
    const cJSON *size, *sizes = member(r->json, "sizes");
    cJSON *fields = fa_json_add_array(r->operation, "fields");
    int rc = cJSON_IsObject(sizes) && sizes->child != NULL
                 ? 0
                 : fault(r, "\"sizes\" must name at least one size, as in {\"n\": 4096}");
    cJSON_ArrayForEach (size, sizes)
        if (rc == 0)
            rc = add_size(r, fields, size);
    return rc;
}

/* ---- arguments -------------------------------------------------------------------------------*/
static int add_tensor(const struct reading *r, const cJSON *argument, fa_element element,
                      const char *place)
{
    static const char *const ways[] = {"in", "out", "inout", NULL};
    const char *way = member(argument, "is") != NULL ? text_of(argument, "is") : "in";
    cJSON *tensor = cJSON_CreateObject();
    const cJSON *item, *shape = member(argument, "shape"), *range = member(argument, "range");
    char room[32];
    int which = 0;
    while (ways[which] != NULL && strcmp(ways[which], way) != 0)
        which++;
    fa_json_add_text(tensor, "name", text_of(argument, "name"));
    fa_json_add_text(tensor, "dtype", fa_element_name(element));
    if (member(argument, "align") != NULL)
        fa_json_add(tensor, "align", cJSON_Duplicate(member(argument, "align"), false));
    if (which > 0)
        fa_json_add_bool(tensor, "output", true);
    if (which == 2)
        fa_json_add_bool(tensor, "updated", true);
    cJSON *sizes = fa_json_add_array(tensor, "shape");
    cJSON_ArrayForEach (item, shape)
        fa_json_push(sizes, cJSON_Duplicate(item, false));
    cJSON *ends = range != NULL ? fa_json_add_array(tensor, "range") : NULL;
    cJSON_ArrayForEach (item, range)
        fa_json_push(ends, cJSON_CreateString(
                               expression(item, room) != NULL ? expression(item, room) : "none"));
    cJSON *tensors = cJSON_GetObjectItemCaseSensitive(r->operation, "tensors");
    if (!fa_json_push(tensors, tensor))
        return FA_ENOMEM;
    if (ways[which] == NULL)
        return fault(r, "%s: \"is\" must be in, out or inout", place);
    return cJSON_IsArray(shape) ? 0 : fault(r, "%s: \"shape\" must be an array", place);
}

/* A scalar: a number, which callers pass and proofs use; an expression, or the size of its name, which they do not. */
static int add_scalar(const struct reading *r, const cJSON *argument, fa_element element,
                      const char *place)
{
    const char *name = text_of(argument, "name");
    const cJSON *value = member(argument, "value");
    cJSON *scalar = cJSON_CreateObject();
    bool size = value == NULL && member(member(r->json, "sizes"), name) != NULL;
    fa_json_add_text(scalar, "name", name);
    fa_json_add_text(scalar, "dtype", fa_element_name(element));
    if (value != NULL)
        fa_json_add(scalar, "value", cJSON_Duplicate(value, false));
    else if (size)
        fa_json_add_text(scalar, "value", name);
    if (!fa_json_push(cJSON_GetObjectItemCaseSensitive(r->operation, "scalars"), scalar))
        return FA_ENOMEM;
    return size || cJSON_IsNumber(value) || cJSON_IsString(value)
               ? 0
               : fault(r,
                       "%s needs a \"shape\" if it is an array, a \"value\" if it is a number, or "
                       "the name of a size",
                       place);
}

static int add_argument(const struct reading *r, const cJSON *argument, int index)
{
    static const char *const keys[] = {"name", "type",  "shape", "value",
                                       "is",   "range", "align", NULL};
    const char *name = text_of(argument, "name"), *type = text_of(argument, "type");
    fa_element element = FA_ELEMENT_INT32;
    char place[96];
    snprintf(place, sizeof place, "arguments[%d] %.40s", index, name);
    if (!cJSON_IsObject(argument) || !fa_is_identifier(name))
        return fault(r, "arguments[%d] must be an object with a \"name\"", index);
    int rc = check_keys(r, argument, place, keys);
    bool size = member(member(r->json, "sizes"), name) != NULL && type[0] == 0;
    if (rc == 0 && !size && !fa_element_find(type, &element))
        rc = fault(
            r, "%s: \"type\" must be f16, bf16, f32, f64, i8 to i64 or u8 to u64, not \"%.20s\"",
            place, type);
    cJSON *parameters = cJSON_GetObjectItemCaseSensitive(r->operation, "parameters"), *other;
    cJSON_ArrayForEach (other, parameters)
        if (rc == 0 && strcmp(other->valuestring, name) == 0)
            rc = fault(r, "%s stands twice", place);
    if (rc == 0 && !fa_json_push(parameters, cJSON_CreateString(name)))
        rc = FA_ENOMEM;
    if (rc != 0)
        return rc;
    return member(argument, "shape") != NULL ? add_tensor(r, argument, element, place)
                                             : add_scalar(r, argument, element, place);
}

static int add_arguments(const struct reading *r)
{
    const cJSON *argument, *list = member(r->json, "arguments");
    int index = 0, rc = cJSON_IsArray(list)
                            ? 0
                            : fault(r, "\"arguments\" must be an array, in the kernel's order");
    fa_json_add_array(r->operation, "tensors");
    fa_json_add_array(r->operation, "scalars");
    fa_json_add_array(r->operation, "parameters");
    cJSON_ArrayForEach (argument, list)
        if (rc == 0)
            rc = add_argument(r, argument, index++);
    return rc;
}

/* ---- the answer ------------------------------------------------------------------------------*/
/* "block" or "grid": one to three sides, "1" for those that are not told. */
static int add_sides(const struct reading *r, const cJSON *from, const char *place, cJSON *to,
                     const char *key)
{
    const cJSON *sides = member(from, key);
    cJSON *array = fa_json_add_array(to, key);
    char room[32];
    int count = cJSON_IsArray(sides) ? cJSON_GetArraySize(sides) : sides != NULL;
    for (int i = 0; i < 3; i++) {
        const cJSON *side = cJSON_IsArray(sides) ? cJSON_GetArrayItem(sides, i)
                            : i == 0             ? sides
                                                 : NULL;
        const char *text = expression(side, room);
        if (i < count && text == NULL)
            return fault(r, "%s\"%s\" must be one to three expressions", place, key);
        if (!fa_json_push(array, cJSON_CreateString(i < count ? text : "1")))
            return FA_ENOMEM;
    }
    return count >= 1 && count <= 3
               ? 0
               : fault(r, "%s\"%s\" must be one to three expressions", place, key);
}

/* Without a launch of its own the answer has a thread for each element of the largest output, in blocks of 128. */
static int add_usual_launch(const struct reading *r, cJSON *answer)
{
    const cJSON *tensor, *size;
    fa_buf grid = {0};
    char room[32];
    fa_buf_text(&grid, "ceil_div(max(1, 1");
    cJSON_ArrayForEach (tensor, cJSON_GetObjectItemCaseSensitive(r->operation, "tensors")) {
        if (!cJSON_HasObjectItem(tensor, "output"))
            continue;
        fa_buf_text(&grid, ", 1");
        cJSON_ArrayForEach (size, cJSON_GetObjectItemCaseSensitive(tensor, "shape"))
            fa_buf_printf(&grid, " * (%s)",
                          expression(size, room) != NULL ? expression(size, room) : "1");
    }
    fa_buf_text(&grid, "), 128)");
    cJSON *sides = fa_json_add_array(answer, "grid"), *block = fa_json_add_array(answer, "block");
    bool made = !grid.failed && fa_json_push(sides, cJSON_CreateString(grid.data)) &&
                fa_json_push(block, cJSON_CreateString("128"));
    fa_buf_free(&grid);
    return made ? 0 : FA_ENOMEM;
}

static int add_answer(const struct reading *r)
{
    static const char *const keys[] = {"kernel", "source", "block", "grid", NULL};
    const cJSON *is = member(r->json, "answer");
    char file[FA_NAME_MAX + 16];
    if (is == NULL)
        return 0;
    if (cJSON_IsObject(is) && check_keys(r, is, "answer", keys) != 0)
        return FA_EMANIFEST;
    cJSON *answer = fa_json_add_object(r->operation, "answer");
    snprintf(file, sizeof file, "%s%s.cu", r->name, r->answer_source != NULL ? "_answer" : "");
    fa_json_add_text(r->operation, "reference", file);
    fa_json_add_text(answer, "kernel", r->answer);
    if (member(is, "grid") == NULL && member(is, "block") == NULL)
        return add_usual_launch(r, answer);
    int rc = add_sides(r, is, "answer: ", answer, "grid");
    return rc == 0 ? add_sides(r, is, "answer: ", answer, "block") : rc;
}

static double number_or(const cJSON *json, const char *key, double preset)
{
    const cJSON *item = member(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : preset;
}

/* Unless "atol" says otherwise, what is near 0 may differ by that part of the output's largest element. */
static int add_tolerance(const struct reading *r)
{
    enum { OF_TYPE = 84 /* of fp32: 1e-5 */ };
    cJSON *tolerance = fa_json_add_object(r->operation, "tolerance");
    const double rtol = number_or(r->json, "rtol", -1), atol = number_or(r->json, "atol", -1);
    const cJSON *given[] = {member(r->json, "rtol"), member(r->json, "atol")};
    for (int i = 0; i < 2; i++)
        if (given[i] != NULL && !(cJSON_IsNumber(given[i]) && given[i]->valuedouble >= 0 &&
                                  given[i]->valuedouble < 1e30))
            return fault(r, "\"%s\" must be a number of 0 or more", i == 0 ? "rtol" : "atol");
    if (rtol >= 0)
        fa_json_add_number(tolerance, "relative", rtol);
    else
        fa_json_add_number(tolerance, "ulps", OF_TYPE / 2);
    if (atol < 0)
        fa_json_add_number(tolerance, "of_largest", OF_TYPE / 2);
    fa_json_add_number(tolerance, "absolute", atol > 0 ? atol : 1e-30);
    return 0;
}

static int make_operation(struct reading *r)
{
    static const char *const copied[] = {"flops", "bytes"};
    r->operation = cJSON_CreateObject();
    fa_json_add_text(r->operation, "name", r->name);
    fa_json_add_text(r->operation, "title", r->name);
    fa_json_add_text(r->operation, "specification", r->hash);
    for (int i = 0; i < 2; i++)
        if (cJSON_IsString(member(r->json, copied[i])))
            fa_json_add_text(r->operation, copied[i], text_of(r->json, copied[i]));
        else if (member(r->json, copied[i]) != NULL)
            return fault(r, "\"%s\" must be an expression", copied[i]);
    int rc = add_sizes(r);
    if (rc == 0)
        rc = add_arguments(r);
    if (rc == 0)
        rc = add_answer(r);
    if (rc == 0)
        rc = add_tolerance(r);
    return rc;
}

/* ---- the family ------------------------------------------------------------------------------*/
/* Values of a tunable: true and false are 1 and 0. */
static int add_tunable(const struct reading *r, cJSON *tunables, cJSON *presets,
                       const cJSON *values)
{
    const cJSON *value;
    cJSON *domain = fa_json_add_array(tunables, values->string);
    if (!cJSON_IsArray(values) || values->child == NULL)
        return fault(r, "tune %.60s must be an array of integers or booleans", values->string);
    cJSON_ArrayForEach (value, values) {
        if (!cJSON_IsNumber(value) && !cJSON_IsBool(value))
            return fault(r, "tune %.60s: its values must be integers or booleans", values->string);
        fa_json_push(domain, cJSON_CreateNumber(cJSON_IsNumber(value) ? value->valuedouble
                                                                      : cJSON_IsTrue(value)));
    }
    const cJSON *preset = member(member(r->json, "default"), values->string);
    fa_json_add(presets, values->string,
                cJSON_IsBool(preset)
                    ? cJSON_CreateNumber(cJSON_IsTrue(preset))
                    : cJSON_Duplicate(preset != NULL ? preset : domain->child, false));
    return 0;
}

static int add_restrictions(const struct reading *r)
{
    const cJSON *item, *list = member(r->json, "restrictions");
    cJSON *constraints = fa_json_add_array(r->manifest, "constraints");
    if (list != NULL && !cJSON_IsArray(list))
        return fault(r, "\"restrictions\" must be an array of expressions");
    cJSON_ArrayForEach (item, list) {
        cJSON *rule = cJSON_CreateObject();
        const cJSON *why = member(item, "why");
        fa_json_add(rule, "require",
                    cJSON_Duplicate(cJSON_IsObject(item) ? member(item, "require") : item, false));
        fa_json_add_text(rule, "why",
                         cJSON_IsString(why)    ? why->valuestring
                         : cJSON_IsString(item) ? item->valuestring
                                                : text_of(item, "require"));
        fa_json_push(constraints, rule);
    }
    return 0;
}

static int make_manifest(struct reading *r)
{
    const cJSON *item, *memory = member(r->json, "shared_memory");
    char operation[FA_NAME_MAX + FA_HASH_HEX + 1];
    cJSON *json = r->manifest = cJSON_CreateObject();
    snprintf(operation, sizeof operation, "%s@%s", r->name, r->hash);
    fa_json_add_text(json, "name", r->name);
    fa_json_add_text(json, "operation", operation);
    fa_json_add_text(json, "entry", r->entry);
    fa_json_add_bool(json, "as_is", true);
    cJSON *sm = fa_json_add_object(json, "sm");
    fa_json_add_number(sm, "min", 10);
    fa_json_add_number(sm, "max", 999);
    cJSON *tunables = fa_json_add_object(json, "tunables");
    cJSON *presets = fa_json_add_object(json, "default");
    if (!cJSON_IsObject(member(r->json, "tune")))
        return fault(r, "\"tune\" must be an object, as in {\"BLOCK\": [64, 128, 256]}");
    int rc = 0;
    cJSON_ArrayForEach (item, member(r->json, "tune"))
        if (rc == 0)
            rc = add_tunable(r, tunables, presets, item);
    cJSON_ArrayForEach (item, member(r->json, "default"))
        if (rc == 0 && !cJSON_HasObjectItem(tunables, item->string))
            rc = fault(r, "default %.60s is none of \"tune\"", item->string);
    if (member(r->json, "defines") != NULL)
        fa_json_add(json, "let", cJSON_Duplicate(member(r->json, "defines"), true));
    if (rc == 0)
        rc = add_restrictions(r);
    if (rc == 0)
        rc = add_sides(r, r->json, "", json, "block");
    if (rc == 0)
        rc = add_sides(r, r->json, "", json, "grid");
    cJSON *addends = cJSON_IsObject(memory) ? cJSON_Duplicate(memory, true) : cJSON_CreateObject();
    if (memory != NULL && !cJSON_IsObject(memory))
        fa_json_add(addends, "dynamic", cJSON_Duplicate(memory, false));
    fa_json_add(json, "shared_memory", addends);
    if (member(r->json, "work") != NULL)
        fa_json_add(json, "work", cJSON_Duplicate(member(r->json, "work"), true));
    return rc;
}

/* ---- from texts to a specification -----------------------------------------------------------*/
static int read_identity(struct reading *r)
{
    static const char *const keys[] = {
        "name",    "kernel", "source", "arguments",     "sizes",  "tune", "default", "restrictions",
        "defines", "block",  "grid",   "shared_memory", "answer", "rtol", "atol",    "flops",
        "bytes",   "work",   NULL};
    int rc = check_keys(r, r->json, "", keys);
    const char *name = text_of(r->json, "name");
    if (rc == 0 && name[0] != 0)
        snprintf(r->name, sizeof r->name, "%s", name);
    if (rc == 0 && (!fa_is_identifier(r->name) || strlen(r->name) >= FA_NAME_MAX - 8 ||
                    strspn(r->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(r->name)))
        rc = fault(r, "\"name\" is \"%.60s\": use at most %d of a-z, 0-9 and _, a letter first",
                   name[0] != 0 ? name : r->name, FA_NAME_MAX - 9);
    return rc;
}

/* The kernel, and the answer's where that is one of the same file. */
static int link_kernels(struct reading *r, const char *source)
{
    const cJSON *answer = member(r->json, "answer");
    const char *of_answer =
        cJSON_IsString(answer) ? answer->valuestring : text_of(answer, "kernel");
    char *own = NULL;
    bool apart = r->answer_source != NULL;
    int rc = fa_source_kernel(r->where, source, text_of(r->json, "kernel"), apart ? "" : of_answer,
                              r->entry, &own, r->diag);
    if (rc != 0 || answer == NULL) {
        r->source = own;
        return rc;
    }
    if (!apart && of_answer[0] == 0) {
        free(own);
        return fault(r, "\"answer\" must name a kernel, or say {\"kernel\", \"source\"}");
    }
    char *linked = NULL;
    rc = fa_source_kernel(r->where, apart ? r->answer_source : own, of_answer, "", r->answer,
                          &linked, r->diag);
    if (apart) {
        free(r->answer_source);
        r->answer_source = linked;
        r->source = own;
    } else {
        free(own);
        r->source = linked;
    }
    return rc;
}

static fa_spec *find_spec(const char *hash)
{
    int count = atomic_load_explicit(&known_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (strcmp(text_of(known[i]->operation->document, "specification"), hash) == 0)
            return known[i];
    return NULL;
}

const fa_spec *fa_spec_of(const fa_operation *operation)
{
    int count = atomic_load_explicit(&known_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (known[i]->operation == operation)
            return known[i];
    return NULL;
}

/* Makes templates and the family of what was read. */
static int load_family(struct reading *r, fa_spec *spec)
{
    char contract[FA_NAME_MAX + 16], manifest[FA_NAME_MAX + 8], source[FA_NAME_MAX + 8],
        answer[FA_NAME_MAX + 16], operation[FA_NAME_MAX + FA_HASH_HEX + 1];
    char *texts[] = {fa_json_print_tidy(r->operation), fa_json_print_tidy(r->manifest)};
    snprintf(contract, sizeof contract, "%s/operation.json", r->name);
    snprintf(manifest, sizeof manifest, "%s.json", r->name);
    snprintf(source, sizeof source, "%s.cu", r->name);
    snprintf(answer, sizeof answer, "%s_answer.cu", r->name);
    snprintf(operation, sizeof operation, "%s@%s", r->name, r->hash);
    const fa_template_text files[] = {{contract, texts[0]},
                                      {manifest, texts[1]},
                                      {source, r->source},
                                      {answer, r->answer_source}};
    int rc = texts[0] != NULL && texts[1] != NULL
                 ? fa_templates_of(r->name, files, r->answer_source != NULL ? 4 : 3,
                                   &spec->templates, r->diag)
                 : fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    if (rc == 0)
        rc = fa_families_load(spec->templates, operation, &spec->families, r->diag);
    cJSON_free(texts[0]);
    cJSON_free(texts[1]);
    return rc;
}

/* Where the specification has no default config, the first that holds to the restrictions is it. */
static int choose_default(struct reading *r, fa_spec *spec)
{
    fa_problem problem = fa_problem_some(spec->operation);
    fa_config config;
    if (member(r->json, "default") != NULL)
        return 0;
    int rc = fa_space_first(spec->families.family[0], &problem, &config, r->diag);
    cJSON *presets = cJSON_GetObjectItemCaseSensitive(r->manifest, "default");
    for (int i = 0; i < config.count && rc == 0; i++)
        cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(presets, config.tunable[i].name),
                             config.tunable[i].value);
    fa_families_free(&spec->families);
    fa_templates_close(&spec->templates);
    return rc == 0 ? load_family(r, spec) : rc;
}

static void free_spec(fa_spec *spec)
{
    if (spec == NULL)
        return;
    fa_families_free(&spec->families);
    fa_templates_close(&spec->templates);
    free(spec);
}

/* With the mutex held. */
static int add_spec(struct reading *r, const fa_operation **ret_operation)
{
    fa_tensor_list tensors;
    int count = atomic_load_explicit(&known_count, memory_order_relaxed);
    if (count == SPECS_MAX)
        return fa_fail(r->diag, FA_EINVAL, "%s: this process knows %d specifications already",
                       r->where, SPECS_MAX);
    fa_spec *spec = calloc(1, sizeof *spec);
    char *text = fa_json_print(r->operation);
    int rc = spec != NULL && text != NULL && fa_json_is_whole(r->operation) &&
                     fa_json_is_whole(r->manifest)
                 ? fa_operation_register(text, strlen(text), r->where, &spec->operation, r->diag)
                 : fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    cJSON_free(text);
    if (rc == 0) {
        fa_problem problem = fa_problem_some(spec->operation);
        rc = fa_tensors_read(&problem, &tensors, r->diag);
        if (rc == 0)
            fa_tensors_free(&tensors);
    }
    if (rc == 0)
        rc = load_family(r, spec);
    if (rc == 0)
        rc = choose_default(r, spec);
    if (rc != 0) {
        free_spec(spec);
        return rc;
    }
    *ret_operation = spec->operation;
    known[count] = spec;
    atomic_store_explicit(&known_count, count + 1, memory_order_release);
    return 0;
}

static int read_texts(struct reading *r, const char *json, const char *source,
                      const fa_operation **ret_operation)
{
    fa_hash hash;
    fa_hash_init(&hash);
    fa_hash_text(&hash, r->name);
    fa_hash_text(&hash, json);
    fa_hash_text(&hash, source);
    fa_hash_text(&hash, r->answer_source != NULL ? r->answer_source : "");
    fa_hash_final(&hash, r->hash);
    r->hash[SHORT_HASH] = 0;
    int rc = read_identity(r);
    if (rc == 0)
        rc = link_kernels(r, source);
    if (rc == 0)
        rc = make_operation(r);
    if (rc == 0)
        rc = make_manifest(r);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&mutex);
    const fa_spec *same = find_spec(r->hash);
    if (same != NULL)
        *ret_operation = same->operation;
    else
        rc = add_spec(r, ret_operation);
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* A file beside the specification, by a plain name. */
static int read_named(const struct reading *r, const char *folder, const char *name,
                      char **ret_text)
{
    char path[4096];
    fa_buf file = {0};
    if (folder == NULL || name[0] == 0 || name[0] == '.' || strchr(name, '/') != NULL)
        return fault(r, folder == NULL
                            ? "a text names no file: give the source itself"
                            : "\"source\" must be the name of a file beside the specification");
    int length = snprintf(path, sizeof path, "%s%s", folder, name);
    int rc = length < (int)sizeof path ? fa_buf_read_file(&file, path, TEXT_MAX) : FA_EINVAL;
    if (rc == 0 && (file.data == NULL || memchr(file.data, 0, file.size) != NULL))
        rc = FA_EINVAL;
    if (rc == 0) {
        *ret_text = file.data;
        return 0;
    }
    fa_buf_free(&file);
    return fa_fail(r->diag, rc, "%s: %s: %s", r->where, path,
                   rc == FA_EINVAL ? "it is no text of at most 1 MiB" : fa_error_text(rc));
}

/* What a specification may be read from. */
struct texts {
    const char *where, *name, *text;
    const char *source; /* NULL: `text` is CUDA C++ itself, or names it */
    const char
        *folder; /* of the files that it names, with a slash at its end; NULL: it may name none */
    bool cuda;   /* `text` is CUDA C++ with the JSON in its head */
};

static int read_all(const struct texts *from, const fa_operation **ret_operation, fa_diag *diag)
{
    struct reading r = {.where = from->where, .diag = diag};
    cJSON *json = NULL;
    char *head = from->cuda ? fa_source_head(from->text, diag) : NULL, *named = NULL;
    const char *text = from->cuda ? head : from->text;
    int rc = text == NULL ? fa_fail_in(diag, FA_EMANIFEST, "%s", from->where)
                          : fa_json_parse(text, strlen(text), from->where, &json, diag);
    snprintf(r.name, sizeof r.name, "%.*s", (int)strcspn(from->name, "."), from->name);
    r.json = json;
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fault(&r, "a specification is a JSON object");
    if (rc == 0 && !from->cuda && from->source == NULL)
        rc = read_named(&r, from->folder, text_of(json, "source"), &named);
    const char *answer = text_of(member(json, "answer"), "source");
    if (rc == 0 && answer[0] != 0)
        rc = read_named(&r, from->folder, answer, &r.answer_source);
    if (rc == 0)
        rc = read_texts(&r, text,
                        from->source != NULL ? from->source
                        : named != NULL      ? named
                                             : from->text,
                        ret_operation);
    cJSON_Delete(r.operation);
    cJSON_Delete(r.manifest);
    cJSON_Delete(json);
    free(r.source);
    free(r.answer_source);
    free(named);
    free(head);
    return rc == FA_EINVAL ? FA_EMANIFEST : rc;
}

int fa_spec_open(const char *path, const fa_operation **ret_operation, fa_diag *diag)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t size = strlen(name);
    bool cuda = size > 3 && strcmp(name + size - 3, ".cu") == 0;
    struct reading r = {.where = path, .diag = diag};
    char *folder = slash != NULL ? strndup(path, (size_t)(name - path)) : strdup("./"),
         *text = NULL;
    int rc = folder == NULL   ? fa_fail(diag, FA_ENOMEM, "%s: out of memory", path)
             : name[0] == '.' ? fault(&r, "a specification is a file NAME.cu or NAME.json")
                              : read_named(&r, folder, name, &text);
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
    return read_all(
        &(struct texts){
            .where = where, .name = where, .text = text, .source = source, .cuda = source == NULL},
        ret_operation, diag);
}
