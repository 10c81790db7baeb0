/* SPDX-License-Identifier: Apache-2.0
 *
 * What --model names: a model of the operation's file, however its name is written, or a file of layers. Either comes to a
 * list of layers: objects of fields.
 *
 * Workload: once a sweep.
 */

#include "options.h"
#include "buf.h"
#include "error.h"
#include "json.h"
#include "text.h"

#include <ctype.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------*/
enum { PLAIN_MAX = 64, MODELS_MAX = 256, LAYERS_MAX = 1 << 20 };

static bool is_left_out(const char *word, size_t size)
{
    static const char *const words[] = {
        "meta",    "instruct", "chat", "hf",       "it",   "base", "pt",  "coder", "math",
        "preview", "bf16",     "fp16", "fp8",      "int4", "int8", "awq", "gptq",  "gguf",
        "mlx",     "4bit",     "8bit", "thinking", "128k", "1m",   "4k",  "8k",    "dense"};
    bool date = size == 4 && strspn(word, "0123456789") >= 4;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(words[i], word, size) == 0 && words[i][size] == 0)
            return true;
    return date;
}

/* What tells a name from others: "meta-llama/Llama-3.1-8B-Instruct" and "llama3.1:8b" are "llama318b". */
static const char *plain(const char *name, char ret[PLAIN_MAX])
{
    const char *slash = strrchr(name, '/');
    size_t used = 0, begin = 0;
    for (const char *at = slash != NULL ? slash + 1 : name;; at++) {
        bool part = isalnum((unsigned char)*at) || *at == '.';
        if (isalnum((unsigned char)*at) && used + 1 < PLAIN_MAX)
            ret[used++] = (char)tolower((unsigned char)*at);
        if (part)
            continue;
        if (begin > 0 && is_left_out(ret + begin, used - begin))
            used = begin;
        ret[used] = 0;
        if (begin == 0 && strcmp(ret, "meta") == 0)
            used = 0;
        begin = used;
        if (*at == 0)
            return ret;
    }
}

static int find_model(const cJSON *models, const char *name, cJSON **ret_layers, fa_diag *diag)
{
    char wanted[PLAIN_MAX], other[PLAIN_MAX], typed[CLI_SHORT_SIZE];
    const char *names[MODELS_MAX + 1] = {NULL};
    const cJSON *item, *found = NULL;
    int count = 0;
    plain(name, wanted);
    cJSON_ArrayForEach (item, models) {
        if (found == NULL && strcmp(plain(item->string, other), wanted) == 0)
            found = item;
    }
    if (cJSON_IsString(found)) /* it has the layers of another */
        found = fa_json_member(models, found->valuestring);
    const char *why = fa_json_string(found, "not_covered");
    if (why != NULL)
        return fa_fail(diag, FA_ENOTSUP, "--model \"%s\" is not covered: %s",
                       cli_text_short(name, typed), why);
    *ret_layers = cJSON_Duplicate(found, true);
    if (found != NULL)
        return *ret_layers != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for a model");
    for (int alike = 1; alike >= 0 && count == 0; alike--) /* those that go on as what was typed */
        cJSON_ArrayForEach (item, models)
            if (count < MODELS_MAX &&
                (!alike || strncmp(plain(item->string, other), wanted, strlen(wanted)) == 0))
                names[count++] = item->string;
    return cli_refuse("--model", name, "a known model, nor a file of layers (.json)", names, diag);
}

/* ---- layers ---------------------------------------------------------------------------------*/
/* Those of a file, which may be anybody's: objects of texts, as `python -m fa_tune.model` writes them. */
static int read_layers(const char *path, cJSON **ret_layers, fa_diag *diag)
{
    fa_buf text = {0};
    cJSON *json = NULL;
    const cJSON *layer, *field;
    int rc = fa_input_read(&text, path, LAYERS_MAX, diag);
    rc = rc != 0 ? fa_fail_in(diag, rc, "%s", path)
                 : fa_json_parse(text.data, text.size, path, &json, diag);
    bool right = cJSON_IsArray(json) && json->child != NULL;
    cJSON_ArrayForEach (layer, json) {
        right = right && cJSON_IsObject(layer);
        cJSON_ArrayForEach (field, layer)
            right = right && cJSON_IsString(field);
    }
    if (rc == 0 && !right)
        rc = fa_fail(
            diag, FA_EINVAL,
            "%s is no list of layers: `python -m fa_tune.model` makes one of a config.json", path);
    fa_buf_free(&text);
    if (rc == 0)
        *ret_layers = json;
    else
        cJSON_Delete(json);
    return rc;
}

static bool names_length(const cli_options *options, const cJSON *layer)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    bool named = false;
    for (int i = 0; i < operation->field_count; i++)
        named |=
            operation->field[i].length && (options->sweep.values[i] != NULL ||
                                           fa_json_member(layer, operation->field[i].name) != NULL);
    return named;
}

/* A layer, with what its work says beside it. */
static void add_work(cJSON *layers, const cJSON *layer, const cJSON *work)
{
    cJSON *both = cJSON_Duplicate(layer, true);
    const cJSON *item;
    cJSON_ArrayForEach (item, work)
        if (fa_json_member(layer, item->string) == NULL)
            fa_json_add_text(both, item->string, item->valuestring);
    fa_json_push(layers, both);
}

/* The work that is asked of each layer is prefill and decode, or training's, unless lengths were given, or are the layer's. */
int cli_model_layers(const cli_options *options, cJSON **ret_layers, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    const cJSON *works =
        options->sweep.training
            ? fa_json_member(fa_json_member(operation->document, "backward"), "work")
            : fa_json_member(operation->document, "model_work");
    const cJSON *layer, *work;
    const char *name = options->sweep.model;
    const size_t length = strlen(name);
    cJSON *found = NULL, *layers = NULL;
    int rc = length > 5 && strcmp(name + length - 5, ".json") == 0
                 ? read_layers(name, &found, diag)
                 : find_model(fa_json_member(operation->document, "models"), name, &found, diag);
    if (rc == 0)
        layers = cJSON_CreateArray();
    cJSON_ArrayForEach (layer, found) {
        if (names_length(options, layer) || cJSON_GetArraySize(works) == 0)
            add_work(layers, layer, NULL);
        else
            cJSON_ArrayForEach (work, works)
                add_work(layers, layer, work);
    }
    cJSON_Delete(found);
    if (rc == 0 && !fa_json_is_whole(layers))
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a model");
    if (rc == 0)
        *ret_layers = layers;
    else
        cJSON_Delete(layers);
    return rc;
}
