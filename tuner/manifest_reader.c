/* SPDX-License-Identifier: Apache-2.0
 *
 * What every part of a manifest is read with: keys and types, names, texts, and the sentence for what is wrong.
 *
 * Workload: a few hundred calls for a manifest, once per process.
 * Invariants: no text of a manifest comes into a sentence beyond 60 bytes, and none is a name or a sentence
 * before its bytes were looked at.
 */
#include "family.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char fa_manifest_lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

bool fa_manifest_is_word(const char *text, const char *alphabet)
{
    size_t size = strlen(text);
    return size > 0 && size < FA_NAME_MAX && strspn(text, alphabet) == size &&
           (text[0] < '0' || text[0] > '9') && text[0] != '_';
}

bool fa_manifest_is_sentence(const char *text)
{
    size_t size = strlen(text);
    bool clean = size > 0 && size <= FA_MANIFEST_WHY_MAX;
    for (size_t i = 0; clean && i < size; i++)
        clean = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    return clean;
}

int fa_manifest_fault(const struct fa_manifest_reader *r, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

int fa_manifest_check_keys(const struct fa_manifest_reader *r, const cJSON *object,
                           const char *place, const char *const *keys)
{
    char where[256];
    snprintf(where, sizeof where, "%.180s: %.64s", r->where, place);
    return fa_json_check_keys(object, keys, where, r->diag) == 0 ? 0 : FA_EMANIFEST;
}

int fa_manifest_member(const struct fa_manifest_reader *r, const char *key, bool required,
                       cJSON_bool (*is)(const cJSON *), const char *type, const cJSON **ret)
{
    *ret = cJSON_GetObjectItemCaseSensitive(r->json, key);
    if (*ret == NULL)
        return required ? fa_manifest_fault(r, "\"%s\" is missing", key) : 0;
    return is(*ret) ? 0 : fa_manifest_fault(r, "\"%s\" must be %s", key, type);
}

int fa_manifest_take(const struct fa_manifest_reader *r, const cJSON *item, const char *place,
                     fa_expr **ret_expr)
{
    char number[32];
    const char *text = number;
    if (cJSON_IsString(item)) {
        text = item->valuestring;
    } else if (cJSON_IsNumber(item) && item->valuedouble >= -1e9 && item->valuedouble <= 1e9 &&
               item->valuedouble == (double)(int64_t)item->valuedouble) {
        snprintf(number, sizeof number, "%lld", (long long)item->valuedouble);
    } else {
        return fa_manifest_fault(r, "%s must be an expression (a string) or an integer", place);
    }
    int rc = fa_expr_parse(text, r->name, r->name_count, ret_expr, r->diag);
    return rc == 0 ? 0 : fa_fail_in(r->diag, rc, "%s: %s", r->where, place);
}

/* Words that no macro can stand for in a kernel that is to be compiled. */
static bool is_reserved(const char *name)
{
    static const char *const words[] = {
        "auto",   "bool",   "break",     "case",     "char",     "class",    "const",    "continue",
        "do",     "double", "else",      "enum",     "extern",   "float",    "for",      "goto",
        "if",     "inline", "int",       "long",     "return",   "short",    "signed",   "sizeof",
        "static", "struct", "switch",    "template", "this",     "typename", "unsigned", "using",
        "void",   "while",  "threadIdx", "blockIdx", "blockDim", "gridDim"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return fa_expr_is_word(name);
}

int fa_manifest_add_name(struct fa_manifest_reader *r, const char *name, const char *place)
{
    if (!fa_is_identifier(name) || is_reserved(name))
        return fa_manifest_fault(r,
                                 "%s: \"%.60s\" is not a name: use at most %d letters, digits and "
                                 "_, a letter first, and no word of expressions or of C++",
                                 place, name, FA_NAME_MAX - 1);
    if (strncmp(name, "FA_", 3) == 0)
        return fa_manifest_fault(r, "%s: \"%s\": names that start with FA_ are ours", place, name);
    for (int i = 0; i < r->name_count; i++)
        if (strcmp(name, r->name[i]) == 0)
            return fa_manifest_fault(r, "%s: the name \"%s\" is taken", place, name);
    if (r->name_count == FA_EXPR_NAMES_MAX)
        return fa_manifest_fault(r, "more than %d names", FA_EXPR_NAMES_MAX);
    r->name[r->name_count++] = name;
    return 0;
}

/* ---- launches ---------------------------------------------------------------------------------*/
/* The launches of a manifest: entries, threads, grids, shared memory, and what is asked of the host beside them.
 * Workload: one to four launches of a manifest, once per process.
 * Invariant: what sizes a block is known when the kernel is compiled. */

/* One expression of the launch: threads, registers, an addend, a side of the grid. *ret_run_time becomes
 * true when it reads what is known at run time only. */
static int read_expression(struct fa_manifest_reader *r, const cJSON *item, const char *place,
                           fa_expr **ret_expr, bool *ret_run_time)
{
    int rc = fa_manifest_take(r, item, place, ret_expr);
    *ret_run_time =
        *ret_run_time || (rc == 0 && fa_family_at_run_time(r->family, fa_expr_uses(*ret_expr)));
    return rc;
}

static int read_addends(struct fa_manifest_reader *r, const cJSON *addends, const char *place,
                        fa_family_launch *launch, bool *ret_run_time)
{
    if (!cJSON_IsObject(addends))
        return fa_manifest_fault(r, "%s must be an object of expressions", place);
    int rc = 0;
    for (const cJSON *item = addends->child; item != NULL && rc == 0; item = item->next) {
        char where[96];
        if (!fa_manifest_is_word(item->string, fa_manifest_lower))
            return fa_manifest_fault(r, "%s: \"%.60s\" is not a name: use a-z, 0-9 and _", place,
                                     item->string);
        if (launch->addend_count == FA_MAX_ADDENDS)
            return fa_manifest_fault(r, "%s: more than %d addends", place, FA_MAX_ADDENDS);
        for (int i = 0; i < launch->addend_count; i++)
            if (strcmp(launch->addend[i].name, item->string) == 0)
                return fa_manifest_fault(r, "%s: \"%s\" appears twice", place, item->string);
        fa_named_expr *addend = &launch->addend[launch->addend_count++];
        snprintf(addend->name, sizeof addend->name, "%s", item->string);
        snprintf(where, sizeof where, "%s %s", place, item->string);
        rc = read_expression(r, item, where, &addend->expr, ret_run_time);
    }
    return rc;
}

/* The names of fa_work. */
static const char *const works[FA_WORKS + 1] = {
    "steps",        "mma_flops", "wgmma_flops", "exponentials", "operations",
    "shared_bytes", "l2_bytes",  "bytes",       "clocks",       NULL};

static int read_work(struct fa_manifest_reader *r, const cJSON *json, const char *place,
                     fa_family_launch *launch)
{
    const cJSON *work = cJSON_GetObjectItemCaseSensitive(json, "work");
    char where[96];
    bool at_run_time = false; /* no matter: the host alone knows it */
    int rc = 0;
    if (work == NULL)
        return 0;
    snprintf(where, sizeof where, "%swork", place);
    if (!cJSON_IsObject(work) || work->child == NULL)
        return fa_manifest_fault(r, "%s must be an object of expressions", where);
    rc = fa_manifest_check_keys(r, work, where, works);
    for (int i = 0; i < FA_WORKS && rc == 0; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(work, works[i]);
        snprintf(where, sizeof where, "%swork %s", place, works[i]);
        if (item != NULL)
            rc = read_expression(r, item, where, &launch->work[i], &at_run_time);
    }
    return rc;
}

/* Three sides of a block, cluster or grid; none where it is not told. */
static int read_sides(struct fa_manifest_reader *r, const cJSON *json, const char *place,
                      const char *key, fa_expr *ret_side[3], bool *ret_run_time)
{
    const cJSON *sides = cJSON_GetObjectItemCaseSensitive(json, key);
    char where[64];
    int rc = 0;
    if (sides != NULL && (!cJSON_IsArray(sides) || cJSON_GetArraySize(sides) != 3))
        return fa_manifest_fault(r, "%s\"%s\" must be an array of three expressions", place, key);
    for (int i = 0; i < 3 && sides != NULL && rc == 0; i++) {
        snprintf(where, sizeof where, "%s%s[%d]", place, key, i);
        rc = read_expression(r, cJSON_GetArrayItem(sides, i), where, &ret_side[i], ret_run_time);
    }
    return rc;
}

/* The keys of one launch, from the manifest itself or from one of its "launches", whose `place` is
 * "launches[1]: ". */
static int read_launch(struct fa_manifest_reader *r, const cJSON *json, const char *place,
                       fa_family_launch *launch)
{
    const cJSON *threads = cJSON_GetObjectItemCaseSensitive(json, "threads");
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(json, "block");
    const cJSON *grid = cJSON_GetObjectItemCaseSensitive(json, "grid");
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(json, "shared_memory");
    char where[64];
    bool at_run_time = false, memory_at_run_time = false;
    int rc = fa_json_copy(json, "entry", launch->entry, sizeof launch->entry, r->where, r->diag);
    if (rc == FA_ENOTFOUND)
        return fa_manifest_fault(r, "%s\"entry\" is missing", place);
    if (rc != 0)
        return FA_EMANIFEST;
    if (!fa_is_identifier(launch->entry))
        return fa_manifest_fault(r, "%s\"entry\": use a C name of less than %d characters", place,
                                 FA_NAME_MAX);
    if ((threads == NULL && block == NULL) || grid == NULL || memory == NULL)
        return fa_manifest_fault(r, "%s\"%s\" is missing", place,
                                 grid == NULL     ? "grid"
                                 : memory == NULL ? "shared_memory"
                                                  : "threads");
    if (threads != NULL && block != NULL)
        return fa_manifest_fault(r, "%s\"threads\" and \"block\" are both given", place);
    snprintf(where, sizeof where, "%sthreads", place);
    if ((threads != NULL &&
         (rc = read_expression(r, threads, where, &launch->threads, &at_run_time)) != 0) ||
        (rc = read_sides(r, json, place, "block", launch->block, &at_run_time)) != 0 ||
        (rc = read_sides(r, json, place, "cluster", launch->cluster, &at_run_time)) != 0)
        return rc;
    if (at_run_time)
        return fa_manifest_fault(r,
                                 "%s%s reads a name of \"run_time\": it must be known when the "
                                 "kernel is compiled",
                                 place, threads != NULL ? "threads" : "block");
    snprintf(where, sizeof where, "%sshared_memory", place);
    if ((rc = read_sides(r, json, place, "grid", launch->grid, &at_run_time)) != 0 ||
        (rc = read_addends(r, memory, where, launch, &memory_at_run_time)) != 0)
        return rc;
    r->family->run_time_memory = r->family->run_time_memory || memory_at_run_time;
    return read_work(r, json, place, launch);
}

int fa_manifest_read_launches(struct fa_manifest_reader *r)
{
    static const char *const keys[] = {"entry", "threads",       "block", "cluster",
                                       "grid",  "shared_memory", "work",  NULL};
    fa_family *f = r->family;
    const struct {
        const char *key;
        fa_expr **expression;
    } of_all[] = {{"registers", &f->registers},
                  {"workspace", &f->workspace},
                  {"counters", &f->counters},
                  {"splits", &f->splits}};
    const cJSON *list;
    int rc = fa_manifest_member(r, "launches", false, cJSON_IsArray, "an array of launches", &list),
        count = 1;
    if (rc != 0)
        return rc;
    for (int i = 0; keys[i] != NULL && list != NULL; i++)
        if (cJSON_HasObjectItem(r->json, keys[i]))
            return fa_manifest_fault(
                r, "\"%s\" is given beside \"launches\": put it into each launch", keys[i]);
    if (list != NULL && ((count = cJSON_GetArraySize(list)) < 1 || count > FA_LAUNCHES_MAX))
        return fa_manifest_fault(r, "\"launches\" must be 1 to %d", FA_LAUNCHES_MAX);
    for (int i = 0; i < count && rc == 0; i++) {
        const cJSON *json = list != NULL ? cJSON_GetArrayItem(list, i) : r->json;
        char place[32] = "";
        if (list != NULL)
            snprintf(place, sizeof place, "launches[%d]", i);
        if (!cJSON_IsObject(json))
            return fa_manifest_fault(r, "%s must be an object", place);
        if (list != NULL && (rc = fa_manifest_check_keys(r, json, place, keys)) != 0)
            return rc;
        if (list != NULL)
            snprintf(place, sizeof place, "launches[%d]: ", i);
        rc = read_launch(r, json, place, &f->launch[f->launch_count++]);
    }
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all && rc == 0; i++) {
        const cJSON *json = cJSON_GetObjectItemCaseSensitive(r->json, of_all[i].key);
        bool at_run_time = false; /* no matter: the host alone knows them */
        if (json != NULL)
            rc = read_expression(r, json, of_all[i].key, of_all[i].expression, &at_run_time);
    }
    return rc;
}
