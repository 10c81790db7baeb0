/* SPDX-License-Identifier: Apache-2.0
 *
 * Families: loaded from every manifest of an operation, freed, asked for their names.
 *
 * Workload: once per process; a handful of manifests.
 */
#include "family.h"

#include "spec_reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the family to the list, which has room for it. */
static int add_family(const fa_templates *templates, struct fa_spec_reading *from,
                      const fa_operation *operation, fa_family_list *list)
{
    char source[FA_NAME_MAX + 8];
    fa_family *family = calloc(1, sizeof *family);
    fa_spec_memory(from, family != NULL);
    if (family == NULL)
        return from->rc;
    list->family[list->count++] = family;
    family->operation = operation;
    int rc = fa_family_read(family, from);
    snprintf(source, sizeof source, "%s.cu", family->name);
    return rc == 0 && fa_templates_find(templates, source) == NULL
               ? fa_spec_fault(from, "there is no template %s beside it", source)
               : rc;
}

/* Adds none when the manifest is of another operation, or of one that is not known here. */
static int load_file(const fa_templates *templates, const fa_template_file *file,
                     const char *operation, fa_family_list *list, fa_diag *diag)
{
    fa_diag own;
    cJSON *json = NULL;
    const fa_operation *its_operation = NULL;
    struct fa_spec_reading from = {.where = file->name, .diag = diag != NULL ? diag : &own};
    snprintf(from.name, sizeof from.name, "%.*s", (int)(strlen(file->name) - strlen(".json")),
             file->name);
    int rc = fa_json_parse(file->text, file->size, file->name, &json, from.diag);
    const char *its_name = fa_spec_text(json, "operation");
    from.json = json;
    if (rc == 0 && its_name[0] == 0)
        rc = fa_spec_fault(&from, "\"operation\" must be the name of an operation");
    else if (rc == 0 && (operation == NULL || strcmp(its_name, operation) == 0) &&
             (rc = fa_operation_find(its_name, &its_operation, NULL)) == 0)
        rc = add_family(templates, &from, its_operation, list);
    if (rc == FA_EMANIFEST || rc == FA_EINVAL) {
        fa_spec_locate(file->name, from.name, file->text, false, from.diag);
        rc = FA_EMANIFEST;
    }
    cJSON_Delete(json);
    return rc == FA_ENOTSUP ? 0 : rc;
}

int fa_families_load(const fa_templates *templates, const char *operation, fa_family_list *ret_list,
                     fa_diag *diag)
{
    fa_family_list list = {0};
    int rc = 0;
    list.family = calloc((size_t)templates->count + 1, sizeof *list.family);
    if (list.family == NULL)
        return fa_fail(diag, FA_ENOMEM, "families: out of memory");
    for (int i = 0; i < templates->count && rc == 0; i++) {
        if (fa_template_is_manifest(templates->file[i].name))
            rc = load_file(templates, &templates->file[i], operation, &list, diag);
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

int fa_families_make(const fa_templates *templates, struct fa_spec_reading *from,
                     const fa_operation *operation, fa_family_list *ret_list)
{
    fa_family_list list = {.family = calloc(1, sizeof *list.family)};
    fa_spec_memory(from, list.family != NULL);
    int rc = list.family != NULL ? add_family(templates, from, operation, &list) : from->rc;
    if (rc != 0)
        fa_families_free(&list);
    else
        *ret_list = list;
    return rc;
}

void fa_families_free(fa_family_list *list)
{
    if (list == NULL)
        return;
    for (int k = 0; k < list->count; k++) {
        fa_family *f = list->family[k];
        for (int i = 0; i < f->expr_count; i++)
            fa_expr_free(&f->expr[i]);
        for (int i = 0; i < FA_MAX_REQUIRES; i++) {
            free(f->support[i].why);
            free(f->constraint[i].why);
        }
        free(f);
    }
    free(list->family);
    *list = (fa_family_list){0};
}

int fa_family_peek(const fa_templates *templates, const char *family, bool *ret_simple)
{
    static const char *const others[] = {"launches", "workspace", "counters", "splits"};
    char name[FA_NAME_MAX + sizeof ".json"];
    snprintf(name, sizeof name, "%.*s.json", FA_NAME_MAX - 1, family);
    const fa_template_file *file = fa_templates_find(templates, name);
    if (file == NULL)
        return FA_ENOTFOUND;
    /* A text that contains none of these names, and no escape that could spell one, has no such keys. */
    bool simple = strchr(file->text, '\\') == NULL;
    for (size_t i = 0; simple && i < sizeof others / sizeof *others; i++) {
        snprintf(name, sizeof name, "\"%s\"", others[i]);
        simple = strstr(file->text, name) == NULL;
    }
    const char *block = simple ? strstr(file->text, "\"block\"") : NULL;
    *ret_simple = block != NULL && block[7 + strspn(block + 7, " \t\r\n:")] != '[';
    return 0;
}
