/* SPDX-License-Identifier: Apache-2.0
 *
 * Families from text for the tests of tuner/: a manifest put together from parts, in a directory of
 * its own, loaded through the same door as a user's who is not trusted: built-in families stay out.
 */
#ifndef FA_TESTS_TUNER_FIXTURE_H
#define FA_TESTS_TUNER_FIXTURE_H

#include "check.h"

#include "catalogue.h"
#include "family.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parts of a manifest as JSON; NULL takes the one of a small family that is right. */
typedef struct manifest_parts {
    const char *name, *sm, *supports, *tunables, *lets, *constraints, *threads, *memory, *registers,
        *grid, *preset, *extra;
} manifest_parts;

static inline const char *or_else(const char *part, const char *absent)
{
    return part != NULL ? part : absent;
}

static inline void manifest_text(const manifest_parts *m, char *text, size_t size)
{
    snprintf(
        text, size,
        "{\"name\": %s, \"operation\": \"attn_fwd\", \"kernel\": \"kernel\", \"sm\": %s,\n"
        "\"supports\": %s,\n\"tune\": %s,\n\"defines\": %s,\n\"restrictions\": %s,\n"
        "\"block\": %s, \"shared_memory\": %s, \"registers\": %s, \"grid\": %s,\n"
        "\"default\": %s%s}",
        or_else(m->name, "\"small\""), or_else(m->sm, "{\"min\": 80, \"max\": 90}"),
        or_else(m->supports, "[{\"require\": \"HEAD_DIM <= 128\", \"why\": \"heads to 128\"}]"),
        or_else(m->tunables, "{\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32, 64, 128]}"),
        or_else(m->lets, "{\"ROW\": \"HEAD_DIM * 2\"}"),
        or_else(m->constraints,
                "[{\"require\": \"BLOCK_N <= BLOCK_M\", \"why\": \"keys fit the rows\"}]"),
        or_else(m->threads, "\"BLOCK_M\""),
        or_else(m->memory, "{\"q\": \"BLOCK_M * ROW\", \"kv\": \"2 * BLOCK_N * ROW\"}"),
        or_else(m->registers, "\"HEAD_DIM / 2 + BLOCK_N / 2 + 24\""),
        or_else(m->grid, "[\"(SEQ_Q + BLOCK_M - 1) / BLOCK_M * HEADS_Q * BATCH\", 1, 1]"),
        or_else(m->preset, "{\"BLOCK_M\": 64, \"BLOCK_N\": \"min(64, ROW)\"}"),
        or_else(m->extra, ""));
}

typedef struct tuner_fixture {
    char directory[64];
    fa_templates *templates;
    fa_family_list families;
} tuner_fixture;

static inline bool fixture_write(const tuner_fixture *f, const char *name, const void *bytes,
                                 size_t size)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, bytes, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return ok;
}

static inline bool fixture_make(tuner_fixture *f)
{
    *f = (tuner_fixture){.directory = "/tmp/fa-tune-test-XXXXXX"};
    return mkdtemp(f->directory) != NULL;
}

/* Removes what is in a directory, its folders with their files too. */
static inline void fixture_empty(const char *directory)
{
    DIR *stream = opendir(directory);
    struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        char path[512];
        if (entry->d_name[0] == '.' && strlen(entry->d_name) <= 2)
            continue;
        snprintf(path, sizeof path, "%.200s/%.255s", directory, entry->d_name);
        if (unlink(path) != 0) {
            fixture_empty(path);
            rmdir(path);
        }
    }
    if (stream != NULL)
        closedir(stream);
}

static inline void fixture_free(tuner_fixture *f)
{
    fa_families_free(&f->families);
    fa_templates_close(&f->templates);
    fixture_empty(f->directory);
    rmdir(f->directory);
}

/* Leaves of these families "small" alone. */
static inline void fixture_keep_own(fa_family_list *list)
{
    fa_family_list others = {calloc((size_t)list->count, sizeof *others.family), 0};
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->family[i]->name, "small") != 0)
            others.family[others.count++] = list->family[i];
        else
            list->family[0] = list->family[i];
    list->count = others.count < list->count;
    fa_families_free(&others);
}

/* Writes small.json (this text) and small.cu, and loads them. */
static inline int fixture_load_text(tuner_fixture *f, const char *json, size_t size, fa_diag *diag)
{
    static const char source[] = "#include \"small.cuh\"\n__global__ void kernel() {}\n";
    static const char header[] = "#pragma once\n";
    if (!fixture_make(f) || !fixture_write(f, "small.json", json, size) ||
        !fixture_write(f, "small.cu", source, sizeof source - 1) ||
        !fixture_write(f, "small.cuh", header, sizeof header - 1))
        return FA_EIO;
    int rc = fa_templates_open(f->directory, &f->templates, diag);
    if (rc == 0)
        rc = fa_families_load(f->templates, "attn_fwd", &f->families, diag);
    if (rc == 0)
        fixture_keep_own(&f->families);
    return rc;
}

/* The built-in families of attention, in place of a directory's. */
static inline int fixture_built_in(tuner_fixture *f, fa_diag *diag)
{
    *f = (tuner_fixture){.templates = NULL};
    int rc = fa_templates_open(NULL, &f->templates, diag);
    return rc == 0 ? fa_families_load(f->templates, "attn_fwd", &f->families, diag) : rc;
}

static inline int fixture_load(tuner_fixture *f, const manifest_parts *parts, fa_diag *diag)
{
    char text[40000];
    manifest_text(parts, text, sizeof text);
    return fixture_load_text(f, text, strlen(text), diag);
}

static fa_gpu gpu_t4, gpu_a100, gpu_l4, gpu_h200;

__attribute__((constructor)) static void find_gpus(void)
{
    if (fa_catalogue_find("T4", &gpu_t4, NULL) != 0 ||
        fa_catalogue_find("A100 80GB", &gpu_a100, NULL) != 0 ||
        fa_catalogue_find("L4", &gpu_l4, NULL) != 0 ||
        fa_catalogue_find("H200", &gpu_h200, NULL) != 0)
        abort();
}

static const fa_problem problem_512 = {
    .head_dim = 64, .batch = 4, .heads_q = 8, .heads_kv = 8, .seq_q = 512, .seq_k = 512};

#endif
