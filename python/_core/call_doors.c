/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that are calls of attention, and what each calls its arguments: attention(); attention_varlen(), with
 * the names of flash_attn_varlen_func; attention_decode(), with those of flash_attn_with_kvcache.
 *
 * Workload: one to fifteen names a call, which the interpreter has interned: they are found by address.
 */
#include "call_steps.h"

#define AT(member) (int)(offsetof(struct arguments, member) / sizeof(PyObject *))
#define EXTRA(which) (AT(extra) + (which))
#define SERVING_NAMES                                                                              \
    {"softmax_scale", AT(scale), NULL}, {"causal", AT(causal), NULL},                              \
        {"window_size", AT(window), NULL}, {"softcap", AT(softcap), NULL}, {"out", AT(out), NULL}, \
        {"return_softmax_lse", AT(return_lse), NULL}, {"block_table", EXTRA(BLOCK_TABLE), NULL},   \
        {"cu_seqlens_q", EXTRA(CU_SEQLENS_Q), NULL}, {"max_seqlen_q", AT(max_seqlen_q), NULL},     \
        {"max_seqlen_k", AT(max_seqlen_k), NULL}, {"s_aux", EXTRA(SINKS), NULL},                   \
        {"sinks", EXTRA(SINKS), NULL}, {"k_descale", EXTRA(K_SCALE), NULL},                        \
        {"v_descale", EXTRA(V_SCALE), NULL}, {"stream", AT(stream), NULL},                         \
        {"num_splits", IGNORED, NULL}, {"scheduler_metadata", IGNORED, NULL},                      \
        {"q_descale", AT(q_scale), NULL}, {"score", AT(score), NULL}, {"mask", AT(mask), NULL},    \
        {"buffers", AT(buffers), NULL},                                                            \
    {                                                                                              \
        "alibi_slopes", OFF_OR_REFUSED, NULL                                                       \
    }

static struct keyword of_attention[] = {
    {"q", AT(q), NULL},
    {"k", AT(k), NULL},
    {"v", AT(v), NULL},
    {"out", AT(out), NULL},
    {"causal", AT(causal), NULL},
    {"scale", AT(scale), NULL},
    {"layout", AT(layout), NULL},
    {"return_lse", AT(return_lse), NULL},
    {"stream", AT(stream), NULL},
    {"window", AT(window), NULL},
    {"softcap", AT(softcap), NULL},
    {"max_seqlen_q", AT(max_seqlen_q), NULL},
    {"max_seqlen_k", AT(max_seqlen_k), NULL},
    {"cu_seqlens_q", EXTRA(CU_SEQLENS_Q), NULL},
    {"cu_seqlens_k", EXTRA(CU_SEQLENS_K), NULL},
    {"seqused_k", EXTRA(SEQUSED_K), NULL},
    {"block_table", EXTRA(BLOCK_TABLE), NULL},
    {"sinks", EXTRA(SINKS), NULL},
    {"q_scale", AT(q_scale), NULL},
    {"k_scale", EXTRA(K_SCALE), NULL},
    {"v_scale", EXTRA(V_SCALE), NULL},
    {"score", AT(score), NULL},
    {"mask", AT(mask), NULL},
    {"buffers", AT(buffers), NULL},
    {"dropout_p", AT(dropout_p), NULL},
    {"dropout_seed", AT(dropout_seed), NULL},
    {NULL, 0, NULL},
};

static struct keyword of_varlen[] = {
    {"q", AT(q), NULL},
    {"k", AT(k), NULL},
    {"v", AT(v), NULL},
    SERVING_NAMES,
    {"cu_seqlens_k", EXTRA(CU_SEQLENS_K), NULL},
    {"seqused_k", EXTRA(SEQUSED_K), NULL},
    {"fa_version", IGNORED, NULL},
    {"deterministic", AT(deterministic), NULL}, /* of gradients: the forward pass is */
    {"dropout_p", AT(dropout_p), NULL},
    {"dropout_seed", AT(dropout_seed), NULL},
    {"q_v", OFF_OR_REFUSED, NULL},
    {"return_attn_probs", OFF_OR_REFUSED, NULL},
    {"cp_world_size", ONE_OR_REFUSED, NULL},
    {"cp_rank", OFF_OR_REFUSED, NULL},
    {"cp_tot_seqused_k", OFF_OR_REFUSED, NULL},
    {NULL, 0, NULL},
};

static struct keyword of_decode[] = {
    {"q", AT(q), NULL},
    {"k_cache", AT(k), NULL},
    {"v_cache", AT(v), NULL},
    SERVING_NAMES,
    {"v_dim", AT(v_dim), NULL},
    {"cache_seqlens", EXTRA(SEQUSED_K), NULL},
    {"page_table", EXTRA(BLOCK_TABLE), NULL},
    {"pack_gqa", IGNORED, NULL},
    {"sm_margin", IGNORED, NULL},
    {"rotary_interleaved", IGNORED, NULL},
    {"k", OFF_OR_REFUSED, NULL}, /* to be appended */
    {"v", OFF_OR_REFUSED, NULL},
    {"qv", OFF_OR_REFUSED, NULL},
    {"rotary_cos", OFF_OR_REFUSED, NULL},
    {"rotary_sin", OFF_OR_REFUSED, NULL},
    {"cache_batch_idx", OFF_OR_REFUSED, NULL},
    {"cache_leftpad", OFF_OR_REFUSED, NULL},
    {"cu_seqlens_k_new", OFF_OR_REFUSED, NULL},
    {NULL, 0, NULL},
};

const struct door doors[DOORS] = {
    [DOOR_ATTENTION] = {"attention", of_attention, FA_BHSD, NULL},
    [DOOR_VARLEN] = {"attention_varlen", of_varlen, FA_BSHD,
                     "it computes attention and its gradients alone"},
    [DOOR_DECODE] = {"attention_decode", of_decode, FA_BSHD,
                     "write new keys and values into the cache, rotated, before the call"},
};

int call_doors_init(void)
{
    for (int i = 0; i < DOORS; i++)
        for (struct keyword *keyword = doors[i].keywords; keyword->name != NULL; keyword++)
            if ((keyword->interned = PyUnicode_InternFromString(keyword->name)) == NULL)
                return -1;
    return 0;
}

int call_find_keyword(const struct door *door, PyObject *name)
{
    const struct keyword *keywords = door->keywords;
    for (int i = 0; keywords[i].name != NULL; i++)
        if (keywords[i].interned == name)
            return i;
    for (int i = 0; keywords[i].name != NULL; i++)
        if (PyUnicode_Compare(keywords[i].interned, name) == 0)
            return i;
    return -1;
}

const char *call_name_of(const struct call *c, PyObject *const *argument)
{
    const struct keyword *keyword = c->door->keywords;
    int wanted = (int)(argument - (PyObject *const *)(const void *)&c->is);
    if (c->named[wanted] > 0)
        return keyword[c->named[wanted] - 1].name;
    while (keyword->name != NULL && keyword->argument != wanted)
        keyword++;
    return keyword->name != NULL ? keyword->name : "an argument";
}
