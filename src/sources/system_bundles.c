/* SPDX-License-Identifier: Apache-2.0
 *
 * System bundles: read where they lie, after the user's own store has said that it has nothing.
 *
 * Workload: one lookup per problem and process, in a file of some thousand winners; the tables are looked at
 * once per session, then a lookup is that of a store.
 *
 * What is checked: nobody but this user or root can have written the file (src/base/buf.h); hash and signature
 * where it is signed; the tables; the winner's row, the hash of its cubin, and that the cubin is what its winner
 * says. A bundle that fails is noted and passed over.
 */
#include "sources.h"

#include "buf.h"
#include "error.h"
#include "lookup.h"
#include "places.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct fa_system {
    fa_source source;
    bool opened;
    fa_bundle **bundle;
    size_t count, capacity;
    void (*note)(void *context, const char *sentence);
    void *context;
} fa_system;

static void open_one(fa_system *system, const char *path)
{
    fa_bundle *bundle = NULL;
    fa_diag diag = {{0}};
    int rc = fa_bundle_open(path, true, &bundle, &diag);
    if (rc == 0)
        rc = fa_bundle_read(bundle, &diag);
    if (rc == 0)
        rc = fa_append(&system->bundle, &system->count, &system->capacity, &bundle, sizeof bundle);
    if (rc == 0)
        return;
    fa_bundle_close(&bundle);
    fa_fail_in(&diag, rc, "system bundle not used");
    system->note(system->context, diag.text);
}

static int is_bundle(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && dot != entry->d_name && strcmp(dot, ".fab") == 0;
}

/* Lists a file, or every *.fab of a directory in order of their names; a path that does not exist is
 * passed over. */
static void open_place(fa_system *system, const char *path)
{
    struct stat st;
    FA_ENDS(fa_free_at) struct dirent **entry = NULL;
    if (stat(path, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode)) {
        open_one(system, path);
        return;
    }
    int count = scandir(path, &entry, is_bundle, alphasort);
    for (int i = 0; i < count; i++) {
        char file[FA_STORE_PATH_MAX];
        if (snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name) < (int)sizeof file)
            open_one(system, file);
        free(entry[i]);
    }
}

static void open_all(fa_system *system)
{
    static const char share[] = "/usr/share/fa-tune";
    const char *list = secure_getenv("FA_TUNE_SYSTEM"); /* places parted by ':' */
    char own[FA_STORE_PATH_MAX - 16], place[FA_STORE_PATH_MAX];
    if (system->opened)
        return;
    system->opened = true;
    for (const char *at = list; at != NULL && *at != 0; at += strspn(at, ":")) {
        const int size = (int)strcspn(at, ":");
        if (snprintf(place, sizeof place, "%.*s", size, at) == size && size < FA_STORE_PATH_MAX)
            open_place(system, place);
        at += size;
    }
    if (list != NULL)
        return;
    fa_own_directory(own, sizeof own);
    snprintf(place, sizeof place, "%s/fa-tune.fab", own); /* where a Python wheel has one */
    if (own[0] != 0)
        open_place(system, place);
    open_place(system, FA_TUNE_SYSTEM_DIR);
    if (strcmp(FA_TUNE_SYSTEM_DIR, share) != 0)
        open_place(system, share);
}

/* Opened by the first lookup that needs them; NULL: none is to be used. `work` is held. */
static fa_system *opened(const fa_tuner *tuner)
{
    fa_system *system = tuner->ignore_system ? NULL : (fa_system *)tuner->system;
    if (system != NULL)
        open_all(system);
    return system;
}

/* The first bundle's winner for the target with its cubin, as an answer here. */
static int find_winner(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                       fa_cubin_record *ret_cubin)
{
    const fa_system *system = opened(tuner);
    for (size_t i = 0; system != NULL && i < system->count; i++) {
        fa_diag diag = {{0}};
        FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
        FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
        int rc = fa_bundle_find(system->bundle[i], &target->scope, &winner, &cubin, &diag);
        if (rc == 0)
            rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, &diag);
        if (rc == 0) {
            winner.origin = fa_bundle_origin(winner.origin);
            rc = fa_records_answer(&winner, &target->gpu, ret_answer, &diag);
            ret_answer->from_system = true;
        }
        if (rc == 0 && ret_cubin != NULL)
            *ret_cubin = cubin, cubin = (fa_cubin_record){0};
        if (rc == 0)
            return 0;
        if (rc == FA_ENOTFOUND)
            continue;
        fa_fail_in(&diag, rc, "a system bundle's winner is not used");
        system->note(system->context, diag.text);
    }
    return FA_ENOTFOUND;
}

static int find_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin)
{
    const fa_system *system = opened(tuner);
    for (size_t i = 0; system != NULL && i < system->count; i++)
        if (fa_bundle_cubin(system->bundle[i], key, ret_cubin, NULL) == 0)
            return 0;
    return FA_ENOTFOUND;
}

void fa_system_list(fa_source *source, const fa_problem *like, fa_list *list)
{
    fa_system *system = (fa_system *)source;
    open_all(system);
    for (size_t i = 0; i < system->count; i++) {
        FA_ENDS(fa_free_at) fa_winner_record *rows = NULL;
        size_t count = 0;
        fa_bundle_winners_like(system->bundle[i], like, &rows, &count);
        for (size_t k = 0; k < count; k++) {
            rows[k].origin = fa_bundle_origin(rows[k].origin);
            fa_winners_add(list, &rows[k]);
        }
    }
}

static void list_winners(fa_tuner *tuner, const fa_problem *like, fa_list *list)
{
    if (!tuner->ignore_system)
        fa_system_list(tuner->system, like, list);
}

static void close_system(fa_source *source)
{
    fa_system *system = (fa_system *)source;
    for (size_t i = 0; i < system->count; i++)
        fa_bundle_close(&system->bundle[i]);
    free(system->bundle);
    free(system);
}

int fa_system_make(void (*note)(void *context, const char *sentence), void *context,
                   fa_source **ret_source, fa_diag *diag)
{
    fa_system *system = calloc(1, sizeof *system);
    FA_OR_RETURN(fa_have(system != NULL, "system bundles", diag));
    *system = (fa_system){.source = {close_system, find_winner, list_winners, find_cubin},
                          .note = note,
                          .context = context};
    *ret_source = &system->source;
    return 0;
}
