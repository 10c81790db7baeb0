/* SPDX-License-Identifier: Apache-2.0
 *
 * What the page must know of an operation to name, filter, group and ask for its problems.
 */
#include "words.h"

#include "json.h"

#include <string.h>

static const char table[] =
    "[{\"name\":\"attn_fwd\",\"title\":\"attention forward\",\"default\":true,"
    "\"counts\":\"TFLOP/s count 4·B·H·Sq·Sk·D operations, half of them when causal. Bytes are Q, K, V "
    "and O moved once.\",\"fields\":["
    "{\"name\":\"dtype\",\"kind\":\"choice\",\"choices\":[\"fp16\",\"bf16\"],\"enum\":\"FA_\","
    "\"shapes_source\":true,\"option\":\"--dtype\"},"
    "{\"name\":\"causal\",\"kind\":\"choice\",\"choices\":[\"none\",\"bottom-right\",\"top-left\"],"
    "\"enum\":\"FA_CAUSAL_\",\"shapes_source\":true,\"option\":\"--causal\"},"
    "{\"name\":\"layout\",\"kind\":\"choice\",\"choices\":[\"bhsd\",\"bshd\"],\"enum\":\"FA_\","
    "\"option\":\"--layout\"},"
    "{\"name\":\"head_dim\",\"kind\":\"integer\",\"default\":64,\"shapes_source\":true,"
    "\"option\":\"--head-dim\",\"label\":\"D\"},"
    "{\"name\":\"batch\",\"kind\":\"integer\",\"default\":4,\"option\":\"--batch\",\"label\":\"B\"},"
    "{\"name\":\"heads_q\",\"kind\":\"integer\",\"default\":8,\"option\":\"--heads\",\"label\":\"H\"},"
    "{\"name\":\"heads_kv\",\"kind\":\"integer\",\"follows\":\"heads_q\",\"option\":\"--heads-kv\"},"
    "{\"name\":\"seq_q\",\"kind\":\"integer\",\"length\":true,\"option\":\"--seq-q\",\"label\":\"S\"},"
    "{\"name\":\"seq_k\",\"kind\":\"integer\",\"length\":true,\"follows\":\"seq_q\","
    "\"option\":\"--seq-k\"},"
    "{\"name\":\"lse\",\"member\":\"want_lse\",\"kind\":\"boolean\",\"option\":\"--lse\"},"
    "{\"name\":\"unaligned\",\"kind\":\"boolean\",\"shapes_source\":true,\"option\":\"--unaligned\"}]}]";

cJSON *report_operations_json(void)
{
    cJSON *json = NULL;
    fa_json_parse(table, strlen(table), "operations", &json, NULL);
    return json;
}
