/* SPDX-License-Identifier: Apache-2.0
 *
 * The records file: a bundle's source as text, one winner a line, for version control.
 *
 *   {"fa_tune_records":2,"made":"2026-11-20","families":{"attn_fwd_sm80":"<SHA-256>",…}}
 *   {"gpu":"L4","dtype":"fp16","causal":"none","head_dim":64,"batch":32,"heads":32,"seq":512,
 *    "origin":"predicted","config":{"family":…,"tunables":{…}},"predicted_us":38.1,"funnel":[…]}
 *
 * Origins are measured, transferred and predicted. A problem has the fields of its operation, which is
 * named when it is not the default one; what is left out is the usual: heads_kv as heads, seq_k as seq,
 * bhsd, no LSE, aligned. A measured line also has median_us, low_us, high_us,
 * default_us, driver, nvrtc and cubin: the key of the cubin that was measured, by which anybody can
 * tell whether that is still the kernel; and "trials", what was measured beside it, as trial_list.h has it.
 *
 * A line with "peer" is a baseline: what another kernel takes for the problem of a line on that GPU, in
 * the form in which a file of baselines has it.
 */
#ifndef FA_BUNDLE_RECORDS_FILE_H
#define FA_BUNDLE_RECORDS_FILE_H

#include "records.h"

/* FA_ECORRUPT: what the file holds is no records; FA_EVERSION: another version made them. */
int fa_records_read(const char *path, fa_records *ret_records, fa_diag *diag);
/* Sorts as the catalogue does, then by problem; the file is replaced whole. */
int fa_records_write(fa_records *records, const char *path, fa_diag *diag);

#endif
