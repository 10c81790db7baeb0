/* SPDX-License-Identifier: Apache-2.0
 *
 * Records: a bundle's source as text, for version control: winners without their cubins, each with its evidence, and
 * baselines. In memory, and as a file of JSON lines.
 *
 *   {"fa_tune_records":3,"made":"2026-11-20","families":{"attn_fwd_sm80":"<hash>",…}}
 *   {"problem":{"operation":"attn_fwd",…},"origin":"measured","cubin_key":…,"gpu":"H200","nvrtc":…,"driver_version":…,
 *    "config":{"family":…,"tunables":{…}},"predicted_us":38.1,"median_us":…,"evidence":{"space":…,"trials":[…]}}
 *
 * A line is the row that a bundle has of the winner (FA_WINNER_FIELDS), less what a compile of its config gives again.
 * Origins are measured, transferred and predicted; only measured lines have times of their own and
 * "cubin_key", the key of the cubin that was measured, by which anybody can tell whether that is still the kernel.
 * "driver_version" is the driver under which the cubin was proved in the store that wrote the line; an import leaves it
 * out. "unix_time" is when a measured winner was measured; a line without it was measured by the day of the file.
 *
 * A line with "peer" is a baseline: what another kernel takes for the problem of a line on that GPU, in
 * the form in which a file of baselines has it.
 */
#ifndef FA_BUNDLE_RECORDS_H
#define FA_BUNDLE_RECORDS_H

#include "fa_tune.h"
#include "hash.h"
#include "json_struct.h"
#include "manifest.h"
#include "store.h"

enum {
    FA_RECORDS_VERSION = 3,
    FA_RECORDS_MAX = 20000,
    FA_RECORDS_FAMILIES = 32,
    FA_RECORDS_BYTES_MAX = 64 << 20
};

typedef struct fa_records {
    int64_t made; /* unix time of the day */
    int families;
    struct {
        char name[FA_NAME_MAX];
        char hash[FA_HASH_HEX];
    } family[FA_RECORDS_FAMILIES];
    /* Of each: problem, silicon, the catalogue's name of the GPU, origin, config, times, and the evidence, which is
     * owned. */
    fa_winner_record *record;
    int32_t count;
    size_t capacity;
    fa_baseline *baseline;
    int32_t baselines;
    size_t baseline_capacity;
} fa_records;

/* Takes the evidence when it succeeds. */
int fa_records_append(fa_records *records, const fa_winner_record *record, fa_diag *diag);
/* In the place of the one with the same problem, GPU and peer, if there is one. */
int fa_records_append_baseline(fa_records *records, const fa_baseline *baseline, fa_diag *diag);
void fa_records_free(fa_records *records);
/* The families as they are today. */
int fa_records_families(fa_records *records, const fa_templates *templates,
                        const fa_family_list *families, fa_diag *diag);
/* Whether the file and today have this family in different texts, or one of them lacks it. */
bool fa_records_family_moved(const fa_records *file, const fa_records *today, const char *family);
/* NULL, or the family by which the file and today differ. */
const char *fa_records_moved(const fa_records *file, const fa_records *today);

/* ---- the file -------------------------------------------------------------------------------*/
/* FA_ECORRUPT: what the file holds is no records; FA_EVERSION: another version made them. */
int fa_records_read(const char *path, fa_records *ret_records, fa_diag *diag);
/* Sorts as the catalogue does, then by problem; the file is replaced whole. */
int fa_records_write(fa_records *records, const char *path, fa_diag *diag);

/* A baseline as JSON: a line of a file of baselines, and of one of records. What is read may be anybody's. */
/* The catalogue's name of a GPU that it knows under this one, else the name itself. */
void fa_baseline_gpu(const char *name, char ret_name[64]);
/* FA_EINVAL with a sentence: also of lines whose times are made up ("dry_run"). */
int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag);

/* ---- trials of an evidence ------------------------------------------------------------------*/
/* Trials that travel with a winner, in its evidence: in a bundle and in a line of records alike.
 *
 * Workload: some dozen measured trials a winner, the best of them with their samples. What is read may
 * be anybody's.
 *
 *   "trials": [{"config":{…},"predicted_us":…,"median_us":…,"low_us":…,"high_us":…,"max_error":…,"tolerance":…,
 *               "raced":true,"seed":"…","environment":{…},"clocks":{…},"samples_us":[…]},…] */
enum { FA_TRIAL_LIST_MAX = 128, FA_TRIAL_SAMPLES_MAX = 128 };

typedef struct fa_trial_list {
    fa_trial_record *record; /* owns its samples, environment and clocks */
    size_t count, capacity;
} fa_trial_list;

/* Joins a copy. FA_ENOMEM. */
int fa_trial_list_add(fa_trial_list *list, const fa_trial_record *record);
/* Leaves a trial without its samples and circumstances. */
void fa_trial_list_lighten(fa_trial_record *record);
/* The first `left` stay. */
void fa_trial_list_cut(fa_trial_list *list, size_t left);
void fa_trial_list_free(fa_trial_list *list);

/* The "trials" of an evidence. NULL: out of memory. */
cJSON *fa_trial_list_to_json(const fa_trial_list *list);
/* The same of a text, which may be NULL; a trial that cannot be is passed over. FA_ENOMEM. */
int fa_trial_list_from_evidence(const char *evidence, fa_trial_list *list, fa_diag *diag);

#endif
