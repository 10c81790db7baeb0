/* SPDX-License-Identifier: Apache-2.0
 *
 * System bundles: read where they lie, after the user's own store has said that it has nothing.
 *
 * Workload: one lookup per problem and process, in a file of some thousand winners; the fronts are
 * read and checked once per session (0.2 MB, well under a millisecond), then a lookup is a binary
 * search and two reads.
 *
 * What is checked: nobody but this user or root can have written the file (src/base/owned.h); the
 * hash over header and index; a signature where there is one; the SHA-256 of each part that is
 * used, and that the cubin is what its winner says. A bundle that fails is noted and passed over.
 */
#include "bundles.h"

#include "error.h"
#include "evidence.h"
#include "session.h"
#include "system_bundles.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BUNDLES_MAX = 64 };

struct fa_system {
    fa_bundle *bundle[BUNDLES_MAX];
    int count;
};

static void open_one(fa_tuner *tuner, const char *path)
{
    struct fa_system *system = tuner->system;
    fa_bundle *bundle = NULL;
    fa_diag diag = {{0}};
    if (system->count == BUNDLES_MAX) {
        fa_note(tuner, "system bundle %s is not used: there are more than %d", path, BUNDLES_MAX);
        return;
    }
    int rc = fa_bundle_open(path, true, &bundle, &diag);
    if (rc == 0)
        rc = fa_bundle_read_index(bundle, &diag);
    if (rc == 0) {
        system->bundle[system->count++] = bundle;
        return;
    }
    fa_bundle_close(&bundle);
    fa_note(tuner, "system bundle not used: %s", diag.text);
}

static int is_bundle(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && dot != entry->d_name && strcmp(dot, ".fab") == 0;
}

/* A file, or every *.fab of a directory in order of their names; what is not there is not. */
static void open_place(fa_tuner *tuner, const char *path)
{
    struct stat st;
    struct dirent **entry = NULL;
    if (stat(path, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode)) {
        open_one(tuner, path);
        return;
    }
    int count = scandir(path, &entry, is_bundle, alphasort);
    for (int i = 0; i < count; i++) {
        char file[FA_STORE_PATH_MAX];
        if (snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name) < (int)sizeof file)
            open_one(tuner, file);
        free(entry[i]);
    }
    free(entry);
}

/* Places parted by ':'. */
static void open_list(fa_tuner *tuner, const char *list)
{
    while (*list != 0) {
        char place[FA_STORE_PATH_MAX];
        size_t size = strcspn(list, ":");
        if (size > 0 && size < sizeof place) {
            memcpy(place, list, size);
            place[size] = 0;
            open_place(tuner, place);
        }
        list += size + (list[size] == ':');
    }
}

/* `work` is held. NULL: none is to be used, or out of memory. */
static struct fa_system *opened(fa_tuner *tuner)
{
    static const char share[] = "/usr/share/fa-tune";
    if (tuner->ignore_system)
        return NULL;
    if (tuner->system != NULL)
        return tuner->system;
    tuner->system = calloc(1, sizeof *tuner->system);
    if (tuner->system == NULL)
        return NULL;
    const char *list = secure_getenv("FA_TUNE_SYSTEM");
    if (list != NULL) {
        open_list(tuner, list);
    } else {
        open_place(tuner, FA_TUNE_SYSTEM_DIR);
        if (strcmp(FA_TUNE_SYSTEM_DIR, share) != 0)
            open_place(tuner, share);
    }
    return tuner->system;
}

void fa_system_close(fa_tuner *tuner)
{
    for (int i = 0; tuner->system != NULL && i < tuner->system->count; i++)
        fa_bundle_close(&tuner->system->bundle[i]);
    free(tuner->system);
    tuner->system = NULL;
}

/* One winner with its cubin, as an answer here. */
static int take(fa_bundle *bundle, int32_t at, const fa_gpu *gpu, fa_answer *ret_answer,
                fa_cubin_record *ret_cubin, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    int32_t row = 0;
    int rc = fa_bundle_winner(bundle, at, &winner, &row, diag);
    if (rc == 0)
        rc = fa_bundle_cubin(bundle, row, &cubin.bytes, &cubin.size, diag);
    if (rc == 0)
        rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, diag);
    if (rc == 0) {
        memcpy(cubin.key, winner.cubin_key, sizeof cubin.key);
        memcpy(cubin.entry, winner.entry, sizeof cubin.entry);
        cubin.sm = gpu->sm;
        cubin.compile_ms = winner.trial.compile_ms;
        winner.origin = fa_bundle_origin(winner.origin);
        fa_records_answer(&winner, gpu, ret_answer);
        ret_answer->from_system = true;
        if (ret_cubin != NULL) {
            *ret_cubin = cubin;
            cubin = (fa_cubin_record){0};
        }
    }
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

int fa_system_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                     fa_cubin_record *ret_cubin)
{
    const struct fa_system *system = opened(tuner);
    for (int i = 0; system != NULL && i < system->count; i++) {
        int32_t at;
        fa_diag diag = {{0}};
        if (fa_bundle_find(system->bundle[i], &target->scope, &at) != 0)
            continue;
        if (take(system->bundle[i], at, &target->gpu, ret_answer, ret_cubin, &diag) == 0)
            return 0;
        fa_note(tuner, "a system bundle's winner is not used: %s", diag.text);
    }
    return FA_ENOTFOUND;
}

int fa_system_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin)
{
    const struct fa_system *system = opened(tuner);
    for (int i = 0; system != NULL && i < system->count; i++) {
        int32_t at;
        fa_cubin_record cubin = {0};
        if (fa_bundle_find_cubin(system->bundle[i], key, &at) != 0 ||
            fa_bundle_cubin(system->bundle[i], at, &cubin.bytes, &cubin.size, NULL) != 0)
            continue;
        snprintf(cubin.key, sizeof cubin.key, "%s", key);
        *ret_cubin = cubin;
        return 0;
    }
    return FA_ENOTFOUND;
}

int fa_system_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context)
{
    const struct fa_system *system = opened(tuner);
    int rc = 0;
    for (int i = 0; system != NULL && i < system->count; i++) {
        int32_t winners = fa_bundle_get_head(system->bundle[i])->winners;
        for (int32_t at = 0; at < winners && rc == 0; at++) {
            fa_winner_record winner = {0};
            if (like != NULL && !fa_bundle_may_be_like(system->bundle[i], at, like))
                continue;
            if (fa_bundle_winner(system->bundle[i], at, &winner, NULL, NULL) != 0)
                continue;
            winner.origin = fa_bundle_origin(winner.origin);
            rc = visit(context, &winner);
            fa_winner_record_free(&winner);
        }
    }
    return rc;
}
