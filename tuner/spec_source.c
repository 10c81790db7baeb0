/* SPDX-License-Identifier: Apache-2.0
 *
 * The specification in the first comment of CUDA C++, and which of its kernels is meant.
 *
 * Workload: a text of some tens of kilobytes, a few times for each specification.
 */
#include "spec_reading.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
            "there is no specification: let the file begin with a comment, /* fa-tune { … } */");
        return NULL;
    }
    char *head = strndup(text, (size_t)(end - text));
    if (head == NULL)
        fa_fail(diag, FA_ENOMEM, "out of memory for a specification");
    else
        fa_code_blank(head, 0, (size_t)(from - text));
    return head;
}

/* ---- kernels ---------------------------------------------------------------------------------*/
static int fail_to_choose(const char *where, const char *name,
                          const struct fa_source_kernel *kernel, int count, const char *left,
                          fa_diag *diag)
{
    fa_buf names = {0};
    for (int i = 0; i < count; i++)
        fa_buf_printf(&names, "%s%s", i == 0 ? "" : ", ", kernel[i].name);
    int rc = count == 0
                 ? fa_fail(diag, FA_EMANIFEST, "%s: there is no __global__ function in it%s%.*s",
                           where, strncmp(left, "nothing", 7) == 0 ? "; of it is left out " : "",
                           strncmp(left, "nothing", 7) == 0 ? (int)strcspn(left, "\n") : 0, left)
             : name[0] != 0
                 ? fa_fail(diag, FA_EMANIFEST, "%s: there is no kernel %s in it, but %.600s", where,
                           name, names.data != NULL ? names.data : "others")
                 : fa_fail(diag, FA_EMANIFEST, "%s: \"kernel\" must say which one is meant: %.600s",
                           where, names.data != NULL ? names.data : "there are several");
    fa_buf_free(&names);
    return rc;
}

static int choose(const char *where, const struct fa_source_kernel *kernel, int count,
                  const char *name, const char *other, const char *left, int *ret_index,
                  fa_diag *diag)
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
    return candidates == 1 ? 0 : fail_to_choose(where, name, kernel, count, left, diag);
}

/* "space::name<arguments>": the name alone; false: it is no such text, which goes into the source. */
static bool read_expression(const char *text, char ret_name[FA_NAME_MAX])
{
    static const char allowed[] = " ,:<>()+-*/%&|=!?";
    size_t end = strcspn(text, "<");
    for (const char *at = text; *at != 0; at++)
        if (!fa_code_is_word(*at) && strchr(allowed, *at) == NULL)
            return false;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    size_t from = end;
    while (from > 0 && fa_code_is_word(text[from - 1]))
        from--;
    snprintf(ret_name, FA_NAME_MAX, "%.*s", (int)(end - from), text + from);
    return end - from < FA_NAME_MAX && fa_is_identifier(ret_name) &&
           (from == 0 || text[from - 1] == ':') && strstr(text, "//") == NULL &&
           strstr(text, "/*") == NULL;
}

int fa_source_kernel(const char *where, const fa_cut *cut, int source, const char *named,
                     const char *other, char ret_name[FA_NAME_MAX], bool *ret_template,
                     fa_diag *diag)
{
    struct fa_source_kernel kernel[KERNELS_MAX + 1];
    char name[FA_NAME_MAX] = "";
    int index = 0, count = fa_cut_kernels(cut, (size_t)source, kernel, KERNELS_MAX);
    if (named[0] != 0 && !read_expression(named, name))
        return fa_fail(diag, FA_EMANIFEST,
                       "%s: \"%.100s\" is no kernel: write its name, with the arguments of a "
                       "template, as in \"conv<BLOCK, float>\"",
                       where, named);
    int rc = choose(where, kernel, count, name, other, fa_cut_left(cut), &index, diag);
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
