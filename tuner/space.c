/* SPDX-License-Identifier: Apache-2.0
 *
 * The space of a problem on a GPU: every config of every family that serves it, each with its
 * threads, grid, shared memory and lets, or with the reason why it ends before compiling.
 *
 * Workload: some thousand configs a family; spaces beyond FA_SPACE_MAX keep only what holds to all constraints, and a
 * walk over them leaves a branch at the first tunable that breaks one. Where more than that hold, up to some 10^12,
 * or counting them takes more than some tenths of a second, they are searched.
 * Invariant: configs come in the order of the domains, the last tunable fastest.
 */
#include "family.h"

#include "error.h"
#include "problem.h"
#include "search.h"
#include "tensors.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

/* A walk ends after so many steps of expressions: a few seconds. Looking for a default config, and counting, end sooner. */
static const int64_t steps_max = 1000000000, counting_steps_max = 45000000;

static bool is_for(const fa_family *f, const fa_gpu *gpu)
{
    return gpu->sm >= f->sm_min && gpu->sm <= f->sm_max;
}

int fa_family_supports(const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                       fa_diag *diag)
{
    if (fa_operation_of(problem) != f->operation)
        return fa_fail(diag, FA_ENOTSUP, "%s is a kernel of %s", f->name, f->operation->title);
    if (!is_for(f, gpu))
        return fa_fail(diag, FA_ENOTSUP, "%s needs a GPU of sm_%d to sm_%d; %s is sm_%d", f->name,
                       f->sm_min, f->sm_max, gpu->name, gpu->sm);
    for (int i = 0; i < f->operation->field_count; i++) {
        const fa_field *field = &f->operation->field[i];
        char room[16];
        if (field->feature && !fa_field_is_absent(field, problem->value[i]) &&
            (f->takes >> i & 1) == 0)
            return fa_fail(diag, FA_ENOTSUP, "%s does not take %s = %s", f->name, field->name,
                           fa_field_text(field, problem->value[i], room));
    }
    if (f->support_count == 0)
        return 0;
    fa_point point;
    fa_point_start(&point, f, problem, gpu, diag);
    for (int i = 0; i < f->support_count; i++) {
        fa_expr_value value = fa_expr_evaluate(f->support[i].expr, point.value);
        int holds = fa_expr_truth(value);
        if (holds < 0)
            return fa_fail(diag, FA_EMANIFEST, "%s.json: supports[%d] %s", f->name, i,
                           fa_expr_fault(value));
        if (holds == 0)
            return fa_fail(diag, FA_ENOTSUP, "%s: %s", f->name, f->support[i].why);
    }
    return 0;
}

/* The config that the manifest presets; FA_EMANIFEST when it lies outside the domains. */
static int preset_config(fa_point *p)
{
    const fa_family *f = p->family;
    char room[FA_VALUE_TEXT_MAX];
    p->preset = p->config;
    for (int i = 0; i < f->tunable_count; i++) {
        const fa_domain *domain = &f->tunable[i];
        int32_t preset = domain->preset_value;
        if (domain->preset != NULL) {
            fa_expr_value value = fa_expr_evaluate(domain->preset, p->value);
            const char *why = fa_expr_fault(value);
            if (!fa_expr_to_value(value, &preset))
                return fa_fail(p->diag, FA_EMANIFEST, "%s.json: default %s %s", f->name,
                               domain->name,
                               why != NULL ? why : "is a number too many for this process");
        }
        if (fa_domain_index(domain, preset) < 0)
            return fa_fail(p->diag, FA_EMANIFEST,
                           "%s.json: default %s is %s, which is not in its domain", f->name,
                           domain->name, fa_value_words(preset, room));
        p->preset.tunable[i].value = preset;
    }
    return 0;
}

/* Of the tunables from one on. */
static int64_t domain_product(const fa_family *f, int first)
{
    int64_t product = 1;
    for (int i = first; i < f->tunable_count; i++)
        product *= f->tunable[i].count; /* at most FA_SPACE_POINTS_MAX: checked on loading */
    return product;
}

/* ---- the space -----------------------------------------------------------------------------*/
/* A walk over the points of one family. */
struct walk {
    fa_point point;
    bool prune;               /* leaves out what breaks a constraint */
    bool first;               /* ends with FOUND at the first point */
    int64_t steps, steps_max; /* of expressions: so far, and where it ends */
    int free_from;            /* no constraint reads this tunable or a later one */
    int64_t count, passed;    /* of the points that it came to, that it left out */
    fa_candidate *candidate;  /* room for every point; NULL: they are counted alone */
};

enum { FOUND = 1 };

static int walk(struct walk *w, int tunable)
{
    const fa_family *f = w->point.family;
    if (tunable == f->tunable_count) {
        fa_candidate *candidate = w->candidate != NULL ? &w->candidate[w->count] : NULL;
        w->count++;
        return w->first ? FOUND : candidate != NULL ? fa_point_judge(&w->point, candidate) : 0;
    }
    const fa_domain *domain = &f->tunable[tunable];
    int64_t steps = 1; /* of a value: its lets */
    int rc = 0;
    for (int i = 0; i < f->let_count; i++)
        if (f->let[i].depth == tunable + 1)
            steps += f->let[i].expr->count;
    if (w->candidate == NULL && !w->first && tunable >= w->free_from) {
        w->count += domain_product(f, tunable);
        return 0;
    }
    for (int i = 0; i < domain->count && rc == 0; i++) {
        fa_point_set(&w->point, tunable, domain->value[i]);
        w->steps += steps;
        if (w->steps > w->steps_max)
            return FA_ETIMEOUT;
        if (w->prune && fa_point_breaks(&w->point, tunable + 1, &w->steps))
            w->passed += domain_product(f, tunable + 1);
        else
            rc = walk(w, tunable + 1);
    }
    return rc;
}

static int start_walk(struct walk *w)
{
    const fa_family *f = w->point.family;
    for (int i = 0; i < f->constraint_count; i++)
        w->free_from =
            f->constraint[i].depth > w->free_from ? f->constraint[i].depth : w->free_from;
    if (!w->prune || !fa_point_breaks(&w->point, 0, &w->steps))
        return walk(w, 0);
    w->passed = domain_product(f, 0);
    return 0;
}

/* ---- the default config ---------------------------------------------------------------------*/
/* What the constraints read of the problem and of the GPU: bits of names. */
static uint64_t given_that_matters(const fa_family *f)
{
    uint64_t uses = 0;
    for (int i = 0; i < f->constraint_count; i++)
        uses |= f->constraint[i].expr->uses;
    return fa_family_reads(f, uses) & ((UINT64_C(1) << f->given.count) - 1);
}

static int fail_none_holds(const fa_point *point, int64_t passed, fa_diag *diag)
{
    const fa_family *f = point->family;
    const int64_t all = domain_product(f, 0);
    const uint64_t given = given_that_matters(f);
    char a[FA_COMMAS_MAX], b[FA_COMMAS_MAX];
    const char *rule = f->constraint_count == 1 ? f->constraint[0].why : "restrictions";
    FA_ENDS(fa_buf_free) fa_buf with = {0};
    for (int i = 0; i < f->given.count; i++)
        if ((given >> i & 1) != 0)
            fa_buf_printf(&with, "%s%s %lld", with.size == 0 ? " with " : ", ", f->given.name[i],
                          (long long)point->value[i].integer);
    const char *sizes = with.data != NULL ? with.data : "";
    const char *the = f->constraint_count == 1 ? "" : "the ";
    return passed == all
               ? fa_fail(diag, FA_ENOKERNEL, "%s: restrictions: no config holds to %s\"%s\"%s",
                         f->name, the, rule, sizes)
               : fa_fail(diag, FA_ENOKERNEL,
                         "%s: no config was found that holds to the \"restrictions\"%s "
                         "(gave up after %s of %s): name one as \"default\"",
                         f->name, sizes, fa_commas(passed, a), fa_commas(all, b));
}

/* The default config is what the manifest presets or, where a specification's breaks a restriction there, the first that holds. */
/* fa_point_start() of a family of the task, with its default config. FA_ENOKERNEL: it has none for the problem. */
static int open_point(fa_point *ret_point, const fa_task *task, int family, fa_diag *diag)
{
    const fa_family *f = task->families->family[family];
    int64_t steps = 0;
    bool holds = true;
    fa_point_start(ret_point, f, task->problem, task->gpu, diag);
    ret_point->index = family;
    int rc = preset_config(ret_point);
    if (rc != 0 || !f->as_is)
        return rc;
    fa_point_set_all(ret_point, &ret_point->preset);
    for (int depth = 0; depth <= f->tunable_count && holds; depth++)
        holds = !fa_point_breaks(ret_point, depth, &steps);
    if (holds)
        return 0;
    struct walk w = {
        .point = *ret_point, .prune = true, .first = true, .steps_max = counting_steps_max};
    if (start_walk(&w) != FOUND)
        return fail_none_holds(ret_point, w.passed, diag);
    ret_point->preset = w.point.config;
    return 0;
}

/* ---- spaces ---------------------------------------------------------------------------------*/
/* Families written for this very chip, where one serves, come instead of those that newer chips can
 * run too, but for those that say that they compete. */
int fa_families_choose(const fa_task *task, bool *ret_serves, int64_t *ret_points, fa_diag *diag)
{
    const fa_family_list *families = task->families;
    FA_ENDS(fa_tensors_free) fa_tensor_list list = {.count = 0};
    FA_ENDS(fa_buf_free) fa_buf reasons = {0};
    bool specific = false;
    int rc = 0;
    /* Can all be passed that is of these sizes? */
    if (fa_operation_of(task->problem)->specification[0] != 0)
        FA_OR_RETURN(fa_tensors_read(task->problem, &list, diag));
    for (int i = 0; i < families->count && (rc == 0 || rc == FA_ENOTSUP); i++) {
        fa_diag why;
        rc = fa_family_supports(families->family[i], task->problem, task->gpu, &why);
        ret_serves[i] = rc == 0;
        specific = specific || (rc == 0 && families->family[i]->arch_suffix[0] != 0);
        if (rc != 0 && rc != FA_ENOTSUP)
            fa_fail(diag, rc, "%s", why.text);
        else if (rc != 0 && is_for(families->family[i], task->gpu) &&
                 families->family[i]->operation == fa_operation_of(task->problem))
            fa_buf_printf(&reasons, "%s%s", reasons.size == 0 ? "" : "; ", why.text);
    }
    if (rc == 0 || rc == FA_ENOTSUP) {
        *ret_points = 0;
        for (int i = 0; i < families->count; i++) {
            const fa_family *f = families->family[i];
            ret_serves[i] = ret_serves[i] && (!specific || f->arch_suffix[0] != 0 || f->beside);
            *ret_points += ret_serves[i] ? domain_product(f, 0) : 0;
        }
        rc = *ret_points > 0
                 ? 0
                 : fa_fail(diag, FA_ENOTSUP, "no kernel family serves this problem on %s: %s",
                           task->gpu->name,
                           reasons.data != NULL ? reasons.data : "none is for its architecture");
    }
    return rc;
}

/* Walks the spaces of the families that serve: into `candidate`, or to count them (NULL). */
static int walk_all(const fa_task *task, const bool *serves, bool prune, int64_t most_steps,
                    fa_candidate *candidate, int64_t *ret_count, fa_diag *diag)
{
    int64_t steps = 0, count = 0;
    for (int i = 0; i < task->families->count; i++) {
        if (!serves[i])
            continue;
        struct walk w = {.prune = prune,
                         .steps = steps,
                         .steps_max = most_steps,
                         .candidate = candidate != NULL ? candidate + count : NULL};
        FA_OR_RETURN(open_point(&w.point, task, i, diag));
        FA_OR_RETURN(start_walk(&w));
        steps = w.steps;
        count += w.count;
    }
    *ret_count = count;
    return 0;
}

int fa_space_enumerate(const fa_task *task, fa_space *ret_space, fa_diag *diag)
{
    fa_space space = {.default_index = -1};
    int64_t points = 0, count = 0;
    bool serves[FA_FAMILIES_MAX];
    int rc = fa_families_choose(task, serves, &points, diag);
    const bool prune = points > FA_SPACE_MAX;
    count = points;
    if (rc == 0 && prune)
        rc = walk_all(task, serves, true, counting_steps_max, NULL, &count, diag);
    if (rc == FA_ETIMEOUT)
        rc = 0;
    if (rc == 0 && count > FA_SPACE_MAX) {
        space.held = count;
    } else if (rc == 0) {
        space.candidate = calloc((size_t)count + 1, sizeof *space.candidate);
        rc = space.candidate != NULL
                 ? walk_all(task, serves, prune, steps_max, space.candidate, &count, diag)
                 : fa_fail(diag, FA_ENOMEM, "space of %d configs: out of memory", (int)count);
        space.count = (int)count;
    }
    if (rc != 0) {
        fa_space_free(&space);
        return rc;
    }
    for (int i = 0; i < space.count; i++) {
        const bool survives = space.candidate[i].trial.status == FA_STATUS_PENDING;
        space.survivors += survives;
        if (survives && space.candidate[i].is_default)
            space.default_index = i;
    }
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

int fa_space_find(const fa_space *space, const fa_config *config, fa_status status)
{
    for (int i = 0; i < space->count; i++)
        if (space->candidate[i].trial.status == status &&
            fa_config_equal(&space->candidate[i].trial.config, config))
            return i;
    return -1;
}

/* Has the config a value of the domain for every tunable, and nothing else? */
static int check_config(const fa_family *f, const fa_config *config, fa_diag *diag)
{
    for (int i = 0; i < f->tunable_count; i++) {
        const fa_domain *domain = &f->tunable[i];
        int32_t value = 0;
        char room[FA_VALUE_TEXT_MAX];
        if (!fa_config_get(config, domain->name, &value))
            return fa_fail(diag, FA_EINVAL, "config of %s: %s is missing", f->name, domain->name);
        if (fa_domain_index(domain, value) < 0)
            return fa_fail(diag, FA_EINVAL, "config of %s: %s is %s, which is not in its domain",
                           f->name, domain->name, fa_value_words(value, room));
    }
    if (config->count != f->tunable_count)
        return fa_fail(diag, FA_EINVAL, "config of %s: has %d tunables, the family has %d", f->name,
                       config->count, f->tunable_count);
    return 0;
}

int fa_space_some(const fa_task *task, const fa_config *const *config, int count,
                  fa_candidate *ret_candidate, fa_diag *diag)
{
    const fa_family_list *families = task->families;
    int index = 0;
    const char *name = config[0]->family;
    while (index < families->count && strcmp(families->family[index]->name, name) != 0)
        index++;
    if (index == families->count)
        return fa_fail(diag, FA_ENOTFOUND, "there is no kernel family \"%.31s\"", name);
    memset(ret_candidate, 0, (size_t)count * sizeof *ret_candidate);
    const fa_family *f = families->family[index];
    fa_point point;
    for (int i = 0; i < count; i++)
        FA_OR_RETURN(check_config(f, config[i], diag));
    FA_OR_RETURN(fa_family_supports(f, task->problem, task->gpu, diag));
    FA_OR_RETURN(open_point(&point, task, index, diag));
    point.named = true;
    for (int i = 0; i < count; i++) {
        fa_point_set_all(&point, config[i]);
        FA_OR_RETURN(fa_point_judge(&point, &ret_candidate[i]));
    }
    return 0;
}

int fa_space_one(const fa_task *task, const fa_config *config, fa_candidate *ret_candidate,
                 fa_diag *diag)
{
    return fa_space_some(task, &config, 1, ret_candidate, diag);
}

int fa_space_default(const fa_task *task, int family, fa_candidate *ret_candidate, fa_diag *diag)
{
    fa_point point;
    FA_OR_RETURN(open_point(&point, task, family, diag));
    memset(ret_candidate, 0, sizeof *ret_candidate);
    fa_point_set_all(&point, &point.preset);
    return fa_point_judge(&point, ret_candidate);
}

int fa_space_first(const fa_family_list *families, const fa_problem *problem, fa_config *ret_config,
                   fa_diag *diag)
{
    enum { ENOUGH = 1 << 20 };
    const fa_gpu gpu = {.name = "any",
                        .sm = 90,
                        .sm_count = 100,
                        .smem_per_block = ENOUGH,
                        .smem_per_sm = ENOUGH,
                        .regs_per_sm = ENOUGH,
                        .threads_per_sm = 2048};
    const fa_task task = {families, problem, &gpu};
    const fa_family *family = families->family[0];
    fa_point point;
    fa_candidate candidate = {.family = 0};
    int rc = open_point(&point, &task, 0, diag);
    *ret_config = point.preset;
    if (rc == FA_ENOKERNEL)
        return given_that_matters(family) != 0 ? 0 : FA_EMANIFEST;
    if (rc != 0)
        return rc;
    fa_point_set_all(&point, ret_config);
    FA_OR_RETURN(fa_point_judge(&point, &candidate));
    for (int i = 0; i < candidate.launches.count * 3; i++)
        if (candidate.trial.status == FA_STATUS_PENDING && family->launch[i / 3].when == NULL &&
            candidate.launches.at[i / 3].grid[i % 3] == 0)
            return fa_fail(diag, FA_EMANIFEST,
                           "%s.json: grid %c is 0 in the default config: it launches nothing",
                           family->name, "xyz"[i % 3]);
    return 0;
}

/* ---- the points of a space that is searched ---------------------------------------------------*/
/* Workload: some hundred thousand points asked about in one search, of which few exist; a microsecond each. */
_Static_assert((int)FA_FAMILIES_MAX <= (int)FA_SEARCH_VALUES_MAX &&
                   (int)FA_MAX_DOMAIN <= (int)FA_SEARCH_VALUES_MAX,
               "values of a search's parameters");

/* Sets the tunables of the point's first values; false: there is no such point, or it breaks a constraint already. */
static bool begins(void *context, const int32_t *at, int count)
{
    fa_points *points = context;
    const int first = points->count > 1;
    const int of = first != 0 ? at[0] : 0;
    fa_point *point = &points->family[of].point;
    const fa_family *f = point->family;
    int64_t steps = 0;
    for (int i = 0; i < count - first && !points->family[of].empty; i++) {
        int32_t value = at[first + i];
        if (value >= (i < f->tunable_count ? f->tunable[i].count : 1))
            return false;
        if (i >= f->tunable_count)
            continue;
        fa_point_set(point, i, f->tunable[i].value[value]);
        if (fa_point_breaks(point, i + 1, &steps))
            return false;
    }
    return !points->family[of].empty;
}

static bool exists(void *context, const int32_t *at)
{
    fa_points *points = context;
    fa_point *point = &points->family[points->count > 1 ? at[0] : 0].point;
    if (!begins(points, at, points->space.dims))
        return false;
    points->judged = (fa_candidate){.family = 0};
    point->rc = 0;
    point->diag = points->rc == 0 ? &points->diag : NULL;
    int rc = fa_point_judge(point, &points->judged);
    points->rc = points->rc != 0 ? points->rc : rc;
    return rc == 0 && points->judged.trial.status == FA_STATUS_PENDING;
}

/* Of several families a value is a number of each, so they have none. */
static int twos(void *context, int dim, int32_t value)
{
    const fa_points *points = context;
    const fa_family *f = points->family[0].point.family;
    return points->count == 1 && dim < f->tunable_count
               ? fa_search_twos(f->tunable[dim].value[value])
               : 0;
}

/* The parameters: each has as many values as the family that has the most. */
static void add_parameters(fa_points *points)
{
    fa_search_space *space = &points->space;
    const int first = points->count > 1;
    space->dims = first;
    space->values[0] = points->count;
    for (int k = 0; k < points->count; k++) {
        const fa_family *f = points->family[k].point.family;
        for (int i = 0; i < f->tunable_count; i++) {
            int d = first + i;
            if (d >= space->dims)
                space->values[space->dims++] = 1;
            if (f->tunable[i].count > space->values[d])
                space->values[d] = f->tunable[i].count;
        }
    }
    if (space->dims == 0) /* one family without tunables */
        space->dims = 1;
    space->valid = exists;
    space->begins = begins;
    space->twos = twos;
    space->context = points;
}

int fa_points_open(const fa_task *task, fa_points **ret_points, fa_diag *diag)
{
    const fa_family_list *families = task->families;
    int64_t all;
    bool serves[FA_FAMILIES_MAX];
    fa_points *points =
        calloc(1, sizeof *points + (size_t)families->count * sizeof *points->family);
    int rc = points == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for a space")
                            : fa_families_choose(task, serves, &all, diag);
    for (int i = 0; rc == 0 && i < families->count; i++) {
        if (!serves[i])
            continue;
        fa_point *point = &points->family[points->count++].point;
        int64_t steps = 0;
        rc = open_point(point, task, i, diag);
        points->family[points->count - 1].empty = fa_point_breaks(point, 0, &steps);
    }
    if (rc != 0) {
        fa_points_close(&points);
        return rc;
    }
    add_parameters(points);
    *ret_points = points;
    return 0;
}

void fa_points_close(fa_points **points)
{
    if (points == NULL)
        return;
    free(*points);
    *points = NULL;
}

void fa_points_candidate(fa_points *points, const int32_t *point, fa_candidate *ret_candidate)
{
    exists(points, point);
    *ret_candidate = points->judged;
}

bool fa_points_find(fa_points *points, const fa_config *config, int32_t *ret_point)
{
    const int first = points->count > 1;
    int k = 0;
    while (k < points->count && strcmp(points->family[k].point.preset.family, config->family) != 0)
        k++;
    if (k == points->count || config->count != points->family[k].point.preset.count)
        return false;
    const fa_family *f = points->family[k].point.family;
    memset(ret_point, 0, (size_t)points->space.dims * sizeof *ret_point);
    ret_point[0] = k; /* or the first tunable's */
    for (int i = 0; i < f->tunable_count; i++) {
        int32_t value = 0;
        if (!fa_config_get(config, f->tunable[i].name, &value) ||
            (ret_point[first + i] = fa_domain_index(&f->tunable[i], value)) < 0)
            return false;
    }
    return exists(points, ret_point);
}

bool fa_points_give_up(fa_points *points, int family)
{
    bool left = false;
    for (int i = 0; i < points->count; i++) {
        points->family[i].empty =
            points->family[i].empty || points->family[i].point.index == family;
        left = left || !points->family[i].empty;
    }
    return left;
}
