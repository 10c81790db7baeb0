/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of tuner/: a directory of templates, or the built-in families; and GPUs.
 */
#ifndef FA_TESTS_TUNER_FIXTURE_H
#define FA_TESTS_TUNER_FIXTURE_H

#include "check.h"

#include "catalogue.h"
#include "family.h"

typedef struct tuner_fixture {
    char directory[CHECK_FOLDER];
    fa_templates *templates;
    fa_family_list families;
} tuner_fixture;

static inline bool fixture_write(const tuner_fixture *f, const char *name, const char *text)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    return check_write_file(path, text, strlen(text));
}

static inline void fixture_make(tuner_fixture *f)
{
    *f = (tuner_fixture){.templates = NULL};
    check_make_folder(f->directory, NULL);
}

static inline void fixture_free(tuner_fixture *f)
{
    fa_families_free(&f->families);
    fa_templates_close(&f->templates);
    check_remove_folder(f->directory);
}

/* The built-in families of attention, in place of a directory's. */
static inline int fixture_built_in(tuner_fixture *f, fa_diag *diag)
{
    *f = (tuner_fixture){.templates = NULL};
    int rc = fa_templates_open(NULL, &f->templates, diag);
    return rc == 0 ? fa_families_load(f->templates, "attn_fwd", &f->families, diag) : rc;
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
