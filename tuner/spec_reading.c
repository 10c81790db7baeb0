/* SPDX-License-Identifier: Apache-2.0
 *
 * A single kernel's operation: its specification, with what was found out about its answer, its sizes and how far from it
 * is right. Then its source: the JSON in its first comment, which of its kernels is meant, the types of its numbers, and the
 * macros that the specification gives it. None of these has another value in it, and each has an effect.
 * Whether a directive of the source counts is the preprocessor's to say: one that would change a macro is replaced by an
 * #error, which it meets where the directive stands.
 *
 * Workload: sources of some tens of kilobytes, a few times for each specification.
 */
#include "spec_reading.h"

#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------*/
/* Sizes that "defines" reads are fixed, for problems that differ in them are other kernels; a kernel of constants alone has a
 * size that nobody sets. */
static void fix_sizes(struct fa_spec_reading *r)
{
    const cJSON *item;
    char room[32];
    cJSON *size, *sizes = cJSON_GetObjectItemCaseSensitive(r->json, "sizes");
    if (sizes == NULL)
        sizes = fa_json_add_object(r->json, "sizes");
    if (cJSON_IsObject(sizes) && sizes->child == NULL) {
        size = fa_json_add_object(sizes, "one");
        fa_json_add_number(size, "default", 1);
        fa_json_add_bool(size, "fixed", true);
    }
    for (int i = 0; (size = cJSON_GetArrayItem(sizes, i)) != NULL; i++) {
        bool fixed = false;
        cJSON_ArrayForEach (item, fa_json_member(r->json, "defines")) {
            const char *text = fa_json_expression(item, room);
            fixed = fixed || (text != NULL && size->string != NULL &&
                              fa_code_find(text, size->string) != NULL);
        }
        if (fixed && cJSON_IsNumber(size)) {
            cJSON *object = cJSON_CreateObject();
            fa_json_add_number(object, "default", size->valuedouble);
            fa_spec_memory(r, cJSON_ReplaceItemInObjectCaseSensitive(sizes, size->string, object));
            size = cJSON_GetArrayItem(sizes, i);
        }
        if (fixed && cJSON_IsObject(size)) {
            cJSON_DeleteItemFromObjectCaseSensitive(size, "fixed");
            fa_json_add_bool(size, "fixed", true);
        }
    }
}

/* ---- the answer -----------------------------------------------------------------------------*/
static void add_answer(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"kernel",        "source",    "block", "grid",
                                       "shared_memory", "arguments", NULL};
    const cJSON *is = fa_json_member(r->json, "answer"), *given = fa_json_member(is, "given");
    char file[FA_NAME_MAX + 16];
    if (given != NULL && (!cJSON_IsString(given) || is->child->next != NULL))
        fa_spec_fault(r, "answer: \"given\" must be a text, and alone");
    if (is == NULL || given != NULL)
        return;
    if (cJSON_IsObject(is))
        fa_spec_check_keys(r, is, "answer", keys);
    if (!cJSON_IsObject(is)) {
        cJSON_DeleteItemFromObjectCaseSensitive(r->json, "answer");
        fa_json_add_object(r->json, "answer");
    }
    cJSON *answer = cJSON_GetObjectItemCaseSensitive(r->json, "answer");
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "kernel");
    fa_json_add_text(answer, "kernel", r->answer);
    snprintf(file, sizeof file, "%s%s.cu", r->name, r->answer_source != NULL ? "_answer" : "");
    fa_json_add_text(r->json, "reference", file);
}

/* A number of 0 or more; -1 where it is not told. */
static double tolerance_of(struct fa_spec_reading *r, const char *key)
{
    const cJSON *item = fa_json_member(r->json, key);
    const double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (item != NULL && !(number >= 0 && number < 1e30))
        fa_spec_fault(r, "\"%s\" must be a number of 0 or more", key);
    return number;
}

/* null says as much as nothing. */
static void drop_nulls(cJSON *json)
{
    for (cJSON *item = json->child, *next; item != NULL; item = next) {
        next = item->next;
        if (cJSON_IsNull(item) && cJSON_IsObject(json))
            cJSON_Delete(cJSON_DetachItemViaPointer(json, item));
        else
            drop_nulls(item);
    }
}

void fa_spec_make_operation(struct fa_spec_reading *r)
{
    enum { OF_TYPE = 84 /* of fp32: 1e-5 */ };
    drop_nulls(r->json);
    cJSON_DeleteItemFromObjectCaseSensitive(r->json, "name");
    fa_json_add_text(r->json, "name", r->name);
    fa_json_add_text(r->json, "title", r->name);
    fa_json_add_text(r->json, "specification", r->hash);
    fix_sizes(r);
    add_answer(r);
    /* Unless "atol" says otherwise, what is near 0 may differ by that part of the output's largest element. */
    cJSON *tolerance = fa_json_add_object(r->json, "tolerance");
    const double rtol = tolerance_of(r, "rtol"), atol = tolerance_of(r, "atol");
    if (rtol >= 0)
        fa_json_add_number(tolerance, "relative", rtol);
    else
        fa_json_add_number(tolerance, "ulps", OF_TYPE / 2);
    if (atol < 0)
        fa_json_add_number(tolerance, "of_largest", OF_TYPE / 2);
    fa_json_add_number(tolerance, "absolute", atol > 0 ? atol : 1e-30);
}

/* ---- the source -----------------------------------------------------------------------------*/
enum { KERNELS_MAX = 64 };

char *fa_source_head(const char *text, fa_diag *diag)
{
    static const char word[] = "fa-tune";
    const char *at = text + strspn(text, " \t\r\n");
    while (strncmp(at, "//", 2) == 0) { /* a licence may stand above */
        at += strcspn(at, "\n");
        at += strspn(at, " \t\r\n");
    }
    const char *end = strncmp(at, "/*", 2) == 0 ? strstr(at, "*/") : NULL;
    const char *from = strncmp(at, "/*", 2) == 0 ? at + 2 + strspn(at + 2, "* \t\r\n") : NULL;
    if (from != NULL && end == NULL && strncmp(from, word, sizeof word - 1) == 0) {
        fa_fail(diag, FA_EMANIFEST,
                "the comment with the specification does not end: */ is missing");
        return NULL;
    }
    if (end == NULL || strncmp(from, word, sizeof word - 1) != 0 ||
        (from = memchr(from, '{', (size_t)(end - from))) == NULL) {
        fa_fail(
            diag, FA_EMANIFEST,
            "there is no specification: let the file begin with a comment, /* fa-tune {\"kernel\": …, "
            "\"arguments\": […], \"block\": …, \"grid\": …} */ (docs/your-own-kernel.md)");
        return NULL;
    }
    char *head = strndup(text, (size_t)(end - text));
    if (head == NULL)
        fa_fail(diag, FA_ENOMEM, "out of memory for a specification");
    else
        fa_code_blank(head, 0, (size_t)(from - text));
    return head;
}

/* ---- the types of numbers --------------------------------------------------------------------*/
/* The word for a parameter's type; NULL where there is none. */
static const char *known_type(const char *parameter)
{
    static const char *const types[][3] = {
        {"double", "f64"},         {"float", "f32"},        {"half", "f16"},
        {"__half", "f16"},         {"bool", "bool"},        {"__nv_bfloat16", "bf16"},
        {"int8_t", "i8"},          {"uint8_t", "u8"},       {"int64_t", "i64"},
        {"uint64_t", "u64"},       {"size_t", "u64"},       {"uint32_t", "u32"},
        {"uint", "u32"},           {"int32_t", "i32"},      {"long", "i64", "u64"},
        {"char", "i8", "u8"},      {"short", "i16", "u16"}, {"int", "i32", "u32"},
        {"unsigned", "u32", "u32"}};
    const bool is_unsigned = fa_code_find(parameter, "unsigned") != NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (fa_code_find(parameter, types[i][0]) != NULL)
            return types[i][is_unsigned && types[i][2] != NULL ? 2 : 1];
    return NULL;
}

/* Its name: the last word before what brackets hold. */
static void name_of(const char *parameter, char ret[FA_NAME_MAX])
{
    size_t end = strcspn(parameter, "[="), from;
    while (end > 0 && !fa_is_word(parameter[end - 1]))
        end--;
    for (from = end; from > 0 && fa_is_word(parameter[from - 1]); from--)
        continue;
    snprintf(ret, FA_NAME_MAX, "%.*s", (int)(end - from), parameter + from);
}

/* Cuts the first parameter off a list. */
static char *next_parameter(char **rest)
{
    char *first = *rest, *at = first;
    int depth = 0;
    for (; at != NULL && *at != 0 && (*at != ',' || depth > 0); at++)
        depth += (strchr("(<[{", *at) != NULL) - (strchr(")>]}", *at) != NULL);
    *rest = at != NULL && *at != 0 ? at + 1 : NULL;
    if (at != NULL)
        *at = 0;
    return first;
}

/* Of a number: what the parameter's words say before its name, by which no type is known. */
static void add_type(cJSON *argument, char *parameter)
{
    static const char *const told[] = {"type", "shape", "fields"};
    char name[FA_NAME_MAX];
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (parameter == NULL || cJSON_HasObjectItem(argument, told[i]))
            return;
    name_of(parameter, name);
    const char *word = name[0] != 0 ? fa_code_find(parameter, name) : NULL;
    while (word != NULL && fa_code_find(word + 1, name) != NULL)
        word = fa_code_find(word + 1, name);
    if (word != NULL && word > parameter + strspn(parameter, " \t\r\n"))
        parameter[word - parameter] = 0;
    const char *type = strpbrk(parameter, "*[&") == NULL ? known_type(parameter) : NULL;
    if (type != NULL && cJSON_IsObject(argument))
        fa_json_add_text(argument, "type", type);
}

static cJSON *called(cJSON *arguments, const char *name)
{
    cJSON *argument;
    cJSON_ArrayForEach (argument, arguments)
        if (name != NULL && strcmp(fa_spec_text(argument, "name"), name) == 0)
            return argument;
    return NULL;
}

static bool is_passed(const cJSON *argument)
{
    return fa_json_member(argument, "symbol") == NULL ||
           cJSON_IsTrue(fa_json_member(argument, "parameter"));
}

/* One of several launches whose kernel takes some arguments takes those of its parameters' names, if all have one. */
static void add_names(cJSON *launch, cJSON *arguments, const char *parameters)
{
    FA_ENDS(fa_free_at) char *copy = strdup(parameters != NULL ? parameters : "");
    FA_ENDS(fa_json_end) cJSON *names = cJSON_CreateArray();
    char name[FA_NAME_MAX], *rest = copy, *one;
    cJSON *argument;
    int passed = 0;
    bool all = copy != NULL && copy[0] != 0;
    cJSON_ArrayForEach (argument, arguments)
        passed += is_passed(argument);
    while (all && (one = next_parameter(&rest)) != NULL) {
        name_of(one, name);
        argument = called(arguments, name);
        all = argument != NULL && is_passed(argument);
        fa_json_push(names, cJSON_CreateString(name));
    }
    if (all && cJSON_GetArraySize(names) != passed)
        fa_json_add(launch, "arguments", names), names = NULL;
}

/* Adds to the numbers among the arguments, where they have no "type", that of their parameter, as far as its words say it; and to
 * launches without "arguments" those that its kernel's parameters name, where that is not all. */
static void add_types(struct fa_spec_reading *r)
{
    cJSON *argument, *arguments = cJSON_GetObjectItemCaseSensitive(r->json, "arguments");
    for (int i = 0; i < r->launches; i++) {
        cJSON *launch = cJSON_GetArrayItem(fa_json_member(r->json, "launches"), i);
        char *parameters = fa_cut_parameters(r->cut, r->entry[i]), *rest = parameters;
        if (launch != NULL && fa_json_member(launch, "arguments") == NULL)
            add_names(launch, arguments, parameters);
        const cJSON *name, *names = fa_json_member(launch, "arguments");
        cJSON_ArrayForEach (name, names)
            add_type(called(arguments, cJSON_GetStringValue(name)), next_parameter(&rest));
        const cJSON *all = names == NULL ? arguments : NULL;
        cJSON_ArrayForEach (argument, all)
            if (is_passed(argument))
                add_type(argument, next_parameter(&rest));
        free(parameters);
    }
}

/* ---- kernels ---------------------------------------------------------------------------------*/
/* "space::name<arguments>": the name alone; false: it is no such text, which goes into the source. */
static bool read_expression(const char *text, char ret_name[FA_NAME_MAX])
{
    static const char allowed[] = " ,:<>()+-*/%&|=!?";
    size_t end = strcspn(text, "<");
    for (const char *at = text; *at != 0; at++)
        if (!fa_is_word(*at) && strchr(allowed, *at) == NULL)
            return false;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    size_t from = end;
    while (from > 0 && fa_is_word(text[from - 1]))
        from--;
    snprintf(ret_name, FA_NAME_MAX, "%.*s", (int)(end - from), text + from);
    return end - from < FA_NAME_MAX && fa_is_identifier(ret_name) &&
           (from == 0 || text[from - 1] == ':') && strstr(text, "//") == NULL &&
           strstr(text, "/*") == NULL;
}

/* Takes a kernel for a launch. Where it ends a mark stands for what is asked of its arguments, unless it is a template. */
static void take_kernel(struct fa_spec_reading *r, const struct fa_source_kernel *kernel,
                        const char *named, int launch)
{
    char *name = launch == FA_THE_ANSWER ? r->answer : r->entry[launch], *end = kernel->end;
    snprintf(name, FA_NAME_MAX, "%s", kernel->name);
    r->called[launch] = strdup(kernel->template ? named : name);
    fa_spec_memory(r, r->called[launch] != NULL);
    if (kernel->template || end == NULL || strchr("};", *end) == NULL)
        return; /* or another launch's mark is there */
    r->end[launch] = *end;
    *end = (char)(FA_SPEC_MARK + launch);
}

/* Finds the kernel of a launch that is named, "space::name<arguments>" where it is a template that the source must instantiate,
 * or where `named` is "" the only one but `other`. A sentence, which begins with `place`, lists those there are. */
static void find_kernel(struct fa_spec_reading *r, const char *place, int source, const char *named,
                        const char *other, int launch)
{
    struct fa_source_kernel kernel[KERNELS_MAX + 1], *found = NULL;
    char name[FA_NAME_MAX] = "";
    const char *left = fa_cut_left(r->cut);
    const bool none = strncmp(left, "nothing", 7) == 0, instance = strchr(named, '<') != NULL;
    int candidates = 0;
    const int count = fa_cut_kernels(r->cut, (size_t)source, kernel, KERNELS_MAX);
    FA_ENDS(fa_buf_free) fa_buf names = {0};
    if (named[0] != 0 && !read_expression(named, name)) {
        fa_spec_fault(r,
                      "%s\"%.100s\" is no kernel: write its name, with the arguments of a "
                      "template, as in \"conv<BLOCK, float>\"",
                      place, named);
        return;
    }
    for (int i = 0; i < count; i++) {
        fa_buf_printf(&names, "%s%s", i == 0 ? "" : ", ", kernel[i].name);
        if (name[0] != 0 ? strcmp(kernel[i].name, name) != 0 : strcmp(kernel[i].name, other) == 0)
            continue;
        found = &kernel[i];
        candidates++;
    }
    if (count == 0)
        fa_spec_fault(r, "%sthere is no __global__ function in it%s%.*s", place,
                      none ? "; of it is left out " : "", none ? (int)strcspn(left, "\n") : 0,
                      left);
    else if (candidates != 1)
        fa_spec_fault(r,
                      name[0] != 0 ? "%sthere is no kernel %s in it, but %.500s"
                                   : "%s\"kernel\"%s must say which one is meant: %.500s",
                      place, name, names.data != NULL ? names.data : "others");
    else if (found->template != instance)
        fa_spec_fault(r,
                      instance ? "%s%s is no template: name it without arguments"
                               : "%s%s is a template: name its arguments too, as in \"kernel\": "
                                 "\"conv<BLOCK, float>\"",
                      place, found->name);
    else
        take_kernel(r, found, named, launch);
}

/* Finds the kernel and the answer's, which is of the same text unless it has its own. A cubin has one instance of a template:
 * the answer is then compiled from a text of its own. */
static void find_kernels(struct fa_spec_reading *r, bool answer_source)
{
    const cJSON *answer = fa_json_member(r->json, "answer");
    const char *named =
        cJSON_IsString(answer) ? answer->valuestring : fa_spec_text(answer, "kernel");
    r->launches = fa_spec_check_launches(r);
    r->answered = answer != NULL && fa_json_member(answer, "given") == NULL;
    if (r->answered && !answer_source && named[0] == 0)
        fa_spec_fault(r, "\"answer\" must name a kernel, or say {\"kernel\", \"source\"}");
    if (r->rc == 0 && r->answered)
        find_kernel(r, "answer: ", answer_source, named, "", FA_THE_ANSWER);
    for (int i = 0; i < r->launches && r->rc == 0; i++) {
        const cJSON *launch = fa_spec_launch(r, i);
        const char *kernel = fa_spec_text(launch, "kernel");
        const bool template = strchr(kernel, '<') != NULL;
        char place[40] = "";
        if (launch != r->json)
            snprintf(place, sizeof place, "launches[%d]: kernel: ", i);
        else if (kernel[0] != 0)
            snprintf(place, sizeof place, "kernel: ");
        find_kernel(r, place, 0, kernel, !answer_source ? r->answer : "", i);
        if (r->answered && !answer_source && strcmp(r->entry[i], r->answer) == 0 &&
            (!template || strcmp(named, kernel) == 0))
            fa_spec_fault(r,
                          "answer: %s is the kernel itself: name another, or leave \"answer\" out, "
                          "and the configs must agree",
                          named);
    }
}

/* ---- macros that the source changes -----------------------------------------------------------*/
/* The macro of "tune" or "defines" that the line defines, or undefines; NULL: it does neither. */
static const cJSON *find_change(const cJSON *json, const char *line, const char **ret_key,
                                bool *ret_defines)
{
    static const char *const keys[] = {"tune", "defines"};
    const fa_code_word word = fa_code_directive(line);
    const cJSON *macro;
    *ret_defines = fa_code_is(word, "define");
    if (!*ret_defines && !fa_code_is(word, "undef"))
        return NULL;
    const fa_code_word name = fa_code_word_at(fa_code_past_blanks(word.at + word.size));
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach (macro, fa_json_member(json, *ret_key = keys[i]))
            if (fa_code_is(name, macro->string))
                return macro;
    return NULL;
}

void fa_source_guard(const cJSON *json, fa_buf *text)
{
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    FA_ENDS(fa_free_at) char *code = fa_code_of(text->data, false);
    bool changed = false;
    for (const char *line = code != NULL ? code : "", *end; *line != 0; line = end) {
        bool defines, continues = line > code + 1 && line[-2] == '\\';
        end = strchrnul(line, '\n');
        const char *rest = end;
        end += *end != 0;
        const char *key;
        const cJSON *macro = continues ? NULL : find_change(json, line, &key, &defines);
        if (macro != NULL && (defines || fa_code_find(rest, macro->string) != NULL)) {
            const char *name = macro->string;
            fa_buf_printf(&out, "#error " FA_SPEC_REFUSED "the source %s %s, a %s: ",
                          defines ? "defines" : "undefines", name,
                          strcmp(key, "tune") == 0 ? "tunable" : "name of \"defines\"");
            if (defines)
                fa_buf_printf(&out, "put #ifndef %s around it\n", name);
            else
                fa_buf_text(&out, "do that behind its last use\n");
            changed = true;
        } else {
            fa_buf_append(&out, text->data + (line - code), (size_t)(end - line));
        }
    }
    if (code == NULL || out.failed) {
        text->failed = true;
    } else if (changed) {
        fa_buf_free(text);
        *text = out;
        out = (fa_buf){0};
    }
}

/* ---- macros that nothing reads ----------------------------------------------------------------*/
static const char *const handles[] = {"cudaTextureObject_t", "cudaSurfaceObject_t"};

/* Appends the texts of the specification that may read a macro; a grid alone tells a kernel nothing that does not look
 * how large it is. */
static void put_texts(fa_buf *out, const cJSON *json, bool grid_counts)
{
    static const char *const others[] = {"tune", "default", "defines", "name", "source"};
    const cJSON *item;
    cJSON_ArrayForEach (item, json) {
        bool counts = true;
        for (size_t i = 0; item->string != NULL && i < sizeof others / sizeof *others; i++)
            counts = counts && strcmp(item->string, others[i]) != 0;
        if (!counts || (item->string != NULL && strcmp(item->string, "grid") == 0 && !grid_counts))
            continue;
        if (cJSON_IsString(item))
            fa_buf_printf(out, " %s\n", item->valuestring);
        else
            put_texts(out, item, grid_counts);
    }
}

/* What the specification says of its macros, and of what its kernels use, reaches into the cut. */
static void reach_texts(struct fa_spec_reading *r)
{
    static const char *const looks[] = {"gridDim", "%nctaid", "atomic", "this_grid", "grid_group"};
    const cJSON *values, *value;
    FA_ENDS(fa_buf_free) fa_buf used = {0};
    bool grid_counts = false;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        grid_counts = grid_counts || fa_cut_has(r->cut, looks[i]);
    fa_buf_printf(&used, "%s\n", r->answer);
    for (int i = 0; i < r->launches; i++)
        fa_buf_printf(&used, "%s\n", r->entry[i]);
    cJSON_ArrayForEach (values, fa_json_member(r->json, "tune"))
        cJSON_ArrayForEach (value, values) /* which may be names */
            if (cJSON_IsString(value))
                fa_buf_printf(&used, " %s\n", value->valuestring);
    put_texts(&used, r->json, grid_counts);
    fa_spec_memory(r, !used.failed && fa_cut_reach(r->cut, used.data) == 0);
}

void fa_source_put_macros(struct fa_spec_reading *r, fa_buf *ret_text)
{
    const cJSON *item;
    char room[32];
    cJSON_ArrayForEach (item, fa_json_member(r->json, "tune"))
        fa_buf_printf(ret_text, "#define %s\n", item->string);
    cJSON_ArrayForEach (item, fa_json_member(r->json, "defines")) {
        const char *text = fa_json_expression(item, room);
        fa_buf_printf(ret_text, "#define %s %s\n", item->string, text != NULL ? text : "");
    }
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        fa_buf_printf(ret_text, "#define %s\n", handles[i]);
}

/* What the specification reads and its kernels use reaches into the cut. r->spec->fault: neither the source nor the
 * specification reads some macro, or the source has handles that the host makes. */
static void reach(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"tune", "defines"}, *const kinds[] = {"tunable", "define"};
    fa_diag *fault = &r->spec->fault;
    const cJSON *item;
    reach_texts(r);
    for (int i = 0; i < 2 && !fa_cut_has(r->cut, "##"); i++) /* else any name may be made */
        cJSON_ArrayForEach (item, fa_json_member(r->json, keys[i]))
            if (fault->text[0] == 0 && !fa_cut_reaches(r->cut, item->string))
                fa_fail(fault, FA_EMANIFEST, "%s: %s %s: the source never uses the %s %s", r->where,
                        keys[i], item->string, kinds[i], item->string);
    for (size_t i = 0; i < sizeof handles / sizeof *handles && fault->text[0] == 0; i++)
        if (fa_cut_reaches(r->cut, handles[i]))
            fa_fail(fault, FA_EMANIFEST,
                    "%s: arguments: the source takes %s, a handle that the host makes: none can be "
                    "drawn for a proof",
                    r->where, handles[i]);
}

/* ---- the whole -------------------------------------------------------------------------------*/
void fa_source_look(struct fa_spec_reading *r, bool answer_source)
{
    find_kernels(r, answer_source);
    if (r->rc == 0)
        add_types(r);
    if (r->rc == 0)
        reach(r);
    r->uses_std = fa_cut_reaches(r->cut, "std");
}
