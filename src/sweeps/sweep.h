/* SPDX-License-Identifier: Apache-2.0
 *
 * What the queue (queue.c) and those who work on it (sweep.c) share.
 */
#ifndef FA_SWEEPS_SWEEP_H
#define FA_SWEEPS_SWEEP_H

#include "fa_tune.h"
#include "store.h"

/* How an item is tuned, as the store keeps it with a sweep. */
int fa_item_ask_read(const char *text, fa_ask *ret_ask, fa_diag *diag);

/* Checks a caller's request; a shorter struct of an older version is completed with zeros. */
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag);
void fa_sweep_key(const fa_sweep_request *request, char ret_key[65]);
/* Enters it for workers. `work` is held. */
int fa_sweep_enqueue(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                     fa_diag *diag);
/* Enters it, under the key and with the plan and budget of ret_sweep, which then is as stored. `work` is held. */
int fa_sweep_enter(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                   fa_diag *diag);
/* FA_EIO, with its sentence: the store is a server's that does not answer now. `work` is held. */
int fa_sweep_need_server(fa_tuner *tuner, fa_diag *diag);
/* The name under which items for a GPU are queued: the catalogue's, where it knows the GPU. */
void fa_sweep_gpu_type(const fa_gpu *gpu, char ret_name[64]);

#endif
