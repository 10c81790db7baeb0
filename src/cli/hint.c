/* SPDX-License-Identifier: Apache-2.0 */
#include "hint.h"

#include "operation.h"
#include "options_table.h"
#include "problem.h"
#include "shorthand.h"

#include <string.h>

/* A word for a shell: in quotes where it holds more than letters, digits and what paths are made of. */
static void put_word(fa_buf *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@+,";
    if (word[strspn(word, plain)] == 0) {
        fa_buf_text(out, word);
        return;
    }
    fa_buf_text(out, "'");
    for (; *word != 0; word++) {
        if (*word == '\'')
            fa_buf_text(out, "'\\''");
        else
            fa_buf_append(out, word, 1);
    }
    fa_buf_text(out, "'");
}

static void put_option(fa_buf *out, const char *option, const char *value)
{
    fa_buf_printf(out, " %s ", option);
    put_word(out, value);
}

/* Whether all fields that share this one's option of several fields have its value. */
static bool shared(const fa_problem *problem, int field)
{
    const fa_operation *operation = fa_operation_of(problem);
    for (int i = 0; i < operation->field_count; i++)
        if (strcmp(operation->field[i].also, operation->field[field].also) == 0 &&
            problem->value[i] != problem->value[field])
            return false;
    return operation->field[field].also[0] != 0;
}

/* The option that gives this field its value, where its default does not. */
static void put_field(fa_buf *out, const fa_problem *problem, int field)
{
    const fa_operation *operation = fa_operation_of(problem);
    const fa_field *f = &operation->field[field];
    int32_t value = problem->value[field];
    char room[16];
    if (f->option[0] == 0)
        return;
    if (shared(problem, field)) {
        if (cli_leads_also(operation, field))
            put_option(out, f->also, fa_field_text(f, value, room));
        return;
    }
    bool needed = f->also[0] != 0 || f->required;
    if (!needed && value == (f->follows >= 0 ? problem->value[f->follows] : f->preset))
        return;
    if (f->kind == FA_FIELD_BOOLEAN)
        fa_buf_printf(out, " %s", f->option);
    else
        put_option(out, f->option, fa_field_text(f, value, room));
}

static void put_places(fa_buf *out, const cli_options *options)
{
    if (options->store != NULL)
        put_option(out, "--store", options->store);
    if (options->templates != NULL)
        put_option(out, "--templates", options->templates);
    fa_buf_text(out, "`");
}

void cli_hint(fa_buf *out, const char *verb, const cli_options *options)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    fa_buf_printf(out, "`fa-tune %s", verb);
    if (options->operation != NULL)
        put_option(out, "--operation", options->operation);
    if (options->gpu != NULL)
        put_option(out, "--gpu", options->gpu);
    if (options->device > 0)
        fa_buf_printf(out, " --device %d", options->device);
    for (int i = 0; i < operation->field_count; i++)
        put_field(out, &options->problem, i);
    cli_shorthand_hint(&options->problem, out);
    if (options->exact)
        fa_buf_text(out, " --exact");
    put_places(out, options);
}

void cli_hint_store(fa_buf *out, const char *verb, const cli_options *options)
{
    fa_buf_printf(out, "`fa-tune %s", verb);
    put_places(out, options);
}
