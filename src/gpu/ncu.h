/* SPDX-License-Identifier: Apache-2.0
 *
 * Nsight Compute's command line, ncu: where it is, how it is called, and what it printed.
 *
 * May be used by: engine. Thread-safety: any thread.
 */
#ifndef FA_GPU_NCU_H
#define FA_GPU_NCU_H

#include "buf.h"

enum { FA_NCU_PATH_MAX = 4096 };

/* FA_TUNE_NCU, else in the folders of PATH, else below /usr/local/cuda* and in /opt/nvidia/nsight-compute, the last by
 * name first. Folders that are not absolute are passed over: which program runs does not depend on the current folder.
 * FA_ENOTFOUND with what to install; FA_EINVAL: FA_TUNE_NCU names no program. */
int fa_ncu_locate(char ret_path[FA_NCU_PATH_MAX], fa_diag *diag);

/* A set of metrics, as bits. */
typedef uint64_t fa_ncu_metrics;
/* Appends the names of all metrics that a profile takes but for the `unknown` ones, divided by commas. */
void fa_ncu_names(fa_ncu_metrics unknown, fa_buf *out);

/* Reads what ncu wrote into its log with --csv --page raw: the figures of `count` launches, in their order. Metrics that
 * have no column, or a value that is no number, are not counted (negative). The text may be anything.
 * *ret_unknown: of the metrics that were asked for, those that ncu refused to collect; ask for the rest then. Set where
 * FA_EVERSION is returned, to at least one metric that is not in `unknown`.
 * FA_ENOTSUP: this user may not read counters, and what to allow; FA_EWORKER: ncu failed, and how; FA_ECORRUPT: it says
 * something else than was asked for. */
int fa_ncu_read(const char *text, size_t size, int count, fa_ncu_metrics unknown,
                fa_profile_launch *ret_launch, fa_ncu_metrics *ret_unknown, fa_diag *diag);

#endif
