/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "fa_tune.h"
#include "json.h"
#include "options_table.h"
#include "text.h"
#include "wording.h"

#include <stdio.h>
#include <string.h>

enum { COLUMN = 26 /* where an option's help begins */ };

static const struct {
    const char *heading, *verbs; /* names between spaces */
} sections[] = {
    {"Tune", " tune sweep explain check "},      {"Look at results", " show report run "},
    {"Share", " export import keygen "},         {"Hosts and fleets", " serve worker queue "},
    {"Maintenance", " rm doctor gpus version "}, {"More", ""}, /* what no other section has */
};

/* The options of tune that people use first. */
static const char *const first_options[] = {"--gpu",   "--seq",    "--heads",  "--head-dim",
                                            "--dtype", "--causal", "--effort", "--jobs",
                                            "--quiet", "--json"};

static void put_wrapped(fa_buf *out, const char *text, size_t column, size_t indent)
{
    fa_wrap(out, text, strlen(text), column, indent, fa_help_width());
    fa_buf_text(out, "\n");
}

/* ---- options --------------------------------------------------------------------------------*/
struct options {
    fa_buf *out;
    bool first_only;
};

static bool is_first(const char *name)
{
    for (size_t i = 0; i < sizeof first_options / sizeof *first_options; i++)
        if (strcmp(first_options[i], name) == 0)
            return true;
    return false;
}

static void put_option(void *context, const cli_option_spec *spec)
{
    const struct options *options = context;
    fa_buf *out = options->out;
    char left[128], letter = cli_option_letter(spec);
    if (spec->kind == KIND_HEADING) {
        if (options->first_only)
            return;
        fa_buf_text(out, "\n");
        cli_styled(out, CLI_BOLD, spec->help);
        fa_buf_text(out, "\n");
        return;
    }
    if (options->first_only && !is_first(spec->name))
        return;
    snprintf(left, sizeof left, "  %c%c%c %s%s%s", letter != 0 ? '-' : ' ',
             letter != 0 ? letter : ' ', letter != 0 ? ',' : ' ', spec->name,
             spec->value != NULL ? " " : "", spec->value != NULL ? spec->value : "");
    size_t taken = strlen(left);
    fa_buf_text(out, left);
    if (taken + 2 > COLUMN)
        fa_buf_printf(out, "\n%*s", COLUMN, "");
    else
        fa_buf_printf(out, "%*s", (int)(COLUMN - taken), "");
    put_wrapped(out, spec->help, COLUMN, COLUMN);
}

/* ---- verbs ----------------------------------------------------------------------------------*/
static bool is_in(const char *names, const char *name)
{
    char padded[40];
    snprintf(padded, sizeof padded, " %s ", name);
    return strstr(names, padded) != NULL;
}

static bool is_in_section(const char *name, size_t section)
{
    enum { LAST = sizeof sections / sizeof *sections - 1 };
    bool found = false;
    if (section != LAST)
        return is_in(sections[section].verbs, name);
    for (size_t s = 0; s < LAST; s++)
        found = found || is_in(sections[s].verbs, name);
    return !found;
}

static void put_section(const cli_verb *verbs, size_t count, size_t section, fa_buf *out)
{
    bool begun = false;
    for (size_t i = 0; i < count; i++) {
        if (!is_in_section(verbs[i].name, section))
            continue;
        if (!begun) {
            fa_buf_text(out, "\n");
            cli_styled(out, CLI_BOLD, sections[section].heading);
            fa_buf_text(out, "\n");
        }
        begun = true;
        fa_buf_printf(out, "  %-10s  ", verbs[i].name);
        put_wrapped(out, verbs[i].summary, 14, 14);
    }
}

void cli_help_overview(const cli_verb *verbs, size_t count, bool all, fa_buf *out)
{
    struct options options = {out, !all};
    put_wrapped(
        out,
        "fa-tune finds, proves and remembers the fastest CUDA kernel for a problem on a GPU: "
        "attention, with kernels that it brings, or a kernel of your own.",
        0, 0);
    fa_buf_text(out, "\n  fa-tune --gpu L4 --seq 512        attention\n"
                     "  fa-tune conv2d.cu --gpu L4        a kernel of your own\n\n"
                     "usage: fa-tune [VERB] [FILE.cu] [OPTIONS]\n");
    for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
        put_section(verbs, count, s, out);
    if (!all) {
        fa_buf_text(out, "\n");
        cli_styled(out, CLI_BOLD, "Options of tune, the default verb, that people use first");
        fa_buf_text(out, "\n");
    }
    cli_options_each(verbs[0].groups, fa_operation_of(NULL), put_option, &options);
    fa_buf_text(out, "\n");
    if (!all) {
        put_wrapped(out,
                    "`fa-tune help all` has all options of tune, `fa-tune help VERB` those of "
                    "another verb.",
                    0, 0);
        return;
    }
    put_wrapped(out,
                "Where an option is given twice, the last value counts. Exit status: 0 done, 1 "
                "failed, 2 wrong usage, 130 stopped by Ctrl-C.",
                0, 0);
    put_wrapped(out,
                "Environment: FA_TUNE_STORE, FA_TUNE_LOCAL_STORE, FA_TUNE_LEASE, FA_TUNE_SYSTEM, "
                "FA_TUNE_SERVER, FA_TUNE_TOKEN_FILE, FA_TUNE_TEMPLATES, FA_TUNE_NVRTC, "
                "FA_TUNE_LIBCUDA, FA_TUNE_WORKER, NO_COLOR.",
                0, 0);
}

/* A line that stands in from the margin stays as it is. In a narrower terminal the words behind its command, which
 * three spaces part from it, go below it. */
static void put_example(fa_buf *out, const char *line, size_t length)
{
    size_t command = 2, width = fa_help_width();
    while (command + 3 < length && memcmp(line + command, "   ", 3) != 0)
        command++;
    if (length <= width || command + 3 >= length) {
        fa_buf_append(out, line, length);
        fa_buf_text(out, "\n");
        return;
    }
    size_t words = command + strspn(line + command, " ");
    fa_buf_append(out, line, command);
    fa_buf_text(out, "\n      ");
    fa_wrap(out, line + words, length - words, 6, 6, width);
    fa_buf_text(out, "\n");
}

/* Paragraphs are filled. */
static void put_details(fa_buf *out, const char *details)
{
    fa_buf paragraph = {0};
    while (*details != 0) {
        size_t length = strcspn(details, "\n");
        if (length == 0 || details[0] == ' ') {
            if (paragraph.size > 0)
                put_wrapped(out, paragraph.data, 0, 0);
            fa_buf_clear(&paragraph);
            put_example(out, details, length);
        } else {
            fa_buf_text(&paragraph, paragraph.size > 0 ? " " : "");
            fa_buf_append(&paragraph, details, length);
        }
        details += length + (details[length] == '\n');
    }
    if (paragraph.size > 0)
        put_wrapped(out, paragraph.data, 0, 0);
    out->failed |= paragraph.failed;
    fa_buf_free(&paragraph);
}

/* `check` is of a file: without it there are no sizes to tell, and the fields of attention are not among them. */
static unsigned groups_told(const cli_verb *verb, const fa_operation *operation)
{
    bool no_file = (verb->groups & CLI_GROUP_CHECK) != 0 && operation == fa_operation_of(NULL);
    return no_file ? verb->groups & ~(unsigned)CLI_GROUP_PROBLEM : verb->groups;
}

void cli_help_verb(const cli_verb *verb, const fa_operation *operation, fa_buf *out)
{
    struct options options = {out, false};
    fa_buf_printf(out, "fa-tune %s: ", verb->name);
    put_wrapped(out, verb->summary, strlen(verb->name) + 10, 0);
    fa_buf_printf(out, "\nusage: fa-tune %s", verb->name);
    cli_options_operands(verb->groups, out);
    fa_buf_text(out, " [OPTIONS]\n");
    if (verb->details[0] != 0) {
        fa_buf_text(out, "\n");
        put_details(out, verb->details);
    }
    cli_options_each(groups_told(verb, operation), operation, put_option, &options);
}

/* ---- JSON -----------------------------------------------------------------------------------*/
struct listing {
    const fa_operation *operation;
    cJSON *options;
    bool sweeps; /* the verb tunes: --effort cached is refused */
};

static void add_option(void *context, const cli_option_spec *spec)
{
    struct listing *listing = context;
    if (spec->kind == KIND_HEADING)
        return;
    cJSON *option = cJSON_CreateObject();
    int index = cli_option_field(spec);
    const fa_field *field = index >= 0 ? &listing->operation->field[index] : NULL;
    bool list = spec->value != NULL && strcmp(spec->value, "LIST") == 0;
    const char *const *choices = spec->choices;
    char letter[3] = {'-', cli_option_letter(spec), 0};
    if (field != NULL)
        choices = field->choice;
    fa_json_add_text(option, "name", spec->name);
    if (letter[1] != 0)
        fa_json_add_text(option, "short", letter);
    fa_json_add_text(option, "value", spec->value); /* absent: a flag */
    fa_json_add_text(option, "help", spec->help);
    fa_json_add_bool(option, "list", list); /* several values between commas */
    cJSON *names = fa_json_add_array(option, "choices");
    for (int i = 0; choices != NULL && choices[i] != NULL; i++)
        if (choices[i][0] != 0 && !(listing->sweeps && strcmp(choices[i], "cached") == 0))
            fa_json_push(names, cJSON_CreateString(choices[i]));
    if (list && field != NULL && field->both[0] != 0)
        fa_json_push(names, cJSON_CreateString("both"));
    for (int i = 0; strcmp(spec->name, "--operation") == 0 && fa_operation_at(i) != NULL; i++)
        fa_json_push(names, cJSON_CreateString(fa_operation_at(i)->name));
    if (strcmp(spec->name, "--model") == 0)
        cli_options_models(listing->operation, names);
    fa_json_push(listing->options, option);
}

static cJSON *verb_json(const cli_verb *verb, const fa_operation *operation)
{
    cJSON *json = cJSON_CreateObject();
    fa_buf operands = {0};
    cli_options_operands(verb->groups, &operands);
    fa_json_add_text(json, "name", verb->name);
    fa_json_add_text(json, "summary", verb->summary);
    fa_json_add_text(json, "details", verb->details);
    fa_json_add_text(json, "operands", operands.size > 0 ? operands.data + 1 : "");
    struct listing listing = {operation, fa_json_add_array(json, "options"),
                              strcmp(verb->name, "sweep") == 0};
    if (verb->run != NULL) /* else it is another program, with options of its own */
        cli_options_each(groups_told(verb, operation), operation, add_option, &listing);
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
