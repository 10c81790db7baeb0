/* SPDX-License-Identifier: Apache-2.0
 *
 * Making JSON while memory may run out: whatever could not be made, or not be added, leaves a mark on the
 * object or array that lacks it, and a document with a mark in it is not printed. So the caller checks once,
 * at the end.
 */
#ifndef FA_BASE_JSON_MAKE_H
#define FA_BASE_JSON_MAKE_H

#include <cJSON.h>
#include <stdbool.h>

/* Adds an item, which may be NULL as nothing was made for want of memory. false: it is deleted. NULL for the
 * object or array is allowed and false. */
bool fa_json_add(cJSON *object, const char *key, cJSON *item);
bool fa_json_push(cJSON *array, cJSON *item);

/* false: out of memory. A NULL text is left out, and is no failure. */
bool fa_json_add_text(cJSON *object, const char *key, const char *text);
bool fa_json_add_number(cJSON *object, const char *key, double number);
bool fa_json_add_bool(cJSON *object, const char *key, bool value);
bool fa_json_add_null(cJSON *object, const char *key);
/* The new one, which `object` owns; NULL: out of memory. */
cJSON *fa_json_add_object(cJSON *object, const char *key);
cJSON *fa_json_add_array(cJSON *object, const char *key);

/* Whether nothing that was added to it, at any depth, was left out for want of memory. NULL is not whole. */
bool fa_json_is_whole(const cJSON *json);
/* In one line, or as people read it; the caller frees it. NULL: out of memory, now or while it was made. A number
 * has the fewest digits, from 15 on, that read back as the same double; it is null when it is not finite. */
char *fa_json_print(const cJSON *json);
char *fa_json_print_tidy(const cJSON *json);

#endif
