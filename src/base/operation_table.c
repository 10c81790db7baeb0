/* SPDX-License-Identifier: Apache-2.0
 *
 * What a table of fields says: which field has a name, in which order they are told, how a value is shown.
 */
#include "operation.h"

#include <stdio.h>
#include <string.h>

int fa_operation_field_index(const fa_operation *operation, const char *name)
{
    for (int i = 0; i < operation->field_count; i++)
        if (strcmp(operation->field[i].name, name) == 0)
            return i;
    return -1;
}

static int rank(const fa_field *f, fa_order order)
{
    bool integer = f->kind == FA_FIELD_INTEGER;
    switch (order) {
    case FA_ORDER_WORDS:
        return f->quiet ? 2 : f->late;
    case FA_ORDER_COLUMNS:
        return f->feature ? 3 : f->kind == FA_FIELD_BOOLEAN ? 2 : f->late;
    case FA_ORDER_OPTIONS:
        return f->feature                   ? 5
               : f->also[0] != 0            ? 0
               : integer                    ? 1 + f->late
               : f->kind == FA_FIELD_CHOICE ? 3
                                            : 4;
    case FA_ORDER_SWEEP:
        return f->shapes_source ? !integer : f->length ? 4 : f->nonempty ? 3 : 2;
    case FA_ORDER_LISTING:
        break;
    }
    return f->kind == FA_FIELD_BOOLEAN ? 6
           : f->shapes_source          ? !integer
           : f->length                 ? 2
           : f->nonempty               ? 3
           : integer                   ? 4
                                       : 5;
}

void fa_operation_order(const fa_operation *operation, fa_order order,
                        int ret_field[FA_PROBLEM_VALUES])
{
    int count = 0;
    for (int at = 0; count < operation->field_count; at++)
        for (int i = 0; i < operation->field_count; i++)
            if (rank(&operation->field[i], order) == at)
                ret_field[count++] = i;
}

int32_t fa_field_shown(fa_field_as as, int32_t value)
{
    return as == FA_AS_VALUE ? value : as == FA_AS_NONZERO ? value != 0 : value == 0;
}

const char *fa_field_text(const fa_field *field, int32_t value, char room[16])
{
    if (field->kind == FA_FIELD_BOOLEAN)
        return value != 0 ? "true" : "false";
    if (field->kind == FA_FIELD_CHOICE)
        return value >= field->min && value <= field->max ? field->choice[value] : "unknown";
    snprintf(room, 16, "%d", value);
    return room;
}

int fa_field_choice(const fa_field *field, const char *name)
{
    for (int i = 0; field->choice[i] != NULL; i++)
        if (strcmp(field->choice[i], name) == 0)
            return i;
    return -1;
}
