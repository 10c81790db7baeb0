/* SPDX-License-Identifier: Apache-2.0
 *
 * The space of a problem on a GPU: every config of every family that serves it, each with its
 * threads, grid, shared memory and lets, or with the reason why it ends before compiling.
 *
 * Workload: one query per family (space_query.c) over at most FA_SPACE_MAX rows.
 * Invariant: configs come in the order of the domains, the last tunable fastest.
 */
#include "space_query.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what does not depend on tunables: supports and the default -----------------------------*/
struct fixed_row {
    fa_expr_value value[FA_MAX_REQUIRES + FA_MAX_TUNABLES];
    int count;
};

static int keep_row(void *context, const fa_expr_value *value, int count)
{
    struct fixed_row *row = context;
    memcpy(row->value, value, (size_t)count * sizeof *value);
    row->count = count;
    return 0;
}

/* Runs one row over the given names: the supports, or the default of every tunable. */
static int run_fixed(const fa_family *f, bool supports, const fa_problem *problem,
                     const fa_gpu *gpu, struct fixed_row *ret_row, fa_diag *diag)
{
    fa_buf sql = {0};
    fa_query_fixed(&sql, f, supports, problem, gpu);
    int rc = sql.failed ? fa_fail(diag, FA_ENOMEM, "out of memory")
                        : fa_expr_run(f->engine, sql.data, keep_row, ret_row, diag);
    fa_buf_free(&sql);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "%s.json", f->name);
}

/* A feature away from its default that the manifest does not take. */
static int refuse_untaken(const fa_family *f, const fa_problem *problem, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        char room[16];
        if (fa_field_is_absent(field, problem->value[i]) || !field->feature ||
            (f->takes >> i & 1) != 0)
            continue;
        return fa_fail(diag, FA_ENOTSUP, "%s does not take %s = %s", f->name, field->name,
                       fa_field_text(field, problem->value[i], room));
    }
    return 0;
}

static bool is_for(const fa_family *f, const fa_gpu *gpu)
{
    return gpu->sm >= f->sm_min && gpu->sm <= f->sm_max;
}

int fa_family_supports(const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                       fa_diag *diag)
{
    struct fixed_row row = {.count = 0};
    if (fa_operation_of(problem) != f->operation)
        return fa_fail(diag, FA_ENOTSUP, "%s is a kernel of %s", f->name, f->operation->title);
    if (!is_for(f, gpu))
        return fa_fail(diag, FA_ENOTSUP, "%s needs a GPU of sm_%d to sm_%d; %s is sm_%d", f->name,
                       f->sm_min, f->sm_max, gpu->name, gpu->sm);
    int rc = refuse_untaken(f, problem, diag);
    if (rc == 0 && f->support_count > 0)
        rc = run_fixed(f, true, problem, gpu, &row, diag);
    for (int i = 0; i < row.count && rc == 0; i++) {
        const char *why = fa_expr_fault(row.value[i]);
        if (why != NULL)
            rc = fa_fail(diag, FA_EMANIFEST, "%s.json: supports[%d] %s", f->name, i, why);
        else if (row.value[i].integer == 0)
            rc = fa_fail(diag, FA_ENOTSUP, "%s: %s", f->name, f->support[i].why);
    }
    return rc;
}

/* The default config for this problem; FA_EMANIFEST when it lies outside the domains. */
static int default_config(const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                          fa_config *ret_config, fa_diag *diag)
{
    struct fixed_row row = {.count = 0};
    fa_config config = {.count = f->tunable_count};
    memcpy(config.family, f->name, sizeof config.family);
    int rc = run_fixed(f, false, problem, gpu, &row, diag);
    for (int i = 0; i < row.count && rc == 0; i++) {
        const fa_domain *domain = &f->tunable[i];
        const char *why = fa_expr_fault(row.value[i]);
        bool found = false;
        if (why != NULL)
            return fa_fail(diag, FA_EMANIFEST, "%s.json: default %s %s", f->name, domain->name,
                           why);
        for (int j = 0; j < domain->count; j++)
            found = found || domain->value[j] == row.value[i].integer;
        if (!found)
            return fa_fail(diag, FA_EMANIFEST,
                           "%s.json: default %s is %lld, which is not in its domain", f->name,
                           domain->name, (long long)row.value[i].integer);
        memcpy(config.tunable[i].name, domain->name, FA_NAME_MAX);
        config.tunable[i].value = (int32_t)row.value[i].integer;
    }
    if (rc == 0)
        *ret_config = config;
    return rc;
}

/* ---- the space -----------------------------------------------------------------------------*/
static int domain_product(const fa_family *f)
{
    int product = 1;
    for (int i = 0; i < f->tunable_count; i++)
        product *= f->tunable[i].count; /* at most FA_SPACE_MAX: checked on loading */
    return product;
}

/* Runs the family's query for all configs, or for those given, into filling->candidate. */
static int fill_space(fa_filling *filling, const fa_problem *problem,
                      const fa_config *const *config)
{
    const fa_family *f = filling->family;
    fa_buf sql = {0};
    int rc = default_config(f, problem, filling->gpu, &filling->preset, filling->diag);
    if (rc != 0)
        return rc;
    fa_query_space(&sql, f, problem, filling->gpu, config, filling->room);
    if (sql.failed)
        rc = fa_fail(filling->diag, FA_ENOMEM, "out of memory");
    else
        rc = fa_expr_run(f->engine, sql.data, fa_family_take_row, filling, filling->diag);
    fa_buf_free(&sql);
    if (rc != 0 && !filling->rows_failed)
        return fa_fail_in(filling->diag, rc, "%s.json", f->name);
    if (rc == 0 && filling->count != filling->room)
        rc = fa_fail(filling->diag, FA_EMANIFEST, "%s.json: %d configs where domains make %d",
                     f->name, filling->count, filling->room);
    return rc;
}

/* Families written for this very chip, where one serves, come instead of those that newer chips can
 * run too, but for those that say that they compete. Returns the size of the spaces that are left. */
static int64_t prefer_specific(const fa_family_list *families, bool *serves)
{
    bool specific = false;
    int64_t size = 0;
    for (int i = 0; i < families->count; i++)
        specific = specific || (serves[i] && families->family[i]->arch_suffix[0] != 0);
    for (int i = 0; i < families->count; i++) {
        serves[i] = serves[i] && (!specific || families->family[i]->arch_suffix[0] != 0 ||
                                  families->family[i]->beside);
        if (serves[i])
            size += domain_product(families->family[i]);
    }
    return size;
}

/* Why none serves: the families for this GPU, each with its reason; where there is none, all. */
static int fail_refused(const fa_gpu *gpu, const fa_buf *here, const fa_buf *away, int away_count,
                        fa_diag *diag)
{
    const char *other = away->data != NULL ? away->data : "there is none";
    if (here->size == 0)
        return fa_fail(diag, FA_ENOTSUP, "no kernel family serves this problem on %s: %s",
                       gpu->name, other);
    if (away_count == 0)
        return fa_fail(diag, FA_ENOTSUP, "no kernel family serves this problem on %s: %s",
                       gpu->name, here->data);
    return fa_fail(diag, FA_ENOTSUP,
                   "no kernel family serves this problem on %s: %s; %d more %s for other GPUs",
                   gpu->name, here->data, away_count, away_count == 1 ? "is" : "are");
}

/* Which families serve the problem, and the size of their spaces together. */
static int choose_families(const fa_family_list *families, const fa_problem *problem,
                           const fa_gpu *gpu, bool *ret_serves, int *ret_size, fa_diag *diag)
{
    fa_buf here = {0}, away = {0};
    int64_t size = 0;
    int rc = 0, away_count = 0;
    for (int i = 0; i < families->count && (rc == 0 || rc == FA_ENOTSUP); i++) {
        fa_diag why;
        rc = fa_family_supports(families->family[i], problem, gpu, &why);
        ret_serves[i] = rc == 0;
        if (rc == FA_ENOTSUP && families->family[i]->operation == fa_operation_of(problem)) {
            bool other = !is_for(families->family[i], gpu);
            fa_buf *refusals = other ? &away : &here;
            away_count += other;
            fa_buf_printf(refusals, "%s%s", refusals->size == 0 ? "" : "; ", why.text);
        } else if (rc != 0 && rc != FA_ENOTSUP) {
            fa_fail(diag, rc, "%s", why.text);
        }
    }
    if (rc == 0 || rc == FA_ENOTSUP) {
        size = prefer_specific(families, ret_serves);
        char number[FA_COMMAS_MAX];
        rc = 0;
        if (size == 0)
            rc = fail_refused(gpu, &here, &away, away_count, diag);
        else if (size > FA_SPACE_MAX)
            rc = fa_fail(diag, FA_EMANIFEST, "the families together have %s configs: at most %d",
                         fa_commas(size, number), FA_SPACE_MAX);
    }
    fa_buf_free(&here);
    fa_buf_free(&away);
    *ret_size = (int)size;
    return rc;
}

static void count_space(fa_space *space)
{
    space->default_index = -1;
    for (int i = 0; i < space->count; i++) {
        if (space->candidate[i].trial.status != FA_STATUS_PENDING)
            continue;
        space->survivors++;
        if (space->candidate[i].is_default)
            space->default_index = i;
    }
}

int fa_space_enumerate(const fa_family_list *families, const fa_problem *problem, const fa_gpu *gpu,
                       fa_space *ret_space, fa_diag *diag)
{
    fa_space space = {0};
    int size = 0;
    bool *serves = calloc((size_t)families->count + 1, sizeof *serves);
    if (serves == NULL)
        return fa_fail(diag, FA_ENOMEM, "space: out of memory");
    int rc = choose_families(families, problem, gpu, serves, &size, diag);
    if (rc == 0) {
        space.candidate = calloc((size_t)size, sizeof *space.candidate);
        if (space.candidate == NULL)
            rc = fa_fail(diag, FA_ENOMEM, "space of %d configs: out of memory", size);
    }
    for (int i = 0; i < families->count && rc == 0; i++) {
        if (!serves[i])
            continue;
        fa_filling filling = {.family = families->family[i],
                              .family_index = i,
                              .gpu = gpu,
                              .candidate = space.candidate + space.count,
                              .room = domain_product(families->family[i]),
                              .diag = diag};
        rc = fill_space(&filling, problem, NULL);
        space.count += filling.count;
    }
    free(serves);
    if (rc != 0) {
        fa_space_free(&space);
        return rc;
    }
    count_space(&space);
    *ret_space = space;
    return 0;
}

void fa_space_free(fa_space *space)
{
    if (space == NULL)
        return;
    free(space->candidate);
    *space = (fa_space){.default_index = -1};
}

/* Has the config a value of the domain for every tunable, and nothing else? */
static int check_config(const fa_family *f, const fa_config *config, fa_diag *diag)
{
    for (int i = 0; i < f->tunable_count; i++) {
        const fa_domain *domain = &f->tunable[i];
        int32_t value = 0;
        bool found = false;
        if (!fa_config_get(config, domain->name, &value))
            return fa_fail(diag, FA_EINVAL, "config of %s: %s is missing", f->name, domain->name);
        for (int j = 0; j < domain->count; j++)
            found = found || domain->value[j] == value;
        if (!found)
            return fa_fail(diag, FA_EINVAL, "config of %s: %s is %d, which is not in its domain",
                           f->name, domain->name, value);
    }
    if (config->count != f->tunable_count)
        return fa_fail(diag, FA_EINVAL, "config of %s: has %d tunables, the family has %d", f->name,
                       config->count, f->tunable_count);
    return 0;
}

int fa_space_some(const fa_family_list *families, const fa_config *const *config, int count,
                  const fa_problem *problem, const fa_gpu *gpu, fa_candidate *ret_candidate,
                  fa_diag *diag)
{
    int index = 0;
    const char *name = config[0]->family;
    while (index < families->count && strcmp(families->family[index]->name, name) != 0)
        index++;
    if (index == families->count)
        return fa_fail(diag, FA_ENOTFOUND, "there is no kernel family \"%.31s\"", name);
    memset(ret_candidate, 0, (size_t)count * sizeof *ret_candidate);
    fa_filling filling = {.family = families->family[index],
                          .family_index = index,
                          .gpu = gpu,
                          .candidate = ret_candidate,
                          .room = count,
                          .diag = diag};
    int rc = 0;
    for (int i = 0; rc == 0 && i < count; i++)
        rc = strcmp(config[i]->family, name) == 0
                 ? check_config(filling.family, config[i], diag)
                 : fa_fail(diag, FA_EINVAL, "configs of %.31s and %.31s at once", name,
                           config[i]->family);
    if (rc == 0)
        rc = fa_family_supports(filling.family, problem, gpu, diag);
    return rc == 0 ? fill_space(&filling, problem, config) : rc;
}

int fa_space_one(const fa_family_list *families, const fa_config *config, const fa_problem *problem,
                 const fa_gpu *gpu, fa_candidate *ret_candidate, fa_diag *diag)
{
    fa_candidate candidate;
    int rc = fa_space_some(families, &config, 1, problem, gpu, &candidate, diag);
    if (rc == 0)
        *ret_candidate = candidate;
    return rc;
}

/* ---- launches for other problems ------------------------------------------------------------*/
/* The survivors of one family: their configs, and where their launches go. */
struct survivors {
    const fa_candidate **candidate;
    const fa_config **config;
    fa_launches **launches;
    int count;
};

static int run_launches(const fa_family *f, const struct survivors *s, const fa_problem *problem,
                        int problem_count, const fa_gpu *gpu, fa_diag *diag)
{
    fa_launch_filling filling = {.family = f,
                                 .problem_count = problem_count,
                                 .candidate = s->candidate,
                                 .launches = s->launches,
                                 .diag = diag};
    fa_buf sql = {0};
    if (s->count == 0)
        return 0;
    fa_query_launches(&sql, f, problem, problem_count, gpu, s->config, s->count);
    int rc = sql.failed ? fa_fail(diag, FA_ENOMEM, "out of memory")
                        : fa_expr_run(f->engine, sql.data, fa_family_take_launches, &filling, diag);
    fa_buf_free(&sql);
    return rc != 0 && !filling.rows_failed ? fa_fail_in(diag, rc, "%s.json", f->name) : rc;
}

/* Of a space of thousands a few dozen: each costs some 50 microseconds. */
static bool may_be_launched(const fa_candidate *candidate)
{
    fa_status status = candidate->trial.status;
    return candidate->launches.count > 0 &&
           (status == FA_STATUS_PENDING || status == FA_STATUS_COMPILED ||
            status == FA_STATUS_MEASURED);
}

int fa_space_launches(const fa_family_list *families, const fa_candidate *candidate, int count,
                      const fa_problem *problem, int problem_count, const fa_gpu *gpu,
                      fa_launches *ret_launches, fa_diag *diag)
{
    struct survivors s = {calloc((size_t)count + 1, sizeof *s.candidate),
                          calloc((size_t)count + 1, sizeof *s.config),
                          calloc((size_t)count + 1, sizeof *s.launches), 0};
    int rc = s.candidate == NULL || s.config == NULL || s.launches == NULL
                 ? fa_fail(diag, FA_ENOMEM, "launches of %d configs: out of memory", count)
                 : 0;
    memset(ret_launches, 0, (size_t)count * (size_t)problem_count * sizeof *ret_launches);
    for (int f = 0; f < families->count && rc == 0; f++) {
        s.count = 0;
        for (int i = 0; i < count; i++) {
            if (candidate[i].family != f || !may_be_launched(&candidate[i]))
                continue;
            s.candidate[s.count] = &candidate[i];
            s.config[s.count] = &candidate[i].trial.config;
            s.launches[s.count++] = &ret_launches[(size_t)i * (size_t)problem_count];
        }
        rc = run_launches(families->family[f], &s, problem, problem_count, gpu, diag);
    }
    free(s.candidate);
    free(s.config);
    free(s.launches);
    return rc;
}
