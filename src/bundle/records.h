/* SPDX-License-Identifier: Apache-2.0
 *
 * Records: winners without their cubins, each with what was measured beside it, and baselines (records.c); and their
 * file (records_file.c).
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
 * tell whether that is still the kernel; "measured_under", as far as it was recorded; and "trials", what was measured
 * beside it, as trial_list.h has it. "driver" says under which driver the cubin was proved in the store that wrote the
 * line, and is 0 after an import; "measured_under" stays what it was.
 *
 * A line with "peer" is a baseline: what another kernel takes for the problem of a line on that GPU, in
 * the form in which a file of baselines has it.
 */
#ifndef FA_BUNDLE_RECORDS_H
#define FA_BUNDLE_RECORDS_H

#include "fa_tune.h"
#include "hash.h"
#include "json.h"
#include "manifest.h"
#include "store.h"
#include "trial_list.h"

enum {
    FA_RECORDS_VERSION = 2,
    FA_RECORDS_MAX = 20000,
    FA_RECORDS_FAMILIES = 32,
    FA_RECORDS_BYTES_MAX = 64 << 20
};

/* What a winner's times were measured under: 0 and "" are not recorded. */
typedef struct fa_circumstances {
    int32_t cuda;    /* the newest version that the driver serves, 13000: 13.0 */
    char driver[80]; /* its release, "580.159.04" */
    int32_t sm_mhz, memory_mhz, temperature_c, power_limit_w;
    char throttle[160];
} fa_circumstances;

typedef struct fa_record {
    /* Problem, gpu (the catalogue's), origin, config, times, driver, nvrtc, cubin key and funnel. */
    fa_answer answer;
    char *trials; /* owned: fa_trial_list_to_record's text, "" or NULL: none */
    fa_circumstances under;
} fa_record;

typedef struct fa_records {
    int64_t made; /* unix time of the day */
    int families;
    struct {
        char name[FA_NAME_MAX];
        char hash[FA_HASH_HEX];
    } family[FA_RECORDS_FAMILIES];
    fa_record *record;
    int32_t count;
    size_t capacity;
    fa_baseline *baseline;
    int32_t baselines;
    size_t baseline_capacity;
} fa_records;

/* Takes `trials`, which may be NULL, when it succeeds. */
int fa_records_append(fa_records *records, const fa_answer *answer, char *trials, fa_diag *diag);
/* A list as a record has it: text that the caller frees. FA_ENOMEM. */
int fa_records_trials(const fa_trial_list *list, char **ret_text, fa_diag *diag);
/* Of the trial of this config in a list. FA_ENOMEM. */
int fa_records_circumstances(const fa_trial_list *list, const fa_config *config,
                             fa_circumstances *ret_under, fa_diag *diag);
/* NULL: out of memory. Without a member that is not recorded. */
cJSON *fa_circumstances_to_json(const fa_circumstances *under);
/* json may be NULL. FA_EINVAL with a sentence. */
int fa_circumstances_from_json(const cJSON *json, fa_circumstances *ret_under, const char *where,
                               fa_diag *diag);
/* In the place of the one with the same problem, GPU and peer, if there is one. */
int fa_records_append_baseline(fa_records *records, const fa_baseline *baseline, fa_diag *diag);
void fa_records_free(fa_records *records);
/* The families as they are today. */
int fa_records_families(fa_records *records, const fa_templates *templates,
                        const fa_family_list *families, fa_diag *diag);
/* Leaves out the records and baselines that `keep` does not want; the order stays. */
void fa_records_keep(fa_records *records, bool (*keep)(void *context, const fa_answer *answer),
                     void *context);
/* Whether the file and today have this family in different texts, or one of them lacks it. */
bool fa_records_family_moved(const fa_records *file, const fa_records *today, const char *family);
/* NULL, or the family by which the file and today differ. */
const char *fa_records_moved(const fa_records *file, const fa_records *today);

/* ---- the file (records_file.c) -------------------------------------------------------------*/
/* FA_ECORRUPT: what the file holds is no records; FA_EVERSION: another version made them. */
int fa_records_read(const char *path, fa_records *ret_records, fa_diag *diag);
/* Sorts as the catalogue does, then by problem; the file is replaced whole. */
int fa_records_write(fa_records *records, const char *path, fa_diag *diag);

/* A baseline as JSON: a line of a file of baselines, and of one of records. What is read may be anybody's. */
/* The catalogue's name of a GPU that it knows under this one, else the name itself. */
void fa_baseline_gpu(const char *name, char ret_name[64]);
/* FA_EINVAL with a sentence: also of lines whose times are made up ("dry_run"). */
int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag);
/* NULL: out of memory. */
cJSON *fa_baseline_to_json(const fa_baseline *baseline);

#endif
