/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests: from hostile JSON to a family whose every expression is known to be arithmetic over
 * known names.
 *
 * Workload: a handful of manifests of a few kilobytes, once per process (about a millisecond each).
 * Invariants: no text of a manifest comes into a sentence beyond 60 bytes, and none is a name or a sentence before its
 * bytes were looked at; a family that loads is complete; what can be wrong later is only a value for one problem (a
 * division by zero, a default outside its domain), and space.c reports that.
 */
#include "family.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- lets: their order, and which of them kernels learn from their launch -------------------*/
/* Every remaining let needs another remaining one: following them leads to one a second time, which names
 * the cycle. */
static int name_cycle(const fa_family *f, uint64_t done, fa_diag *diag)
{
    char text[600];
    int path[FA_MAX_LETS], length = 0, at = 0;
    uint64_t seen = 0;
    while ((done >> at & 1) != 0)
        at++;
    while ((seen >> at & 1) == 0) {
        seen |= (uint64_t)1 << at;
        path[length++] = at;
        int next = 0;
        while (((f->let[at].uses & ~done) >> next & 1) == 0)
            next++;
        at = next;
    }
    int first = 0;
    while (path[first] != at)
        first++;
    size_t n = 0;
    for (int i = first; i < length && n + FA_NAME_MAX + 8 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s needs ", f->let[path[i]].name);
    snprintf(text + n, sizeof text - n, "%s", f->let[at].name);
    return fa_fail(diag, FA_EMANIFEST, "lets in a circle: %s", text);
}

/* The order and depths of lets, and what they read through others, from their `uses`; FA_EMANIFEST names a cycle. */
static int order_lets(fa_family *family, fa_diag *diag)
{
    uint64_t done = 0;
    for (int placed = 0; placed < family->let_count;) {
        int before = placed;
        for (int i = 0; i < family->let_count; i++) {
            fa_let *let = &family->let[i];
            if ((done >> i & 1) != 0 || (let->uses & ~done) != 0)
                continue;
            for (int j = 0; j < family->let_count; j++) {
                if ((let->uses >> j & 1) == 0)
                    continue;
                if (let->depth < family->let[j].depth)
                    let->depth = family->let[j].depth;
                let->sized = let->sized || family->let[j].sized;
                let->run_time = let->run_time || family->let[j].run_time;
            }
            done |= (uint64_t)1 << i;
            family->order[placed++] = i;
        }
        if (placed == before)
            return name_cycle(family, done, diag);
    }
    return 0;
}

/* Marks a tunable as one of "run_time", before the lets are ordered; FA_EMANIFEST without the file's name. */
static int add_run_time(fa_family *family, const char *name, fa_diag *diag)
{
    int at = 0;
    while (at < family->tunable_count && strcmp(family->tunable[at].name, name) != 0)
        at++;
    if (at == family->tunable_count)
        return fa_fail(diag, FA_EMANIFEST, "\"run_time\": \"%.60s\" is no tunable", name);
    if (family->tunable[at].run_time)
        return fa_fail(diag, FA_EMANIFEST, "\"run_time\": \"%s\" appears twice", name);
    family->tunable[at].run_time = family->runs_late = true;
    return 0;
}

/* Whether an expression that reads these names reads such a tunable, directly or through a let. */
static bool reads_run_time(const fa_family *family, uint64_t uses)
{
    bool found = false;
    uses >>= family->given.count;
    for (int i = 0; i < family->tunable_count; i++)
        found = found || ((uses >> i & 1) != 0 && family->tunable[i].run_time);
    uses >>= family->tunable_count;
    for (int i = 0; i < family->let_count; i++)
        found = found || ((uses >> i & 1) != 0 && family->let[i].run_time);
    return found;
}

/* How many tunables must have a value before an expression that reads these names has one; 0: it reads none, directly
 * or through a let. */
static int depth_of(const fa_family *family, uint64_t uses)
{
    int depth = 0;
    uses >>= family->given.count;
    for (int i = 0; i < family->tunable_count; i++)
        depth = (uses >> i & 1) != 0 ? i + 1 : depth;
    uses >>= family->tunable_count;
    for (int i = 0; i < family->let_count; i++)
        if ((uses >> i & 1) != 0 && depth < family->let[i].depth)
            depth = family->let[i].depth;
    return depth;
}

/* ---- given ------------------------------------------------------------------------------------*/
static void add_name(fa_given *given, const char *name, int64_t value)
{
    given->name[given->count] = name;
    given->value[given->count++] = value;
}

void fa_given_make(const fa_operation *operation, uint32_t takes, const fa_problem *problem,
                   const fa_gpu *gpu, fa_given *ret_given)
{
    static const fa_problem no_problem;
    static const fa_gpu no_gpu;
    fa_given given = {0};
    const fa_problem *p = problem != NULL ? problem : &no_problem;
    const fa_gpu *g = gpu != NULL ? gpu : &no_gpu;
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        if (field->macro[0] == 0 || (field->feature && !(takes >> i & 1)))
            continue;
        if (!field->shapes_source)
            given.sized |= (uint64_t)1 << given.count;
        add_name(&given, field->macro, fa_field_shown(field->macro_as, p->value[i]));
    }
    add_name(&given, "SM", g->sm);
    add_name(&given, "SMS", g->sm_count);
    add_name(&given, "SMEM_PER_BLOCK", g->smem_per_block);
    add_name(&given, "SMEM_PER_SM", g->smem_per_sm);
    add_name(&given, "REGS_PER_SM", g->regs_per_sm);
    add_name(&given, "THREADS_PER_SM", g->threads_per_sm);
    *ret_given = given;
}

/* ---- reading ----------------------------------------------------------------------------------*/
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

static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_"; /* what names are made of */

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

__attribute__((format(printf, 2, 3))) static int fault(const struct reader *r, const char *format,
                                                       ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

/* As fa_json_check_keys(). */
static int check_keys(const struct reader *r, const cJSON *object, const char *place,
                      const char *const *keys)
{
    char where[256];
    snprintf(where, sizeof where, "%.180s: %.64s", r->where, place);
    return fa_json_check_keys(object, keys, where, r->diag) == 0 ? 0 : FA_EMANIFEST;
}

/* *ret: the member, of the type asked for; NULL when absent and not required. */
static int take_member(const struct reader *r, const char *key, bool required,
                       cJSON_bool (*is)(const cJSON *), const char *type, const cJSON **ret)
{
    *ret = cJSON_GetObjectItemCaseSensitive(r->json, key);
    if (*ret == NULL)
        return required ? fault(r, "\"%s\" is missing", key) : 0;
    return is(*ret) ? 0 : fault(r, "\"%s\" must be %s", key, type);
}

/* Parses an expression, a string or a plain integer, over the names so far; `place` is for the sentence. */
static int take_expression(const struct reader *r, const cJSON *item, const char *place,
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
        return fault(r, "%s must be an expression (a string) or an integer", place);
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

static int add_known_name(struct reader *r, const char *name, const char *place)
{
    if (!fa_is_identifier(name) || is_reserved(name))
        return fault(r,
                     "%s: \"%.60s\" is not a name: use at most %d letters, digits and "
                     "_, a letter first, and no word of expressions or of C++",
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

/* ---- launches ---------------------------------------------------------------------------------*/
/* The launches of a manifest: entries, threads, grids, shared memory, and what is asked of the host beside them.
 * Workload: one to four launches of a manifest, once per process.
 * Invariant: what sizes a block is known when the kernel is compiled. */

/* One expression of the launch: threads, registers, an addend, a side of the grid. *ret_run_time becomes
 * true when it reads what is known at run time only. */
static int read_expression(struct reader *r, const cJSON *item, const char *place,
                           fa_expr **ret_expr, bool *ret_run_time)
{
    int rc = take_expression(r, item, place, ret_expr);
    *ret_run_time =
        *ret_run_time || (rc == 0 && reads_run_time(r->family, fa_expr_uses(*ret_expr)));
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
                return fault(r, "%s: \"%s\" appears twice", place, item->string);
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

static int read_work(struct reader *r, const cJSON *json, const char *place,
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
        return fault(r, "%s must be an object of expressions", where);
    rc = check_keys(r, work, where, works);
    for (int i = 0; i < FA_WORKS && rc == 0; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(work, works[i]);
        snprintf(where, sizeof where, "%swork %s", place, works[i]);
        if (item != NULL)
            rc = read_expression(r, item, where, &launch->work[i], &at_run_time);
    }
    return rc;
}

/* Three sides of a block, cluster or grid; none where it is not told. */
static int read_sides(struct reader *r, const cJSON *json, const char *place, const char *key,
                      fa_expr *ret_side[3], bool *ret_run_time)
{
    const cJSON *sides = cJSON_GetObjectItemCaseSensitive(json, key);
    char where[64];
    int rc = 0;
    if (sides != NULL && (!cJSON_IsArray(sides) || cJSON_GetArraySize(sides) != 3))
        return fault(r, "%s\"%s\" must be an array of three expressions", place, key);
    for (int i = 0; i < 3 && sides != NULL && rc == 0; i++) {
        snprintf(where, sizeof where, "%s%s[%d]", place, key, i);
        rc = read_expression(r, cJSON_GetArrayItem(sides, i), where, &ret_side[i], ret_run_time);
    }
    return rc;
}

/* The keys of one launch, from the manifest itself or from one of its "launches", whose `place` is
 * "launches[1]: ". */
static int read_launch(struct reader *r, const cJSON *json, const char *place,
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
        return fault(r, "%s\"entry\" is missing", place);
    if (rc == 0)
        rc = fa_json_bool(json, "cooperative", &launch->cooperative, r->where, r->diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return FA_EMANIFEST;
    if (!fa_is_identifier(launch->entry))
        return fault(r, "%s\"entry\": use a C name of less than %d characters", place, FA_NAME_MAX);
    if ((threads == NULL && block == NULL) || grid == NULL || memory == NULL)
        return fault(r, "%s\"%s\" is missing", place,
                     grid == NULL     ? "grid"
                     : memory == NULL ? "shared_memory"
                                      : "threads");
    if (threads != NULL && block != NULL)
        return fault(r, "%s\"threads\" and \"block\" are both given", place);
    snprintf(where, sizeof where, "%sthreads", place);
    if ((threads != NULL &&
         (rc = read_expression(r, threads, where, &launch->threads, &at_run_time)) != 0) ||
        (rc = read_sides(r, json, place, "block", launch->block, &at_run_time)) != 0 ||
        (rc = read_sides(r, json, place, "cluster", launch->cluster, &at_run_time)) != 0)
        return rc;
    if (at_run_time)
        return fault(r,
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

/* Either one launch, whose keys are the manifest's, or a list of them. */
static int read_launches(struct reader *r)
{
    static const char *const keys[] = {"entry",         "threads", "block",       "cluster", "grid",
                                       "shared_memory", "work",    "cooperative", NULL};
    fa_family *f = r->family;
    const struct {
        const char *key;
        fa_expr **expression;
    } of_all[] = {{"registers", &f->registers},
                  {"workspace", &f->workspace},
                  {"counters", &f->counters},
                  {"splits", &f->splits}};
    const cJSON *list;
    int rc = take_member(r, "launches", false, cJSON_IsArray, "an array of launches", &list),
        count = 1;
    if (rc != 0)
        return rc;
    for (int i = 0; keys[i] != NULL && list != NULL; i++)
        if (cJSON_HasObjectItem(r->json, keys[i]))
            return fault(r, "\"%s\" is given beside \"launches\": put it into each launch",
                         keys[i]);
    if (list != NULL && ((count = cJSON_GetArraySize(list)) < 1 || count > FA_LAUNCHES_MAX))
        return fault(r, "\"launches\" must be 1 to %d", FA_LAUNCHES_MAX);
    for (int i = 0; i < count && rc == 0; i++) {
        const cJSON *json = list != NULL ? cJSON_GetArrayItem(list, i) : r->json;
        char place[32] = "";
        if (list != NULL)
            snprintf(place, sizeof place, "launches[%d]", i);
        if (!cJSON_IsObject(json))
            return fault(r, "%s must be an object", place);
        if (list != NULL && (rc = check_keys(r, json, place, keys)) != 0)
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
    static const char *const keys[] = {"min", "max", NULL};
    const cJSON *sm;
    int64_t low = 0, high = 0;
    int rc = take_member(r, "sm", true, cJSON_IsObject, "an object with min and max", &sm);
    if (rc == 0)
        rc = check_keys(r, sm, "\"sm\"", keys);
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
    static const char *const keys[] = {"max", NULL};
    const cJSON *proved;
    int64_t high = r->family->sm_max;
    int rc = take_member(r, "proved_on", false, cJSON_IsObject, "an object with max", &proved);
    if (rc == 0 && proved != NULL) {
        rc = check_keys(r, proved, "\"proved_on\"", keys);
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
    int rc = take_member(r, "takes", false, cJSON_IsArray, "an array of names of fields", &list);
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

/* Whether the family competes with those that are written for one chip, and whether its kernel is a user's. */
static int read_beside(struct reader *r)
{
    const cJSON *beside;
    int rc = take_member(r, "beside_specific", false, cJSON_IsBool, "true or false", &beside);
    r->family->beside = cJSON_IsTrue(beside);
    if (rc == 0)
        rc = take_member(r, "as_is", false, cJSON_IsBool, "true or false", &beside);
    r->family->as_is = rc == 0 && cJSON_IsTrue(beside);
    return rc;
}

static int read_domain(struct reader *r, const cJSON *item, fa_domain *domain)
{
    int size = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    if (size < 1 || size > FA_MAX_DOMAIN)
        return fault(r, "tunable %s must be an array of 1 to %d numbers or texts", item->string,
                     FA_MAX_DOMAIN);
    snprintf(domain->name, sizeof domain->name, "%s", item->string);
    for (const cJSON *value = item->child; value != NULL; value = value->next) {
        int32_t is = 0;
        char room[FA_VALUE_TEXT_MAX];
        if (cJSON_IsBool(value) || cJSON_IsString(value) != cJSON_IsString(item->child) ||
            fa_value_of_json(value, &is, r->diag) != 0)
            return fault(
                r,
                "tunable %s: its values must all be numbers, or all be texts of 1 to 31 bytes "
                "without quotes, backslashes and semicolons",
                item->string);
        for (int i = 0; i < domain->count; i++)
            if (domain->value[i] == is)
                return fault(r, "tunable %s: the value %s appears twice", item->string,
                             fa_value_words(is, room));
        domain->fractions = domain->fractions || fa_expr_of_value(is).kind == FA_EXPR_REAL;
        domain->value[domain->count++] = is;
    }
    return 0;
}

static int read_tunables(struct reader *r)
{
    const cJSON *tunables;
    int64_t product = 1;
    char buffer[FA_COMMAS_MAX], most[FA_COMMAS_MAX];
    int rc = take_member(r, "tunables", true, cJSON_IsObject, "an object of arrays", &tunables);
    if (rc != 0)
        return rc;
    for (const cJSON *item = tunables->child; item != NULL; item = item->next) {
        if (r->family->tunable_count == FA_MAX_TUNABLES)
            return fault(r, "more than %d tunables", FA_MAX_TUNABLES);
        fa_domain *domain = &r->family->tunable[r->family->tunable_count++];
        rc = add_known_name(r, item->string, "\"tunables\"");
        if (rc == 0)
            rc = read_domain(r, item, domain);
        if (rc != 0)
            return rc;
        product *= domain->count;
        if (product > FA_SPACE_POINTS_MAX)
            return fault(r, "the domains up to %s make a space of %s configs: at most %s",
                         domain->name, fa_commas(product, buffer),
                         fa_commas(FA_SPACE_POINTS_MAX, most));
    }
    return product > 0 && r->family->tunable_count > 0 ? 0 : fault(r, "there are no tunables");
}

/* Tunables that kernels learn from their launch (the grid, the size of the shared memory): configs that
 * differ in them alone share a cubin. */
static int read_run_time(struct reader *r)
{
    const cJSON *names;
    int rc = take_member(r, "run_time", false, cJSON_IsArray, "an array of names", &names);
    for (const cJSON *item = names != NULL ? names->child : NULL; item != NULL && rc == 0;
         item = item->next) {
        if (!cJSON_IsString(item))
            return fault(r, "\"run_time\" must be an array of names");
        rc = add_run_time(r->family, item->valuestring, r->diag);
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
    int rc = take_member(r, "let", false, cJSON_IsObject, "an object of expressions", &lets);
    if (rc != 0)
        return rc;
    for (const cJSON *item = lets != NULL ? lets->child : NULL; item != NULL; item = item->next) {
        if (f->let_count == FA_MAX_LETS)
            return fault(r, "more than %d lets", FA_MAX_LETS);
        rc = add_known_name(r, item->string, "\"let\"");
        if (rc != 0)
            return rc;
        snprintf(f->let[f->let_count++].name, FA_NAME_MAX, "%s", item->string);
    }
    rc = read_run_time(r);
    const cJSON *item = lets != NULL ? lets->child : NULL;
    for (int i = 0; i < f->let_count && rc == 0; i++, item = item->next) {
        fa_let *let = &f->let[i];
        snprintf(place, sizeof place, "let %s", let->name);
        if ((rc = take_expression(r, item, place, &let->expr)) != 0)
            break;
        uint64_t uses = fa_expr_uses(let->expr);
        let->uses = uses >> (f->given.count + f->tunable_count);
        let->sized = (uses & f->given.sized) != 0;
        let->depth = depth_of(f, uses);
        let->run_time = reads_run_time(f, uses);
    }
    if (rc == 0 && (rc = order_lets(f, r->diag)) != 0)
        return fa_fail_in(r->diag, rc, "%s", r->where);
    return rc;
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
                 "%s: \"is\" must be constraint, budget, registers or does-not-pay, and belongs in "
                 "\"constraints\" only",
                 place);
}

static int read_requires(struct reader *r, const char *key, bool may_vary, fa_require *list,
                         int *ret_count)
{
    static const char *const keys[] = {"require", "is", "why", NULL}; /* "supports" has no "is" */
    const cJSON *array;
    char place[64];
    int rc = take_member(r, key, false, cJSON_IsArray, "an array", &array);
    if (rc != 0 || array == NULL)
        return rc;
    for (const cJSON *item = array->child; item != NULL && rc == 0; item = item->next) {
        const char *why = NULL;
        if (*ret_count == FA_MAX_REQUIRES)
            return fault(r, "\"%s\" has more than %d entries", key, FA_MAX_REQUIRES);
        snprintf(place, sizeof place, "%s[%d]", key, *ret_count);
        fa_require *require = &list[(*ret_count)++];
        if (!cJSON_IsObject(item))
            return fault(r, "%s must be an object with require and why", place);
        if ((rc = check_keys(r, item, place, keys)) != 0 ||
            (rc = read_ending(r, item, place, may_vary, &require->ends)) != 0)
            return rc;
        if (fa_json_text(item, "why", &why, place, NULL) != 0 || !is_sentence(why))
            return fault(r, "%s: \"why\" must be a sentence of 1 to %d bytes, no control bytes",
                         place, WHY_MAX);
        if ((require->why = strdup(why)) == NULL)
            return fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
        rc = take_expression(r, cJSON_GetObjectItemCaseSensitive(item, "require"), place,
                             &require->expr);
        if (rc == 0)
            require->depth = depth_of(r->family, fa_expr_uses(require->expr));
        if (rc == 0 && !may_vary && require->depth > 0)
            rc = fault(r, "%s reads a tunable: it may read the problem and the GPU only", place);
    }
    return rc;
}

static int read_defaults(struct reader *r)
{
    const cJSON *defaults;
    char place[64];
    int rc = take_member(r, "default", true, cJSON_IsObject, "an object of expressions", &defaults);
    const char *names[FA_MAX_TUNABLES + 1] = {NULL};
    for (int i = 0; i < r->family->tunable_count; i++)
        names[i] = r->family->tunable[i].name;
    if (rc == 0)
        rc = check_keys(r, defaults, "\"default\"", names);
    for (int i = 0; i < r->family->tunable_count && rc == 0; i++) {
        fa_domain *domain = &r->family->tunable[i];
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(defaults, domain->name);
        snprintf(place, sizeof place, "default %s", domain->name);
        if (item == NULL)
            return fault(r, "%s is missing", place);
        rc = take_expression(r, item, place, &domain->preset);
        if (rc == 0 && depth_of(r->family, fa_expr_uses(domain->preset)) > 0)
            rc = fault(r, "%s reads a tunable: it may read the problem and the GPU only", place);
    }
    return rc;
}

static int check_manifest_keys(struct reader *r)
{
    static const char *const keys[] = {"name",      "operation",   "entry",       "arch_suffix",
                                       "sm",        "proved_on",   "supports",    "tunables",
                                       "let",       "constraints", "threads",     "shared_memory",
                                       "registers", "grid",        "default",     "launches",
                                       "workspace", "takes",       "splits",      "beside_specific",
                                       "run_time",  "counters",    "block",       "as_is",
                                       "work",      "cluster",     "cooperative", NULL};
    return check_keys(r, r->json, "manifest", keys);
}

static int add_given_names(struct reader *r)
{
    fa_family *f = r->family;
    int rc = 0;
    fa_given_make(f->operation, f->takes, NULL, NULL, &f->given);
    for (int i = 0; i < f->given.count && rc == 0; i++)
        rc = add_known_name(r, f->given.name[i], f->operation->name);
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
    return read_manifest(&reader);
}
