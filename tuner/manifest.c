/* SPDX-License-Identifier: Apache-2.0
 *
 * From a specification's hostile JSON to a family whose every expression is known to be arithmetic over known names: the
 * whole of a family's file (its manifest), and of a single kernel's the keys that are not its operation's. And what the
 * parts of a specification are read with, and the line that a sentence is about: sentences of every reader begin with the
 * place in the document ("grid[1]: …", "tunable BLOCK: …", "\"sizes\" must …"), whose words are looked up in the text.
 *
 * Workload: a handful of texts of a few kilobytes, once per process (about a millisecond each). The look once for one that
 * is refused, whose text was parsed, or was not: every look ends at its end.
 * Invariants: no text of a specification comes into a sentence beyond 60 bytes, and none is a name or a sentence before its
 * bytes were looked at; a family that loads is complete; what can be wrong later is only a value for one problem (a
 * division by zero, a default outside its domain), and space.c reports that.
 */
#include "family.h"

#include "problem.h"
#include "snippet.h"
#include "spec_reading.h"
#include "tensors.h"
#include "words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 64 };

/* ---- the text --------------------------------------------------------------------------------*/
static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* The first place from here on that has this word in quotes, as a key if one is meant; NULL: there is none. */
static const char *find(const char *at, const char *word, bool key)
{
    char quoted[WORD_MAX + 2];
    int size = snprintf(quoted, sizeof quoted, "\"%s\"", word);
    if (word[0] == 0)
        return NULL;
    while ((at = strstr(at, quoted)) != NULL && key && *skip_space(at + size) != ':')
        at++;
    return at;
}

/* ---- the sentence ----------------------------------------------------------------------------*/
/* The word that stands here, in quotes or not; "": none does. */
static const char *read_word(const char *at, char ret[WORD_MAX])
{
    size_t size = 0;
    at += *at == ' ' || *at == '"';
    at += *at == '"';
    while (fa_is_word(at[size]) && size + 1 < WORD_MAX)
        size++;
    snprintf(ret, WORD_MAX, "%.*s", (int)size, at);
    return at + size + (at[size] == '"');
}

/* What "grid[1]", "tune BLOCK" and the like stand for: the key, or the name that follows in it. */
static const char *find_place(const char *json, const char *sentence)
{
    char word[WORD_MAX];
    const char *rest = read_word(sentence, word), *found = find(json, word, true);
    rest += *rest == '[' ? strcspn(rest, "]") + 1 : 0;
    read_word(rest + (*rest == ':'), word);
    const char *name = found != NULL && sentence[0] != '"' ? find(found, word, false) : NULL;
    return name != NULL ? name : found;
}

/* The first key, wherever it is, that the sentence has in quotes. */
static const char *find_quoted(const char *json, const char *sentence)
{
    char word[WORD_MAX];
    const char *found = NULL;
    for (; found == NULL && (sentence = strchr(sentence, '"')) != NULL; sentence++) {
        read_word(sentence, word);
        found = find(json, word, true);
    }
    return found;
}

void fa_spec_locate(const char *where, const char *name, const char *json, bool beside,
                    fa_diag *diag)
{
    static const char syntax[] = "not valid JSON in line ",
                      behind[] = "text after the JSON value at offset ";
    const char *const begins[][3] = {
        {"", where, ": "}, {"", name, ".json: "}, {"operation ", name, ": "}, {"", name, ": "}};
    char text[sizeof diag->text], begin[512];
    const char *sentence = memcpy(text, diag->text, sizeof text), *found = skip_space(json);
    const char *at;
    long line = 1;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        int size =
            snprintf(begin, sizeof begin, "%s%s%s", begins[i][0], begins[i][1], begins[i][2]);
        if (size < (int)sizeof begin && strncmp(sentence, begin, (size_t)size) == 0) {
            sentence += size;
            i = (size_t)-1; /* from the first again */
        }
    }
    if (sentence == text)
        return;
    if (strncmp(sentence, behind, sizeof behind - 1) == 0)
        found = json + strtoul(sentence + sizeof behind - 1, NULL, 10);
    else if ((at = find_place(found, sentence)) != NULL ||
             (at = find_quoted(found, sentence)) != NULL)
        found = at;
    for (at = json; at < found; at++)
        line += *at == '\n';
    if (strncmp(sentence, syntax, sizeof syntax - 1) == 0)
        line = strtol(sentence + sizeof syntax - 1, NULL, 10);
    if (beside && strchr(json, '\n') == NULL)
        fa_fail(diag, FA_EMANIFEST, "%s: %s", where, sentence);
    else
        fa_fail(diag, FA_EMANIFEST, "%s:%ld: %s", where, line, sentence);
}

/* ---- what the parts of a specification are read with -----------------------------------------*/
int fa_spec_fault(struct fa_spec_reading *r, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return r->rc != 0 ? r->rc : (r->rc = fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text));
}

void fa_spec_memory(struct fa_spec_reading *r, bool enough)
{
    if (!enough && r->rc == 0)
        r->rc = fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
}

const char *fa_spec_text(const cJSON *json, const char *key)
{
    const char *text = fa_json_string(json, key);
    return text != NULL ? text : "";
}

void fa_spec_check_keys(struct fa_spec_reading *r, const cJSON *object, const char *place,
                        const char *const *keys)
{
    char where[300];
    snprintf(where, sizeof where, "%.200s%s%.60s", r->where, place[0] != 0 ? ": " : "", place);
    if (r->rc == 0 && fa_json_check_keys(object, keys, where, r->diag) != 0)
        r->rc = FA_EMANIFEST;
}

bool fa_spec_is_name(const char *text, size_t size)
{
    return fa_is_identifier(text) && strlen(text) < size &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(text);
}

int fa_spec_check_launches(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"kernel",    "block",       "grid",         "shared_memory",
                                       "work",      "cooperative", "programmatic", "when",
                                       "arguments", NULL};
    const cJSON *launch, *list = fa_json_member(r->json, "launches");
    const int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    int at = 0;
    if (list == NULL)
        return 1;
    if (count < 1 || count > FA_LAUNCHES_MAX)
        fa_spec_fault(r, "\"launches\" must be an array of 1 to %d launches", FA_LAUNCHES_MAX);
    for (int i = 0; keys[i] != NULL; i++)
        if (fa_json_member(r->json, keys[i]) != NULL && keys[i + 1] != NULL)
            fa_spec_fault(r, "\"%s\" is given beside \"launches\": put it into each launch",
                          keys[i]);
    cJSON_ArrayForEach (launch, list) {
        char place[32];
        snprintf(place, sizeof place, "launches[%d]", at++);
        if (!cJSON_IsObject(launch) || fa_spec_text(launch, "kernel")[0] == 0)
            fa_spec_fault(r, "%s must be an object with a \"kernel\"", place);
        fa_spec_check_keys(r, launch, place, keys);
        if (r->file == NULL && fa_json_member(launch, "arguments") != NULL)
            fa_spec_fault(r, "%s: \"arguments\" are a single kernel's: a family's take one struct",
                          place);
    }
    return r->rc == 0 ? count : 0;
}

const cJSON *fa_spec_launch(struct fa_spec_reading *r, int launch)
{
    const cJSON *list = fa_json_member(r->json, "launches");
    return list != NULL ? cJSON_GetArrayItem(list, launch) : r->json;
}

/* ---- what expressions read ------------------------------------------------------------------*/
uint64_t fa_family_reads(const fa_family *f, uint64_t uses)
{
    const int lets = f->given.count + f->tunable_count;
    for (int i = 0; i < f->let_count; i++)
        if ((uses >> (lets + i) & 1) != 0)
            uses |= f->let[i].reads;
    return uses;
}

bool fa_family_runs_late(const fa_family *family, int tunable)
{
    return (family->run_time >> (family->given.count + tunable) & 1) != 0;
}

int fa_domain_index(const fa_domain *domain, int64_t value)
{
    for (int i = 0; i < domain->count; i++)
        if (domain->value[i] == value)
            return i;
    return -1;
}

/* How many tunables must have a value before an expression that reads these names has one. */
static int depth_of(const fa_family *f, uint64_t uses)
{
    const uint64_t tunables = (UINT64_C(1) << f->tunable_count) - 1;
    int depth = 0;
    while ((fa_family_reads(f, uses) >> f->given.count & tunables) >> depth != 0)
        depth++;
    return depth;
}

static void add_name(fa_given *given, const char *name, int64_t value)
{
    given->name[given->count] = name;
    given->value[given->count++] = value;
}

void fa_given_make(const fa_operation *operation, uint32_t takes, const fa_problem *problem,
                   const fa_gpu *gpu, fa_given *ret_given)
{
    fa_given given = {0};
    const fa_problem *p = problem != NULL ? problem : &(fa_problem){.batch = 0};
    const fa_gpu *g = gpu != NULL ? gpu : &(fa_gpu){.sm = 0};
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        if (field->macro[0] == 0 || (field->feature && !(takes >> i & 1)))
            continue;
        if (!field->shapes_source)
            given.sized |= (uint64_t)1 << given.count;
        add_name(&given, field->macro, fa_field_shown(field, p->value[i]));
        if (strcmp(field->macro, "BUFFERS") == 0) {
            fa_snippet_reads reads = {.mask_lists = 0};
            if (p->value[i] != 0) /* else they read nothing */
                fa_snippets_print(p, NULL, &reads, NULL);
            add_name(&given, "FETCH_BYTES",
                     reads.fetch_bytes[0] != 0 ? reads.fetch_bytes[0] : reads.fetch_bytes[1]);
            add_name(&given, "MASK_LISTS", reads.mask_lists);
        }
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

/* A part of a specification; NULL: it is absent, or nothing is read any more. */
static const cJSON *part(struct fa_spec_reading *r, const char *key,
                         cJSON_bool (*is)(const cJSON *), const char *type, bool needed)
{
    const cJSON *json = fa_json_member(r->json, key);
    if (json == NULL && needed && !r->family->as_is)
        fa_spec_fault(r, "\"%s\" is missing: it must be %s", key, type);
    if (json != NULL && !is(json))
        fa_spec_fault(r, "\"%s\" must be %s", key, type);
    return r->rc == 0 ? json : NULL;
}

/* The expression, a text or an integer, over the names so far; the format makes its place for a sentence. NULL: it is none. */
__attribute__((format(printf, 3, 4))) static fa_expr *take_expression(struct fa_spec_reading *r,
                                                                      const cJSON *item,
                                                                      const char *format, ...)
{
    char number[32], place[96];
    fa_expr *expr = NULL;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(place, sizeof place, format, arguments);
    va_end(arguments);
    const char *text = fa_json_expression(item, number);
    if (text == NULL ||
        (text == number && !(fabs(item->valuedouble) <= 1e9 &&
                             item->valuedouble == (double)(int64_t)item->valuedouble)))
        fa_spec_fault(r, "%s must be an expression (a string) or an integer", place);
    if (r->rc != 0)
        return NULL;
    r->rc = fa_expr_parse(text, r->known, r->known_count, false, &expr, r->diag);
    if (r->rc != 0) {
        fa_fail_in(r->diag, r->rc, "%s: %s", r->where, place);
        return NULL;
    }
    if (r->family->as_is)
        fa_expr_divide_truly(expr);
    return r->family->expr[r->family->expr_count++] = expr;
}

/* The names that it reads; none where there is no expression. */
static uint64_t reads(struct fa_spec_reading *r, const fa_expr *expr)
{
    return expr != NULL ? fa_family_reads(r->family, expr->uses) : 0;
}

static void add_known_name(struct fa_spec_reading *r, const char *name, const char *place)
{
    if (!fa_is_identifier(name) || fa_expr_is_word(name))
        fa_spec_fault(r,
                      "\"%s\": \"%.60s\" is not a name: use at most %d letters, digits and _, a "
                      "letter first, and no word of expressions",
                      place, name, FA_NAME_MAX - 1);
    if (strncmp(name, "FA_", 3) == 0)
        fa_spec_fault(r, "\"%s\": \"%s\": names that start with FA_ are ours", place, name);
    for (int i = 0; i < r->known_count; i++)
        if (strcmp(name, r->known[i]) == 0)
            fa_spec_fault(r, "\"%s\": the name \"%s\" is taken", place, name);
    if (r->known_count == FA_EXPR_NAMES_MAX)
        fa_spec_fault(r, "more than %d names", FA_EXPR_NAMES_MAX);
    else
        r->known[r->known_count++] = name;
}

/* ---- launches ---------------------------------------------------------------------------------*/
/* Workload: one to five launches of a family, once per process.
 * Invariant: what sizes a block is known when the kernel is compiled. */

/* "shared_memory": an expression, or an object of named parts. */
static void read_addends(struct fa_spec_reading *r, const cJSON *memory, const char *place,
                         fa_family_launch *launch)
{
    const bool parts = cJSON_IsObject(memory);
    for (const cJSON *item = parts ? memory->child : memory; item != NULL && r->rc == 0;
         item = parts ? item->next : NULL) {
        const char *name = parts ? item->string : "dynamic";
        if (!fa_spec_is_name(name, FA_NAME_MAX))
            fa_spec_fault(r, "%sshared_memory: \"%.60s\" is not a name: use a-z, 0-9 and _", place,
                          name);
        if (launch->addend_count == FA_MAX_ADDENDS) {
            fa_spec_fault(r, "%sshared_memory: more than %d addends", place, FA_MAX_ADDENDS);
            return;
        }
        fa_named_expr *addend = &launch->addend[launch->addend_count++];
        snprintf(addend->name, sizeof addend->name, "%s", name);
        addend->expr = take_expression(r, item, "%sshared_memory%s%s", place, parts ? " " : "",
                                       parts ? name : "");
        if ((reads(r, addend->expr) & r->family->run_time) != 0)
            r->family->run_time_memory = true;
    }
}

/* The names of fa_work. */
static const char *const works[FA_WORKS + 1] = {
    "steps",        "mma_flops", "wgmma_flops", "exponentials", "operations",
    "shared_bytes", "l2_bytes",  "bytes",       "clocks",       NULL};

static void read_work(struct fa_spec_reading *r, const cJSON *work, const char *place,
                      fa_family_launch *launch)
{
    const cJSON *item;
    char where[48];
    snprintf(where, sizeof where, "%swork", place);
    if (work != NULL && (!cJSON_IsObject(work) || work->child == NULL))
        fa_spec_fault(r, "%s must be an object of expressions", where);
    fa_spec_check_keys(r, work, where, works);
    for (int i = 0; i < FA_WORKS && r->rc == 0; i++)
        if ((item = fa_json_member(work, works[i])) != NULL)
            launch->work[i] = take_expression(r, item, "%s %s", where, works[i]);
}

/* "block" or "grid": one to three sides, 1 where no more are told. Whether they read what is known at run time only. */
static bool read_sides(struct fa_spec_reading *r, const cJSON *json, const char *place,
                       const char *key, fa_expr *ret_side[3])
{
    static const cJSON one = {.type = cJSON_Number, .valueint = 1, .valuedouble = 1};
    const cJSON *sides = fa_json_member(json, key);
    const int count = cJSON_IsArray(sides) ? cJSON_GetArraySize(sides) : 1;
    bool at_run_time = false;
    if (sides == NULL || count < 1 || count > 3)
        fa_spec_fault(r, "%s\"%s\" %s one to three expressions", place, key,
                      sides == NULL ? "is missing:" : "must be");
    for (int i = 0; i < 3 && r->rc == 0; i++) {
        const cJSON *side = i >= count             ? &one
                            : cJSON_IsArray(sides) ? cJSON_GetArrayItem(sides, i)
                                                   : sides;
        ret_side[i] = take_expression(r, side, "%s%s[%d]", place, key, i);
        at_run_time = at_run_time || (reads(r, ret_side[i]) & r->family->run_time) != 0;
    }
    return at_run_time;
}

/* The keys of one launch, from the specification, its "answer" or one of its "launches", whose `place` is "launches[1]: ". */
static void read_launch(struct fa_spec_reading *r, const cJSON *json, const char *entry,
                        const char *place, fa_family_launch *launch)
{
    const cJSON *cooperative = fa_json_member(json, "cooperative"),
                *programmatic = fa_json_member(json, "programmatic"),
                *when = fa_json_member(json, "when");
    if (!fa_is_identifier(entry))
        fa_spec_fault(r, "%s\"kernel\" must be a C name of less than %d characters", place,
                      FA_NAME_MAX);
    if (cooperative != NULL && !cJSON_IsBool(cooperative))
        fa_spec_fault(r, "%s\"cooperative\" must be true or false", place);
    if (programmatic != NULL && (!cJSON_IsBool(programmatic) || launch == r->family->launch))
        fa_spec_fault(r, "%s\"programmatic\" must be true or false, of a launch behind another one",
                      place);
    snprintf(launch->entry, sizeof launch->entry, "%s", entry);
    launch->programmatic = cJSON_IsTrue(programmatic);
    launch->cooperative = cJSON_IsTrue(cooperative);
    if (read_sides(r, json, place, "block", launch->block))
        fa_spec_fault(r,
                      "%sblock reads a name of \"run_time\": it must be known when the kernel is "
                      "compiled",
                      place);
    read_sides(r, json, place, "grid", launch->grid);
    read_addends(r, fa_json_member(json, "shared_memory"), place, launch);
    if (when != NULL)
        launch->when = take_expression(r, when, "%swhen", place);
    read_work(r, fa_json_member(json, "work"), place, launch);
}

/* Arguments of a single kernel that are scratch: their bytes. */
static void read_scratch(struct fa_spec_reading *r)
{
    fa_family *f = r->family;
    const cJSON *argument, *side;
    char room[32];
    int at = -1;
    cJSON_ArrayForEach (argument, fa_json_member(r->json, "arguments")) {
        fa_element element = FA_ELEMENT_FP32;
        FA_ENDS(fa_buf_free) fa_buf bytes = {0};
        at++;
        if (r->rc != 0 || strcmp(fa_spec_text(argument, "is"), "scratch") != 0)
            continue;
        if (f->scratch_count == FA_SCRATCH_MAX) {
            fa_spec_fault(r, "arguments[%d]: more than %d are scratch", at, FA_SCRATCH_MAX);
            return;
        }
        fa_named_expr *scratch = &f->scratch[f->scratch_count++];
        snprintf(scratch->name, sizeof scratch->name, "%s", fa_spec_text(argument, "name"));
        fa_element_find(fa_spec_text(argument, "type"), &element);
        fa_buf_printf(&bytes, "%zu",
                      fa_element_size(element) * (size_t)fa_element_numbers(element));
        cJSON_ArrayForEach (side, fa_json_member(argument, "shape")) {
            const char *text = fa_json_expression(side, room);
            fa_buf_printf(&bytes, " * (%s)", text != NULL ? text : "");
        }
        fa_spec_memory(r, !bytes.failed);
        scratch->expr = take_expression(
            r, &(cJSON){.type = cJSON_String, .valuestring = bytes.data}, "arguments[%d]", at);
    }
}

/* Either one launch, whose keys are the specification's, or a list of them. */
static void read_launches(struct fa_spec_reading *r)
{
    fa_family *f = r->family;
    read_scratch(r);
    const int count = fa_spec_check_launches(r);
    for (int i = 0; i < count && r->rc == 0; i++) {
        char place[32] = "";
        const cJSON *json = fa_spec_launch(r, i);
        if (json != r->json)
            snprintf(place, sizeof place, "launches[%d]: ", i);
        read_launch(r, json, f->as_is ? r->entry[i] : fa_spec_text(json, "kernel"), place,
                    &f->launch[f->launch_count++]);
    }
    const cJSON *answer = f->as_is ? fa_json_member(r->json, "answer") : NULL;
    if (fa_json_member(answer, "grid") != NULL || fa_json_member(answer, "block") != NULL)
        read_launch(r, answer, r->answer, "answer: ", &f->answer);
}

/* ---- the parts of a specification, in the order in which they are read ------------------------*/
/* A single kernel is for all. */
static void read_sm(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"min", "max", NULL};
    static const char type[] = "an object with min and max";
    const cJSON *sm = part(r, "sm", cJSON_IsObject, type, true);
    int64_t low = 10, high = 999;
    fa_spec_check_keys(r, sm, "\"sm\"", keys);
    if (sm != NULL)
        FA_TRY(r, fa_json_int(sm, "min", 10, 999, &low, r->where, r->diag));
    if (sm != NULL)
        FA_TRY(r, fa_json_int(sm, "max", low, 999, &high, r->where, r->diag));
    if (r->rc == FA_ENOTFOUND) {
        r->rc = 0;
        fa_spec_fault(r, "\"sm\" must be %s", type);
    }
    r->family->sm_min = (int32_t)low;
    r->family->sm_max = (int32_t)high;
}

/* The features of the operation that the family serves away from their defaults; then the names that are given are known. */
static void read_takes(struct fa_spec_reading *r)
{
    const cJSON *item,
        *list = part(r, "takes", cJSON_IsArray, "an array of names of fields", false);
    fa_family *f = r->family;
    cJSON_ArrayForEach (item, list) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        int field = fa_operation_field_index(f->operation, name);
        if (field < 0 || !f->operation->field[field].feature)
            fa_spec_fault(r, "\"takes\": \"%.60s\" is no feature of %s", name, f->operation->name);
        else
            f->takes |= (uint32_t)1 << field;
    }
    fa_given_make(f->operation, f->takes, NULL, NULL, &f->given);
    for (int i = 0; i < f->given.count; i++)
        add_known_name(r, f->given.name[i], f->operation->name);
}

static fa_expr *read_one(struct fa_spec_reading *r, const char *key)
{
    const cJSON *json = fa_json_member(r->json, key);
    return json != NULL && r->rc == 0 ? take_expression(r, json, "%s", key) : NULL;
}

static void read_tunables(struct fa_spec_reading *r)
{
    const cJSON *item, *tunables = part(r, "tune", cJSON_IsObject,
                                        "an object, as in {\"BLOCK\": [64, 128, 256]}", true);
    int64_t product = 1;
    char buffer[FA_COMMAS_MAX], most[FA_COMMAS_MAX], room[FA_VALUE_TEXT_MAX];
    if (cJSON_GetArraySize(tunables) > FA_MAX_TUNABLES)
        fa_spec_fault(r, "more than %d tunables", FA_MAX_TUNABLES);
    cJSON_ArrayForEach (item, tunables) {
        if (r->rc != 0)
            return;
        fa_domain *domain = &r->family->tunable[r->family->tunable_count++];
        const char *name = item->string;
        const int size = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
        add_known_name(r, name, "tune");
        if (size < 1 || size > FA_MAX_DOMAIN) /* before the process keeps them for good */
            fa_spec_fault(r, "tune %s must be an array of 1 to %d numbers, booleans or texts", name,
                          FA_MAX_DOMAIN);
        snprintf(domain->name, sizeof domain->name, "%s", name);
        for (const cJSON *value = item->child; value != NULL && r->rc == 0; value = value->next) {
            int32_t is = 0; /* true and false are 1 and 0 */
            if (cJSON_IsString(value) != cJSON_IsString(item->child))
                fa_spec_fault(
                    r, "tune %s: its values must all be numbers or booleans, or all be texts",
                    name);
            else if (fa_value_of_json(value, &is, r->diag) != 0)
                r->rc = fa_fail_in(r->diag, FA_EMANIFEST, "%s: tune %s", r->where, name);
            else if (fa_domain_index(domain, is) >= 0)
                fa_spec_fault(r, "tune %s: the value %s appears twice", name,
                              fa_value_words(is, room));
            domain->fractions = domain->fractions || fa_expr_of_value(is).kind == FA_EXPR_REAL;
            domain->value[domain->count++] = is;
        }
        product *= domain->count;
        if (product > FA_SPACE_POINTS_MAX)
            fa_spec_fault(r, "the domains up to %s make a space of %s configs: at most %s",
                          domain->name, fa_commas(product, buffer),
                          fa_commas(FA_SPACE_POINTS_MAX, most));
    }
    if (r->family->tunable_count == 0 && !r->family->as_is)
        fa_spec_fault(r, "there are no tunables");
}

/* Tunables that kernels learn from their launch (grid, shared memory): configs that differ in them alone share a cubin. */
static void read_run_time(struct fa_spec_reading *r)
{
    fa_family *f = r->family;
    const cJSON *item, *names = part(r, "run_time", cJSON_IsArray, "an array of names", false);
    cJSON_ArrayForEach (item, names) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        int at = 0;
        while (at < f->tunable_count && strcmp(f->tunable[at].name, name) != 0)
            at++;
        if (at == f->tunable_count)
            fa_spec_fault(r, "\"run_time\": \"%.60s\" is no tunable", name);
        else
            f->run_time |= UINT64_C(1) << (f->given.count + at);
    }
}

/* Each may read those before it. */
static void read_lets(struct fa_spec_reading *r)
{
    fa_family *f = r->family;
    const cJSON *item,
        *lets = part(r, "defines", cJSON_IsObject, "an object of expressions", false);
    if (cJSON_GetArraySize(lets) > FA_MAX_LETS)
        fa_spec_fault(r, "more than %d names in \"defines\"", FA_MAX_LETS);
    cJSON_ArrayForEach (item, lets) {
        fa_let *let = &f->let[f->let_count];
        let->expr = take_expression(r, item, "defines %s", item->string);
        add_known_name(r, item->string, "defines");
        if (r->rc != 0)
            return;
        snprintf(let->name, FA_NAME_MAX, "%s", item->string);
        let->reads = fa_family_reads(f, let->expr->uses);
        let->depth = depth_of(f, let->reads);
        f->let_count++;
    }
}

/* An expression, or {"require", "is", "why"}: a config that does not hold to it is impossible, exceeds the shared memory or the
 * registers, or is known not to pay. Without a reason the expression is it. The reason is shown to people on terminals,
 * which act on control bytes. */
static void read_rule(struct fa_spec_reading *r, const cJSON *item, const char *place,
                      bool may_vary, fa_require *rule)
{
    static const char *const keys[] = {"require", "is", "why", NULL};
    char room[32];
    const cJSON *require = cJSON_IsObject(item) ? fa_json_member(item, "require") : item,
                *reason = fa_json_member(item, "why");
    const char *why =
        reason != NULL ? cJSON_GetStringValue(reason) : fa_json_expression(require, room);
    const cJSON *is = fa_json_member(item, "is");
    const char *ends = is == NULL ? "constraint" : cJSON_IsString(is) ? is->valuestring : "";
    bool clean = why != NULL && why[0] != 0 && (reason == NULL || strlen(why) <= WHY_MAX);
    if (cJSON_IsObject(item))
        fa_spec_check_keys(r, item, place, keys);
    if ((is != NULL && !may_vary) || fa_status_parse(ends, &rule->ends) != 0 ||
        (rule->ends != FA_STATUS_CONSTRAINT && rule->ends != FA_STATUS_BUDGET &&
         rule->ends != FA_STATUS_REGISTERS && rule->ends != FA_STATUS_DOES_NOT_PAY))
        fa_spec_fault(r,
                      "%s: \"is\" must be constraint, budget, registers or does-not-pay, and "
                      "belongs in \"restrictions\" only",
                      place);
    rule->expr = take_expression(r, require, "%s", place);
    for (const char *at = why; clean && reason != NULL && *at != 0; at++)
        clean = (unsigned char)*at >= 0x20 && *at != 0x7f;
    if (!clean)
        fa_spec_fault(r, "%s: \"why\" must be a sentence of 1 to %d bytes, no control bytes", place,
                      WHY_MAX);
    if (r->rc != 0)
        return;
    rule->why = strndup(why, WHY_MAX);
    rule->depth = depth_of(r->family, rule->expr->uses);
    fa_spec_memory(r, rule->why != NULL);
    if (!may_vary && rule->depth > 0)
        fa_spec_fault(r, "%s reads a tunable: it may read the problem and the GPU only", place);
}

/* "supports", which may read no tunable, or "restrictions". */
static void read_rules(struct fa_spec_reading *r, const char *key, fa_require *list, int *count)
{
    const cJSON *item, *array = part(r, key, cJSON_IsArray, "an array of expressions", false);
    char place[64];
    if (cJSON_GetArraySize(array) > FA_MAX_REQUIRES)
        fa_spec_fault(r, "\"%s\" has more than %d entries", key, FA_MAX_REQUIRES);
    cJSON_ArrayForEach (item, array) {
        if (r->rc != 0)
            return;
        snprintf(place, sizeof place, "%s[%d]", key, *count);
        read_rule(r, item, place, list == r->family->constraint, &list[(*count)++]);
    }
}

/* Each is a value of the tunable or an expression of the problem and the GPU; of a single kernel the first where none is told. */
static void read_defaults(struct fa_spec_reading *r)
{
    fa_family *f = r->family;
    const char *names[FA_MAX_TUNABLES + 1] = {NULL};
    const cJSON *defaults = part(r, "default", cJSON_IsObject, "an object of values", true);
    for (int i = 0; i < f->tunable_count; i++)
        names[i] = f->tunable[i].name;
    fa_spec_check_keys(r, defaults, "\"default\"", names);
    for (int i = 0; i < f->tunable_count && r->rc == 0; i++) {
        const cJSON *item = fa_json_member(defaults, names[i]);
        fa_domain *domain = &f->tunable[i];
        domain->preset_value = domain->value[0];
        if (item == NULL && !f->as_is)
            fa_spec_fault(r, "default %s is missing", names[i]);
        if (item == NULL || ((!cJSON_IsString(item) || fa_value_is_text(domain->value[0])) &&
                             fa_value_of_json(item, &domain->preset_value, NULL) == 0))
            continue;
        domain->preset = take_expression(r, item, "default %s", names[i]);
        if (r->rc == 0 && depth_of(f, domain->preset->uses) > 0)
            fa_spec_fault(r, "default %s reads a tunable: it may read the problem and the GPU only",
                          names[i]);
    }
}

int fa_family_read(fa_family *family, struct fa_spec_reading *r)
{
    static const char *const keys[] = {
        "name",      "operation", "arch_suffix", "takes",         "beside_specific", "sm",
        "tune",      "run_time",  "defines",     "supports",      "restrictions",    "launches",
        "kernel",    "block",     "grid",        "shared_memory", "cooperative",     "work",
        "registers", "workspace", "counters",    "splits",        "default",         "tries",
        NULL};
    const cJSON *name = fa_json_member(r->json, "name"),
                *suffix = fa_json_member(r->json, "arch_suffix");
    r->family = family;
    r->known_count = 0;
    family->as_is = r->source != NULL;
    if (!family->as_is) /* those of a single kernel were looked at when its operation was made */
        fa_spec_check_keys(r, r->json, "", keys);
    if (!fa_spec_is_name(r->name, FA_NAME_MAX))
        fa_spec_fault(
            r, "the file is called \"%.60s\": use at most %d of a-z, 0-9 and _, a letter first",
            r->name, FA_NAME_MAX - 1);
    if (name != NULL && strcmp(fa_spec_text(r->json, "name"), r->name) != 0)
        fa_spec_fault(r, "\"name\" must be the file's name without .json, or left out");
    if (suffix != NULL && strcmp(fa_spec_text(r->json, "arch_suffix"), "a") != 0)
        fa_spec_fault(r, "\"arch_suffix\" must be \"a\", or left out");
    snprintf(family->name, FA_NAME_MAX, "%s", r->name);
    family->arch_suffix[0] = suffix != NULL ? 'a' : 0;
    /* In this order: expressions may use the names that are known by then. */
    read_takes(r);
    family->beside = cJSON_IsTrue(part(r, "beside_specific", cJSON_IsBool, "true or false", false));
    const cJSON *tries = part(r, "tries", cJSON_IsNumber, "an integer", false);
    if (tries != NULL && (tries->valuedouble < 1 || tries->valuedouble != tries->valueint))
        fa_spec_fault(r, "\"tries\" must be an integer from 1 on");
    family->tries = tries != NULL ? tries->valueint : 0;
    read_sm(r);
    read_tunables(r);
    read_run_time(r);
    read_lets(r);
    read_rules(r, "supports", family->support, &family->support_count);
    read_rules(r, "restrictions", family->constraint, &family->constraint_count);
    read_launches(r);
    family->registers = read_one(r, "registers");
    family->workspace = read_one(r, "workspace");
    family->counters = read_one(r, "counters");
    family->splits = read_one(r, "splits");
    read_defaults(r);
    return r->rc == FA_EINVAL ? FA_EMANIFEST : r->rc;
}

/* ---- families: from every manifest of an operation --------------------------------------------*/
/* Adds the family to the list, which has room for it. */
static int add_family(const fa_templates *templates, struct fa_spec_reading *from,
                      const fa_operation *operation, fa_family_list *list)
{
    char source[FA_NAME_MAX + 8];
    fa_family *family = calloc(1, sizeof *family);
    fa_spec_memory(from, family != NULL);
    if (family == NULL)
        return from->rc;
    list->family[list->count++] = family;
    family->operation = operation;
    int rc = fa_family_read(family, from);
    snprintf(source, sizeof source, "%s.cu", family->name);
    return rc == 0 && fa_templates_find(templates, source) == NULL
               ? fa_spec_fault(from, "there is no template %s beside it", source)
               : rc;
}

/* Adds none when the manifest is of another operation, or of one that is not known here. */
static int load_file(const fa_templates *templates, const fa_template_file *file,
                     const char *operation, fa_family_list *list, fa_diag *diag)
{
    fa_diag own;
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    const fa_operation *its_operation = NULL;
    struct fa_spec_reading from = {.where = file->name, .diag = diag != NULL ? diag : &own};
    snprintf(from.name, sizeof from.name, "%.*s", (int)(strlen(file->name) - strlen(".json")),
             file->name);
    int rc = fa_json_parse(file->text, file->size, file->name, &json, from.diag);
    const char *its_name = fa_spec_text(json, "operation");
    from.json = json;
    if (rc == 0 && its_name[0] == 0)
        rc = fa_spec_fault(&from, "\"operation\" must be the name of an operation");
    else if (rc == 0 && (operation == NULL || strcmp(its_name, operation) == 0) &&
             (rc = fa_operation_find(its_name, &its_operation, NULL)) == 0)
        rc = add_family(templates, &from, its_operation, list);
    if (rc == FA_EMANIFEST || rc == FA_EINVAL) {
        fa_spec_locate(file->name, from.name, file->text, false, from.diag);
        rc = FA_EMANIFEST;
    }
    return rc == FA_ENOTSUP ? 0 : rc;
}

int fa_families_load(const fa_templates *templates, const char *operation, fa_family_list *ret_list,
                     fa_diag *diag)
{
    fa_family_list list = {0};
    int rc = 0;
    list.family = calloc((size_t)templates->count + 1, sizeof *list.family);
    FA_OR_RETURN(fa_have(list.family != NULL, "families", diag));
    for (int i = 0; i < templates->count && rc == 0; i++)
        if (fa_template_is_manifest(templates->file[i].name))
            rc = load_file(templates, &templates->file[i], operation, &list, diag);
    if (rc == 0 && list.count == 0)
        rc = operation == NULL
                 ? fa_fail(diag, FA_ENOTFOUND, "there is no kernel family for a known operation")
                 : fa_fail(diag, FA_ENOTFOUND, "there is no kernel family for the operation \"%s\"",
                           operation);
    if (rc != 0)
        fa_families_free(&list);
    else
        *ret_list = list;
    return rc;
}

int fa_families_make(const fa_templates *templates, struct fa_spec_reading *from,
                     const fa_operation *operation, fa_family_list *ret_list)
{
    fa_family_list list = {.family = calloc(1, sizeof *list.family)};
    fa_spec_memory(from, list.family != NULL);
    int rc = list.family != NULL ? add_family(templates, from, operation, &list) : from->rc;
    if (rc != 0)
        fa_families_free(&list);
    else
        *ret_list = list;
    return rc;
}

void fa_families_free(fa_family_list *list)
{
    if (list == NULL)
        return;
    for (int k = 0; k < list->count; k++) {
        fa_family *f = list->family[k];
        for (int i = 0; i < f->expr_count; i++)
            fa_expr_free(&f->expr[i]);
        for (int i = 0; i < FA_MAX_REQUIRES; i++) {
            free(f->support[i].why);
            free(f->constraint[i].why);
        }
        free(f);
    }
    free(list->family);
    *list = (fa_family_list){0};
}

int fa_family_peek(const fa_templates *templates, const char *family, bool *ret_simple)
{
    static const char *const others[] = {"launches", "workspace", "counters", "splits"};
    char name[FA_NAME_MAX + sizeof ".json"];
    snprintf(name, sizeof name, "%.*s.json", FA_NAME_MAX - 1, family);
    const fa_template_file *file = fa_templates_find(templates, name);
    if (file == NULL)
        return FA_ENOTFOUND;
    /* A text that contains none of these names, and no escape that could spell one, has no such keys. */
    bool simple = strchr(file->text, '\\') == NULL;
    for (size_t i = 0; simple && i < sizeof others / sizeof *others; i++) {
        snprintf(name, sizeof name, "\"%s\"", others[i]);
        simple = strstr(file->text, name) == NULL;
    }
    const char *block = simple ? strstr(file->text, "\"block\"") : NULL;
    *ret_simple = block != NULL && block[7 + strspn(block + 7, " \t\r\n:")] != '[';
    return 0;
}
