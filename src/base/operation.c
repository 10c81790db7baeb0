/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an operation.json, its table of fields and its products, and keeps the list of the operations that this process
 * knows: the built-in ones, each read when it is first asked for, then those that were added.
 *
 * Invariants: an operation's texts stay in its document, which lives as long as the operation. The list only grows:
 * readers take its count first and need no lock, whoever adds holds the mutex.
 */
#include "operation.h"

#include "error.h"
#include "expr.h"
#include "json.h"
#include "problem.h"
#include "trial.h"
#include "words.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one field ------------------------------------------------------------------------------*/
/* Properties of a field that name an earlier one. */
static const char *const earlier[] = {"divides", "follows", "needs", "at_most"};
enum { EARLIER = sizeof earlier / sizeof *earlier };

struct reading {
    fa_field field;
    const char *earlier[EARLIER];
};

static const char *const as_names[] = {"value", "nonzero", "not", NULL};

/* Of what is read once the kind of its field is known. */
static int read_later(const cJSON *json, void *field, fa_diag *diag)
{
    (void)json, (void)field, (void)diag;
    return 0;
}

#define ROW(key_, kind, member, ...) \
    FA_MEMBER(key_, kind, struct reading, member, .rules = FA_MEMBER_OPTIONAL, __VA_ARGS__)
static const fa_member of_sizes[] = {
    /* of a specification */
    ROW("default", OTHER, field.preset, .read = read_later),
    ROW("fixed", FLAG, field.shapes_source),
    ROW("multiple", COUNT, field.multiple, .least = 1),
    ROW("max", COUNT64, field.max, .least = INT32_MIN, .most = FA_SIZE_MAX),
    {.key = NULL},
};
static const fa_member of_files[] = {
    ROW("label", STRING, field.label),
    ROW("words", STRING, field.words),
    ROW("key", STRING, field.key),
    ROW("macro", STRING, field.macro),
    ROW("option", STRING, field.option),
    ROW("above", STRING, field.above),
    ROW("bars", STRING, field.bars),
    ROW("also", STRING, field.also),
    ROW("divides", STRING, earlier[0]),
    ROW("follows", STRING, earlier[1]),
    ROW("needs", STRING, earlier[2]),
    ROW("at_most", STRING, earlier[3]),
    ROW("min", COUNT, field.min, .least = INT32_MIN),
    ROW("max", COUNT64, field.max, .least = INT32_MIN, .most = INT32_MAX),
    ROW("multiple", COUNT, field.multiple, .least = 1),
    ROW("shown_as", CHOICE, field.shown_as, .names = as_names),
    ROW("shapes_source", FLAG, field.shapes_source),
    ROW("length", FLAG, field.length),
    ROW("rounds_up", FLAG, field.rounds_up),
    ROW("nonempty", FLAG, field.nonempty),
    ROW("optional", FLAG, field.optional),
    ROW("feature", FLAG, field.feature),
    ROW("default", OTHER, field.preset, .read = read_later),
    ROW("choices", OTHER, field.choice, .read = read_later),
    {.key = NULL},
};
#undef ROW

static bool is_specified(const fa_operation *operation)
{
    return operation->specification[0] != 0;
}

static int read_choices(const cJSON *json, fa_field *field, const char *where, fa_diag *diag)
{
    const cJSON *list = fa_json_member(json, "choices");
    int count = cJSON_GetArraySize(list);
    if (list != NULL && (count < 1 || count > FA_CHOICES_MAX || field->kind == FA_FIELD_BOOLEAN))
        return fa_fail(diag, FA_EINVAL, "%s: \"choices\" must be 1 to %d names", where,
                       FA_CHOICES_MAX);
    for (int i = 0; i < count; i++) {
        field->choice[i] = cJSON_GetStringValue(cJSON_GetArrayItem(list, i));
        if (field->choice[i] == NULL || field->choice[i][0] == 0 ||
            strlen(field->choice[i]) >= FA_NAME_MAX)
            return fa_fail(diag, FA_EINVAL, "%s: \"choices\" must be names", where);
    }
    if (count > 0)
        field->kind = FA_FIELD_CHOICE;
    if (field->kind != FA_FIELD_INTEGER) {
        field->min = field->kind == FA_FIELD_TEXT ? INT32_MIN : 0;
        field->max = field->kind == FA_FIELD_TEXT ? 0 : count > 0 ? count - 1 : 1;
    }
    return 0;
}

/* The default of a size is within 64 bits, and has been looked at. */
static int read_default(const cJSON *given, fa_field *field, const char *where, fa_diag *diag)
{
    int64_t number = 0;
    const cJSON of = {.type = cJSON_Object, .child = (cJSON *)(uintptr_t)given}; /* its first */
    if (cJSON_IsString(given) && given->valuestring[0] == 0)
        field->kind = FA_FIELD_TEXT;
    else if (cJSON_IsBool(given))
        field->kind = FA_FIELD_BOOLEAN;
    else {
        int rc = fa_json_int(&of, given->string, INT32_MIN, INT32_MAX, &number, where, diag);
        field->preset = (int32_t)number;
        return rc;
    }
    field->preset = cJSON_IsTrue(given);
    return 0;
}

/* Its properties, and those of the table that say how others are read. */
static int read_properties(const cJSON *json, const fa_operation *operation, fa_field *ret_field,
                           const char *where, fa_diag *diag)
{
    const bool size = is_specified(operation);
    struct reading is = {.field = {.key = "",
                                   .macro = "",
                                   .option = "",
                                   .also = "",
                                   .label = "",
                                   .words = "",
                                   .above = "",
                                   .bars = "",
                                   .min = size,
                                   .max = size ? FA_SIZE_MAX : INT32_MAX,
                                   .multiple = 1}};
    int *const index[EARLIER] = {&is.field.divides, &is.field.follows, &is.field.needs,
                                 &is.field.at_most};
    const fa_member *members = size ? of_sizes : of_files;
    int rc = !cJSON_IsObject(json) ? 0
             : operation->owned != NULL
                 ? fa_struct_from_strict_json(json, members, &is, where, diag)
                 : fa_struct_from_json(json, members, &is, where, diag);
    for (int i = 0; i < EARLIER && rc == 0; i++) {
        const char *name = is.earlier[i];
        *index[i] = name != NULL ? fa_operation_field_index(operation, name) : -1;
        if (name != NULL && *index[i] < 0)
            rc = fa_fail(diag, FA_EINVAL, "%s: \"%s\" must name an earlier field", where,
                         earlier[i]);
    }
    *ret_field = is.field;
    return rc;
}

/* "n": {"default": 1024, …}, or "n": 1024. Of a specification it is an integer from 1 on. */
static int read_field(const cJSON *json, fa_operation *operation, const char *where, fa_diag *diag)
{
    fa_field *field = &operation->field[operation->field_count];
    const bool size = is_specified(operation), brief = !cJSON_IsObject(json);
    const cJSON *given = brief ? json : fa_json_member(json, "default");
    const double value = cJSON_IsNumber(given) ? given->valuedouble : 1;
    char room[FA_FIELD_RANGE_MAX];
    if (!fa_is_identifier(json->string) || fa_expr_is_word(json->string) ||
        strcmp(json->string, "operation") == 0 ||
        (brief && !cJSON_IsNumber(json) && (size || !cJSON_IsBool(json))))
        return fa_fail(diag, FA_EINVAL, "%s must be a name with a number, or with an object",
                       where);
    if (size && !(value >= 1 && value <= (double)FA_SIZE_MAX && value <= floor(value)))
        return fa_fail(diag, FA_EINVAL, "%s: %.17g is no whole number from 1 to %lld", where, value,
                       (long long)FA_SIZE_MAX);
    int rc = read_properties(json, operation, field, where, diag);
    if (rc == 0 && given != NULL && !(size && cJSON_IsNumber(given)))
        rc = read_default(given, field, where, diag);
    field->name = json->string;
    if (rc != 0 || (rc = read_choices(json, field, where, diag)) != 0)
        return rc;
    if (!cJSON_HasObjectItem(json, "key"))
        field->key = field->name;
    if (field->label[0] == 0 && field->kind != FA_FIELD_CHOICE)
        field->label = field->name;
    if (size) { /* its macro, option and name are one */
        snprintf(field->own_option, sizeof field->own_option, "--%s", field->name);
        field->option = field->own_option;
        field->macro = field->name;
    }
    if (field->macro[0] != 0 && !fa_is_identifier(field->macro))
        return fa_fail(diag, FA_EINVAL, "%s: \"macro\" must be an identifier", where);
    field->required = field->kind == FA_FIELD_INTEGER && field->follows < 0 && given == NULL;
    field->optional = field->optional || field->feature;
    /* A choice without a label that shapes the source, as an element type, is always told. */
    field->quiet =
        field->optional || field->kind == FA_FIELD_BOOLEAN ||
        (field->kind == FA_FIELD_CHOICE && (field->label[0] != 0 || !field->shapes_source));
    if (field->min > field->max)
        return fa_fail(diag, FA_EINVAL, "%s: the range is empty", where);
    const int64_t number = size ? (int64_t)value : field->preset;
    if (size && (rc = fa_field_keep(field, number, &field->preset, diag)) != 0)
        return rc;
    if (given != NULL &&
        (number < field->min || number > field->max || number % field->multiple != 0))
        return fa_fail(diag, FA_EINVAL, "%s: its default is %lld%s", where, (long long)number,
                       fa_field_range(field, number, room));
    return 0;
}

/* ---- one operation --------------------------------------------------------------------------*/
static int read_fields(fa_operation *operation, const char *where, fa_diag *diag)
{
    const cJSON *item, *sizes = fa_json_member(operation->document, "sizes");
    if (!cJSON_IsObject(sizes) || sizes->child == NULL ||
        cJSON_GetArraySize(sizes) > FA_PROBLEM_VALUES)
        return fa_fail(diag, FA_EINVAL,
                       "%s: \"sizes\" must name 1 to %d sizes, as in {\"n\": 4096}", where,
                       FA_PROBLEM_VALUES);
    size_t longest = strlen(operation->name) + 1; /* bytes of a problem's key */
    cJSON_ArrayForEach (item, sizes) {
        char place[256];
        const fa_field *field = &operation->field[operation->field_count];
        size_t value = is_specified(operation) ? FA_SIZE_DIGITS : 11; /* of INT32_MIN */
        snprintf(place, sizeof place, "%.180s: sizes %.60s", where, item->string);
        if (fa_operation_field_index(operation, item->string) >= 0)
            return fa_fail(diag, FA_EINVAL, "%s appears twice", place);
        FA_OR_RETURN(read_field(item, operation, place, diag));
        operation->field_count++;
        if (field->kind == FA_FIELD_TEXT)
            value = FA_FIELD_KEY_DIGITS;
        for (int c = 0; field->choice[c] != NULL; c++)
            value = strlen(field->choice[c]) > value ? strlen(field->choice[c]) : value;
        longest += 2 + strlen(field->key) + value;
    }
    if (longest > FA_PROBLEM_KEY_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: a problem's key would be longer than %d bytes", where,
                       FA_PROBLEM_KEY_MAX - 1);
    return 0;
}

static int read_products(const cJSON *list, fa_operation *operation, const char *where,
                         fa_diag *diag)
{
    const cJSON *item;
    if (cJSON_GetArraySize(list) > FA_PRODUCTS_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: more than %d products", where, FA_PRODUCTS_MAX);
    cJSON_ArrayForEach (item, list) {
        fa_product *product = &operation->product[operation->product_count++];
        const char *field, *by;
        FA_OR_RETURN(fa_json_text_needed(item, "option", &product->option, where, diag));
        FA_OR_RETURN(fa_json_text_needed(item, "help", &product->help, where, diag));
        FA_OR_RETURN(fa_json_text_needed(item, "field", &field, where, diag));
        FA_OR_RETURN(fa_json_text_needed(item, "by", &by, where, diag));
        product->field = fa_operation_field_index(operation, field);
        product->by = fa_operation_field_index(operation, by);
        if (product->field < 0 || product->by < 0)
            return fa_fail(diag, FA_EINVAL, "%s: a product's \"field\" and \"by\" must be fields",
                           where);
    }
    return 0;
}

void fa_operation_free(fa_operation **operation)
{
    if (*operation != NULL)
        cJSON_Delete((*operation)->owned);
    free(*operation);
    *operation = NULL;
}

/* A text that may be absent: then "". */
static int read_optional(const cJSON *json, const char *key, const char **ret, const char *where,
                         fa_diag *diag)
{
    *ret = "";
    int rc = fa_json_text(json, key, ret, where, diag);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

/* The keys of the document, its arguments and its tolerance. Those of a specification itself were looked at when it was
 * read. */
static int check_keys(const fa_operation *operation, const char *where, fa_diag *diag)
{
    static const char *const of_specifications[] = {"name",      "type",   "shape", "value",
                                                    "is",        "range",  "align", "symbol",
                                                    "parameter", "fields", NULL};
    static const char *const of_files[] = {"name",  "type",    "shape", "value",  "is", "range",
                                           "align", "strided", "when",  "normal", NULL};
    static const char *const all[] = {
        "name",      "title",     "default",    "example",  "sweep_example",
        "sizes",     "products",  "shorthands", "backward", "reference_of_features",
        "reference", "arguments", "tolerance",  "flops",    "bytes",
        "counts",    NULL};
    static const char *const tolerance[] = {"ulps", "relative", "of_largest", "absolute", NULL};
    const bool specified = is_specified(operation);
    const cJSON *json = operation->document, *item;
    char place[256];
    int at = 0;
    FA_OR_RETURN(specified ? 0 : fa_json_check_keys(json, all, where, diag));
    cJSON_ArrayForEach (item, fa_json_member(json, "arguments")) {
        snprintf(place, sizeof place, "%.200s: arguments[%d]", where, at++);
        FA_OR_RETURN(
            fa_json_check_keys(item, specified ? of_specifications : of_files, place, diag));
    }
    snprintf(place, sizeof place, "%.200s: \"tolerance\"", where);
    return fa_json_check_keys(fa_json_member(json, "tolerance"), tolerance, place, diag);
}

/* Rows that the command line makes options and sentences of. */
static int check_rows(const cJSON *json, const char *where, fa_diag *diag)
{
    const cJSON *row, *item;
    const char *text;
    cJSON_ArrayForEach (row, fa_json_member(json, "shorthands")) {
        FA_OR_RETURN(fa_json_text_needed(row, "option", &text, where, diag));
        FA_OR_RETURN(fa_json_text_needed(row, "help", &text, where, diag));
        cJSON_ArrayForEach (item, fa_json_member(row, "set"))
            if (!cJSON_IsString(item))
                return fa_fail(diag, FA_EINVAL, "%s: a shorthand's \"set\" takes texts", where);
    }
    return 0;
}

static int read_document(fa_operation *operation, const char *where, fa_diag *diag)
{
    const cJSON *json = operation->document;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    const bool built_in = operation->owned == NULL;
    FA_OR_RETURN(read_optional(json, "specification", &operation->specification, where, diag));
    FA_OR_RETURN(built_in ? 0 : check_keys(operation, where, diag));
    FA_OR_RETURN(built_in ? 0 : check_rows(json, where, diag));
    FA_OR_RETURN(fa_json_text_needed(json, "name", &operation->name, where, diag));
    if (!fa_is_identifier(operation->name))
        return fa_fail(diag, FA_EINVAL, "%s: \"name\" must be an identifier", where);
    operation->is_default = cJSON_IsTrue(fa_json_member(json, "default"));
    const char *text;
    FA_OR_RETURN(fa_json_text_needed(json, "title", &operation->title, where, diag));
    FA_OR_RETURN(read_optional(json, "flops", &text, where, diag));
    FA_OR_RETURN(read_optional(json, "bytes", &text, where, diag));
    FA_OR_RETURN(read_optional(json, "example", &operation->example, where, diag));
    FA_OR_RETURN(read_optional(json, "sweep_example", &operation->sweep_example, where, diag));
    FA_OR_RETURN(read_fields(operation, where, diag));
    return read_products(fa_json_member(json, "products"), operation, where, diag);
}

int fa_operation_make(const cJSON *document, cJSON *owned, const char *where,
                      fa_operation **ret_operation, fa_diag *diag)
{
    FA_ENDS(fa_operation_free) fa_operation *operation = calloc(1, sizeof *operation);
    if (operation == NULL) {
        cJSON_Delete(owned);
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    }
    operation->document = document;
    operation->owned = owned;
    int rc = read_document(operation, where, diag);
    if (rc == 0)
        *ret_operation = operation, operation = NULL;
    return rc;
}

/* ---- what a table of fields says ------------------------------------------------------------*/
int fa_operation_field_index(const fa_operation *operation, const char *name)
{
    for (int i = 0; i < operation->field_count; i++)
        if (strcmp(operation->field[i].name, name) == 0)
            return i;
    return -1;
}

static bool is_size(const fa_field *field)
{
    return field->own_option[0] != 0;
}

int64_t fa_field_number(const fa_field *field, int32_t value)
{
    return value < 0 && is_size(field) ? (int64_t)fa_value_number(value) : value;
}

int64_t fa_field_shown(const fa_field *field, int32_t value)
{
    return field->shown_as == FA_AS_VALUE     ? fa_field_number(field, value)
           : field->shown_as == FA_AS_NONZERO ? value != 0
                                              : value == 0;
}

int fa_field_keep(const fa_field *field, int64_t number, int32_t *ret_value, fa_diag *diag)
{
    if (number > INT32_MAX && is_size(field))
        return fa_value_of_number((double)number, ret_value, diag);
    *ret_value = (int32_t)number;
    return 0;
}

const char *fa_field_text(const fa_field *field, int32_t value, char room[16])
{
    if (field->kind == FA_FIELD_BOOLEAN)
        return value != 0 ? "true" : "false";
    if (field->kind == FA_FIELD_CHOICE)
        return value >= field->min && value <= field->max ? field->choice[value] : "unknown";
    if (field->kind == FA_FIELD_TEXT)
        return value == 0 ? "" : fa_value_words(value, NULL);
    snprintf(room, 16, "%lld", (long long)fa_field_number(field, value));
    return room;
}

const char *fa_field_range(const fa_field *f, int64_t value, char room[FA_FIELD_RANGE_MAX])
{
    char steps[40] = "";
    if (f->multiple > 1)
        snprintf(steps, sizeof steps, "a multiple of %d from ", f->multiple);
    if (value > f->max && f->above[0] != 0)
        snprintf(room, FA_FIELD_RANGE_MAX, ": %s", f->above);
    else
        snprintf(room, FA_FIELD_RANGE_MAX, ": use %s%d to %lld%s", steps, f->min, (long long)f->max,
                 value % f->multiple != 0 ? " (pad the tensors)" : "");
    return room;
}

bool fa_field_may_be_bare(const fa_field *field)
{
    return field->max > 0 && field->kind == FA_FIELD_CHOICE &&
           strcmp(field->choice[0], "none") == 0;
}

int fa_field_choice(const fa_field *field, const char *name)
{
    for (int i = 0; field->choice[i] != NULL; i++)
        if (strcmp(field->choice[i], name) == 0)
            return i;
    return -1;
}

/* ---- the operations of this process ---------------------------------------------------------*/
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* who adds holds it */
static _Atomic(fa_operation *) known[FA_OPERATIONS_MAX];  /* set once */
static atomic_int added;                                  /* behind the built-in ones */

static int count_known(void)
{
    return fa_operations_builtin_count + atomic_load_explicit(&added, memory_order_acquire);
}

static const fa_operation *read_builtin(int index)
{
    const struct fa_operation_builtin *is = &fa_operations_builtin[index];
    fa_operation *none = NULL, *made = NULL;
    if (fa_operation_make(is->document, NULL, is->where, &made, NULL) != 0)
        return NULL;
    if (atomic_compare_exchange_strong(&known[index], &none, made))
        return made;
    fa_operation_free(&made);
    return none;
}

/* NULL, of a built-in one alone: memory ran out while it was read. */
static inline const fa_operation *known_at(int index)
{
    const fa_operation *found = atomic_load_explicit(&known[index], memory_order_acquire);
    return found != NULL ? found : read_builtin(index);
}

/* Without reading it. */
static const char *name_at(int index)
{
    return index < fa_operations_builtin_count ? fa_operations_builtin[index].name
                                               : known_at(index)->name;
}

/* Index of the newest of that name, and with "@HASH" behind it of the specification whose hash begins so; -1: there is none. */
static int find_index(const char *name)
{
    size_t size = strcspn(name, "@");
    for (int i = count_known() - 1; i >= 0; i--) {
        const char *its = name_at(i), *hash = name[size] != 0 ? name + size + 1 : name + size;
        if (strncmp(its, name, size) == 0 && its[size] == 0 &&
            (name[size] == 0 || (hash[0] != 0 && i >= fa_operations_builtin_count &&
                                 strncmp(known_at(i)->specification, hash, strlen(hash)) == 0)))
            return i;
    }
    return -1;
}

/* In what two files of one operation differ, one of which then stands for both; NULL: in words for people at most. */
static const char *difference(const fa_operation *one, const fa_operation *other)
{
    static const char *const shared[] = {"sizes", "arguments", "tolerance",    "reference",
                                         "flops", "bytes",     "specification"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const cJSON *a = fa_json_member(one->document, shared[i]);
        const cJSON *b = fa_json_member(other->document, shared[i]);
        if ((a != NULL || b != NULL) && !cJSON_Compare(a, b, true))
            return shared[i];
    }
    return NULL;
}

int fa_operation_add(fa_operation *given, const char *where, const fa_operation **ret_operation,
                     fa_diag *diag)
{
    FA_ENDS(fa_operation_free) fa_operation *operation = given;
    FA_HOLDS(&mutex);
    char name[FA_NAME_MAX + 80];
    snprintf(name, sizeof name, "%s%s%s", operation->name, is_specified(operation) ? "@" : "",
             operation->specification);
    int count = count_known(), at = find_index(name);
    if (at < 0)
        at = find_index(operation->name);
    const fa_operation *same = at >= 0 ? known_at(at) : NULL;
    FA_OR_RETURN(fa_have(at < 0 || same != NULL, where, diag));
    const char *other = same != NULL ? difference(operation, same) : NULL;
    /* A specification's operation is one for each text, and the newest has the name. */
    if (other != NULL && is_specified(same) && is_specified(operation))
        same = NULL, other = NULL;
    if (other != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "%s: operation %s is known with another \"%s\": give this one another name",
                       where, same->name, other);
    if (same == NULL && count == FA_OPERATIONS_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: more than %d operations", where, FA_OPERATIONS_MAX);
    if (same == NULL) {
        atomic_store_explicit(&known[count], operation, memory_order_relaxed);
        atomic_fetch_add_explicit(&added, 1, memory_order_release);
        same = operation, operation = NULL;
    }
    *ret_operation = same;
    return 0;
}

const fa_operation *fa_operation_of(const fa_problem *problem)
{
    static const fa_operation none = {.name = "", .title = "", .specification = ""};
    const fa_operation *operation = problem != NULL && problem->operation != NULL
                                        ? problem->operation
                                        : known_at(fa_operations_builtin_default);
    return operation != NULL ? operation : &none;
}

const fa_operation *fa_operation_at(int index)
{
    return index >= 0 && index < count_known() ? known_at(index) : NULL;
}

int fa_operation_find(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    int at = find_index(name), names = 0;
    const fa_operation *found = at >= 0 ? known_at(at) : NULL;
    if (found != NULL)
        *ret_operation = found;
    if (at >= 0)
        return fa_have(found != NULL, "operations", diag);
    FA_ENDS(fa_buf_free) fa_buf list = {0};
    const char *known_name[FA_OPERATIONS_MAX + 1] = {NULL};
    for (int i = 0, count = count_known(); i < count; i++)
        if (find_index(name_at(i)) == i) /* by its name alone */
            known_name[names++] = name_at(i);
    fa_words_or(&list, known_name);
    return fa_fail(diag, FA_ENOTSUP, "operation \"%.40s\" is not known: use %s", name,
                   list.data != NULL ? list.data : "another");
}

int fa_operation_register(const char *text, size_t size, const char *where,
                          const fa_operation **ret_operation, fa_diag *diag)
{
    cJSON *document = NULL;
    fa_operation *operation = NULL;
    FA_OR_RETURN(fa_json_parse(text, size, where, &document, diag));
    FA_OR_RETURN(fa_operation_make(document, document, where, &operation, diag));
    return fa_operation_add(operation, where, ret_operation, diag);
}
