/* SPDX-License-Identifier: Apache-2.0
 *
 * From a specification's hostile JSON to a family whose every expression is known to be arithmetic over known names: the
 * whole of a family's file (its manifest), and of a single kernel's the keys that are not its operation's.
 *
 * Workload: a handful of texts of a few kilobytes, once per process (about a millisecond each).
 * Invariants: no text of a specification comes into a sentence beyond 60 bytes, and none is a name or a sentence before its
 * bytes were looked at; a family that loads is complete; what can be wrong later is only a value for one problem (a
 * division by zero, a default outside its domain), and space.c reports that.
 */
#include "family.h"

#include "spec_reading.h"

#include "problem.h"
#include "tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    return fa_fail(diag, FA_EMANIFEST, "defines in a circle: %s", text);
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
        add_name(&given, field->macro, fa_field_shown(field->shown_as, p->value[i]));
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

struct reader {
    fa_family *family;
    const struct fa_spec_reading *from;
    const char *name[FA_EXPR_NAMES_MAX]; /* given, tunables, lets: bit i of a `uses` */
    int name_count;
};

/* The text is shown to people on terminals, which act on control bytes. */
static bool is_sentence(const char *text)
{
    size_t size = strlen(text);
    bool clean = size > 0 && size <= WHY_MAX;
    for (size_t i = 0; clean && i < size; i++)
        clean = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    return clean;
}

/* *ret: the member, of the type asked for; NULL when absent and not required. */
static int take_member(const struct reader *r, const char *key, bool required,
                       cJSON_bool (*is)(const cJSON *), const char *type, const cJSON **ret)
{
    *ret = fa_spec_member(r->from->json, key);
    if (*ret == NULL)
        return required ? fa_spec_fault(r->from, "\"%s\" is missing: it must be %s", key, type) : 0;
    return is(*ret) ? 0 : fa_spec_fault(r->from, "\"%s\" must be %s", key, type);
}

/* Parses an expression, a string or an integer, over the names so far; `place` is for the sentence. */
static int take_expression(const struct reader *r, const cJSON *item, const char *place,
                           fa_expr **ret_expr)
{
    char number[32];
    const char *text = fa_json_expression(item, number);
    if (text == NULL ||
        (text == number && !(fabs(item->valuedouble) <= 1e9 &&
                             item->valuedouble == (double)(int64_t)item->valuedouble)))
        return fa_spec_fault(r->from, "%s must be an expression (a string) or an integer", place);
    int rc = fa_expr_parse(text, r->name, r->name_count, ret_expr, r->from->diag);
    if (rc != 0)
        return fa_fail_in(r->from->diag, rc, "%s: %s", r->from->where, place);
    if (r->family->as_is)
        fa_expr_divide_truly(*ret_expr);
    r->family->expr[r->family->expr_count++] = *ret_expr;
    return 0;
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
        return fa_spec_fault(r->from,
                             "\"%s\": \"%.60s\" is not a name: use at most %d letters, digits and "
                             "_, a letter first, and no word of expressions or of C++",
                             place, name, FA_NAME_MAX - 1);
    if (strncmp(name, "FA_", 3) == 0)
        return fa_spec_fault(r->from, "\"%s\": \"%s\": names that start with FA_ are ours", place,
                             name);
    for (int i = 0; i < r->name_count; i++)
        if (strcmp(name, r->name[i]) == 0)
            return fa_spec_fault(r->from, "\"%s\": the name \"%s\" is taken", place, name);
    if (r->name_count == FA_EXPR_NAMES_MAX)
        return fa_spec_fault(r->from, "more than %d names", FA_EXPR_NAMES_MAX);
    r->name[r->name_count++] = name;
    return 0;
}

/* ---- launches ---------------------------------------------------------------------------------*/
/* Workload: one to four launches of a family, once per process.
 * Invariant: what sizes a block is known when the kernel is compiled. */

/* One expression of the launch: registers, an addend, a side of the grid. *ret_run_time becomes true when it reads what is
 * known at run time only. */
static int read_expression(struct reader *r, const cJSON *item, const char *place,
                           fa_expr **ret_expr, bool *ret_run_time)
{
    int rc = take_expression(r, item, place, ret_expr);
    *ret_run_time =
        *ret_run_time || (rc == 0 && reads_run_time(r->family, fa_expr_uses(*ret_expr)));
    return rc;
}

/* "shared_memory": an expression, or an object of named parts. */
static int read_addends(struct reader *r, const cJSON *memory, const char *place,
                        fa_family_launch *launch, bool *ret_run_time)
{
    int rc = 0;
    if (memory != NULL && !cJSON_IsObject(memory)) {
        snprintf(launch->addend[0].name, FA_NAME_MAX, "dynamic");
        launch->addend_count = 1;
        return read_expression(r, memory, place, &launch->addend[0].expr, ret_run_time);
    }
    for (const cJSON *item = memory != NULL ? memory->child : NULL; item != NULL && rc == 0;
         item = item->next) {
        char where[96];
        if (!fa_spec_is_name(item->string, FA_NAME_MAX))
            return fa_spec_fault(r->from, "%s: \"%.60s\" is not a name: use a-z, 0-9 and _", place,
                                 item->string);
        if (launch->addend_count == FA_MAX_ADDENDS)
            return fa_spec_fault(r->from, "%s: more than %d addends", place, FA_MAX_ADDENDS);
        for (int i = 0; i < launch->addend_count; i++)
            if (strcmp(launch->addend[i].name, item->string) == 0)
                return fa_spec_fault(r->from, "%s: \"%s\" appears twice", place, item->string);
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

static int read_work(struct reader *r, const cJSON *work, const char *place,
                     fa_family_launch *launch)
{
    char where[96];
    bool at_run_time = false; /* no matter: the host alone knows it */
    if (work == NULL)
        return 0;
    if (!cJSON_IsObject(work) || work->child == NULL)
        return fa_spec_fault(r->from, "%s must be an object of expressions", place);
    int rc = fa_spec_check_keys(r->from, work, place, works);
    for (int i = 0; i < FA_WORKS && rc == 0; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(work, works[i]);
        snprintf(where, sizeof where, "%s %s", place, works[i]);
        if (item != NULL)
            rc = read_expression(r, item, where, &launch->work[i], &at_run_time);
    }
    return rc;
}

/* "block", "cluster" or "grid": one to three sides, 1 where no more are told; none of a cluster that is not told. */
static int read_sides(struct reader *r, const cJSON *sides, const char *place, const char *key,
                      fa_expr *ret_side[3], bool *ret_run_time)
{
    static const cJSON one = {.type = cJSON_Number, .valueint = 1, .valuedouble = 1};
    const int count = cJSON_IsArray(sides) ? cJSON_GetArraySize(sides) : 1;
    char where[64];
    int rc = 0;
    if (sides == NULL && strcmp(key, "cluster") == 0)
        return 0;
    if (sides == NULL || count < 1 || count > 3)
        return fa_spec_fault(r->from, "%s\"%s\" %s one to three expressions", place, key,
                             sides == NULL ? "is missing:" : "must be");
    for (int i = 0; i < 3 && rc == 0; i++) {
        const cJSON *side = i >= count             ? &one
                            : cJSON_IsArray(sides) ? cJSON_GetArrayItem(sides, i)
                                                   : sides;
        snprintf(where, sizeof where, "%s%s[%d]", place, key, i);
        rc = read_expression(r, side, where, &ret_side[i], ret_run_time);
    }
    return rc;
}

/* The keys of one launch, from the specification itself or from one of its "launches", whose `place` is "launches[1]: ". */
static int read_launch(struct reader *r, int index, const char *place)
{
    fa_family_launch *launch = &r->family->launch[index];
    const cJSON *json = fa_spec_launch(r->from, index),
                *cooperative = fa_spec_member(json, "cooperative");
    const char *entry = r->family->as_is ? r->from->entry[index] : fa_spec_text(json, "kernel");
    char where[64];
    bool at_run_time = false, memory_at_run_time = false;
    if (!fa_is_identifier(entry))
        return fa_spec_fault(r->from, "%s\"kernel\" must be a C name of less than %d characters",
                             place, FA_NAME_MAX);
    if (cooperative != NULL && !cJSON_IsBool(cooperative))
        return fa_spec_fault(r->from, "%s\"cooperative\" must be true or false", place);
    snprintf(launch->entry, sizeof launch->entry, "%s", entry);
    launch->cooperative = cJSON_IsTrue(cooperative);
    int rc =
        read_sides(r, fa_spec_member(json, "block"), place, "block", launch->block, &at_run_time);
    if (rc == 0)
        rc = read_sides(r, fa_spec_member(json, "cluster"), place, "cluster", launch->cluster,
                        &at_run_time);
    if (rc == 0 && at_run_time)
        rc = fa_spec_fault(r->from,
                           "%sblock reads a name of \"run_time\": it must be known when the "
                           "kernel is compiled",
                           place);
    if (rc != 0)
        return rc;
    snprintf(where, sizeof where, "%sshared_memory", place);
    if ((rc = read_sides(r, fa_spec_member(json, "grid"), place, "grid", launch->grid,
                         &at_run_time)) != 0 ||
        (rc = read_addends(r, fa_spec_member(json, "shared_memory"), where, launch,
                           &memory_at_run_time)) != 0)
        return rc;
    r->family->run_time_memory = r->family->run_time_memory || memory_at_run_time;
    snprintf(where, sizeof where, "%swhen", place);
    if (fa_spec_member(json, "when") != NULL &&
        (rc = take_expression(r, fa_spec_member(json, "when"), where, &launch->when)) != 0)
        return rc;
    snprintf(where, sizeof where, "%swork", place);
    return read_work(r, fa_spec_member(json, "work"), where, launch);
}

/* Arguments of a single kernel that are scratch: their bytes. */
static int read_scratch(struct reader *r)
{
    fa_family *f = r->family;
    const cJSON *argument, *side;
    char place[64], room[32];
    int at = 0, rc = 0;
    cJSON_ArrayForEach (argument, fa_spec_member(r->from->json, "arguments")) {
        fa_element element = FA_ELEMENT_FP32;
        fa_buf bytes = {0};
        snprintf(place, sizeof place, "arguments[%d]", at++);
        if (rc != 0 || strcmp(fa_spec_text(argument, "is"), "scratch") != 0)
            continue;
        if (f->scratch_count == FA_SCRATCH_MAX)
            return fa_spec_fault(r->from, "%s: more than %d are scratch", place, FA_SCRATCH_MAX);
        fa_named_expr *scratch = &f->scratch[f->scratch_count++];
        snprintf(scratch->name, sizeof scratch->name, "%s", fa_spec_text(argument, "name"));
        fa_element_find(fa_spec_text(argument, "type"), &element);
        fa_buf_printf(&bytes, "%zu",
                      fa_element_size(element) * (size_t)fa_element_numbers(element));
        cJSON_ArrayForEach (side, fa_spec_member(argument, "shape")) {
            const char *text = fa_json_expression(side, room);
            fa_buf_printf(&bytes, " * (%s)", text != NULL ? text : "");
        }
        rc = bytes.failed
                 ? fa_fail(r->from->diag, FA_ENOMEM, "%s: out of memory", r->from->where)
                 : take_expression(r, &(cJSON){.type = cJSON_String, .valuestring = bytes.data},
                                   place, &scratch->expr);
        fa_buf_free(&bytes);
    }
    return rc;
}

/* Either one launch, whose keys are the specification's, or a list of them. */
static int read_launches(struct reader *r)
{
    fa_family *f = r->family;
    const struct {
        const char *key;
        fa_expr **expression;
    } of_all[] = {{"registers", &f->registers},
                  {"workspace", &f->workspace},
                  {"counters", &f->counters},
                  {"splits", &f->splits}};
    int count = 0, rc = read_scratch(r);
    if (rc == 0)
        rc = fa_spec_check_launches(r->from, &count);
    for (int i = 0; i < count && rc == 0; i++) {
        char place[32] = "";
        if (fa_spec_launch(r->from, i) != r->from->json)
            snprintf(place, sizeof place, "launches[%d]: ", i);
        f->launch_count++;
        rc = read_launch(r, i, place);
    }
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all && rc == 0; i++) {
        const cJSON *json = fa_spec_member(r->from->json, of_all[i].key);
        if (json != NULL)
            rc = take_expression(r, json, of_all[i].key, of_all[i].expression);
    }
    return rc;
}

/* ---- the parts of a specification, in the order in which they are read ------------------------*/
static int read_identity(struct reader *r)
{
    fa_family *f = r->family;
    const cJSON *name = fa_spec_member(r->from->json, "name");
    const char *suffix = fa_spec_text(r->from->json, "arch_suffix");
    if (!fa_spec_is_name(r->from->name, FA_NAME_MAX))
        return fa_spec_fault(
            r->from,
            "the file is called \"%.60s\": use at most %d of a-z, 0-9 and _, a letter first",
            r->from->name, FA_NAME_MAX - 1);
    if (name != NULL && strcmp(fa_spec_text(r->from->json, "name"), r->from->name) != 0)
        return fa_spec_fault(r->from,
                             "\"name\" must be the file's name without .json, or left out");
    if (fa_spec_member(r->from->json, "arch_suffix") != NULL && strcmp(suffix, "a") != 0 &&
        !f->as_is)
        return fa_spec_fault(r->from, "\"arch_suffix\" must be \"a\", or left out");
    snprintf(f->name, sizeof f->name, "%s", r->from->name);
    snprintf(f->arch_suffix, sizeof f->arch_suffix, "%s", suffix);
    return 0;
}

/* "sm": {"min", "max"}; "proved_on": {"max"}, the highest on which the template also runs, for proving it where its own GPUs
 * are not. A single kernel is for all. */
static int read_sm(struct reader *r)
{
    static const char *const both[] = {"min", "max", NULL}, *const last[] = {"max", NULL};
    const cJSON *sm, *proved;
    const struct fa_spec_reading *from = r->from;
    int64_t low = 10, high = 999, highest;
    int rc =
        take_member(r, "sm", !r->family->as_is, cJSON_IsObject, "an object with min and max", &sm);
    if (rc == 0)
        rc = take_member(r, "proved_on", false, cJSON_IsObject, "an object with max", &proved);
    if (rc != 0 || (rc = fa_spec_check_keys(from, sm, "\"sm\"", both)) != 0 ||
        (rc = fa_spec_check_keys(from, proved, "\"proved_on\"", last)) != 0)
        return rc;
    if (sm != NULL && (rc = fa_json_int(sm, "min", 10, 999, &low, from->where, from->diag)) == 0)
        rc = fa_json_int(sm, "max", low, 999, &high, from->where, from->diag);
    highest = high;
    if (rc == 0 && proved != NULL)
        rc = fa_json_int(proved, "max", high, 999, &highest, from->where, from->diag);
    r->family->sm_min = (int32_t)low;
    r->family->sm_max = (int32_t)high;
    r->family->proved_max = (int32_t)highest;
    return rc == FA_ENOTFOUND ? fa_spec_fault(from, "\"sm\" needs min and max, \"proved_on\" max")
                              : rc;
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
            return fa_spec_fault(r->from, "\"takes\": \"%.60s\" is no feature of %s",
                                 name != NULL ? name : "", r->family->operation->name);
        r->family->takes |= (uint32_t)1 << field;
    }
    return rc;
}

/* Values of a tunable: true and false are 1 and 0. */
static int read_domain(struct reader *r, const cJSON *item, fa_domain *domain)
{
    int size = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    if (size < 1 || size > FA_MAX_DOMAIN) /* before the process keeps them for good */
        return fa_spec_fault(r->from,
                             "tune %s must be an array of 1 to %d numbers, booleans or texts",
                             item->string, FA_MAX_DOMAIN);
    snprintf(domain->name, sizeof domain->name, "%s", item->string);
    for (const cJSON *value = item->child; value != NULL; value = value->next) {
        int32_t is = 0;
        char room[FA_VALUE_TEXT_MAX];
        if (cJSON_IsString(value) != cJSON_IsString(item->child))
            return fa_spec_fault(
                r->from, "tune %s: its values must all be numbers or booleans, or all be texts",
                item->string);
        if (fa_value_of_json(value, &is, r->from->diag) != 0)
            return fa_fail_in(r->from->diag, FA_EMANIFEST, "%s: tune %s", r->from->where,
                              item->string);
        for (int i = 0; i < domain->count; i++)
            if (domain->value[i] == is)
                return fa_spec_fault(r->from, "tune %s: the value %s appears twice", item->string,
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
    int rc = take_member(r, "tune", !r->family->as_is, cJSON_IsObject,
                         "an object, as in {\"BLOCK\": [64, 128, 256]}", &tunables);
    if (rc != 0)
        return rc;
    for (const cJSON *item = tunables != NULL ? tunables->child : NULL; item != NULL;
         item = item->next) {
        if (r->family->tunable_count == FA_MAX_TUNABLES)
            return fa_spec_fault(r->from, "more than %d tunables", FA_MAX_TUNABLES);
        fa_domain *domain = &r->family->tunable[r->family->tunable_count++];
        rc = add_known_name(r, item->string, "tune");
        if (rc == 0)
            rc = read_domain(r, item, domain);
        if (rc != 0)
            return rc;
        product *= domain->count;
        if (product > FA_SPACE_POINTS_MAX)
            return fa_spec_fault(
                r->from, "the domains up to %s make a space of %s configs: at most %s",
                domain->name, fa_commas(product, buffer), fa_commas(FA_SPACE_POINTS_MAX, most));
    }
    return r->family->as_is || r->family->tunable_count > 0
               ? 0
               : fa_spec_fault(r->from, "there are no tunables");
}

/* Tunables that kernels learn from their launch (the grid, the size of the shared memory): configs that
 * differ in them alone share a cubin. */
static int read_run_time(struct reader *r)
{
    fa_family *f = r->family;
    const cJSON *names, *item;
    int rc = take_member(r, "run_time", false, cJSON_IsArray, "an array of names", &names);
    cJSON_ArrayForEach (item, names) {
        int at = 0;
        if (!cJSON_IsString(item))
            return fa_spec_fault(r->from, "\"run_time\" must be an array of names");
        while (at < f->tunable_count && strcmp(f->tunable[at].name, item->valuestring) != 0)
            at++;
        if (at == f->tunable_count || f->tunable[at].run_time)
            return fa_spec_fault(r->from, "\"run_time\": \"%.60s\" %s", item->valuestring,
                                 at == f->tunable_count ? "is no tunable" : "appears twice");
        f->tunable[at].run_time = f->runs_late = true;
    }
    return rc;
}

static int read_lets(struct reader *r)
{
    fa_family *f = r->family;
    const cJSON *lets;
    char place[64];
    int rc = take_member(r, "defines", false, cJSON_IsObject, "an object of expressions", &lets);
    if (rc != 0)
        return rc;
    for (const cJSON *item = lets != NULL ? lets->child : NULL; item != NULL; item = item->next) {
        if (f->let_count == FA_MAX_LETS)
            return fa_spec_fault(r->from, "more than %d names in \"defines\"", FA_MAX_LETS);
        rc = add_known_name(r, item->string, "defines");
        if (rc != 0)
            return rc;
        snprintf(f->let[f->let_count++].name, FA_NAME_MAX, "%s", item->string);
    }
    rc = read_run_time(r);
    const cJSON *item = lets != NULL ? lets->child : NULL;
    for (int i = 0; i < f->let_count && rc == 0; i++, item = item->next) {
        fa_let *let = &f->let[i];
        snprintf(place, sizeof place, "defines %s", let->name);
        if ((rc = take_expression(r, item, place, &let->expr)) != 0)
            break;
        uint64_t uses = fa_expr_uses(let->expr);
        let->uses = uses >> (f->given.count + f->tunable_count);
        let->sized = (uses & f->given.sized) != 0;
        let->depth = depth_of(f, uses);
        let->run_time = reads_run_time(f, uses);
    }
    if (rc == 0 && (rc = order_lets(f, r->from->diag)) != 0)
        return fa_fail_in(r->from->diag, rc, "%s", r->from->where);
    return rc;
}

/* What a rule is about: a config that does not hold to it is impossible, exceeds the shared memory or
 * the registers, or is known not to pay. */
static int read_ending(struct reader *r, const cJSON *rule, const char *place, bool allowed,
                       fa_status *ret_ends)
{
    static const fa_status endings[] = {FA_STATUS_CONSTRAINT, FA_STATUS_BUDGET, FA_STATUS_REGISTERS,
                                        FA_STATUS_DOES_NOT_PAY};
    const cJSON *is = fa_spec_member(rule, "is");
    *ret_ends = FA_STATUS_CONSTRAINT;
    if (is == NULL)
        return 0;
    for (size_t i = 0; allowed && cJSON_IsString(is) && i < sizeof endings / sizeof *endings; i++) {
        *ret_ends = endings[i];
        if (strcmp(is->valuestring, fa_status_name(endings[i])) == 0)
            return 0;
    }
    return fa_spec_fault(r->from,
                         "%s: \"is\" must be constraint, budget, registers or does-not-pay, and "
                         "belongs in \"restrictions\" only",
                         place);
}

/* An expression, or {"require", "is", "why"}; without a reason the expression is it. */
static int read_rule(struct reader *r, const cJSON *item, const char *place, bool may_vary,
                     fa_require *rule)
{
    static const char *const keys[] = {"require", "is", "why", NULL};
    char room[32];
    const cJSON *require = cJSON_IsObject(item) ? fa_spec_member(item, "require") : item,
                *why = fa_spec_member(item, "why");
    const char *text = fa_json_expression(require, room);
    int rc = cJSON_IsObject(item) ? fa_spec_check_keys(r->from, item, place, keys) : 0;
    if (rc == 0)
        rc = read_ending(r, item, place, may_vary, &rule->ends);
    if (rc == 0)
        rc = take_expression(r, require, place, &rule->expr);
    if (rc != 0)
        return rc;
    if (why != NULL && !(cJSON_IsString(why) && is_sentence(why->valuestring)))
        return fa_spec_fault(r->from,
                             "%s: \"why\" must be a sentence of 1 to %d bytes, no control bytes",
                             place, WHY_MAX);
    rule->why = strndup(why != NULL ? why->valuestring : text, WHY_MAX);
    if (rule->why == NULL)
        return fa_fail(r->from->diag, FA_ENOMEM, "%s: out of memory", r->from->where);
    rule->depth = depth_of(r->family, fa_expr_uses(rule->expr));
    return may_vary || rule->depth == 0
               ? 0
               : fa_spec_fault(r->from,
                               "%s reads a tunable: it may read the problem and the GPU only",
                               place);
}

static int read_requires(struct reader *r, const char *key, bool may_vary, fa_require *list,
                         int *ret_count)
{
    const cJSON *array, *item;
    char place[64];
    int rc = take_member(r, key, false, cJSON_IsArray, "an array of expressions", &array);
    cJSON_ArrayForEach (item, array) {
        if (*ret_count == FA_MAX_REQUIRES)
            return fa_spec_fault(r->from, "\"%s\" has more than %d entries", key, FA_MAX_REQUIRES);
        snprintf(place, sizeof place, "%s[%d]", key, *ret_count);
        if (rc == 0)
            rc = read_rule(r, item, place, may_vary, &list[(*ret_count)++]);
    }
    return rc;
}

int fa_family_preset(fa_family *family, int tunable, int32_t value, fa_diag *diag)
{
    fa_domain *domain = &family->tunable[tunable];
    char room[FA_VALUE_TEXT_MAX], text[FA_VALUE_TEXT_MAX + 2];
    const char *quote = fa_value_is_text(value) ? "'" : "";
    snprintf(text, sizeof text, "%s%s%s", quote, fa_value_words(value, room), quote);
    int rc = fa_expr_parse(text, NULL, 0, &domain->preset, diag);
    if (rc == 0)
        family->expr[family->expr_count++] = domain->preset;
    return rc;
}

/* A value of the tunable, or an expression of the problem and the GPU; of a single kernel the first value where it is not told. */
static int read_default(struct reader *r, const cJSON *item, int tunable)
{
    fa_domain *domain = &r->family->tunable[tunable];
    char place[64];
    int32_t value = domain->value[0];
    snprintf(place, sizeof place, "default %s", domain->name);
    if (item == NULL && !r->family->as_is)
        return fa_spec_fault(r->from, "%s is missing", place);
    if (item == NULL || ((!cJSON_IsString(item) || fa_value_is_text(value)) &&
                         fa_value_of_json(item, &value, NULL) == 0))
        return fa_family_preset(r->family, tunable, value, r->from->diag);
    int rc = take_expression(r, item, place, &domain->preset);
    if (rc == 0 && depth_of(r->family, fa_expr_uses(domain->preset)) > 0)
        rc = fa_spec_fault(r->from, "%s reads a tunable: it may read the problem and the GPU only",
                           place);
    return rc;
}

static int read_defaults(struct reader *r)
{
    const cJSON *defaults;
    const char *names[FA_MAX_TUNABLES + 1] = {NULL};
    int rc = take_member(r, "default", !r->family->as_is, cJSON_IsObject, "an object of values",
                         &defaults);
    for (int i = 0; i < r->family->tunable_count; i++)
        names[i] = r->family->tunable[i].name;
    if (rc == 0)
        rc = fa_spec_check_keys(r->from, defaults, "\"default\"", names);
    for (int i = 0; i < r->family->tunable_count && rc == 0; i++)
        rc = read_default(r, fa_spec_member(defaults, names[i]), i);
    return rc;
}

/* In this order: expressions may use the names that stand above them. */
static int read_all(struct reader *r)
{
    static const char *const keys[] = {
        "name",      "operation",     "kernel",    "arch_suffix", "sm",
        "proved_on", "supports",      "tune",      "defines",     "restrictions",
        "block",     "shared_memory", "registers", "grid",        "default",
        "launches",  "workspace",     "takes",     "splits",      "run_time",
        "counters",  "work",          "cluster",   "cooperative", "beside_specific",
        NULL};
    fa_family *f = r->family;
    const cJSON *beside;
    int rc;
    /* Those of a single kernel were looked at when its operation was made. */
    if ((!f->as_is && (rc = fa_spec_check_keys(r->from, r->from->json, "", keys)) != 0) ||
        (rc = read_takes(r)) != 0 ||
        (rc = take_member(r, "beside_specific", false, cJSON_IsBool, "true or false", &beside)) !=
            0)
        return rc;
    f->beside = cJSON_IsTrue(beside);
    fa_given_make(f->operation, f->takes, NULL, NULL, &f->given);
    for (int i = 0; i < f->given.count; i++)
        if ((rc = add_known_name(r, f->given.name[i], f->operation->name)) != 0)
            return rc;
    if ((rc = read_identity(r)) != 0 || (rc = read_sm(r)) != 0 || (rc = read_tunables(r)) != 0 ||
        (rc = read_lets(r)) != 0 ||
        (rc = read_requires(r, "supports", false, f->support, &f->support_count)) != 0 ||
        (rc = read_requires(r, "restrictions", true, f->constraint, &f->constraint_count)) != 0 ||
        (rc = read_launches(r)) != 0)
        return rc;
    return read_defaults(r);
}

int fa_family_read(fa_family *family, const struct fa_spec_reading *from)
{
    struct reader reader = {.family = family, .from = from};
    family->as_is = from->source != NULL;
    int rc = read_all(&reader);
    return rc == FA_EINVAL ? FA_EMANIFEST : rc;
}
