/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests: from hostile JSON to a family whose every expression is known to be arithmetic over
 * known names.
 *
 * Workload: a handful of manifests of a few kilobytes, once per process (about a millisecond each).
 * Invariant: a family that loads is complete; what can be wrong later is only a value for one
 * problem (a division by zero, a default outside its domain), and space.c reports that.
 */
#include "family.h"

#include "../src/base/error.h"
#include "../src/base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WHY_MAX = 300 }; /* bytes of a sentence: fits fa_trial's reason */

/* A manifest being read: every sentence starts with `where`, its file. */
struct reader {
    fa_family *family;
    const cJSON *json;
    const char *where;
    fa_diag *diag;
    const char *name[FA_EXPR_NAMES_MAX]; /* given, tunables, lets: bit i of a `uses` */
    int name_count;
};

static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

static bool is_word(const char *text, const char *alphabet)
{
    size_t size = strlen(text);
    return size > 0 && size < FA_NAME_MAX && strspn(text, alphabet) == size &&
           (text[0] < '0' || text[0] > '9') && text[0] != '_';
}

/* What a manifest says is shown to people on terminals, which act on control bytes. */
static bool is_sentence(const char *text)
{
    size_t size = strlen(text);
    bool clean = size > 0 && size <= WHY_MAX;
    for (size_t i = 0; clean && i < size; i++)
        clean = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    return clean;
}

static int fault(const struct reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int fault(const struct reader *r, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

/* Only the keys listed, each once. */
static int check_keys(const struct reader *r, const cJSON *object, const char *place,
                      const char *const *keys, int count)
{
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        bool known = false;
        for (int i = 0; i < count; i++)
            known = known || strcmp(item->string, keys[i]) == 0;
        if (!known)
            return fault(r, "%s: the key \"%.60s\" is unknown", place, item->string);
        for (const cJSON *other = item->next; other != NULL; other = other->next)
            if (strcmp(item->string, other->string) == 0)
                return fault(r, "%s: the key \"%.60s\" stands twice", place, item->string);
    }
    return 0;
}

/* *ret: the member, of the type asked for; NULL when absent and not required. */
static int member(const struct reader *r, const char *key, bool required,
                  cJSON_bool (*is)(const cJSON *), const char *type, const cJSON **ret)
{
    *ret = cJSON_GetObjectItemCaseSensitive(r->json, key);
    if (*ret == NULL)
        return required ? fault(r, "\"%s\" is missing", key) : 0;
    return is(*ret) ? 0 : fault(r, "\"%s\" must be %s", key, type);
}

/* An expression is a string or a plain integer; it is checked elsewhere. Caller owns *ret_text. */
static int take_text(const struct reader *r, const cJSON *item, const char *place, char **ret_text)
{
    char number[32];
    const char *text = number;
    if (cJSON_IsString(item)) {
        text = item->valuestring;
    } else if (cJSON_IsNumber(item) && item->valuedouble >= -1e9 && item->valuedouble <= 1e9 &&
               item->valuedouble == (double)(int64_t)item->valuedouble) {
        snprintf(number, sizeof number, "%lld", (long long)item->valuedouble);
    } else {
        return fault(r, "%s must be an expression (a string) or an integer", place);
    }
    *ret_text = strdup(text);
    return *ret_text != NULL ? 0 : fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
}

static int check_text(const struct reader *r, const char *text, const char *place,
                      uint64_t *ret_uses)
{
    int rc = fa_expr_check(r->family->engine, text, ret_uses, r->diag);
    return rc == 0 ? 0 : fa_fail_in(r->diag, rc, "%s: %s", r->where, place);
}

static int add_name(struct reader *r, const char *name, const char *place)
{
    if (!is_word(name, upper))
        return fault(r,
                     "%s: \"%.60s\" is not a name: use at most %d of A-Z, 0-9 and _, "
                     "a letter first",
                     place, name, FA_NAME_MAX - 1);
    if (strncmp(name, "FA_", 3) == 0)
        return fault(r, "%s: \"%s\": names that start with FA_ are ours", place, name);
    for (int i = 0; i < r->name_count; i++)
        if (strcmp(name, r->name[i]) == 0)
            return fault(r, "%s: the name \"%s\" is taken", place, name);
    if (r->name_count == FA_EXPR_NAMES_MAX)
        return fault(r, "more than %d names", FA_EXPR_NAMES_MAX);
    r->name[r->name_count++] = name;
    return 0;
}

/* ---- the parts of a manifest, in the order in which they are read ---------------------------*/
static int read_identity(struct reader *r)
{
    fa_family *f = r->family;
    struct {
        const char *key;
        char *text;
        size_t size;
        bool required;
    } fields[] = {{"name", f->name, sizeof f->name, true},
                  {"arch_suffix", f->arch_suffix, sizeof f->arch_suffix, false}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int rc =
            fa_json_copy(r->json, fields[i].key, fields[i].text, fields[i].size, r->where, r->diag);
        if (rc == FA_ENOTFOUND && fields[i].required)
            return fault(r, "\"%s\" is missing", fields[i].key);
        if (rc != 0 && rc != FA_ENOTFOUND)
            return FA_EMANIFEST;
    }
    if (!is_word(f->name, lower))
        return fault(r, "\"name\": use at most %d of a-z, 0-9 and _, a letter first",
                     FA_NAME_MAX - 1);
    if (strncmp(r->where, f->name, strlen(f->name)) != 0 ||
        strcmp(r->where + strlen(f->name), ".json") != 0)
        return fault(r, "\"name\" is %s: it must be the file's name without .json", f->name);
    if (f->arch_suffix[0] != 0 && f->arch_suffix[0] != 'a')
        return fault(r, "\"arch_suffix\" must be \"\" or \"a\"");
    return 0;
}

static int read_sm(struct reader *r)
{
    static const char *const keys[] = {"min", "max"};
    const cJSON *sm;
    int64_t low = 0, high = 0;
    int rc = member(r, "sm", true, cJSON_IsObject, "an object with min and max", &sm);
    if (rc == 0)
        rc = check_keys(r, sm, "\"sm\"", keys, 2);
    if (rc != 0)
        return rc;
    rc = fa_json_int(sm, "min", 10, 999, &low, r->where, r->diag);
    if (rc == 0)
        rc = fa_json_int(sm, "max", low, 999, &high, r->where, r->diag);
    if (rc == FA_ENOTFOUND)
        return fault(r, "\"sm\" needs min and max");
    r->family->sm_min = (int32_t)low;
    r->family->sm_max = (int32_t)high;
    return rc == 0 ? 0 : FA_EMANIFEST;
}

/* The highest SM on which the template also runs, for proving it where its own GPUs are not. */
static int read_proved_on(struct reader *r)
{
    static const char *const keys[] = {"max"};
    const cJSON *proved;
    int64_t high = r->family->sm_max;
    int rc = member(r, "proved_on", false, cJSON_IsObject, "an object with max", &proved);
    if (rc == 0 && proved != NULL) {
        rc = check_keys(r, proved, "\"proved_on\"", keys, 1);
        if (rc == 0)
            rc = fa_json_int(proved, "max", r->family->sm_max, 999, &high, r->where, r->diag);
        if (rc == FA_ENOTFOUND)
            return fault(r, "\"proved_on\" needs max");
    }
    r->family->proved_max = (int32_t)high;
    return rc == 0 ? 0 : FA_EMANIFEST;
}

/* The features of the operation that the family serves away from their defaults. */
static int read_takes(struct reader *r)
{
    const cJSON *list, *item;
    int rc = member(r, "takes", false, cJSON_IsArray, "an array of names of fields", &list);
    cJSON_ArrayForEach (item, list) {
        const char *name = cJSON_GetStringValue(item);
        int field = name != NULL ? fa_operation_field_index(r->family->operation, name) : -1;
        if (field < 0 || !r->family->operation->field[field].feature)
            return fault(r, "\"takes\": \"%.60s\" is no feature of %s", name != NULL ? name : "",
                         r->family->operation->name);
        r->family->takes |= (uint32_t)1 << field;
    }
    return rc;
}

/* Whether the family competes with those that are written for one chip. */
static int read_beside(struct reader *r)
{
    const cJSON *beside;
    int rc = member(r, "beside_specific", false, cJSON_IsBool, "true or false", &beside);
    r->family->beside = cJSON_IsTrue(beside);
    return rc;
}

static int read_domain(struct reader *r, const cJSON *item, fa_domain *domain)
{
    int size = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    if (size < 1 || size > FA_MAX_DOMAIN)
        return fault(r, "tunable %s must be an array of 1 to %d integers", item->string,
                     FA_MAX_DOMAIN);
    snprintf(domain->name, sizeof domain->name, "%s", item->string);
    for (const cJSON *value = item->child; value != NULL; value = value->next) {
        double number = cJSON_IsNumber(value) ? value->valuedouble : -1;
        if (!(number >= 0 && number <= 1048576) || number != (double)(int32_t)number)
            return fault(r, "tunable %s: its values must be integers from 0 to 1,048,576",
                         item->string);
        for (int i = 0; i < domain->count; i++)
            if (domain->value[i] == (int32_t)number)
                return fault(r, "tunable %s: the value %d stands twice", item->string, (int)number);
        domain->value[domain->count++] = (int32_t)number;
    }
    return 0;
}

static int read_tunables(struct reader *r)
{
    const cJSON *tunables;
    int64_t product = 1;
    char buffer[FA_COMMAS_MAX];
    int rc = member(r, "tunables", true, cJSON_IsObject, "an object of arrays", &tunables);
    if (rc != 0)
        return rc;
    for (const cJSON *item = tunables->child; item != NULL; item = item->next) {
        if (r->family->tunable_count == FA_MAX_TUNABLES)
            return fault(r, "more than %d tunables", FA_MAX_TUNABLES);
        fa_domain *domain = &r->family->tunable[r->family->tunable_count++];
        rc = add_name(r, item->string, "\"tunables\"");
        if (rc == 0)
            rc = read_domain(r, item, domain);
        if (rc != 0)
            return rc;
        product *= domain->count;
        if (product > FA_SPACE_MAX)
            return fault(r, "the domains up to %s make a space of %s configs: at most %d",
                         domain->name, fa_commas(product, buffer), FA_SPACE_MAX);
    }
    return product > 0 && r->family->tunable_count > 0 ? 0 : fault(r, "there are no tunables");
}

/* Tunables that kernels learn from their launch (the grid, the size of the shared memory): configs that
 * differ in them alone share a cubin. */
static int read_run_time(struct reader *r)
{
    const cJSON *names;
    int rc = member(r, "run_time", false, cJSON_IsArray, "an array of names", &names);
    for (const cJSON *item = names != NULL ? names->child : NULL; item != NULL && rc == 0;
         item = item->next) {
        if (!cJSON_IsString(item))
            return fault(r, "\"run_time\" must be an array of names");
        rc = fa_family_add_run_time(r->family, item->valuestring, r->diag);
        if (rc != 0)
            return fa_fail_in(r->diag, rc, "%s", r->where);
    }
    return rc;
}

static int read_lets(struct reader *r)
{
    fa_family *f = r->family;
    const cJSON *lets;
    char place[64];
    int rc = member(r, "let", false, cJSON_IsObject, "an object of expressions", &lets);
    if (rc != 0)
        return rc;
    for (const cJSON *item = lets != NULL ? lets->child : NULL; item != NULL; item = item->next) {
        if (f->let_count == FA_MAX_LETS)
            return fault(r, "more than %d lets", FA_MAX_LETS);
        fa_let *let = &f->let[f->let_count++];
        snprintf(place, sizeof place, "let %.40s", item->string);
        rc = add_name(r, item->string, "\"let\"");
        if (rc == 0)
            rc = take_text(r, item, place, &let->text);
        if (rc != 0)
            return rc;
        snprintf(let->name, sizeof let->name, "%s", item->string);
    }
    rc = fa_expr_names(f->engine, r->name, r->name_count, r->diag);
    if (rc == 0)
        rc = read_run_time(r);
    for (int i = 0; i < f->let_count && rc == 0; i++) {
        uint64_t uses = 0;
        snprintf(place, sizeof place, "let %s", f->let[i].name);
        rc = check_text(r, f->let[i].text, place, &uses);
        f->let[i].uses = uses >> (f->given.count + f->tunable_count);
        f->let[i].sized = (uses & f->given.sized) != 0;
        f->let[i].varies = ((uses >> f->given.count) & ((1u << f->tunable_count) - 1)) != 0;
        f->let[i].run_time = f->let[i].run_time || fa_family_at_run_time(f, uses);
    }
    if (rc == 0 && (rc = fa_family_order_lets(f, r->diag)) != 0)
        return fa_fail_in(r->diag, rc, "%s", r->where);
    return rc;
}

/* Does an expression read a tunable, directly or through a let? */
static bool varies(const fa_family *f, uint64_t uses)
{
    uint64_t tunables = (((uint64_t)1 << f->tunable_count) - 1) << f->given.count;
    bool found = (uses & tunables) != 0;
    for (int i = 0; i < f->let_count; i++)
        if ((uses >> (f->given.count + f->tunable_count + i) & 1) != 0)
            found = found || f->let[i].varies;
    return found;
}

/* What a rule is about: a config that does not hold to it is impossible, exceeds the shared memory or
 * the registers, or is known not to pay. */
static int read_ending(struct reader *r, const cJSON *rule, const char *place, bool allowed,
                       fa_status *ret_ends)
{
    static const fa_status endings[] = {FA_STATUS_CONSTRAINT, FA_STATUS_BUDGET, FA_STATUS_REGISTERS,
                                        FA_STATUS_DOES_NOT_PAY};
    const cJSON *is = cJSON_GetObjectItemCaseSensitive(rule, "is");
    *ret_ends = FA_STATUS_CONSTRAINT;
    if (is == NULL)
        return 0;
    for (size_t i = 0; allowed && cJSON_IsString(is) && i < sizeof endings / sizeof *endings; i++) {
        *ret_ends = endings[i];
        if (strcmp(is->valuestring, fa_status_name(endings[i])) == 0)
            return 0;
    }
    return fault(r,
                 "%s: \"is\" must be constraint, budget, registers or does-not-pay, and stands in "
                 "\"constraints\" only",
                 place);
}

static int read_requires(struct reader *r, const char *key, bool may_vary, fa_require *list,
                         int *ret_count)
{
    static const char *const keys[] = {"require", "is", "why"}; /* "supports" has no "is" */
    const cJSON *array;
    char place[64];
    int rc = member(r, key, false, cJSON_IsArray, "an array", &array);
    if (rc != 0 || array == NULL)
        return rc;
    for (const cJSON *item = array->child; item != NULL && rc == 0; item = item->next) {
        uint64_t uses = 0;
        const char *why = NULL;
        if (*ret_count == FA_MAX_REQUIRES)
            return fault(r, "\"%s\" has more than %d entries", key, FA_MAX_REQUIRES);
        snprintf(place, sizeof place, "%s[%d]", key, *ret_count);
        fa_require *require = &list[(*ret_count)++];
        if (!cJSON_IsObject(item))
            return fault(r, "%s must be an object with require and why", place);
        if ((rc = check_keys(r, item, place, keys, 3)) != 0 ||
            (rc = read_ending(r, item, place, may_vary, &require->ends)) != 0)
            return rc;
        if (fa_json_text(item, "why", &why, place, NULL) != 0 || !is_sentence(why))
            return fault(r, "%s: \"why\" must be a sentence of 1 to %d bytes, no control bytes",
                         place, WHY_MAX);
        if ((require->why = strdup(why)) == NULL)
            return fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
        rc = take_text(r, cJSON_GetObjectItemCaseSensitive(item, "require"), place, &require->text);
        if (rc == 0)
            rc = check_text(r, require->text, place, &uses);
        if (rc == 0 && !may_vary && varies(r->family, uses))
            rc = fault(r, "%s reads a tunable: it may read the problem and the GPU only", place);
    }
    return rc;
}

static int read_defaults(struct reader *r)
{
    const cJSON *defaults;
    char place[64];
    int rc = member(r, "default", true, cJSON_IsObject, "an object of expressions", &defaults);
    const char *names[FA_MAX_TUNABLES];
    for (int i = 0; i < r->family->tunable_count; i++)
        names[i] = r->family->tunable[i].name;
    if (rc == 0)
        rc = check_keys(r, defaults, "\"default\"", names, r->family->tunable_count);
    for (int i = 0; i < r->family->tunable_count && rc == 0; i++) {
        fa_domain *domain = &r->family->tunable[i];
        uint64_t uses = 0;
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(defaults, domain->name);
        snprintf(place, sizeof place, "default %s", domain->name);
        if (item == NULL)
            return fault(r, "%s is missing", place);
        rc = take_text(r, item, place, &domain->preset);
        if (rc == 0)
            rc = check_text(r, domain->preset, place, &uses);
        if (rc == 0 && varies(r->family, uses))
            rc = fault(r, "%s reads a tunable: it may read the problem and the GPU only", place);
    }
    return rc;
}

/* One expression of the launch: threads, registers, an addend, a side of the grid. *ret_run_time becomes
 * true when it reads what is known at run time only. */
static int read_expression(struct reader *r, const cJSON *item, const char *place, char **ret_text,
                           bool *ret_run_time)
{
    uint64_t uses = 0;
    int rc = take_text(r, item, place, ret_text);
    if (rc == 0)
        rc = check_text(r, *ret_text, place, &uses);
    *ret_run_time = *ret_run_time || (rc == 0 && fa_family_at_run_time(r->family, uses));
    return rc;
}

static int read_addends(struct reader *r, const cJSON *addends, const char *place,
                        fa_family_launch *launch, bool *ret_run_time)
{
    if (!cJSON_IsObject(addends))
        return fault(r, "%s must be an object of expressions", place);
    int rc = 0;
    for (const cJSON *item = addends->child; item != NULL && rc == 0; item = item->next) {
        char where[96];
        if (!is_word(item->string, lower))
            return fault(r, "%s: \"%.60s\" is not a name: use a-z, 0-9 and _", place, item->string);
        if (launch->addend_count == FA_MAX_ADDENDS)
            return fault(r, "%s: more than %d addends", place, FA_MAX_ADDENDS);
        for (int i = 0; i < launch->addend_count; i++)
            if (strcmp(launch->addend[i].name, item->string) == 0)
                return fault(r, "%s: \"%s\" stands twice", place, item->string);
        fa_named_text *addend = &launch->addend[launch->addend_count++];
        snprintf(addend->name, sizeof addend->name, "%s", item->string);
        snprintf(where, sizeof where, "%s %s", place, item->string);
        rc = read_expression(r, item, where, &addend->text, ret_run_time);
    }
    return rc;
}

/* The keys of one launch, from the manifest itself or from one of its "launches", whose `place` is
 * "launches[1]: ". */
static int read_launch(struct reader *r, const cJSON *json, const char *place,
                       fa_family_launch *launch)
{
    const cJSON *threads = cJSON_GetObjectItemCaseSensitive(json, "threads");
    const cJSON *grid = cJSON_GetObjectItemCaseSensitive(json, "grid");
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(json, "shared_memory");
    char where[64];
    bool at_run_time = false, memory_at_run_time = false;
    int rc = fa_json_copy(json, "entry", launch->entry, sizeof launch->entry, r->where, r->diag);
    if (rc == FA_ENOTFOUND)
        return fault(r, "%s\"entry\" is missing", place);
    if (rc != 0)
        return FA_EMANIFEST;
    if (!is_word(launch->entry, lower))
        return fault(r, "%s\"entry\": use a C name of a-z, 0-9 and _", place);
    if (threads == NULL || grid == NULL || memory == NULL)
        return fault(r, "%s\"%s\" is missing", place,
                     grid == NULL      ? "grid"
                     : threads == NULL ? "threads"
                                       : "shared_memory");
    if (!cJSON_IsArray(grid) || cJSON_GetArraySize(grid) != 3)
        return fault(r, "%s\"grid\" must be an array of three expressions", place);
    snprintf(where, sizeof where, "%sthreads", place);
    rc = read_expression(r, threads, where, &launch->threads, &at_run_time);
    if (rc == 0 && at_run_time)
        return fault(
            r, "%s reads a name of \"run_time\": it must be known when the kernel is compiled",
            where);
    for (int i = 0; i < 3 && rc == 0; i++) {
        snprintf(where, sizeof where, "%sgrid[%d]", place, i);
        rc = read_expression(r, cJSON_GetArrayItem(grid, i), where, &launch->grid[i], &at_run_time);
    }
    snprintf(where, sizeof where, "%sshared_memory", place);
    if (rc == 0)
        rc = read_addends(r, memory, where, launch, &memory_at_run_time);
    if (launch == r->family->launch)
        r->family->run_time_memory = memory_at_run_time;
    return rc;
}

/* Either one launch, whose keys are the manifest's, or a list of them. */
static int read_launches(struct reader *r)
{
    static const char *const keys[] = {"entry", "threads", "grid", "shared_memory"};
    fa_family *f = r->family;
    bool at_run_time = false; /* no matter: the host alone knows them */
    const cJSON *registers = cJSON_GetObjectItemCaseSensitive(r->json, "registers");
    const cJSON *workspace = cJSON_GetObjectItemCaseSensitive(r->json, "workspace"), *list;
    const cJSON *splits = cJSON_GetObjectItemCaseSensitive(r->json, "splits");
    int rc = member(r, "launches", false, cJSON_IsArray, "an array of launches", &list), count = 1;
    for (int i = 0; i < 4 && rc == 0 && list != NULL; i++)
        if (cJSON_HasObjectItem(r->json, keys[i]))
            return fault(r, "\"%s\" stands beside \"launches\": it belongs to each of them",
                         keys[i]);
    if (rc == 0 && list != NULL &&
        ((count = cJSON_GetArraySize(list)) < 1 || count > FA_LAUNCHES_MAX))
        return fault(r, "\"launches\" must be 1 to %d", FA_LAUNCHES_MAX);
    for (int i = 0; i < count && rc == 0; i++) {
        const cJSON *json = list != NULL ? cJSON_GetArrayItem(list, i) : r->json;
        char place[32] = "";
        if (list != NULL)
            snprintf(place, sizeof place, "launches[%d]", i);
        if (!cJSON_IsObject(json))
            return fault(r, "%s must be an object", place);
        if (list != NULL && (rc = check_keys(r, json, place, keys, 4)) != 0)
            return rc;
        if (list != NULL)
            snprintf(place, sizeof place, "launches[%d]: ", i);
        rc = read_launch(r, json, place, &f->launch[f->launch_count++]);
    }
    if (rc == 0 && registers != NULL)
        rc = read_expression(r, registers, "registers", &f->registers, &at_run_time);
    if (rc == 0 && workspace != NULL)
        rc = read_expression(r, workspace, "workspace", &f->workspace, &at_run_time);
    if (rc == 0 && splits != NULL)
        rc = read_expression(r, splits, "splits", &f->splits, &at_run_time);
    return rc;
}

static int check_manifest_keys(struct reader *r)
{
    static const char *const keys[] = {"name",      "operation",   "entry",    "arch_suffix",
                                       "sm",        "proved_on",   "supports", "tunables",
                                       "let",       "constraints", "threads",  "shared_memory",
                                       "registers", "grid",        "default",  "launches",
                                       "workspace", "takes",       "splits",   "beside_specific",
                                       "run_time"};
    return check_keys(r, r->json, "manifest", keys, (int)(sizeof keys / sizeof *keys));
}

static int add_given_names(struct reader *r)
{
    fa_family *f = r->family;
    int rc = 0;
    fa_given_make(f->operation, f->takes, NULL, NULL, &f->given);
    for (int i = 0; i < f->given.count && rc == 0; i++)
        rc = add_name(r, f->given.name[i], f->operation->name);
    return rc;
}

static int read_supports(struct reader *r)
{
    return read_requires(r, "supports", false, r->family->support, &r->family->support_count);
}

static int read_constraints(struct reader *r)
{
    return read_requires(r, "constraints", true, r->family->constraint,
                         &r->family->constraint_count);
}

/* In this order: expressions may use the names that stand above them. */
static int read_manifest(struct reader *r)
{
    static int (*const parts[])(struct reader *) = {
        check_manifest_keys, read_takes,    read_beside,      add_given_names,
        read_identity,       read_sm,       read_proved_on,   read_tunables,
        read_lets,           read_supports, read_constraints, read_launches,
        read_defaults};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++)
        rc = parts[i](r);
    return rc;
}

int fa_family_read(fa_family *family, const char *where, const cJSON *json, fa_diag *diag)
{
    struct reader reader = {.family = family, .json = json, .where = where, .diag = diag};
    int rc = fa_expr_open(&family->engine, diag);
    return rc == 0 ? read_manifest(&reader) : rc;
}
