/* SPDX-License-Identifier: Apache-2.0
 *
 * The queries by which SQLite computes a family's expressions for a problem on a GPU.
 *
 * Workload: one query per family, of a thousand rows of forty expressions (a few milliseconds).
 * Invariants: rows come in the order of the domains, the last tunable fastest. Every let is
 * computed once per row: layers are materialised, else SQLite would paste lets into one another.
 */
#include "space_query.h"

#include "problem.h"

#include <stdio.h>

/* The relation g0: one row for each problem, "FA_CASE" its number. */
static void put_given(fa_buf *sql, const fa_family *f, const fa_problem *problem, int count,
                      const fa_gpu *gpu)
{
    fa_given given;
    fa_buf_text(sql, "WITH g0(\"FA_CASE\"");
    for (int i = 0; i < f->given.count; i++)
        fa_buf_printf(sql, ",%s", f->given.name[i]);
    for (int at = 0; at < count; at++) {
        fa_given_make(f->operation, f->takes, &problem[at], gpu, &given);
        fa_buf_printf(sql, at == 0 ? ") AS MATERIALIZED (VALUES (%d" : ",(%d", at);
        for (int i = 0; i < given.count; i++)
            fa_buf_printf(sql, ",%lld", (long long)given.value[i]);
        fa_buf_text(sql, ")");
    }
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

/* The relation `name` of these points, in their order; numbered by "FA_POINT". */
static void put_points(fa_buf *sql, const fa_family *f, const char *name,
                       const fa_config *const *config, int count)
{
    fa_buf_printf(sql, ",\n%s(\"FA_POINT\"", name);
    for (int i = 0; i < f->tunable_count; i++)
        fa_buf_printf(sql, ",\"%s\"", f->tunable[i].name);
    for (int at = 0; at < count; at++) {
        fa_buf_printf(sql, at == 0 ? ") AS MATERIALIZED (VALUES (%d" : ",(%d", at);
        for (int i = 0; i < f->tunable_count; i++) {
            int32_t value = 0;
            fa_config_get(config[at], f->tunable[i].name, &value);
            fa_buf_printf(sql, ",%d", value);
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

/* What all launches of a call share. */
static void put_call(fa_buf *sql, const fa_family *f)
{
    fa_buf_printf(sql, "(%s),(%s),(%s)", f->workspace != NULL ? f->workspace : "0",
                  f->counters != NULL ? f->counters : "0", f->splits != NULL ? f->splits : "1");
}

static void put_grid(fa_buf *sql, const fa_family_launch *launch)
{
    fa_buf_printf(sql, ",(%s),(%s),(%s)", launch->grid[0], launch->grid[1], launch->grid[2]);
}

void fa_query_space(fa_buf *sql, const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                    const fa_config *const *config, int count)
{
    char beside[16];
    put_given(sql, f, problem, 1, gpu);
    int fixed = put_lets(sql, f, false, 'g', "");
    snprintf(beside, sizeof beside, ",g%d", fixed);
    if (config != NULL)
        put_points(sql, f, "s0", config, count);
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
    fa_buf_printf(sql, "(%s),", f->registers != NULL ? f->registers : "0");
    put_call(sql, f);
    for (int i = 0; i < f->launch_count; i++) {
        const fa_family_launch *launch = &f->launch[i];
        fa_buf_printf(sql, ",(%s)", launch->threads);
        put_grid(sql, launch);
        for (int j = 0; j < launch->addend_count; j++)
            fa_buf_printf(sql, ",(%s)", launch->addend[j].text);
    }
    fa_buf_printf(sql, " FROM s%d%s", last, beside);
}

void fa_query_launches(fa_buf *sql, const fa_family *f, const fa_problem *problem,
                       int problem_count, const fa_gpu *gpu, const fa_config *const *config,
                       int count)
{
    char beside[64];
    put_given(sql, f, problem, problem_count, gpu);
    int fixed = put_lets(sql, f, false, 'g', "");
    put_points(sql, f, "q0", config, count);
    fa_buf_text(sql, ",\ns0 AS MATERIALIZED (SELECT q0.*,g0.\"FA_CASE\" AS \"FA_AT\" FROM q0,g0)");
    snprintf(beside, sizeof beside, ",g%d WHERE \"FA_AT\" = \"FA_CASE\"", fixed);
    int last = put_lets(sql, f, true, 's', beside);
    fa_buf_text(sql, "\nSELECT \"FA_AT\",\"FA_POINT\",");
    put_call(sql, f);
    for (int i = 0; i < f->launch_count; i++)
        put_grid(sql, &f->launch[i]);
    fa_buf_printf(sql, " FROM s%d%s", last, beside);
}

void fa_query_fixed(fa_buf *sql, const fa_family *f, bool supports, const fa_problem *problem,
                    const fa_gpu *gpu)
{
    put_given(sql, f, problem, 1, gpu);
    int last = put_lets(sql, f, false, 'g', "");
    fa_buf_text(sql, "\nSELECT ");
    int count = supports ? f->support_count : f->tunable_count;
    for (int i = 0; i < count; i++)
        fa_buf_printf(sql, "%s(%s)", i == 0 ? "" : ",",
                      supports ? f->support[i].text : f->tunable[i].preset);
    fa_buf_printf(sql, " FROM g%d", last);
}
