/* SPDX-License-Identifier: Apache-2.0
 *
 * A candidate without a tune: its source and key, and the gates of its cubin that need no GPU.
 */
#ifndef FA_ENGINE_CANDIDATE_H
#define FA_ENGINE_CANDIDATE_H

#include "request.h"

#include "buf.h"
#include "cubin.h"
#include "hash.h"

/* What a cubin is stored and looked up by: all that went into it. */
void fa_cubin_key(const fa_tuner *tuner, const fa_problem *problem, const char *source,
                  const char *architecture, const char *nvrtc_identity, char ret_key[FA_HASH_HEX]);
/* The source of a candidate for the target, its architecture and its cubin key. */
int fa_render_candidate(fa_tuner *tuner, const fa_target *target, const fa_candidate *candidate,
                        const char *nvrtc_identity, fa_buf *ret_source, char *ret_architecture,
                        size_t size, char ret_key[FA_HASH_HEX], fa_diag *diag);
/* Why a cubin may not go on, or FA_STATUS_COMPILED. */
fa_status fa_gate_cubin(const fa_gpu *gpu, const fa_trial *trial, const fa_cubin_info *info,
                        const char *log, char *ret_reason, size_t size);

/* What a record's config renders to today, and the cubin key that it has with this NVRTC. */
typedef struct fa_rendered {
    fa_candidate candidate;
    char architecture[32];
    char *source; /* malloced */
    char key[FA_HASH_HEX];
} fa_rendered;
/* FA_ENOKERNEL: the config is not of today's space. */
int fa_record_render(fa_tuner *tuner, const fa_answer *record, const char *nvrtc,
                     fa_rendered *ret_rendered, fa_diag *diag);
/* Whether the kernel that was measured is the one that its config means today. */
bool fa_record_holds(fa_tuner *tuner, const fa_answer *record);

#endif
