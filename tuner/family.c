/* SPDX-License-Identifier: Apache-2.0
 *
 * Families: loaded from every manifest of an operation, freed, asked for their names.
 *
 * Workload: once per process; a handful of manifests.
 */
#include "family.h"

#include "error.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_requires(fa_require *list, int count)
{
    for (int i = 0; i < count; i++) {
        fa_expr_free(&list[i].expr);
        free(list[i].why);
    }
}

static void family_free(fa_family **family)
{
    fa_family *f = *family;
    if (f == NULL)
        return;
    for (int i = 0; i < f->tunable_count; i++)
        fa_expr_free(&f->tunable[i].preset);
    for (int i = 0; i < f->let_count; i++)
        fa_expr_free(&f->let[i].expr);
    for (int i = 0; i < FA_LAUNCHES_MAX; i++) {
        fa_family_launch *launch = &f->launch[i];
        for (int j = 0; j < launch->addend_count; j++)
            fa_expr_free(&launch->addend[j].expr);
        for (int j = 0; j < 3; j++) {
            fa_expr_free(&launch->grid[j]);
            fa_expr_free(&launch->cluster[j]);
            fa_expr_free(&launch->block[j]);
        }
        for (int j = 0; j < FA_WORKS; j++)
            fa_expr_free(&launch->work[j]);
        fa_expr_free(&launch->threads);
    }
    free_requires(f->support, f->support_count);
    free_requires(f->constraint, f->constraint_count);
    fa_expr_free(&f->registers);
    fa_expr_free(&f->workspace);
    fa_expr_free(&f->counters);
    fa_expr_free(&f->splits);
    free(f);
    *family = NULL;
}

static int make_family(const fa_templates *templates, const char *where, const cJSON *json,
                       const fa_operation *operation, fa_family **ret_family, fa_diag *diag)
{
    fa_family *family = calloc(1, sizeof *family);
    if (family == NULL)
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    char source[FA_NAME_MAX + 8];
    family->operation = operation;
    int rc = fa_family_read(family, where, json, diag);
    snprintf(source, sizeof source, "%s.cu", family->name);
    if (rc == 0 && fa_templates_find(templates, source) == NULL)
        rc = fa_fail(diag, FA_EMANIFEST, "%s: there is no template %s beside it", where, source);
    if (rc != 0)
        family_free(&family);
    else
        *ret_family = family;
    return rc;
}

/* *ret_family stays NULL when the manifest is of another operation. */
static int load_file(const fa_templates *templates, const fa_template_file *file,
                     const char *operation, fa_family **ret_family, fa_diag *diag)
{
    cJSON *json = NULL;
    const char *its_name = NULL;
    const fa_operation *its_operation = NULL;
    if (file->size > FA_MANIFEST_BYTES_MAX)
        return fa_fail(diag, FA_EMANIFEST, "%s: %zu bytes: a manifest has at most %d", file->name,
                       file->size, FA_MANIFEST_BYTES_MAX);
    int rc = fa_json_parse(file->text, file->size, file->name, &json, diag);
    if (rc != 0)
        return rc == FA_ENOMEM ? rc : FA_EMANIFEST;
    if (!cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EMANIFEST, "%s: must be a JSON object", file->name);
    else if (fa_json_text(json, "operation", &its_name, file->name, NULL) != 0)
        rc = fa_fail(diag, FA_EMANIFEST, "%s: \"operation\" must be a string", file->name);
    else if (operation == NULL || strcmp(its_name, operation) == 0)
        rc = fa_operation_find(its_name, &its_operation, NULL);
    if (rc == FA_ENOTSUP) /* one of the operations that are not known here */
        rc = 0;
    else if (rc == 0 && its_operation != NULL)
        rc = make_family(templates, file->name, json, its_operation, ret_family, diag);
    cJSON_Delete(json);
    return rc;
}

int fa_families_load(const fa_templates *templates, const char *operation, fa_family_list *ret_list,
                     fa_diag *diag)
{
    fa_family_list list = {0};
    int rc = 0, files = fa_templates_count(templates);
    list.family = calloc((size_t)files + 1, sizeof *list.family);
    if (list.family == NULL)
        return fa_fail(diag, FA_ENOMEM, "families: out of memory");
    for (int i = 0; i < files && rc == 0; i++) {
        const fa_template_file *file = fa_templates_at(templates, i);
        if (!fa_template_is_manifest(file->name))
            continue;
        rc = load_file(templates, file, operation, &list.family[list.count], diag);
        if (rc == 0 && list.family[list.count] != NULL)
            list.count++;
    }
    if (rc == 0 && list.count == 0)
        rc = operation == NULL
                 ? fa_fail(diag, FA_ENOTFOUND, "there is no kernel family for a known operation")
                 : fa_fail(diag, FA_ENOTFOUND, "there is no kernel family for the operation \"%s\"",
                           operation);
    if (rc != 0)
        fa_families_free(&list);
    else
        *ret_list = list;
    return rc;
}

int fa_families_make(const fa_templates *templates, const char *where, const cJSON *manifest,
                     const fa_operation *operation, fa_family_list *ret_list, fa_diag *diag)
{
    fa_family_list list = {.family = calloc(1, sizeof *list.family), .count = 1};
    int rc = list.family != NULL
                 ? make_family(templates, where, manifest, operation, &list.family[0], diag)
                 : fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    if (rc != 0)
        free(list.family);
    else
        *ret_list = list;
    return rc;
}

void fa_families_free(fa_family_list *list)
{
    if (list == NULL)
        return;
    for (int i = 0; i < list->count; i++)
        family_free(&list->family[i]);
    free(list->family);
    *list = (fa_family_list){0};
}

const char *fa_family_name(const fa_family *family)
{
    return family->name;
}

const fa_operation *fa_family_operation(const fa_family *family)
{
    return family->operation;
}

const char *fa_family_entry(const fa_family *family)
{
    return family->launch[0].entry;
}

int fa_family_launch_count(const fa_family *family)
{
    return family->launch_count;
}

int fa_family_peek(const fa_templates *templates, const char *family, bool *ret_simple,
                   fa_diag *diag)
{
    char name[FA_NAME_MAX + sizeof ".json"];
    cJSON *json = NULL;
    snprintf(name, sizeof name, "%.*s.json", FA_NAME_MAX - 1, family);
    const fa_template_file *file = fa_templates_find(templates, name);
    if (file == NULL)
        return FA_ENOTFOUND;
    /* A text that contains none of these names, and no escape that could spell one, has no such keys. */
    *ret_simple = memmem(file->text, file->size, "\"launches\"", 10) == NULL &&
                  memmem(file->text, file->size, "\"workspace\"", 11) == NULL &&
                  memmem(file->text, file->size, "\"counters\"", 10) == NULL &&
                  memmem(file->text, file->size, "\"block\"", 7) == NULL &&
                  memmem(file->text, file->size, "\"cluster\"", 9) == NULL &&
                  memchr(file->text, '\\', file->size) == NULL;
    if (*ret_simple)
        return 0;
    int rc = fa_json_parse(file->text, file->size, name, &json, diag);
    if (rc == 0)
        *ret_simple = cJSON_GetObjectItemCaseSensitive(json, "launches") == NULL &&
                      cJSON_GetObjectItemCaseSensitive(json, "workspace") == NULL &&
                      cJSON_GetObjectItemCaseSensitive(json, "counters") == NULL &&
                      cJSON_GetObjectItemCaseSensitive(json, "block") == NULL &&
                      cJSON_GetObjectItemCaseSensitive(json, "cluster") == NULL &&
                      cJSON_GetObjectItemCaseSensitive(json, "splits") == NULL;
    cJSON_Delete(json);
    return rc;
}

bool fa_family_has_workspace(const fa_family *family)
{
    return family->workspace != NULL;
}

const char *fa_family_launch_entry(const fa_family *family, int launch)
{
    return family->launch[launch].entry;
}

bool fa_family_is_as_is(const fa_family *family)
{
    return family->as_is;
}

int fa_family_values(const fa_family *family, int tunable)
{
    return family->tunable[tunable].count;
}

const char *fa_family_arch_suffix(const fa_family *family)
{
    return family->arch_suffix;
}

int32_t fa_family_proved_max(const fa_family *family)
{
    return family->proved_max;
}
