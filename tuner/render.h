/* SPDX-License-Identifier: Apache-2.0
 *
 * From a candidate to the text that NVRTC sees: a #define prologue in front of the template.
 */
#ifndef FA_TUNER_RENDER_H
#define FA_TUNER_RENDER_H

#include "manifest.h"

#include "buf.h"

/* The rendered source of a candidate: every tunable and every let as a macro, but for lets that read
 * fields which do not shape the source (batch, heads, lengths), so that one cubin serves problems of every size. Names of the manifest's
 * "run_time" are not rendered, nor are lets that read them, nor FA_SMEM_BYTES where it does: configs that differ in such
 * names alone have one source, and one cubin. The text ends with
 *   extern "C" __device__ const char fa_tune_config[] = "fa_tune_config=family=...;BLOCK_M=...;";
 * so that a cubin says what it was made from: the family, every tunable not of "run_time", then FA_SM and the operation's
 * fields that shape the source (HEAD_DIM, DTYPE_BF16, CAUSAL, ALIGNED), each NAME=value and ';'. */
int fa_render(const fa_templates *templates, const fa_task *task, const fa_candidate *candidate,
              fa_buf *ret_source, fa_diag *diag);

/* Whether two configs of one problem's space render to the same source. */
bool fa_render_is_same(const fa_family_list *families, const fa_candidate *a,
                       const fa_candidate *b);

/* The rendered source of the operation's reference and checking kernels: the file that "reference" of
 * its operation.json names (attn_ref.cu). It ends with the same string:
 * "fa_tune_config=family=attn_ref;FA_SM=...;HEAD_DIM=...;...". Of a kernel specification it is the answer's file, with the
 * macros of the default config of the task's families, or the checking kernels alone. */
int fa_render_reference(const fa_templates *templates, const fa_task *task, fa_buf *ret_source,
                        fa_diag *diag);

/* "sm_89", "sm_90a". */
void fa_render_architecture(const fa_family *family, const fa_gpu *gpu, char *ret_text,
                            size_t size);

/* Hash over source, every header that the source can include, options, architecture and NVRTC identity. */
void fa_render_key(const fa_templates *templates, const char *source, const char *options,
                   const char *architecture, const char *nvrtc_identity, char ret_key[FA_HASH_HEX]);

/* FA_EINVAL with a sentence, where a text of the problem is no snippet. */
int fa_render_check_snippets(const fa_problem *problem, fa_diag *diag);

#endif
