/* SPDX-License-Identifier: Apache-2.0
 *
 * What --model names: a model of the operation's file, however its name is written, or the config.json of one, as
 * transformers writes it. Either comes to a list of layers: objects of fields.
 *
 * Workload: once a sweep; a config.json has some kilobytes and may be anybody's.
 */

#include "options.h"
#include "buf.h"
#include "error.h"
#include "json.h"
#include "text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ----------------------------------------------------------------------------------*/
enum { PLAIN_MAX = 64, MODELS_MAX = 256 };

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
    return cli_refuse("--model", name, "a known model, nor the path of a config.json", names, diag);
}

/* ---- a config.json --------------------------------------------------------------------------*/
enum { CONFIG_MAX = 4 << 20 };

/* The first of these names that has a number above 0; else `absent`. */
static int number(const cJSON *config, const char *const *names, int absent)
{
    for (; *names != NULL; names++) {
        const cJSON *item = fa_json_member(config, *names);
        if (cJSON_IsNumber(item) && item->valuedouble >= 1 && item->valuedouble <= INT32_MAX)
            return item->valueint;
    }
    return absent;
}

#define NUMBER(config, absent, ...) number(config, (const char *const[]){__VA_ARGS__, NULL}, absent)

static bool is_text(const cJSON *item, const char *text)
{
    return cJSON_IsString(item) && strstr(item->valuestring, text) != NULL;
}

static bool has_layers_of(const cJSON *types, const char *kind)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, types)
        if (is_text(item, kind))
            return true;
    return false;
}

/* The part that describes the language model, where others describe an image's or a voice's. */
static const cJSON *text_part(const cJSON *config)
{
    static const char *const parts[] = {"text_config", "llm_config", "language_config",
                                        "thinker_config"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (cJSON_IsObject(fa_json_member(config, parts[i])))
            return text_part(fa_json_member(config, parts[i]));
    return config;
}

static void add_number(cJSON *layer, const char *field, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    fa_json_add_text(layer, field, text);
}

static void add_layer(cJSON *layers, const cJSON *config, int heads, int window)
{
    cJSON *layer = cJSON_CreateObject();
    int size = NUMBER(config, 0, "hidden_size", "n_embd", "d_model");
    bool one = cJSON_IsTrue(fa_json_member(config, "multi_query")) &&
               !cJSON_IsTrue(fa_json_member(config, "new_decoder_architecture"));
    int kv = NUMBER(config, one ? 1 : heads, "num_key_value_heads", "num_kv_heads", "n_head_kv",
                    "multi_query_group_num");
    int dim = NUMBER(config, size / heads, "head_dim", "d_kv", "kv_channels");
    if (window == 0) { /* Gemma 4 */
        kv = NUMBER(config, kv, "num_global_key_value_heads");
        dim = NUMBER(config, dim, "global_head_dim");
    }
    add_number(layer, "heads_q", heads);
    add_number(layer, "heads_kv", kv);
    add_number(layer, "head_dim", dim);
    const cJSON *type =
        fa_json_member(config, fa_json_member(config, "dtype") != NULL ? "dtype" : "torch_dtype");
    fa_json_add_text(layer, "dtype",
                     is_text(type, "float16") && !is_text(type, "bfloat16") ? "fp16" : "bf16");
    if (NUMBER(config, 0, "attn_logit_softcapping") > 0)
        fa_json_add_text(layer, "softcap", "true");
    if (is_text(fa_json_member(config, "model_type"), "gpt_oss"))
        fa_json_add_text(layer, "sinks", "true");
    if (window > 0) {
        fa_json_add_text(layer, "window", "true");
        add_number(layer, "window_left", window - 1);
    }
    fa_json_push(layers, layer);
}

/* Layers without a window, with one, or both. */
static void add_layers(cJSON *layers, const cJSON *config, int heads)
{
    static const char *const mixed[] = {"gemma2", "gemma3", "gpt_oss", "cohere2"};
    const cJSON *types = fa_json_member(config, "layer_types"),
                *model = fa_json_member(config, "model_type");
    int window = NUMBER(config, 0, "sliding_window");
    if (cJSON_IsFalse(fa_json_member(config, "use_sliding_window")) ||
        window >= NUMBER(config, INT32_MAX, "max_position_embeddings"))
        window = 0;
    bool both = cJSON_IsTrue(fa_json_member(config, "use_sliding_window")) ||
                NUMBER(config, 0, "sliding_window_pattern") > 1;
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++)
        both = both || is_text(model, mixed[i]);
    if (window == 0 || (types != NULL ? has_layers_of(types, "full") : both))
        add_layer(layers, config, heads, 0);
    if (window > 0 && (types == NULL || has_layers_of(types, "sliding")))
        add_layer(layers, config, heads, window);
}

/* What its attention has that no kernel here computes; NULL: nothing that is known. */
static const char *feature_of(const cJSON *config)
{
    return NUMBER(config, 0, "kv_lora_rank") > 0 ? "kv_lora_rank"
           : cJSON_IsTrue(fa_json_member(config, "alibi")) ||
                   is_text(fa_json_member(config, "model_type"), "bloom") ||
                   cJSON_IsTrue(fa_json_member(fa_json_member(config, "attn_config"), "alibi"))
               ? "alibi"
           : fa_json_member(config, "relative_attention_num_buckets") != NULL
               ? "relative_position_bias"
           : has_layers_of(fa_json_member(config, "layer_types"), "chunked")
               ? "chunked_attention_mask"
               : NULL;
}

static int read_config(const fa_operation *operation, const char *path, cJSON **ret_layers,
                       fa_diag *diag)
{
    fa_buf text = {0};
    cJSON *json = NULL, *layers = cJSON_CreateArray();
    int rc = fa_input_read(&text, path, CONFIG_MAX, diag);
    rc = rc != 0 ? fa_fail_in(diag, rc, "%s", path)
                 : fa_json_parse(text.data, text.size, path, &json, diag);
    const cJSON *config = text_part(json);
    int heads = NUMBER(config, 0, "num_attention_heads", "n_head", "n_heads", "num_heads",
                       "decoder_attention_heads");
    const char *feature = feature_of(config);
    if (rc == 0 && feature != NULL && fa_operation_refuse(operation, feature, diag) != 0)
        rc = fa_fail_in(diag, FA_ENOTSUP, "%s", path);
    if (rc == 0 && heads == 0)
        rc = fa_fail(diag, FA_EINVAL,
                     "%s describes no attention: \"num_attention_heads\" is missing", path);
    if (rc == 0)
        add_layers(layers, config, heads);
    fa_buf_free(&text);
    cJSON_Delete(json);
    if (rc == 0)
        *ret_layers = layers;
    else
        cJSON_Delete(layers);
    return rc;
}

/* ---- layers ---------------------------------------------------------------------------------*/
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
    char path[1024];
    struct stat st;
    cJSON *found = NULL, *layers = NULL;
    const bool folder = stat(name, &st) == 0 && S_ISDIR(st.st_mode); /* of a config.json */
    const bool file = length > 5 && strcmp(name + length - 5, ".json") == 0;
    snprintf(path, sizeof path, "%s%s", name, folder ? "/config.json" : "");
    int rc = folder || file
                 ? read_config(operation, path, &found, diag)
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
