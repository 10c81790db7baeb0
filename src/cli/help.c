/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "json.h"
#include "wording.h"

#include <stdio.h>
#include <string.h>

enum { COLUMN = 26 /* where an option's help begins */ };

static void put_wrapped(fa_buf *out, const char *text, size_t column, size_t indent)
{
    fa_wrap(out, text, strlen(text), column, indent);
    fa_buf_text(out, "\n");
}

/* ---- options --------------------------------------------------------------------------------*/
static void put_options(unsigned groups, const fa_operation *operation, fa_buf *out)
{
    static cli_option_list list;
    cli_option_list_make(groups, operation, &list);
    for (size_t i = 0; i < list.count; i++) {
        const cli_option_spec *spec = list.spec[i];
        if (spec->kind == KIND_HEADING) {
            fa_buf_printf(out, "\n%s\n", spec->help);
            continue;
        }
        char left[128], letter = cli_option_letter(spec);
        snprintf(left, sizeof left, "  %c%c%c %s%s%s", letter != 0 ? '-' : ' ',
                 letter != 0 ? letter : ' ', letter != 0 ? ',' : ' ', spec->name,
                 spec->value != NULL ? " " : "", spec->value != NULL ? spec->value : "");
        if (strlen(left) + 2 > COLUMN)
            fa_buf_printf(out, "%s\n%*s", left, COLUMN, "");
        else
            fa_buf_printf(out, "%-*s", COLUMN, left);
        put_wrapped(out, spec->help, COLUMN, COLUMN);
    }
}

/* ---- verbs ----------------------------------------------------------------------------------*/
void cli_help_overview(const cli_verb *verbs, size_t count, fa_buf *out)
{
    put_wrapped(
        out,
        "fa-tune finds, proves and remembers the fastest CUDA kernel for a problem on a GPU: "
        "attention, with kernels that it brings, or a kernel of your own.",
        0, 0);
    fa_buf_text(out, "\n  fa-tune --gpu L4 --seq 512        attention\n"
                     "  fa-tune conv2d.cu --gpu L4        a kernel of your own\n\n"
                     "usage: fa-tune [VERB] [FILE.cu] [OPTIONS]\n");
    for (size_t i = 0; i < count; i++) {
        if (verbs[i].heading != NULL)
            fa_buf_printf(out, "\n%s\n", verbs[i].heading);
        fa_buf_printf(out, "  %-10s  ", verbs[i].name);
        put_wrapped(out, verbs[i].summary, 14, 14);
    }
    fa_buf_text(out, "\n");
    put_wrapped(
        out,
        "`fa-tune tune --help` has the options of tune, the default verb, `fa-tune VERB --help` those of "
        "another. Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.",
        0, 0);
}

/* `check` is of a file: without it there are no sizes to tell, and the fields of attention are not among them. */
static unsigned groups_told(const cli_verb *verb, const fa_operation *operation)
{
    bool no_file = (verb->groups & CLI_GROUP_CHECK) != 0 && operation == fa_operation_of(NULL);
    return no_file ? verb->groups & ~(unsigned)CLI_GROUP_PROBLEM : verb->groups;
}

static void put_operands(unsigned groups, fa_buf *out)
{
    if (groups & CLI_GROUPS_SPECIFIED)
        fa_buf_text(out, groups & CLI_GROUP_CHECK ? " FILE.cu" : " [FILE.cu]");
    if (cli_operand(groups) != NULL)
        fa_buf_printf(out, " %s", cli_operand(groups));
}

void cli_help_verb(const cli_verb *verb, const fa_operation *operation, fa_buf *out)
{
    fa_buf_printf(out, "fa-tune %s: ", verb->name);
    put_wrapped(out, verb->summary, strlen(verb->name) + 10, 0);
    fa_buf_printf(out, "\nusage: fa-tune %s", verb->name);
    put_operands(verb->groups, out);
    fa_buf_text(out, verb->details[0] != 0 ? " [OPTIONS]\n\n" : " [OPTIONS]\n");
    /* Each line is a paragraph, which is filled, unless it stands in from the margin. */
    for (const char *at = verb->details; *at != 0; at += *at == '\n') {
        const size_t length = strcspn(at, "\n");
        if (*at == ' ')
            fa_buf_append(out, at, length);
        else
            fa_wrap(out, at, length, 0, 0);
        fa_buf_text(out, "\n");
        at += length;
    }
    put_options(groups_told(verb, operation), operation, out);
}

/* ---- JSON -----------------------------------------------------------------------------------*/
static cJSON *option_json(const cli_option_spec *spec, const fa_operation *operation, bool sweeps)
{
    cJSON *option = cJSON_CreateObject();
    int index = cli_option_field(spec);
    const fa_field *field = index >= 0 ? &operation->field[index] : NULL;
    bool list = spec->kind == KIND_TEXT && (field != NULL || strcmp(spec->value, "LIST") == 0);
    const char *const *choices = field != NULL ? field->choice : spec->choices;
    const char letter[] = {'-', cli_option_letter(spec), 0};
    fa_json_add_text(option, "name", spec->name);
    fa_json_add_text(option, "short", letter[1] != 0 ? letter : NULL);
    fa_json_add_text(option, "value", spec->value); /* absent: a flag */
    fa_json_add_text(option, "help", spec->help);
    fa_json_add_bool(option, "list", list); /* several values between commas */
    cJSON *names = fa_json_add_array(option, "choices");
    for (int i = 0; choices != NULL && choices[i] != NULL; i++)
        if (!(sweeps && strcmp(choices[i], "cached") == 0)) /* is refused */
            fa_json_push(names, cJSON_CreateString(choices[i]));
    if (list && field != NULL && fa_field_may_be_bare(field))
        fa_json_push(names, cJSON_CreateString("both"));
    for (int i = 0; strcmp(spec->name, "--operation") == 0 && fa_operation_at(i) != NULL; i++)
        fa_json_push(names, cJSON_CreateString(fa_operation_at(i)->name));
    return option;
}

static cJSON *verb_json(const cli_verb *verb, const fa_operation *operation)
{
    static cli_option_list list;
    cJSON *json = cJSON_CreateObject();
    fa_buf operands = {0};
    put_operands(verb->groups, &operands);
    fa_json_add_text(json, "name", verb->name);
    fa_json_add_text(json, "summary", verb->summary);
    fa_json_add_text(json, "details", verb->details);
    fa_json_add_text(json, "operands", operands.size > 0 ? operands.data + 1 : "");
    cJSON *options = fa_json_add_array(json, "options");
    cli_option_list_make(groups_told(verb, operation), operation, &list);
    for (size_t i = 0; i < list.count; i++)
        if (list.spec[i]->kind != KIND_HEADING)
            fa_json_push(options, option_json(list.spec[i], operation,
                                              (verb->groups & CLI_GROUP_SWEEP) != 0));
    fa_buf_free(&operands);
    return json;
}

cJSON *cli_help_json(const cli_verb *verbs, size_t count)
{
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "fa_tune", fa_version());
    cJSON *list = fa_json_add_array(document, "verbs"), *gpus = fa_json_add_array(document, "gpus");
    for (size_t i = 0; i < count; i++)
        fa_json_push(list, verb_json(&verbs[i], fa_operation_of(NULL)));
    fa_gpu gpu;
    const char *refused;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++)
        if (refused == NULL)
            fa_json_push(gpus, cJSON_CreateString(gpu.name));
    return document;
}
