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

#include "error.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

/* ---- the parts of a manifest, in the order in which they are read ---------------------------*/
static int read_identity(struct fa_manifest_reader *r)
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
            return fa_manifest_fault(r, "\"%s\" is missing", fields[i].key);
        if (rc != 0 && rc != FA_ENOTFOUND)
            return FA_EMANIFEST;
    }
    if (!fa_manifest_is_word(f->name, fa_manifest_lower))
        return fa_manifest_fault(r, "\"name\": use at most %d of a-z, 0-9 and _, a letter first",
                                 FA_NAME_MAX - 1);
    if (strncmp(r->where, f->name, strlen(f->name)) != 0 ||
        strcmp(r->where + strlen(f->name), ".json") != 0)
        return fa_manifest_fault(r, "\"name\" is %s: it must be the file's name without .json",
                                 f->name);
    if (f->arch_suffix[0] != 0 && f->arch_suffix[0] != 'a')
        return fa_manifest_fault(r, "\"arch_suffix\" must be \"\" or \"a\"");
    return 0;
}

static int read_sm(struct fa_manifest_reader *r)
{
    static const char *const keys[] = {"min", "max", NULL};
    const cJSON *sm;
    int64_t low = 0, high = 0;
    int rc = fa_manifest_member(r, "sm", true, cJSON_IsObject, "an object with min and max", &sm);
    if (rc == 0)
        rc = fa_manifest_check_keys(r, sm, "\"sm\"", keys);
    if (rc != 0)
        return rc;
    rc = fa_json_int(sm, "min", 10, 999, &low, r->where, r->diag);
    if (rc == 0)
        rc = fa_json_int(sm, "max", low, 999, &high, r->where, r->diag);
    if (rc == FA_ENOTFOUND)
        return fa_manifest_fault(r, "\"sm\" needs min and max");
    r->family->sm_min = (int32_t)low;
    r->family->sm_max = (int32_t)high;
    return rc == 0 ? 0 : FA_EMANIFEST;
}

/* The highest SM on which the template also runs, for proving it where its own GPUs are not. */
static int read_proved_on(struct fa_manifest_reader *r)
{
    static const char *const keys[] = {"max", NULL};
    const cJSON *proved;
    int64_t high = r->family->sm_max;
    int rc =
        fa_manifest_member(r, "proved_on", false, cJSON_IsObject, "an object with max", &proved);
    if (rc == 0 && proved != NULL) {
        rc = fa_manifest_check_keys(r, proved, "\"proved_on\"", keys);
        if (rc == 0)
            rc = fa_json_int(proved, "max", r->family->sm_max, 999, &high, r->where, r->diag);
        if (rc == FA_ENOTFOUND)
            return fa_manifest_fault(r, "\"proved_on\" needs max");
    }
    r->family->proved_max = (int32_t)high;
    return rc == 0 ? 0 : FA_EMANIFEST;
}

/* The features of the operation that the family serves away from their defaults. */
static int read_takes(struct fa_manifest_reader *r)
{
    const cJSON *list, *item;
    int rc =
        fa_manifest_member(r, "takes", false, cJSON_IsArray, "an array of names of fields", &list);
    cJSON_ArrayForEach (item, list) {
        const char *name = cJSON_GetStringValue(item);
        int field = name != NULL ? fa_operation_field_index(r->family->operation, name) : -1;
        if (field < 0 || !r->family->operation->field[field].feature)
            return fa_manifest_fault(r, "\"takes\": \"%.60s\" is no feature of %s",
                                     name != NULL ? name : "", r->family->operation->name);
        r->family->takes |= (uint32_t)1 << field;
    }
    return rc;
}

/* Whether the family competes with those that are written for one chip, and whether its kernel is a user's. */
static int read_beside(struct fa_manifest_reader *r)
{
    const cJSON *beside;
    int rc =
        fa_manifest_member(r, "beside_specific", false, cJSON_IsBool, "true or false", &beside);
    r->family->beside = cJSON_IsTrue(beside);
    if (rc == 0)
        rc = fa_manifest_member(r, "as_is", false, cJSON_IsBool, "true or false", &beside);
    r->family->as_is = rc == 0 && cJSON_IsTrue(beside);
    return rc;
}

static int read_domain(struct fa_manifest_reader *r, const cJSON *item, fa_domain *domain)
{
    int size = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    if (size < 1 || size > FA_MAX_DOMAIN)
        return fa_manifest_fault(r, "tunable %s must be an array of 1 to %d numbers or texts",
                                 item->string, FA_MAX_DOMAIN);
    snprintf(domain->name, sizeof domain->name, "%s", item->string);
    for (const cJSON *value = item->child; value != NULL; value = value->next) {
        int32_t is = 0;
        char room[FA_VALUE_TEXT_MAX];
        if (cJSON_IsBool(value) || cJSON_IsString(value) != cJSON_IsString(item->child) ||
            fa_value_of_json(value, &is, r->diag) != 0)
            return fa_manifest_fault(
                r,
                "tunable %s: its values must all be numbers, or all be texts of 1 to 31 bytes "
                "without quotes, backslashes and semicolons",
                item->string);
        for (int i = 0; i < domain->count; i++)
            if (domain->value[i] == is)
                return fa_manifest_fault(r, "tunable %s: the value %s appears twice", item->string,
                                         fa_value_words(is, room));
        domain->fractions = domain->fractions || fa_expr_of_value(is).kind == FA_EXPR_REAL;
        domain->value[domain->count++] = is;
    }
    return 0;
}

static int read_tunables(struct fa_manifest_reader *r)
{
    const cJSON *tunables;
    int64_t product = 1;
    char buffer[FA_COMMAS_MAX], most[FA_COMMAS_MAX];
    int rc =
        fa_manifest_member(r, "tunables", true, cJSON_IsObject, "an object of arrays", &tunables);
    if (rc != 0)
        return rc;
    for (const cJSON *item = tunables->child; item != NULL; item = item->next) {
        if (r->family->tunable_count == FA_MAX_TUNABLES)
            return fa_manifest_fault(r, "more than %d tunables", FA_MAX_TUNABLES);
        fa_domain *domain = &r->family->tunable[r->family->tunable_count++];
        rc = fa_manifest_add_name(r, item->string, "\"tunables\"");
        if (rc == 0)
            rc = read_domain(r, item, domain);
        if (rc != 0)
            return rc;
        product *= domain->count;
        if (product > FA_SPACE_POINTS_MAX)
            return fa_manifest_fault(
                r, "the domains up to %s make a space of %s configs: at most %s", domain->name,
                fa_commas(product, buffer), fa_commas(FA_SPACE_POINTS_MAX, most));
    }
    return product > 0 && r->family->tunable_count > 0
               ? 0
               : fa_manifest_fault(r, "there are no tunables");
}

/* Tunables that kernels learn from their launch (the grid, the size of the shared memory): configs that
 * differ in them alone share a cubin. */
static int read_run_time(struct fa_manifest_reader *r)
{
    const cJSON *names;
    int rc = fa_manifest_member(r, "run_time", false, cJSON_IsArray, "an array of names", &names);
    for (const cJSON *item = names != NULL ? names->child : NULL; item != NULL && rc == 0;
         item = item->next) {
        if (!cJSON_IsString(item))
            return fa_manifest_fault(r, "\"run_time\" must be an array of names");
        rc = fa_family_add_run_time(r->family, item->valuestring, r->diag);
        if (rc != 0)
            return fa_fail_in(r->diag, rc, "%s", r->where);
    }
    return rc;
}

static int read_lets(struct fa_manifest_reader *r)
{
    fa_family *f = r->family;
    const cJSON *lets;
    char place[64];
    int rc = fa_manifest_member(r, "let", false, cJSON_IsObject, "an object of expressions", &lets);
    if (rc != 0)
        return rc;
    for (const cJSON *item = lets != NULL ? lets->child : NULL; item != NULL; item = item->next) {
        if (f->let_count == FA_MAX_LETS)
            return fa_manifest_fault(r, "more than %d lets", FA_MAX_LETS);
        rc = fa_manifest_add_name(r, item->string, "\"let\"");
        if (rc != 0)
            return rc;
        snprintf(f->let[f->let_count++].name, FA_NAME_MAX, "%s", item->string);
    }
    rc = read_run_time(r);
    const cJSON *item = lets != NULL ? lets->child : NULL;
    for (int i = 0; i < f->let_count && rc == 0; i++, item = item->next) {
        fa_let *let = &f->let[i];
        snprintf(place, sizeof place, "let %s", let->name);
        if ((rc = fa_manifest_take(r, item, place, &let->expr)) != 0)
            break;
        uint64_t uses = fa_expr_uses(let->expr);
        let->uses = uses >> (f->given.count + f->tunable_count);
        let->sized = (uses & f->given.sized) != 0;
        let->depth = fa_family_depth(f, uses);
        let->run_time = fa_family_at_run_time(f, uses);
    }
    if (rc == 0 && (rc = fa_family_order_lets(f, r->diag)) != 0)
        return fa_fail_in(r->diag, rc, "%s", r->where);
    return rc;
}

/* What a rule is about: a config that does not hold to it is impossible, exceeds the shared memory or
 * the registers, or is known not to pay. */
static int read_ending(struct fa_manifest_reader *r, const cJSON *rule, const char *place,
                       bool allowed, fa_status *ret_ends)
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
    return fa_manifest_fault(
        r,
        "%s: \"is\" must be constraint, budget, registers or does-not-pay, and belongs in "
        "\"constraints\" only",
        place);
}

static int read_requires(struct fa_manifest_reader *r, const char *key, bool may_vary,
                         fa_require *list, int *ret_count)
{
    static const char *const keys[] = {"require", "is", "why", NULL}; /* "supports" has no "is" */
    const cJSON *array;
    char place[64];
    int rc = fa_manifest_member(r, key, false, cJSON_IsArray, "an array", &array);
    if (rc != 0 || array == NULL)
        return rc;
    for (const cJSON *item = array->child; item != NULL && rc == 0; item = item->next) {
        const char *why = NULL;
        if (*ret_count == FA_MAX_REQUIRES)
            return fa_manifest_fault(r, "\"%s\" has more than %d entries", key, FA_MAX_REQUIRES);
        snprintf(place, sizeof place, "%s[%d]", key, *ret_count);
        fa_require *require = &list[(*ret_count)++];
        if (!cJSON_IsObject(item))
            return fa_manifest_fault(r, "%s must be an object with require and why", place);
        if ((rc = fa_manifest_check_keys(r, item, place, keys)) != 0 ||
            (rc = read_ending(r, item, place, may_vary, &require->ends)) != 0)
            return rc;
        if (fa_json_text(item, "why", &why, place, NULL) != 0 || !fa_manifest_is_sentence(why))
            return fa_manifest_fault(
                r, "%s: \"why\" must be a sentence of 1 to %d bytes, no control bytes", place,
                FA_MANIFEST_WHY_MAX);
        if ((require->why = strdup(why)) == NULL)
            return fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
        rc = fa_manifest_take(r, cJSON_GetObjectItemCaseSensitive(item, "require"), place,
                              &require->expr);
        if (rc == 0)
            require->depth = fa_family_depth(r->family, fa_expr_uses(require->expr));
        if (rc == 0 && !may_vary && require->depth > 0)
            rc = fa_manifest_fault(
                r, "%s reads a tunable: it may read the problem and the GPU only", place);
    }
    return rc;
}

static int read_defaults(struct fa_manifest_reader *r)
{
    const cJSON *defaults;
    char place[64];
    int rc = fa_manifest_member(r, "default", true, cJSON_IsObject, "an object of expressions",
                                &defaults);
    const char *names[FA_MAX_TUNABLES + 1] = {NULL};
    for (int i = 0; i < r->family->tunable_count; i++)
        names[i] = r->family->tunable[i].name;
    if (rc == 0)
        rc = fa_manifest_check_keys(r, defaults, "\"default\"", names);
    for (int i = 0; i < r->family->tunable_count && rc == 0; i++) {
        fa_domain *domain = &r->family->tunable[i];
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(defaults, domain->name);
        snprintf(place, sizeof place, "default %s", domain->name);
        if (item == NULL)
            return fa_manifest_fault(r, "%s is missing", place);
        rc = fa_manifest_take(r, item, place, &domain->preset);
        if (rc == 0 && fa_family_depth(r->family, fa_expr_uses(domain->preset)) > 0)
            rc = fa_manifest_fault(
                r, "%s reads a tunable: it may read the problem and the GPU only", place);
    }
    return rc;
}

static int check_manifest_keys(struct fa_manifest_reader *r)
{
    static const char *const keys[] = {"name",      "operation",   "entry",    "arch_suffix",
                                       "sm",        "proved_on",   "supports", "tunables",
                                       "let",       "constraints", "threads",  "shared_memory",
                                       "registers", "grid",        "default",  "launches",
                                       "workspace", "takes",       "splits",   "beside_specific",
                                       "run_time",  "counters",    "block",    "as_is",
                                       "work",      "cluster",     NULL};
    return fa_manifest_check_keys(r, r->json, "manifest", keys);
}

static int add_given_names(struct fa_manifest_reader *r)
{
    fa_family *f = r->family;
    int rc = 0;
    fa_given_make(f->operation, f->takes, NULL, NULL, &f->given);
    for (int i = 0; i < f->given.count && rc == 0; i++)
        rc = fa_manifest_add_name(r, f->given.name[i], f->operation->name);
    return rc;
}

static int read_supports(struct fa_manifest_reader *r)
{
    return read_requires(r, "supports", false, r->family->support, &r->family->support_count);
}

static int read_constraints(struct fa_manifest_reader *r)
{
    return read_requires(r, "constraints", true, r->family->constraint,
                         &r->family->constraint_count);
}

/* In this order: expressions may use the names that stand above them. */
static int read_manifest(struct fa_manifest_reader *r)
{
    static int (*const parts[])(struct fa_manifest_reader *) = {
        check_manifest_keys, read_takes,    read_beside,      add_given_names,
        read_identity,       read_sm,       read_proved_on,   read_tunables,
        read_lets,           read_supports, read_constraints, fa_manifest_read_launches,
        read_defaults};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++)
        rc = parts[i](r);
    return rc;
}

int fa_family_read(fa_family *family, const char *where, const cJSON *json, fa_diag *diag)
{
    struct fa_manifest_reader reader = {
        .family = family, .json = json, .where = where, .diag = diag};
    return read_manifest(&reader);
}
