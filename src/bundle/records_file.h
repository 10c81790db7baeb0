/* SPDX-License-Identifier: Apache-2.0
 *
 * The records file: a bundle's source as text, one winner a line, for version control.
 *
 *   {"fa_tune_records":1,"made":"2026-11-20","families":{"attn_fwd_sm80":"<SHA-256>",…}}
 *   {"gpu":"L4","dtype":"fp16","causal":"none","head_dim":64,"batch":32,"heads":32,"seq":512,
 *    "origin":"predicted","config":{"family":…,"tunables":{…}},"predicted_us":38.1,"funnel":[…]}
 *
 * Origins are measured, transferred and predicted. A problem has the fields of its operation, which is
 * named when it is not the default one; what is left out is the usual: heads_kv as heads, seq_k as seq,
 * bhsd, no LSE, aligned. A measured line also has median_us, low_us, high_us,
 * default_us, driver, nvrtc and cubin: the key of the cubin that was measured, by which anybody can
 * tell whether that is still the kernel.
 */
#ifndef FA_BUNDLE_RECORDS_FILE_H
#define FA_BUNDLE_RECORDS_FILE_H

#include "fa_tune.h"
#include "hash.h"
#include "manifest.h"
#include "store.h"

enum { FA_RECORDS_MAX = 20000, FA_RECORDS_FAMILIES = 32, FA_RECORDS_BYTES_MAX = 64 << 20 };

typedef struct fa_records {
    int64_t made; /* unix time of the day */
    int families;
    struct {
        char name[FA_NAME_MAX];
        char hash[FA_HASH_HEX];
    } family[FA_RECORDS_FAMILIES];
    /* Of each: problem, gpu (the catalogue's), origin, config, times, driver, nvrtc, cubin key and
     * funnel. */
    fa_answer *record;
    int32_t count;
    size_t capacity;
} fa_records;

int fa_records_read(const char *path, fa_records *ret_records, fa_diag *diag);
/* Sorts as the catalogue does, then by problem; the file is replaced whole. */
int fa_records_write(fa_records *records, const char *path, fa_diag *diag);
int fa_records_append(fa_records *records, const fa_answer *record, fa_diag *diag);
void fa_records_free(fa_records *records);
/* The families as they are today. */
int fa_records_families(fa_records *records, const fa_templates *templates,
                        const fa_family_list *families, fa_diag *diag);
/* NULL, or the family by which the file and today differ. */
const char *fa_records_moved(const fa_records *file, const fa_records *today);

#endif
