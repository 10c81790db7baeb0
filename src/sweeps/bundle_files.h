/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners as lines of JSON, as `fa-tune show --json` has them: for version control, and for other programs. What is read
 * may be anybody's.
 *
 *   {"problem":{"operation":"attn_fwd",…},"gpu":{"name":"H200",…},"answer":{"origin":"measured","config":{…},
 *    "median_us":…,"cubin_key":…,"nvrtc":…,"driver_version":…,"unix_time":…,"funnel":{…},…},"trials":[…]}
 *
 * "trials" (src/bundle/trials.c) is in what is shown of a bundle. Members that a compile of the config gives again are
 * passed over. A GPU is one of the catalogue, by its name or by its silicon. A whole document of `show --json` is its
 * "winners". A line with "peer" is a baseline, in the form of a file of baselines.
 */
#ifndef FA_SWEEPS_BUNDLE_FILES_H
#define FA_SWEEPS_BUNDLE_FILES_H

#include "buf.h"
#include "session.h"

enum { FA_LINES_MAX = 20000, FA_LINES_BYTES_MAX = 64 << 20 };

typedef struct fa_line {
    fa_answer answer; /* what the line says; its GPU is the catalogue's */
    fa_study_trial *trial; /* that were measured beside it */
    size_t trials;
    /* What its config is today; `build` is -1 where it cannot be: */
    fa_candidate candidate;
    char key[FA_HASH_HEX];
    int32_t build;
} fa_line;

typedef struct fa_lines {
    fa_line *line;
    size_t count, capacity;
    fa_baseline *baseline;
    size_t baselines, baseline_capacity;
    /* As they are compiled: */
    fa_store *part; /* of fa_portable_new(): their winners and cubins */
    int32_t failed; /* lines whose config no longer compiles cleanly: left out */
} fa_lines;

/* Those that source->keep wants, of source->file. FA_ECORRUPT: a line is none; FA_EVERSION: another version made them; FA_ENOTFOUND: no
 * such file, or none is wanted. */
int fa_lines_read(const fa_import_options *source, fa_lines *ret_lines, fa_diag *diag);
void fa_lines_free(fa_lines *lines);

/* Joins the measured trials of its scope to a winner's evidence, best first, the first few with samples; a winner that was
 * imported keeps those that it brought. */
int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag);

#endif
