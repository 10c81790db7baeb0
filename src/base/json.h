/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading JSON that may be hostile: depth- and size-limited parsing and typed, checked getters.
 * `where` is the document's name for the sentence ("manifest attn_fwd_sm80.json").
 *
 * Making JSON while memory may run out: whatever could not be made, or not be added, leaves a mark on the
 * object or array that lacks it, and a document with a mark in it is not printed. So the caller checks once,
 * at the end.
 */
#ifndef FA_BASE_JSON_H
#define FA_BASE_JSON_H

#include "fa_types.h"

#include <cJSON.h>
#include <stdbool.h>

/* Parses at most `size` bytes; nothing but white space may follow. Refuses duplicate keys at the
 * top level, more than 1024 of them, and nesting deeper than 32. Caller frees with cJSON_Delete. FA_EINVAL, or
 * FA_ENOMEM for a text that is JSON and too much for the memory left. */
int fa_json_parse(const char *text, size_t size, const char *where, cJSON **ret_json,
                  fa_diag *diag);

/* A file of lines, each of which is JSON or blank. */
typedef struct fa_json_lines {
    const char *at, *end; /* of what is left; NUL-terminated */
    int line;             /* the number of the one that was read last */
} fa_json_lines;
/* The next line that is not blank, which the caller frees; NULL: there are no more. FA_EINVAL, FA_ENOMEM. */
int fa_json_next_line(fa_json_lines *lines, size_t longest, cJSON **ret_json, fa_diag *diag);

/* For what may be somebody else's or missing: *ret_json is NULL for a text that is NULL or not an object, and
 * that is no failure. 0, or FA_ENOMEM with *ret_json NULL. */
int fa_json_parse_object(const char *text, const char *where, cJSON **ret_json, fa_diag *diag);

/* An object (or NULL) whose members are among `keys` (NULL-terminated), each once: 0, or FA_EINVAL with the
 * nearest key. What an unknown key should have set would silently not be set. */
int fa_json_check_keys(const cJSON *object, const char *const *keys, const char *where,
                       fa_diag *diag);

/* The member; NULL where it is null, too, and of what is no object. */
const cJSON *fa_json_member(const cJSON *object, const char *key);
/* Its text, in the document; NULL where it has none. */
const char *fa_json_string(const cJSON *object, const char *key);

/* Each returns 0, FA_ENOTFOUND when absent (no diag), or FA_EINVAL with a sentence. */
int fa_json_int(const cJSON *object, const char *key, int64_t low, int64_t high, int64_t *ret,
                const char *where, fa_diag *diag);
int fa_json_number(const cJSON *object, const char *key, double *ret, const char *where,
                   fa_diag *diag);
int fa_json_bool(const cJSON *object, const char *key, bool *ret, const char *where, fa_diag *diag);
/* An expression as text, of a text or a number, which is put into room; NULL: it is neither. */
const char *fa_json_expression(const cJSON *item, char room[32]);
/* *ret points into the document. */
int fa_json_text(const cJSON *object, const char *key, const char **ret, const char *where,
                 fa_diag *diag);
/* Copies; FA_EINVAL when it does not fit. */
int fa_json_copy(const cJSON *object, const char *key, char *ret, size_t size, const char *where,
                 fa_diag *diag);

/* The same for one that must be there: 0 or FA_EINVAL with a sentence. */
int fa_json_text_needed(const cJSON *object, const char *key, const char **ret, const char *where,
                        fa_diag *diag);

/* A number where it is known, else null. NULL object is allowed. */
void fa_json_add_known(cJSON *object, const char *key, double value, bool known);

/* ---- making ----------------------------------------------------------------------------------*/
/* Adds an item, which may be NULL as nothing was made for want of memory. false: it is deleted. NULL for the
 * object or array is allowed and false. */
bool fa_json_add(cJSON *object, const char *key, cJSON *item);
bool fa_json_push(cJSON *array, cJSON *item);

/* false: out of memory. A NULL text is left out, and is no failure. */
bool fa_json_add_text(cJSON *object, const char *key, const char *text);
bool fa_json_add_number(cJSON *object, const char *key, double number);
bool fa_json_add_bool(cJSON *object, const char *key, bool value);
/* The new one, which `object` owns; NULL: out of memory. */
cJSON *fa_json_add_object(cJSON *object, const char *key);
cJSON *fa_json_add_array(cJSON *object, const char *key);

/* Whether nothing that was added to it, at any depth, was left out for want of memory. NULL is not whole. */
bool fa_json_is_whole(const cJSON *json);
/* In one line; the caller frees it. NULL: out of memory, now or while it was made. A number
 * is as fa_digits() has it, or null when it is not finite. */
char *fa_json_print(const cJSON *json);
/* Prints it, and deletes it. NULL as the document is out of memory. */
char *fa_json_finish(cJSON *json);

#endif
