/* SPDX-License-Identifier: Apache-2.0 */
#include "help_json.h"

#include "json_make.h"
#include "options_table.h"

struct listing {
    const fa_operation *operation;
    cJSON *options;
};

static void add_option(void *context, const cli_option_spec *spec)
{
    struct listing *listing = context;
    cJSON *option = cJSON_CreateObject();
    const char *const *choices = spec->kind == KIND_CHOICE ? spec->choices : NULL;
    if (spec->kind == KIND_FIELD)
        choices = listing->operation->field[cli_option_field(spec)].choice;
    fa_json_add_text(option, "name", spec->name);
    fa_json_add_text(option, "value", spec->value); /* absent: a flag */
    fa_json_add_text(option, "help", spec->help);
    cJSON *names = fa_json_add_array(option, "choices");
    for (int i = 0; choices != NULL && choices[i] != NULL; i++)
        if (choices[i][0] != 0)
            fa_json_push(names, cJSON_CreateString(choices[i]));
    fa_json_push(listing->options, option);
}

cJSON *cli_help_verb(const cli_verb *verb, const fa_operation *operation)
{
    cJSON *json = cJSON_CreateObject();
    fa_buf operands = {0};
    cli_options_operands(verb->groups, &operands);
    fa_json_add_text(json, "name", verb->name);
    fa_json_add_text(json, "summary", verb->summary);
    fa_json_add_text(json, "details", verb->details);
    fa_json_add_text(json, "operands", operands.size > 0 ? operands.data + 1 : "");
    struct listing listing = {operation, fa_json_add_array(json, "options")};
    if (verb->run != NULL) /* else it is another program, with options of its own */
        cli_options_each(verb->groups, operation, add_option, &listing);
    fa_buf_free(&operands);
    return json;
}
