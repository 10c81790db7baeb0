/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as text: where its lines, words, comments and literals end, without a compiler. And
 * the device part of a source that is written for nvcc: its kernel, the answer's, and by their names what these use. All
 * other declarations are blanked, so that lines keep their numbers; preprocessor lines stay.
 *
 * A declaration at namespace scope is read as far as its kind and its names. Host functions (neither annotated for the
 * device nor constexpr) and host variables go, also members of classes, as nvcc would let no kernel use them. What is left
 * stays if a kernel reaches its name. A library's file, and one whose brackets do not match, stays whole.
 *
 * Workload: all that the author wrote, once for each specification that is read; time linear in its size, but for a sort.
 */
#include "code.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fa_code_word fa_code_word_at(const char *at)
{
    fa_code_word word = {at, 0};
    while (fa_is_word(at[word.size]))
        word.size++;
    return word;
}

bool fa_code_is(fa_code_word word, const char *text)
{
    return strlen(text) == word.size && strncmp(word.at, text, word.size) == 0;
}

const char *fa_code_past_blanks(const char *at)
{
    for (at += strspn(at, " \t\f\v"); at[0] == '\\' && at[1] == '\n';)
        at += 2 + strspn(at + 2, " \t\f\v");
    return at;
}

fa_code_word fa_code_directive(const char *line)
{
    line = fa_code_past_blanks(line);
    return *line == '#' ? fa_code_word_at(fa_code_past_blanks(line + 1)) : (fa_code_word){line, 0};
}

const char *fa_code_find(const char *text, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += size)
        if ((at == text || !fa_is_word(at[-1])) && !fa_is_word(at[size]))
            return at;
    return NULL;
}

void fa_code_blank(char *text, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (text[i] != '\n')
            text[i] = ' ';
}

/* The end of the line, with those that continue it, in which `at` is. */
static size_t line_end(const char *text, size_t at)
{
    while (text[at] != 0 && (text[at] != '\n' || (at > 0 && text[at - 1] == '\\')))
        at++;
    return at;
}

/* Past the literal that opens at `at`; a raw one ends with ) and the word before its parenthesis. */
static size_t end_of_literal(const char *text, size_t at)
{
    char quote = text[at], mark[24];
    size_t word = strcspn(text + at + 1, "( \n");
    if (quote == '"' && at > 0 && text[at - 1] == 'R' && text[at + 1 + word] == '(' && word < 17) {
        snprintf(mark, sizeof mark, ")%.*s\"", (int)word, text + at + 1);
        const char *end = strstr(text + at, mark);
        return end != NULL ? (size_t)(end - text) + word + 2 : strlen(text);
    }
    for (at++; text[at] != 0 && text[at] != quote && text[at] != '\n';)
        at += text[at] == '\\' && text[at + 1] != 0 ? 2 : 1;
    return text[at] != 0 ? at + 1 : at;
}

char *fa_code_of(const char *text, bool literals)
{
    char *code = strdup(text);
    for (size_t at = 0, end; code != NULL && code[at] != 0; at = end) {
        const bool quoted =
            code[at] == '"' || (code[at] == '\'' && (at == 0 || !fa_is_word(code[at - 1])));
        end = at + 1;
        if (strncmp(code + at, "//", 2) == 0) {
            end = line_end(code, at);
        } else if (strncmp(code + at, "/*", 2) == 0) {
            const char *close = strstr(code + at + 2, "*/");
            end = close != NULL ? (size_t)(close + 2 - code) : strlen(code);
        } else if (quoted) {
            end = end_of_literal(code, at);
        }
        if (quoted ? literals : end > at + 1)
            fa_code_blank(code, at, end);
    }
    return code;
}

/* ---- the device part ------------------------------------------------------------------------*/
enum { NESTED_MAX = 32, BRANCHES_MAX = 64 };

/* What the words of a declaration's head say of it. */
enum {
    DEVICE = 1,
    GLOBAL = 2,
    CONSTANT = 4, /* const or constexpr */
    CONSTEXPR = 8,
    TYPE = 16,
    NAMESPACE = 32,
    USING = 64,
    TYPEDEF = 128,
    ALWAYS = 256, /* it has no name that a kernel would say */
    TEMPLATE = 512,
    OPERATOR = 1024,
    FUNCTION = 2048,
    MACRO = 4096,
    DEFAULTED = 8192, /* "= default" and the like */
    LINKAGE = 16384,  /* extern */
    ENUM = 32768
};

static const struct {
    const char *word;
    int says;
} words[] = {{"__device__", DEVICE},
             {"__global__", DEVICE | GLOBAL},
             {"__constant__", DEVICE},
             {"__shared__", DEVICE},
             {"__managed__", DEVICE},
             {"const", CONSTANT},
             {"constexpr", CONSTANT | CONSTEXPR},
             {"consteval", CONSTANT | CONSTEXPR},
             {"class", TYPE},
             {"struct", TYPE},
             {"union", TYPE},
             {"enum", TYPE | ENUM},
             {"concept", TYPE},
             {"typedef", TYPE | TYPEDEF},
             {"using", TYPE | USING},
             {"namespace", NAMESPACE},
             {"extern", LINKAGE},
             {"static_assert", ALWAYS},
             {"_Static_assert", ALWAYS},
             {"template", TEMPLATE},
             {"operator", OPERATOR}};

struct part {
    size_t file, from, to;
    int says;
    bool kept, asked; /* the latter of a macro: whether it says DEVICE, GLOBAL */
    fa_code_word name;
};

/* One of those that a part declares. */
struct name {
    fa_code_word word;
    size_t part;
    bool seen; /* of the first of its kind: a kernel reaches it */
};

struct file {
    char *text, *code; /* the code has no comments and no literals */
    bool cut;          /* its brackets match */
    size_t told;       /* where `line` is */
    long line;
};

struct fa_cut {
    struct file *file;
    struct part *part;
    struct name *name;
    size_t files, file_room, parts, part_room, names, name_room, macros, *todo, todos;
    bool keeps_host; /* -default-device */
    bool failed;
    fa_buf left, blocks, own; /* the last: the text of our own, the last file */
    size_t usual;             /* bytes of it that sources may use */
};

/* ---- reading --------------------------------------------------------------------------------*/
static int compare_words(fa_code_word a, fa_code_word b)
{
    int order = memcmp(a.at, b.at, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_names(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    int order = compare_words(x->word, y->word);
    return order != 0 ? order : (x->part > y->part) - (x->part < y->part);
}

/* The first of the sorted names that is this word; NULL: none is. */
static struct name *find_name(const struct fa_cut *d, size_t count, fa_code_word word)
{
    count = word.size > 0 ? count : 0;
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_words(d->name[middle].word, word) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && compare_words(d->name[low].word, word) == 0 ? &d->name[low] : NULL;
}

static size_t past_space(const char *code, size_t at)
{
    while (isspace((unsigned char)code[at]) ||
           (code[at] == '\\' && isspace((unsigned char)code[at + 1])))
        at++;
    return at;
}

/* Past the preprocessor line, and past what "#if 0" leaves out. */
static size_t end_of_directive(const char *code, size_t at)
{
    fa_code_word word = fa_code_directive(code + at);
    size_t end = line_end(code, at), depth = 0;
    if (!fa_code_is(word, "if") ||
        !fa_code_is(fa_code_word_at(fa_code_past_blanks(word.at + 2)), "0"))
        return end;
    while (code[at = past_space(code, end)] != 0) {
        word = fa_code_directive(code + at);
        if (depth == 0 && (fa_code_is(word, "endif") || strncmp(word.at, "el", 2) == 0))
            return at;
        depth += strncmp(word.at, "if", 2) == 0;
        depth -= fa_code_is(word, "endif");
        end = line_end(code, at);
    }
    return end;
}

static size_t next_token(const char *code, size_t at, size_t to)
{
    for (at = past_space(code, at); at < to && code[at] == '#'; at = past_space(code, at))
        at = end_of_directive(code, at);
    return at < to ? at : to;
}

/* Past the brackets that open at `at`; 0: they do not close. What #else has instead begins as deep as what it replaces. */
static size_t find_close(const char *code, size_t at, size_t to)
{
    const char close = code[at] == '(' ? ')' : code[at] == '[' ? ']' : '}';
    int depth = 0, branches = 0, begun[BRANCHES_MAX];
    for (; at < to; at++) {
        if (code[at] == '#') {
            fa_code_word word = fa_code_directive(code + at);
            if (strncmp(word.at, "if", 2) == 0 && branches < BRANCHES_MAX)
                begun[branches++] = depth;
            else if (strncmp(word.at, "el", 2) == 0)
                depth = branches > 0 ? begun[branches - 1] : 0;
            else if (fa_code_is(word, "endif"))
                branches -= branches > 0;
            at = end_of_directive(code, at) - 1;
            continue;
        }
        depth += (strchr("([{", code[at]) != NULL) - (strchr(")]}", code[at]) != NULL);
        if (depth <= 0 && code[at] == close)
            return at + 1;
    }
    return 0;
}

static size_t end_of_group(const char *code, size_t at, size_t to)
{
    const size_t end = find_close(code, at, to);
    return end != 0 ? end : to;
}

/* Past the template's parameters or arguments that open at `at`; 0: they are none. */
static size_t end_of_angles(const char *code, size_t at, size_t to)
{
    int depth = 0;
    for (size_t end = at; end < to && strchr(";{}", code[end]) == NULL; end++) {
        if (code[end] == '(')
            end = end_of_group(code, end, to) - 1;
        depth += (code[end] == '<') - (code[end] == '>' && code[end - 1] != '-');
        if (depth == 0)
            return end + 1;
    }
    return 0;
}

/* ---- declarations ---------------------------------------------------------------------------*/
static void add_name(struct fa_cut *d, fa_code_word word)
{
    struct name name = {.word = word, .part = d->parts};
    if (word.size > 0)
        d->failed |= fa_append(&d->name, &d->names, &d->name_room, &name, sizeof name) != 0;
}

/* What a word says of a declaration. A macro in capitals that has DEVICE in its name is of a library, as C10_DEVICE is; one of
 * the author's says DEVICE and GLOBAL where a word that it stands for does. */
static int says(struct fa_cut *d, fa_code_word word, int depth)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (fa_code_is(word, words[i].word))
            return words[i].says;
    if (memmem(word.at, word.size, "DEVICE", 6) != NULL)
        return DEVICE;
    const struct name *name = find_name(d, d->macros, word), *end = d->name + d->macros;
    struct part *first = name != NULL ? &d->part[name->part] : NULL;
    if (first != NULL && !first->asked && depth < NESTED_MAX) {
        first->asked = true;
        for (; name < end && compare_words(name->word, word) == 0; name++) {
            const struct part *macro = &d->part[name->part];
            const char *code = d->file[macro->file].code;
            for (size_t at = macro->from; at < macro->to; at++) {
                fa_code_word in = fa_code_word_at(code + at);
                first->says |= in.size > 0 ? says(d, in, depth + 1) & (DEVICE | GLOBAL) : 0;
                at += in.size;
            }
        }
    }
    return first != NULL ? first->says & (DEVICE | GLOBAL) : 0;
}

static bool is_among(fa_code_word word, const char *const *names)
{
    while (*names != NULL && !fa_code_is(word, *names))
        names++;
    return *names != NULL;
}

/* Whether what follows parentheses makes them a function's. */
static bool is_behind_parameters(const char *code, size_t at, size_t to)
{
    static const char *const behind[] = {"const",         "noexcept", "override", "final",
                                         "volatile",      "throw",    "requires", "try",
                                         "__attribute__", NULL};
    return at == to || strchr("{;:=&-", code[at]) != NULL ||
           is_among(fa_code_word_at(code + at), behind);
}

static const char *const take_parentheses[] = {
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__",
    "__attribute__",     "__align__",        "alignas",     "decltype",
    "__declspec",        "explicit",         NULL};

/* A declaration that is being read: its part, and where its class's body is. */
struct head {
    struct part part;
    fa_code_word last; /* that might be a name */
    size_t at, open, close, count;
    bool word, initializes; /* the last token was a word; members of a constructor follow */
    bool in_class, ended, scope, compares; /* a < is no bracket */
};

static void read_word(struct fa_cut *d, const char *code, size_t to, struct head *h)
{
    fa_code_word word = fa_code_word_at(code + h->at);
    const int told = says(d, word, 0);
    const size_t end = h->at + word.size;
    h->count++;
    h->word = true;
    h->at = end;
    h->part.says |= told;
    if (!h->initializes && (told == 0 || told == OPERATOR))
        h->last = word;
    if (told == OPERATOR) {
        h->at = end + strcspn(code + end, "(;{");
        const size_t close = next_token(code, h->at + 1, to);
        if (code[h->at] == '(' && code[close] == ')' &&
            code[next_token(code, close + 1, to)] == '(')
            h->at = close + 1;
    } else if ((h->part.says & (USING | NAMESPACE)) == (USING | NAMESPACE)) {
        h->part.says |= ALWAYS;
    }
}

/* Parentheses are of a function, of a pointer's declaration, or of a macro. */
static void read_parentheses(struct fa_cut *d, const char *code, size_t to, struct head *h)
{
    const size_t inner = next_token(code, h->at + 1, to), end = end_of_group(code, h->at, to);
    const bool may = h->word && (h->part.says & (FUNCTION | TYPEDEF | USING | ALWAYS)) == 0 &&
                     !is_among(h->last, take_parentheses);
    if (may && (says(d, h->last, 0) & DEVICE) != 0)
        h->part.says |= ALWAYS; /* what it makes has names of its own */
    if (h->word && code[inner] == '*' && (h->part.says & FUNCTION) == 0) {
        size_t name = inner + strspn(code + inner, "* ");
        h->last = fa_code_word_at(code + name);
        if (!h->in_class)
            add_name(d, h->last);
    } else if ((h->part.says & TYPEDEF) != 0 && h->word && !h->in_class) {
        add_name(d, h->last);
    } else if (may && is_behind_parameters(code, next_token(code, end, to), to)) {
        h->part.says |= FUNCTION;
        h->part.name = h->last;
    }
    h->word = false;
    h->at = end;
}

/* A body, or what initializes. */
static void read_braces(struct fa_cut *d, const char *code, size_t to, struct head *h)
{
    if (!h->in_class && (h->part.says & (FUNCTION | TYPE)) == 0 &&
        ((h->part.says & NAMESPACE) != 0 || (h->part.says == LINKAGE && h->count == 1))) {
        h->ended = h->scope = true;
        h->at++;
        return;
    }
    const size_t end = end_of_group(code, h->at, to);
    if ((h->part.says & FUNCTION) == 0) {
        if (!h->in_class)
            add_name(d, h->last);
        h->open = h->at + 1;
        h->close = end - 1;
        const bool values = !h->in_class && (h->part.says & ENUM) != 0;
        for (size_t at = h->at; values && at < end; at++) {
            fa_code_word word = fa_code_word_at(code + at);
            add_name(d, word);
            at += word.size;
        }
    } else {
        h->ended = !h->initializes || !h->word;
    }
    h->at = end;
    h->word = false;
}

static void read_mark(struct fa_cut *d, const char *code, size_t to, struct head *h)
{
    static const char *const access[] = {"public", "private", "protected", NULL};
    const bool function = (h->part.says & FUNCTION) != 0, word = h->word;
    const char mark = code[h->at++];
    h->word = false;
    if (mark == ':' && code[h->at] == ':') {
        h->at++;
        return;
    }
    if (mark == '=' && function)
        h->part.says |= DEFAULTED;
    if (mark == ':' && function)
        h->initializes = true;
    h->ended = mark == ';' || mark == '}';
    h->at -= mark == '}' && h->count > 0;
    if (function || strchr(",;=:", mark) == NULL)
        return;
    if (mark == ':' && h->in_class && h->count == 1 && is_among(h->last, access)) {
        h->part = (struct part){.file = h->part.file, .from = next_token(code, h->at, to)};
        h->count = 0;
    }
    if (word && !h->in_class && (h->part.says & ALWAYS) == 0)
        add_name(d, h->last);
    if (word)
        h->part.name = h->last;
    while (mark == '=' && h->at < to && strchr(",;", code[h->at]) == NULL)
        h->at = strchr("([{", code[h->at]) != NULL ? end_of_group(code, h->at, to) : h->at + 1;
}

/* One declaration, from at on; its names are added as of the part that comes next. */
static struct head read_declaration(struct fa_cut *d, size_t file, size_t from, size_t to,
                                    bool in_class)
{
    const char *code = d->file[file].code;
    struct head h = {
        .part = {.file = file, .from = from}, .last = {"", 0}, .at = from, .in_class = in_class};
    while (!h.ended && (h.at = next_token(code, h.at, to)) < to) {
        const char mark = code[h.at];
        if (fa_is_word(mark))
            read_word(d, code, to, &h);
        else if (mark == '(')
            read_parentheses(d, code, to, &h);
        else if (mark == '{')
            read_braces(d, code, to, &h);
        else if (mark == '<' && h.word && !h.compares) {
            const size_t end = end_of_angles(code, h.at, to);
            h.compares = end == 0;
            h.at = end != 0 ? end : h.at + 1;
        } else if (mark == '[')
            h.at = end_of_group(code, h.at, to);
        else
            read_mark(d, code, to, &h);
    }
    h.part.to = h.at;
    return h;
}

/* ---- what is left out -----------------------------------------------------------------------*/
/* Blanks it for the compiler, and for further looks; preprocessor lines stay. */
static void blank_out(struct fa_cut *d, size_t file, size_t from, size_t to)
{
    char *text = d->file[file].text, *code = d->file[file].code;
    for (; from < to && d->file[file].cut; from++)
        if (code[from] == '#')
            from = line_end(code, from) - 1;
        else if (text[from] != '\n')
            text[from] = code[from] = ' ';
}

static void leave_out(struct fa_cut *d, const struct part *part)
{
    struct file *file = &d->file[part->file];
    for (; file->told < part->from; file->told++)
        file->line += file->code[file->told] == '\n';
    if (file->cut && part->name.size > 0 && part->file < FA_CUT_SOURCES)
        fa_buf_printf(&d->left, "%.*s in line %ld\n", (int)part->name.size, part->name.at,
                      file->line);
    blank_out(d, part->file, part->from, part->to);
}

static bool is_host(const struct fa_cut *d, const struct part *part)
{
    const char *code = d->file[part->file].code + part->from;
    if ((part->says & ALWAYS) != 0)
        return false;
    if ((part->says & FUNCTION) == 0)
        return (part->says & (DEVICE | CONSTANT | TYPE | NAMESPACE)) == 0 && !d->keeps_host;
    if ((part->says & (DEVICE | DEFAULTED)) != 0)
        return false;
    return ((part->says & CONSTEXPR) == 0 && !d->keeps_host) || fa_code_is(part->name, "main") ||
           memmem(code, part->to - part->from, "<<<", 3) != NULL;
}

/* Host functions that are members. */
static void cut_members(struct fa_cut *d, size_t file, size_t from, size_t to, int depth)
{
    const char *code = d->file[file].code;
    while (depth < NESTED_MAX && (from = next_token(code, from, to)) < to) {
        struct head h = read_declaration(d, file, from, to, true);
        if ((h.part.says & FUNCTION) != 0 && is_host(d, &h.part))
            blank_out(d, file, h.part.from, h.part.to);
        else if ((h.part.says & TYPE) != 0 && h.open < h.close)
            cut_members(d, file, h.open, h.close, depth + 1);
        from = h.at;
    }
}

static void cut_file(struct fa_cut *d, size_t file)
{
    const size_t to = strlen(d->file[file].code);
    const char *code = d->file[file].code;
    for (size_t at = 0; (at = next_token(code, at, to)) < to && !d->failed;) {
        const size_t names = d->names;
        struct head h = read_declaration(d, file, at, to, false);
        at = h.at;
        if (h.scope || h.count == 0 || is_host(d, &h.part)) {
            d->names = names;
            if (!h.scope && h.count > 0)
                leave_out(d, &h.part);
            continue;
        }
        if ((h.part.says & FUNCTION) != 0)
            add_name(d, h.part.name);
        else if (h.open < h.close && (h.part.says & TYPE) != 0)
            cut_members(d, file, h.open, h.close, 0);
        if ((h.part.says & (OPERATOR | DEVICE)) == (OPERATOR | DEVICE))
            h.part.says |= ALWAYS;
        d->failed |= fa_append(&d->part, &d->parts, &d->part_room, &h.part, sizeof h.part) != 0;
    }
}

static void read_macros(struct fa_cut *d, size_t file)
{
    const char *code = d->file[file].code;
    for (size_t at = 0; code[at = past_space(code, at)] != 0; at = line_end(code, at)) {
        fa_code_word define = fa_code_directive(code + at);
        if (!fa_code_is(define, "define"))
            continue;
        fa_code_word name = fa_code_word_at(fa_code_past_blanks(define.at + define.size));
        struct part part = {.file = file,
                            .from = (size_t)(name.at + name.size - code),
                            .to = line_end(code, at),
                            .says = MACRO,
                            .name = name};
        add_name(d, name);
        d->failed |= fa_append(&d->part, &d->parts, &d->part_room, &part, sizeof part) != 0;
    }
}

/* The line of a bracket that no other one matches; 0: all match. */
static long find_open(const char *code)
{
    const size_t to = strlen(code);
    size_t at = 0, end = 1;
    long line = 1;
    while (end != 0 && (at = next_token(code, at, to)) < to && strchr(")]}", code[at]) == NULL) {
        end = strchr("([{", code[at]) != NULL ? find_close(code, at, to) : at + 1;
        at = end != 0 ? end : at;
    }
    for (size_t i = 0; i < at; i++)
        line += code[i] == '\n';
    return at < to ? line : 0;
}

/* ---- what a kernel reaches ------------------------------------------------------------------*/
static void keep(struct fa_cut *d, size_t part)
{
    if (!d->part[part].kept)
        d->todo[d->todos++] = part;
    d->part[part].kept = true;
}

static void reach(struct fa_cut *d, fa_code_word word)
{
    struct name *name = find_name(d, d->names, word);
    if (strncmp(word.at, "Block", 5) == 0 || strncmp(word.at, "Warp", 4) == 0)
        fa_buf_printf(&d->blocks, " %.*s", (int)word.size, word.at);
    if (name == NULL || name->seen)
        return;
    name->seen = true;
    for (; name < d->name + d->names && compare_words(name->word, word) == 0; name++)
        keep(d, name->part);
}

static void reach_words(struct fa_cut *d, const char *code, size_t from, size_t to)
{
    for (size_t at = from; at < to; at++) {
        fa_code_word word = fa_code_word_at(code + at);
        if (word.size > 0)
            reach(d, word);
        at += word.size;
    }
}

/* The conditions between declarations; a question whether a macro is defined reads none. */
static void reach_conditions(struct fa_cut *d, const char *code)
{
    for (size_t at = 0, end; code[at = past_space(code, at)] != 0; at = end) {
        fa_code_word word = fa_code_directive(code + at);
        end = line_end(code, at);
        if (!fa_code_is(word, "if") && !fa_code_is(word, "elif"))
            continue;
        for (const char *in = word.at + 2; in<code + end; in += word.size> 0 ? word.size : 1) {
            word = fa_code_word_at(in);
            if (fa_code_is(word, "defined"))
                word = fa_code_word_at(in += 7 + strspn(in + 7, " ("));
            else
                reach(d, word);
        }
    }
}

char *fa_cut_parameters(const fa_cut *d, const char *kernel)
{
    for (size_t i = 0; i < d->parts; i++) {
        const struct part *part = &d->part[i];
        const char *code = d->file[part->file].code, *at = part->name.at;
        if ((part->says & GLOBAL) == 0 || !fa_code_is(part->name, kernel))
            continue;
        const size_t from = (size_t)(at - code) + strcspn(at, "(") + 1;
        return strndup(code + from, end_of_group(code, from - 1, part->to) - from - 1);
    }
    return NULL;
}

int fa_cut_reach(fa_cut *d, const char *used)
{
    reach_words(d, used, 0, strlen(used));
    while (d->todos > 0) {
        const struct part *part = &d->part[d->todo[--d->todos]];
        if ((part->says & (USING | ALWAYS)) != (USING | ALWAYS))
            reach_words(d, d->file[part->file].code, part->from, part->to);
    }
    return d->blocks.failed ? FA_ENOMEM : 0;
}

bool fa_cut_reaches(const fa_cut *d, const char *name)
{
    const struct name *found = find_name(d, d->names, (fa_code_word){name, strlen(name)});
    return found != NULL && found->seen;
}

bool fa_cut_has(const fa_cut *d, const char *text)
{
    bool has = false;
    for (size_t i = 0; i + 1 < d->files; i++)
        has = has || strstr(text[0] == '%' ? d->file[i].text : d->file[i].code, text) != NULL;
    return has;
}

/* ---- the whole ------------------------------------------------------------------------------*/
void fa_cut_free(fa_cut **cut)
{
    fa_cut *d = *cut;
    *cut = NULL;
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->files; i++)
        free(d->file[i].code);
    free(d->file);
    free(d->part);
    free(d->name);
    free(d->todo);
    fa_buf_free(&d->left);
    fa_buf_free(&d->blocks);
    fa_buf_free(&d->own);
    free(d);
}

static void add_file(struct fa_cut *d, char *text, bool library)
{
    struct file file = {.text = text, .code = fa_code_of(text, true), .line = 1};
    const long line = file.code != NULL ? find_open(file.code) : 0;
    file.cut = !library && line == 0;
    if (line > 0 && !library && d->files < FA_CUT_SOURCES)
        fa_buf_printf(&d->left,
                      "nothing, for no bracket matches that of line %ld: put host code between "
                      "#ifndef __CUDACC_RTC__ and #endif\n",
                      line);
    d->failed |=
        file.code == NULL || fa_append(&d->file, &d->files, &d->file_room, &file, sizeof file) != 0;
}

int fa_cut_read(const struct fa_cut_text *text, const char *usual, const char *macros,
                bool keeps_host, fa_cut **ret_cut)
{
    fa_cut *d = calloc(1, sizeof *d);
    if (d == NULL)
        return FA_ENOMEM;
    d->keeps_host = keeps_host;
    d->usual = strlen(usual);
    for (; text->text != NULL; text++)
        add_file(d, text->text, text->library);
    fa_buf_printf(&d->own, "%s%s", usual, macros);
    d->failed |= d->own.failed;
    if (!d->failed)
        add_file(d, d->own.data, false);
    for (size_t i = 0; i < d->files && !d->failed; i++)
        read_macros(d, i);
    d->macros = d->names;
    if (!d->failed)
        qsort(d->name, d->names, sizeof *d->name, compare_names);
    for (size_t i = 0; i < d->files && !d->failed; i++)
        cut_file(d, i);
    d->todo = malloc(d->parts * sizeof *d->todo);
    if (d->failed || d->todo == NULL) {
        fa_cut_free(&d);
        return FA_ENOMEM;
    }
    qsort(d->name, d->names, sizeof *d->name, compare_names);
    const bool pastes = fa_cut_has(d, "##");
    for (size_t i = 0; i + 1 < d->files; i++) {
        reach_conditions(d, d->file[i].code);
        if (!d->file[i].cut)
            reach_words(d, d->file[i].code, 0, strlen(d->file[i].code));
    }
    for (size_t i = 0; i < d->parts; i++)
        if ((d->part[i].says & ALWAYS) != 0 || (pastes && (d->part[i].says & DEVICE) != 0))
            keep(d, i);
    *ret_cut = d;
    return 0;
}

int fa_cut_kernels(const fa_cut *d, size_t source, struct fa_source_kernel *ret, int most)
{
    int count = 0;
    for (size_t i = 0; i < d->parts && count < most; i++) {
        const struct part *part = &d->part[i];
        if ((part->says & (GLOBAL | FUNCTION)) != (GLOBAL | FUNCTION) || part->name.size == 0 ||
            part->name.size >= FA_NAME_MAX || (part->file != source && part->file < FA_CUT_SOURCES))
            continue;
        struct fa_source_kernel *kernel = &ret[count];
        memcpy(kernel->name, part->name.at, part->name.size);
        kernel->name[part->name.size] = 0;
        kernel->template = (part->says & TEMPLATE) != 0;
        bool single = part->file == source && d->file[source].cut; /* its name has one type */
        for (size_t k = 0; k < d->parts && single; k++)
            single = (d->part[k].says & (DEVICE | GLOBAL | FUNCTION)) != (DEVICE | FUNCTION) ||
                     !fa_code_is(d->part[k].name, kernel->name);
        kernel->end = single ? &d->file[source].text[part->to - 1] : NULL;
        int known = 0; /* what it is declared as first holds */
        while (strcmp(ret[known].name, kernel->name) != 0)
            known++;
        count += known == count;
    }
    return count;
}

int fa_cut_apply(fa_cut *d, fa_buf *ret_before)
{
    for (size_t i = 0; i < d->parts; i++) {
        const struct part *part = &d->part[i];
        const struct name *name = find_name(d, d->names, part->name);
        const bool alone = name == NULL || name + 1 == d->name + d->names ||
                           compare_words(name->word, name[1].word) != 0;
        if (part->file + 1 == d->files && part->from < d->usual && part->kept && alone &&
            !fa_code_is(part->name, "std"))
            fa_buf_printf(ret_before, "%s%.*s%.*s\n", (part->says & MACRO) != 0 ? "#define " : "",
                          (part->says & MACRO) != 0 ? (int)part->name.size : 0, part->name.at,
                          (int)(part->to - part->from), d->file[part->file].text + part->from);
        /* a namespace may be of a header that is left out */
        if ((part->says & (USING | ALWAYS)) == (USING | ALWAYS) && part->name.size > 0 &&
            part->name.at[-1] != ':' && (name == NULL || fa_code_is(part->name, "std")))
            fa_buf_printf(ret_before, "namespace %.*s {}\n", (int)part->name.size, part->name.at);
    }
    for (size_t i = 0; i < d->parts; i++) /* which is what names point to */
        if (!d->part[i].kept && (d->part[i].says & MACRO) == 0)
            blank_out(d, d->part[i].file, d->part[i].from, d->part[i].to);
    return ret_before->failed || d->left.failed ? FA_ENOMEM : 0;
}

const char *fa_cut_blocks(const fa_cut *d)
{
    return d->blocks.data != NULL ? d->blocks.data : "";
}

const char *fa_cut_left(const fa_cut *d)
{
    return d->left.data != NULL ? d->left.data : "";
}
