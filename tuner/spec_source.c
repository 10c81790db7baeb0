/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking for kernels in CUDA C++ without a compiler: comments, literals and preprocessor lines are blanked first, so that
 * what is left is code.
 *
 * Workload: a text of some tens of kilobytes, a few times for each specification.
 */
#include "spec_reading.h"

#include "error.h"
#include "problem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS_MAX = 64 };

struct kernel {
    char name[FA_NAME_MAX];
    bool template; /* it is a pattern of kernels, and none itself */
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Blanks text[from..to), but for line ends. */
static void blank(char *text, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (text[i] != '\n')
            text[i] = ' ';
}

static size_t end_of_line(const char *text, size_t at)
{
    while (text[at] != 0 && (text[at] != '\n' || (at > 0 && text[at - 1] == '\\')))
        at++;
    return at;
}

static size_t end_of_literal(const char *text, size_t at)
{
    char quote = text[at++];
    while (text[at] != 0 && text[at] != quote && text[at] != '\n')
        at += text[at] == '\\' && text[at + 1] != 0 ? 2 : 1;
    return text[at] != 0 ? at + 1 : at;
}

static void blank_what_is_no_code(char *text, bool comments_alone)
{
    bool begins = true; /* nothing but blanks since the line began */
    for (size_t at = 0; text[at] != 0;) {
        size_t end = at + 1;
        if (strncmp(text + at, "//", 2) == 0 || (begins && text[at] == '#' && !comments_alone)) {
            end = end_of_line(text, at);
        } else if (strncmp(text + at, "/*", 2) == 0) {
            const char *close = strstr(text + at + 2, "*/");
            end = close != NULL ? (size_t)(close + 2 - text) : strlen(text);
        } else if (text[at] == '"' || (text[at] == '\'' && (at == 0 || !is_word(text[at - 1])))) {
            end = end_of_literal(text, at);
            if (comments_alone) {
                at = end;
                continue;
            }
        } else {
            begins = text[at] == '\n' || (begins && isspace((unsigned char)text[at]));
            at = end;
            continue;
        }
        blank(text, at, end);
        at = end;
    }
}

char *fa_source_code(const char *text)
{
    char *code = strdup(text);
    if (code != NULL)
        blank_what_is_no_code(code, true);
    return code;
}

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
            "there is no specification: let the file begin with a comment, /* fa-tune { … } */");
        return NULL;
    }
    char *head = strndup(text, (size_t)(end - text));
    if (head == NULL)
        fa_fail(diag, FA_ENOMEM, "out of memory for a specification");
    else
        blank(head, 0, (size_t)(from - text));
    return head;
}

/* ---- kernels ---------------------------------------------------------------------------------*/
static bool is_token(const char *code, size_t at, const char *word)
{
    size_t size = strlen(word);
    return strncmp(code + at, word, size) == 0 && !is_word(code[at + size]) &&
           (at == 0 || !is_word(code[at - 1]));
}

/* Past the brackets that open at `at`, or `to`. */
static size_t end_of_brackets(const char *code, size_t at, size_t to, char close)
{
    const char open = code[at];
    int depth = 0;
    for (; at < to; at++) {
        depth += (code[at] == open) - (code[at] == close);
        if (depth == 0)
            return at + 1;
    }
    return to;
}

/* The kernel's name is the word before the first parenthesis that is no attribute's. */
static bool read_name(const char *code, size_t at, size_t to, char ret_name[FA_NAME_MAX])
{
    static const char *const attributes[] = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__",
                                             "__block_size__",    "__attribute__",    "__align__"};
    size_t from = 0, size = 0;
    for (; at < to && strchr(";{}", code[at]) == NULL; at++) {
        if (is_word(code[at]) && (at == 0 || !is_word(code[at - 1]))) {
            from = at;
            size = 0;
        }
        if (is_word(code[at])) {
            size = at + 1 - from;
        } else if (code[at] == '<') { /* of a specialisation, whose name stands before it */
            at = end_of_brackets(code, at, to, '>') - 1;
        } else if (code[at] == '(') {
            bool attribute = false;
            for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
                attribute = attribute || is_token(code, from, attributes[i]);
            if (!attribute) {
                snprintf(ret_name, FA_NAME_MAX, "%.*s", (int)size, code + from);
                return size > 0 && size < FA_NAME_MAX;
            }
            at = end_of_brackets(code, at, to, ')') - 1;
        }
    }
    return false;
}

/* The first place from `at` on where the word stands, or the end. */
static size_t find_token(const char *code, size_t at, const char *word)
{
    while (code[at] != 0 && !is_token(code, at, word))
        at++;
    return at;
}

/* In linear time, whatever the text is: a name is looked for up to the next __global__. */
static int list_kernels(const char *code, struct kernel ret[KERNELS_MAX])
{
    static const char global[] = "__global__";
    size_t at = 0, to = find_token(code, at, global);
    bool template = false; /* the declaration that holds code[at] began with that word */
    for (int count = 0;;) {
        for (; at < to; at++)
            template =
                strchr(";{}", code[at]) == NULL && (template || is_token(code, at, "template"));
        if (code[at] == 0 || count == KERNELS_MAX)
            return count;
        to = find_token(code, at + 1, global);
        struct kernel *kernel = &ret[count];
        kernel->template = template;
        if (!read_name(code, at, to, kernel->name))
            continue;
        int known = 0; /* what it is declared as first holds */
        while (strcmp(ret[known].name, kernel->name) != 0)
            known++;
        count += known == count;
    }
}

static int fail_to_choose(const char *where, const char *name, const struct kernel *kernel,
                          int count, fa_diag *diag)
{
    fa_buf names = {0};
    for (int i = 0; i < count; i++)
        fa_buf_printf(&names, "%s%s", i == 0 ? "" : ", ", kernel[i].name);
    int rc = count == 0
                 ? fa_fail(diag, FA_EMANIFEST, "%s: there is no __global__ function in it", where)
             : name[0] != 0
                 ? fa_fail(diag, FA_EMANIFEST, "%s: there is no kernel %s in it, but %.600s", where,
                           name, names.data != NULL ? names.data : "others")
                 : fa_fail(diag, FA_EMANIFEST, "%s: \"kernel\" must say which one is meant: %.600s",
                           where, names.data != NULL ? names.data : "there are several");
    fa_buf_free(&names);
    return rc;
}

static int choose(const char *where, const struct kernel *kernel, int count, const char *name,
                  const char *other, int *ret_index, fa_diag *diag)
{
    int found = -1, candidates = 0;
    for (int i = 0; i < count; i++) {
        bool meant =
            name[0] != 0 ? strcmp(kernel[i].name, name) == 0 : strcmp(kernel[i].name, other) != 0;
        if (meant) {
            found = i;
            candidates++;
        }
    }
    *ret_index = found;
    return candidates == 1 ? 0 : fail_to_choose(where, name, kernel, count, diag);
}

/* "space::name<arguments>": the name alone; false: it is no such text, which goes into the source. */
static bool read_expression(const char *text, char ret_name[FA_NAME_MAX])
{
    static const char allowed[] = " ,:<>()+-*/%&|=!?";
    size_t end = strcspn(text, "<");
    for (const char *at = text; *at != 0; at++)
        if (!is_word(*at) && strchr(allowed, *at) == NULL)
            return false;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    size_t from = end;
    while (from > 0 && is_word(text[from - 1]))
        from--;
    snprintf(ret_name, FA_NAME_MAX, "%.*s", (int)(end - from), text + from);
    return end - from < FA_NAME_MAX && fa_is_identifier(ret_name) &&
           (from == 0 || text[from - 1] == ':') && strstr(text, "//") == NULL &&
           strstr(text, "/*") == NULL;
}

int fa_source_kernel(const char *where, const char *text, const char *named, const char *other,
                     char ret_name[FA_NAME_MAX], bool *ret_template, fa_diag *diag)
{
    struct kernel kernel[KERNELS_MAX];
    char name[FA_NAME_MAX] = "", *code = strdup(text);
    int index = 0;
    if (code == NULL)
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    blank_what_is_no_code(code, false);
    int count = list_kernels(code, kernel);
    free(code);
    if (named[0] != 0 && !read_expression(named, name))
        return fa_fail(diag, FA_EMANIFEST,
                       "%s: \"%.100s\" is no kernel: write its name, with the arguments of a "
                       "template, as in \"conv<BLOCK, float>\"",
                       where, named);
    int rc = choose(where, kernel, count, name, other, &index, diag);
    bool instance = strchr(named, '<') != NULL;
    if (rc == 0 && kernel[index].template != instance)
        rc = fa_fail(diag, FA_EMANIFEST,
                     instance ? "%s: %s is no template: name it without arguments"
                              : "%s: %s is a template: name its arguments too, as in \"kernel\": "
                                "\"conv<BLOCK, float>\"",
                     where, kernel[index].name);
    if (rc != 0)
        return rc;
    snprintf(ret_name, FA_NAME_MAX, "%s", kernel[index].name);
    *ret_template = instance;
    return 0;
}
