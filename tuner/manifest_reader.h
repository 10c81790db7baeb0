/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a manifest are read with (manifest.c), and its launches.
 */
#ifndef FA_TUNER_MANIFEST_READER_H
#define FA_TUNER_MANIFEST_READER_H

#include "family.h"

enum { FA_MANIFEST_WHY_MAX = 300 }; /* bytes of a sentence: fits fa_trial's reason */

/* A manifest being read: every sentence starts with `where`, its file. */
struct fa_manifest_reader {
    fa_family *family;
    const cJSON *json;
    const char *where;
    fa_diag *diag;
    const char *name[FA_EXPR_NAMES_MAX]; /* given, tunables, lets: bit i of a `uses` */
    int name_count;
};

extern const char fa_manifest_lower[]; /* what names are made of */

bool fa_manifest_is_word(const char *text, const char *alphabet);

/* What a manifest says is shown to people on terminals, which act on control bytes. */
bool fa_manifest_is_sentence(const char *text);

int fa_manifest_fault(const struct fa_manifest_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As fa_json_check_keys(). */
int fa_manifest_check_keys(const struct fa_manifest_reader *r, const cJSON *object,
                           const char *place, const char *const *keys);

/* *ret: the member, of the type asked for; NULL when absent and not required. */
int fa_manifest_member(const struct fa_manifest_reader *r, const char *key, bool required,
                       cJSON_bool (*is)(const cJSON *), const char *type, const cJSON **ret);

/* Parses an expression, a string or a plain integer, over the names so far; `place` is for the sentence. */
int fa_manifest_take(const struct fa_manifest_reader *r, const cJSON *item, const char *place,
                     fa_expr **ret_expr);

int fa_manifest_add_name(struct fa_manifest_reader *r, const char *name, const char *place);

/* Either one launch, whose keys are the manifest's, or a list of them. */
int fa_manifest_read_launches(struct fa_manifest_reader *r);

#endif
