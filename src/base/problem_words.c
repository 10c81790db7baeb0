/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem in words for people, by the labels of its operation's fields.
 */
#include "problem.h"

#include "problem_each.h"

#include <stdio.h>
#include <string.h>

/* The field that follows this one and whose value is another; NULL: none. */
static const fa_field *follower_apart(const fa_operation *op, const fa_field *f,
                                      const fa_problem *p)
{
    EACH_FIELD(op, other)
    if (other->follows == f - op->field && VALUE(p, op, other) != VALUE(p, op, f))
        return other;
    return NULL;
}

static void put_words(fa_buf *out, const fa_operation *op, const fa_field *f, const fa_problem *p,
                      bool brief)
{
    const fa_field *apart = follower_apart(op, f, p);
    const char *label =
        apart != NULL && !brief && f->label_apart[0] != 0 ? f->label_apart : f->label;
    char room[16];
    const char *value = fa_field_text(f, VALUE(p, op, f), room);
    bool alone = f->kind == FA_FIELD_BOOLEAN ||
                 (brief && f->quiet && f->kind == FA_FIELD_CHOICE && label[0] != 0);
    fa_buf_printf(out, "%s%s%s", label, alone || brief || label[0] == 0 ? "" : " ",
                  alone ? "" : value);
    if (apart == NULL)
        return;
    value = fa_field_text(apart, VALUE(p, op, apart), room);
    if (brief || f->label_apart[0] == 0)
        fa_buf_printf(out, "/%s", value);
    else
        fa_buf_printf(out, " %s %s", apart->label, value);
}

void fa_problem_words(fa_buf *out, const fa_problem *problem, const char *separator, bool brief)
{
    const fa_operation *op = fa_operation_of(problem);
    int order[FA_PROBLEM_VALUES];
    bool first = true;
    fa_operation_order(op, FA_ORDER_WORDS, order);
    for (int i = 0; i < op->field_count; i++) {
        const fa_field *f = &op->field[order[i]];
        if (f->follows >= 0 || (f->quiet && VALUE(problem, op, f) == f->preset))
            continue;
        fa_buf_text(out, first ? "" : separator);
        put_words(out, op, f, problem, brief);
        first = false;
    }
}

void fa_problem_lengths(const fa_problem *problem, char *ret_text, size_t size)
{
    const fa_operation *op = fa_operation_of(problem);
    if (size == 0)
        return;
    ret_text[0] = 0;
    EACH_FIELD(op, f)
    {
        const fa_field *apart = follower_apart(op, f, problem);
        size_t used = strlen(ret_text);
        if (!f->length || f->follows >= 0 || fa_field_is_absent(f, VALUE(problem, op, f)))
            continue;
        snprintf(ret_text + used, size - used, "%s%s %d", used > 0 ? ", " : "",
                 apart != NULL ? f->label_apart : f->label, VALUE(problem, op, f));
        used = strlen(ret_text);
        if (apart != NULL)
            snprintf(ret_text + used, size - used, ", %s %d", apart->label,
                     VALUE(problem, op, apart));
    }
}
