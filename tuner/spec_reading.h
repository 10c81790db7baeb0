/* SPDX-License-Identifier: Apache-2.0
 *
 * A specification that is being read, and what its parts are read with.
 */
#ifndef FA_TUNER_SPEC_READING_H
#define FA_TUNER_SPEC_READING_H

#include "spec_include.h"

#include "error.h"
#include "json.h"
#include "json_make.h"

struct fa_spec_reading {
    const char *where;
    const char *file; /* of the source, for the compiler's lines; "": it is in none */
    const cJSON *json;
    char name[FA_NAME_MAX], answer[FA_NAME_MAX];
    char entry[FA_LAUNCHES_MAX][FA_NAME_MAX]; /* of the kernel, or of those of "launches" */
    char *source;                             /* as it is compiled */
    char *answer_source;                      /* NULL: it is in the same text */
    fa_includes *includes;
    bool untrusted;
    char hash[FA_HASH_HEX];
    cJSON *operation, *manifest;
    fa_diag *diag;
};

/* FA_EMANIFEST, with a sentence. */
int fa_spec_fault(const struct fa_spec_reading *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The member; NULL where it is null, too. */
const cJSON *fa_spec_member(const cJSON *json, const char *key);
/* Its text; "" where it has none. */
const char *fa_spec_text(const cJSON *json, const char *key);
/* As fa_json_check_keys(), of the specification's own kind of failure. */
int fa_spec_check_keys(const struct fa_spec_reading *r, const cJSON *object, const char *place,
                       const char *const *keys);
/* An expression as text, of a text or a number; NULL: it is neither. */
const char *fa_spec_expression(const cJSON *item, char room[32]);
/* "block" or "grid": one to three sides, "1" for those that are not told. */
int fa_spec_add_sides(const struct fa_spec_reading *r, const cJSON *from, const char *place,
                      cJSON *to, const char *key);

/* What describes a launch: the specification itself, or one of its "launches". */
int fa_spec_count_launches(const struct fa_spec_reading *r);
const cJSON *fa_spec_launch(const struct fa_spec_reading *r, int launch);

/* The operation.json and the manifest of what was read, into r (spec_operation.c, spec_family.c). */
int fa_spec_make_operation(struct fa_spec_reading *r);
int fa_spec_make_manifest(struct fa_spec_reading *r);
/* A tunable's value as a manifest's "default" has it. */
cJSON *fa_spec_preset(int32_t value);

#endif
