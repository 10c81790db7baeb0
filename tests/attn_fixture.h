/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of attention kernels share: templates, families and NVRTC, from a problem and a
 * config to a cubin in this very process. One fixture per thread; the NVRTC handle may be shared.
 */
#ifndef FA_TESTS_ATTN_FIXTURE_H
#define FA_TESTS_ATTN_FIXTURE_H

#include "buf.h"
#include "error.h"
#include "problem.h"
#include "catalogue.h"
#include "driver.h"
#include "nvrtc.h"
#include "family.h"
#include "manifest.h"
#include "attn_launch.h"
#include "attn_proof.h"

#include <string.h>
#include <time.h>

enum { FIXTURE_HEADERS = FA_TEMPLATES_MAX };

struct fixture {
    fa_templates *templates;
    fa_family_list families;
    const char *header_name[FIXTURE_HEADERS], *header_text[FIXTURE_HEADERS];
    int header_count;
};

static inline double fixture_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline void fixture_close(struct fixture *f)
{
    fa_families_free(&f->families);
    fa_templates_close(&f->templates);
}

static inline int fixture_open(struct fixture *f, fa_diag *diag)
{
    memset(f, 0, sizeof *f);
    int rc = fa_templates_open(NULL, &f->templates, diag);
    if (rc == 0)
        rc = fa_families_load(f->templates, "attn_fwd", &f->families, diag);
    for (int i = 0; rc == 0 && i < f->templates->count; i++) {
        const fa_template_file *file = &f->templates->file[i];
        const char *dot = strrchr(file->name, '.');
        bool header = dot != NULL && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0);
        if (header) {
            f->header_name[f->header_count] = file->name;
            f->header_text[f->header_count++] = file->text;
        }
    }
    return rc;
}

static inline int fixture_nvrtc(fa_diag *diag)
{
    fa_nvrtc_location location;
    int rc = fa_nvrtc_locate(&location, diag);
    return rc != 0 ? rc : fa_nvrtc_open(&location, diag);
}

static inline fa_compile_request fixture_request(const struct fixture *f, const char *name,
                                                 const fa_buf *source, const char *architecture)
{
    return (fa_compile_request){.source = source->data,
                                .name = name,
                                .header_names = f->header_name,
                                .header_texts = f->header_text,
                                .header_count = f->header_count,
                                .architecture = architecture};
}

/* Takes the source over. family: what it is of, or NULL. */
static inline int fixture_compile(const struct fixture *f, fa_buf *source, const fa_family *family,
                                  const fa_gpu *gpu, fa_buf *ret_cubin, fa_diag *diag)
{
    char architecture[16];
    FA_ENDS(fa_buf_free) fa_buf log = {0};
    fa_render_architecture(family, gpu, architecture, sizeof architecture);
    const fa_compile_request request =
        fixture_request(f, family != NULL ? "candidate.cu" : "reference.cu", source, architecture);
    int rc = fa_nvrtc_compile(&request, ret_cubin, &log, diag);
    fa_buf_free(source);
    return rc;
}

static inline int fixture_reference(const struct fixture *f, const fa_problem *problem,
                                    const fa_gpu *gpu, fa_buf *ret_cubin, fa_diag *diag)
{
    fa_buf source = {0};
    int rc =
        fa_render_reference(f->templates, &(fa_task){&f->families, problem, gpu}, &source, diag);
    return rc != 0 ? rc : fixture_compile(f, &source, NULL, gpu, ret_cubin, diag);
}

/* The GPU whose space a family is taken from when it is proved on `device`: the device itself where
 * it is offered, else the family's own kind of GPU. */
static inline int fixture_space_gpu(const char *family, const fa_gpu *device, fa_gpu *ret_gpu)
{
    *ret_gpu = *device;
    return strcmp(family, "attn_fwd_sm75") != 0 || device->sm == 75
               ? 0
               : fa_catalogue_find("T4", ret_gpu, NULL);
}

/* A surviving config of one family: the `pick`-th modulo their number, or its default. */
static inline int fixture_pick(const struct fixture *f, const char *family,
                               const fa_problem *problem, const fa_gpu *device, bool preset,
                               uint64_t pick, fa_candidate *ret_candidate, fa_diag *diag)
{
    fa_gpu gpu;
    fa_space space = {0};
    int index = 0;
    while (index < f->families.count && strcmp(f->families.family[index]->name, family) != 0)
        index++;
    if (index == f->families.count)
        return fa_fail(diag, FA_ENOTFOUND, "there is no family %s", family);
    /* Of this family alone: another one may come before it. */
    fa_family_list one = {.family = &f->families.family[index], .count = 1};
    FA_OR_RETURN(fixture_space_gpu(family, device, &gpu));
    FA_OR_RETURN(fa_space_enumerate(&(fa_task){&one, problem, &gpu}, &space, diag));
    uint64_t survivors = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t at = 0, wanted = survivors > 0 ? pick % survivors : 0;
        for (int i = 0; i < space.count; i++) {
            const fa_candidate *c = &space.candidate[i];
            if (c->trial.status != FA_STATUS_PENDING || (preset && !c->is_default))
                continue;
            if (pass == 1 && at == wanted) {
                *ret_candidate = *c;
                ret_candidate->family = index;
            }
            at++;
        }
        survivors = at;
    }
    fa_space_free(&space);
    return survivors > 0 ? 0
                         : fa_fail(diag, FA_ENOTFOUND, "no config of %s fits %s", family, gpu.name);
}

/* The cubin of a candidate for this device. */
static inline int fixture_build(const struct fixture *f, const fa_candidate *candidate,
                                const fa_problem *problem, const fa_gpu *device, fa_buf *ret_cubin,
                                fa_diag *diag)
{
    fa_buf source = {0};
    int rc = fa_render(f->templates, &(fa_task){&f->families, problem, device}, candidate, &source,
                       diag);
    return rc != 0 ? rc
                   : fixture_compile(f, &source, f->families.family[candidate->family], device,
                                     ret_cubin, diag);
}

/* The grid of a candidate's config for another problem. */
static inline int fixture_grid(const struct fixture *f, const fa_candidate *candidate,
                               const fa_problem *problem, const fa_gpu *device,
                               uint32_t ret_grid[3], fa_diag *diag)
{
    fa_candidate one;
    fa_gpu gpu;
    int rc = fixture_space_gpu(candidate->trial.config.family, device, &gpu);
    if (rc == 0)
        rc = fa_space_one(&(fa_task){&f->families, problem, &gpu}, &candidate->trial.config, &one,
                          diag);
    if (rc == 0)
        memcpy(ret_grid, one.trial.grid, sizeof one.trial.grid);
    return rc;
}

static inline fa_attn_case fa_attn_case_packed(const fa_problem *problem)
{
    return fa_attn_case_make(problem, 0, 0, false);
}

static inline fa_attn_case fa_attn_case_padded(const fa_problem *problem, int pad)
{
    return fa_attn_case_make(problem, pad, 0, false);
}

static inline fa_attn_case fa_attn_case_ragged(const fa_problem *problem, int pad, uint64_t seed)
{
    return fa_attn_case_make(problem, pad, seed, true);
}

static _Thread_local struct {
    const fa_attn_case *at;
    int count;
    struct fa_proof_type type;
} fixture_own;

static inline void fixture_take(fa_bench *bench, const fa_problem *problem)
{
    (void)problem;
    fa_attn_proof_take(bench, fixture_own.at, fixture_own.count);
}

/* A prover of cases of one's own, of one dtype, head_dim and causal kind. */
static inline int fixture_prover(fa_driver *driver, const fa_bench_setup *setup,
                                 const fa_attn_case *cases, int count, fa_bench **ret_prover,
                                 fa_diag *diag)
{
    fixture_own.at = cases;
    fixture_own.count = count;
    fixture_own.type = fa_attn_proof;
    fixture_own.type.take_cases = fixture_take;
    fa_bench_setup own = *setup;
    own.type = &fixture_own.type;
    return fa_bench_open(driver, &own, ret_prover, diag);
}

/* GQA, causal, with lengths that no tile divides. */
static inline fa_problem some_problem(void)
{
    return (fa_problem){.dtype = FA_FP16, .causal = FA_CAUSAL_BOTTOM_RIGHT, .layout = FA_BSHD,
                        .head_dim = 64, .batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = 200,
                        .seq_k = 230, .want_lse = true};
}

#endif
