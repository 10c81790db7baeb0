/* SPDX-License-Identifier: Apache-2.0
 *
 * The space of a problem on a GPU: every config of every family that serves it, each with its
 * threads, grid, shared memory and lets, or with the reason why it ends before compiling.
 *
 * Workload: one SQLite query per family over at most FA_SPACE_MAX rows (a thousand rows of forty
 * expressions: a few milliseconds).
 * Invariants: rows come in the order of the domains, the last tunable fastest. Every let is
 * computed once per row: layers are materialised, else SQLite would paste lets into one another.
 */
#include "family.h"

#include "../src/base/buf.h"
#include "../src/base/error.h"
#include "../src/base/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the query -----------------------------------------------------------------------------*/
static void put_given(fa_buf *sql, const fa_problem *p, const fa_gpu *gpu)
{
    static const char *const name[FA_MAX_GIVEN] = FA_GIVEN_NAMES;
    const int64_t value[FA_MAX_GIVEN] = {p->batch,
                                         p->heads_q,
                                         p->heads_kv,
                                         p->seq_q,
                                         p->seq_k,
                                         p->head_dim,
                                         p->causal != FA_CAUSAL_NONE,
                                         p->dtype == FA_BF16,
                                         !p->unaligned,
                                         gpu->sm,
                                         gpu->sm_count,
                                         gpu->smem_per_block,
                                         gpu->smem_per_sm,
                                         gpu->regs_per_sm,
                                         gpu->threads_per_sm};
    fa_buf_text(sql, "WITH g0 AS MATERIALIZED (SELECT ");
    for (int i = 0; i < FA_MAX_GIVEN; i++)
        fa_buf_printf(sql, "%s%lld AS %s", i == 0 ? "" : ",", (long long)value[i], name[i]);
    fa_buf_text(sql, ")");
}

/* Adds the lets of one kind (those that read a tunable, or the others) layer by layer over the
 * relation `prefix`0, each joined with `beside` ("" or the last layer of the others); returns the
 * number of the last layer. */
static int put_lets(fa_buf *sql, const fa_family *f, bool varies, char prefix, const char *beside)
{
    int layer = 0;
    for (int level = 1; level <= f->let_count; level++) {
        bool any = false;
        for (int i = 0; i < f->let_count; i++) {
            const fa_let *let = &f->let[i];
            if (let->varies != varies || let->level != level)
                continue;
            if (!any)
                fa_buf_printf(sql, ",\n%c%d AS MATERIALIZED (SELECT %c%d.*", prefix, layer + 1,
                              prefix, layer);
            any = true;
            fa_buf_printf(sql, ",(%s) AS \"%s\"", let->text, let->name);
        }
        if (any)
            fa_buf_printf(sql, " FROM %c%d%s)", prefix, layer++, beside);
    }
    return layer;
}

/* These points, in their order. */
static void put_points(fa_buf *sql, const fa_family *f, const fa_config *const *config, int count)
{
    fa_buf_text(sql, ",\ns0(");
    for (int i = 0; i < f->tunable_count; i++)
        fa_buf_printf(sql, "%s\"%s\"", i == 0 ? "" : ",", f->tunable[i].name);
    fa_buf_text(sql, ") AS MATERIALIZED (VALUES ");
    for (int at = 0; at < count; at++) {
        for (int i = 0; i < f->tunable_count; i++) {
            int32_t value = 0;
            fa_config_get(config[at], f->tunable[i].name, &value);
            fa_buf_printf(sql, "%s%d", i > 0 ? "," : at == 0 ? "(" : ",(", value);
        }
        fa_buf_text(sql, ")");
    }
    fa_buf_text(sql, ")");
}

/* The product of the domains. */
static void put_product(fa_buf *sql, const fa_family *f)
{
    for (int i = 0; i < f->tunable_count; i++) {
        const fa_domain *domain = &f->tunable[i];
        fa_buf_printf(sql, ",\nd%d(v) AS (VALUES ", i);
        for (int j = 0; j < domain->count; j++)
            fa_buf_printf(sql, "%s(%d)", j == 0 ? "" : ",", domain->value[j]);
        fa_buf_text(sql, ")");
    }
    fa_buf_text(sql, ",\ns0 AS MATERIALIZED (SELECT ");
    for (int i = 0; i < f->tunable_count; i++)
        fa_buf_printf(sql, "%sd%d.v AS \"%s\"", i == 0 ? "" : ",", i, f->tunable[i].name);
    for (int i = 0; i < f->tunable_count; i++) /* CROSS: the joins keep this order */
        fa_buf_printf(sql, "%sd%d", i == 0 ? " FROM " : " CROSS JOIN ", i);
    fa_buf_text(sql, ")");
}

/* One row per config: tunables, lets, constraints, threads, registers, grid, addends. */
static void put_space(fa_buf *sql, const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                      const fa_config *const *config, int count)
{
    char beside[16];
    put_given(sql, problem, gpu);
    int fixed = put_lets(sql, f, false, 'g', "");
    snprintf(beside, sizeof beside, ",g%d", fixed);
    if (config != NULL)
        put_points(sql, f, config, count);
    else
        put_product(sql, f);
    int last = put_lets(sql, f, true, 's', beside);
    fa_buf_text(sql, "\nSELECT ");
    for (int i = 0; i < f->tunable_count; i++)
        fa_buf_printf(sql, "\"%s\",", f->tunable[i].name);
    for (int i = 0; i < f->let_count; i++)
        fa_buf_printf(sql, "\"%s\",", f->let[i].name);
    for (int i = 0; i < f->constraint_count; i++)
        fa_buf_printf(sql, "(%s),", f->constraint[i].text);
    fa_buf_printf(sql, "(%s),(%s),(%s),(%s),(%s)", f->threads,
                  f->registers != NULL ? f->registers : "0", f->grid[0], f->grid[1], f->grid[2]);
    for (int i = 0; i < f->addend_count; i++)
        fa_buf_printf(sql, ",(%s)", f->addend[i].text);
    fa_buf_printf(sql, " FROM s%d%s", last, beside);
}

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
    put_given(&sql, problem, gpu);
    int last = put_lets(&sql, f, false, 'g', "");
    fa_buf_text(&sql, "\nSELECT ");
    int count = supports ? f->support_count : f->tunable_count;
    for (int i = 0; i < count; i++)
        fa_buf_printf(&sql, "%s(%s)", i == 0 ? "" : ",",
                      supports ? f->support[i].text : f->tunable[i].preset);
    fa_buf_printf(&sql, " FROM g%d", last);
    int rc = sql.failed ? fa_fail(diag, FA_ENOMEM, "out of memory")
                        : fa_expr_run(f->engine, sql.data, keep_row, ret_row, diag);
    fa_buf_free(&sql);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "%s.json", f->name);
}

int fa_family_supports(const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                       fa_diag *diag)
{
    struct fixed_row row = {.count = 0};
    if (gpu->sm < f->sm_min || gpu->sm > f->sm_max)
        return fa_fail(diag, FA_ENOTSUP, "%s needs a GPU of sm_%d to sm_%d; %s is sm_%d", f->name,
                       f->sm_min, f->sm_max, gpu->name, gpu->sm);
    int rc = f->support_count > 0 ? run_fixed(f, true, problem, gpu, &row, diag) : 0;
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
static int fill(fa_filling *filling, const fa_problem *problem, const fa_config *const *config)
{
    const fa_family *f = filling->family;
    fa_buf sql = {0};
    int rc = default_config(f, problem, filling->gpu, &filling->preset, filling->diag);
    if (rc != 0)
        return rc;
    put_space(&sql, f, problem, filling->gpu, config, filling->room);
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
 * run too. Returns the size of the spaces that are left. */
static int64_t prefer_specific(const fa_family_list *families, bool *serves)
{
    bool specific = false;
    int64_t size = 0;
    for (int i = 0; i < families->count; i++)
        specific = specific || (serves[i] && families->family[i]->arch_suffix[0] != 0);
    for (int i = 0; i < families->count; i++) {
        serves[i] = serves[i] && (!specific || families->family[i]->arch_suffix[0] != 0);
        if (serves[i])
            size += domain_product(families->family[i]);
    }
    return size;
}

/* Which families serve the problem, and the size of their spaces together. */
static int choose_families(const fa_family_list *families, const fa_problem *problem,
                           const fa_gpu *gpu, bool *ret_serves, int *ret_size, fa_diag *diag)
{
    fa_buf refusals = {0};
    int64_t size = 0;
    int rc = 0;
    for (int i = 0; i < families->count && (rc == 0 || rc == FA_ENOTSUP); i++) {
        fa_diag why;
        rc = fa_family_supports(families->family[i], problem, gpu, &why);
        ret_serves[i] = rc == 0;
        if (rc == FA_ENOTSUP)
            fa_buf_printf(&refusals, "%s%s", refusals.size == 0 ? "" : "; ", why.text);
        else if (rc != 0)
            fa_fail(diag, rc, "%s", why.text);
    }
    if (rc == 0 || rc == FA_ENOTSUP) {
        size = prefer_specific(families, ret_serves);
        char number[FA_COMMAS_MAX];
        rc = 0;
        if (size == 0)
            rc = fa_fail(diag, FA_ENOTSUP, "no kernel family serves this problem on %s: %s",
                         gpu->name, refusals.data != NULL ? refusals.data : "there is none");
        else if (size > FA_SPACE_MAX)
            rc = fa_fail(diag, FA_EMANIFEST, "the families together have %s configs: at most %d",
                         fa_commas(size, number), FA_SPACE_MAX);
    }
    fa_buf_free(&refusals);
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
        rc = fill(&filling, problem, NULL);
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
    return rc == 0 ? fill(&filling, problem, config) : rc;
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
