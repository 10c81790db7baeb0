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
/* The same for one that must be there: 0 or FA_EINVAL with a sentence. */
int fa_json_text_needed(const cJSON *object, const char *key, const char **ret, const char *where,
                        fa_diag *diag);
/* Copies; FA_EINVAL when it does not fit. */
int fa_json_copy(const cJSON *object, const char *key, char *ret, size_t size, const char *where,
                 fa_diag *diag);

/* ---- making ----------------------------------------------------------------------------------*/
/* Adds an item, which may be NULL as nothing was made for want of memory. false: it is deleted. NULL for the
 * object or array is allowed and false. */
bool fa_json_add(cJSON *object, const char *key, cJSON *item);
bool fa_json_push(cJSON *array, cJSON *item);

/* false: out of memory. A NULL text is left out, and is no failure. */
bool fa_json_add_text(cJSON *object, const char *key, const char *text);
bool fa_json_add_number(cJSON *object, const char *key, double number);
bool fa_json_add_bool(cJSON *object, const char *key, bool value);
/* A number where it is known, else null. NULL object is allowed. */
void fa_json_add_known(cJSON *object, const char *key, double value, bool known);
/* The new one, which `object` owns; NULL: out of memory. */
cJSON *fa_json_add_object(cJSON *object, const char *key);
cJSON *fa_json_add_array(cJSON *object, const char *key);

/* Whether nothing that was added to it, at any depth, was left out for want of memory. NULL is not whole. */
bool fa_json_is_whole(const cJSON *json);
/* In one line; the caller frees it. NULL: out of memory, now or while it was made. A number
 * is as fa_digits() has it, or null when it is not finite. */
char *fa_json_print(const cJSON *json);
/* For FA_ENDS; NULL is allowed. */
void fa_json_end(cJSON **json);
/* Prints it, and deletes it. NULL as the document is out of memory. */
char *fa_json_finish(cJSON *json);

/* ---- a C struct as a JSON object, by a table of its members -----------------------------------*/
/* One table writes it, reads it and knows its keys. db/statements.h keeps a struct in the columns of a row by the same
 * tables. */
typedef enum fa_member_kind {
    FA_MEMBER_COUNT,   /* int32_t, `least` to `most` */
    FA_MEMBER_COUNT64, /* int64_t, `least` to `most`, at most 2^53 */
    FA_MEMBER_REAL,    /* double, not negative */
    FA_MEMBER_NUMBER,  /* double */
    FA_MEMBER_FLAG,    /* bool */
    FA_MEMBER_TEXT,    /* char[size] */
    FA_MEMBER_STRING,  /* const char *, read as a place in the document; NULL is null */
    FA_MEMBER_CHOICE,  /* an enum, by the names of its values */
    FA_MEMBER_THREE,   /* uint32_t[3] */
    FA_MEMBER_STRUCT,  /* an object, by a table of its own whose offsets count from here */
    FA_MEMBER_PART,    /* such a table's members, in this very object */
    FA_MEMBER_POINTED, /* a pointer to what `members` or write() writes, for writing alone; NULL is null */
    FA_MEMBER_OTHER /* by functions; read() gets NULL where the key is absent */
} fa_member_kind;

/* What is special about a member. */
enum {
    FA_MEMBER_NULL = 1,      /* null reads as 0 or "" */
    FA_MEMBER_UNKNOWN = 3,   /* that, and 0 or "" is written as null */
    FA_MEMBER_OPTIONAL = 8,  /* absent leaves it alone */
    FA_MEMBER_LEFT_OUT = 24, /* that, and 0, false or "" is not written */
    FA_MEMBER_STRICT = 32,   /* an object whose keys must all be known */
    FA_MEMBER_NAN = 64       /* NaN is written as null, which reads as NaN */
};

typedef struct fa_member {
    const char *key; /* NULL ends a table */
    fa_member_kind kind;
    unsigned rules;
    size_t offset, size;
    int64_t least, most; /* most 0: the largest that the kind takes */
    const char *known_by;     /* a number of its table: while that is not above 0, this is null */
    const char *const *names; /* of a choice's values from 0 on, and NULL */
    const struct fa_member *members;
    cJSON *(*write)(const void *member); /* NULL: out of memory */
    int (*read)(const cJSON *json, void *member, fa_diag *diag);
} fa_member;

/* A row of a table: FA_MEMBER("gpu", TEXT, fa_ask, gpu, .rules = FA_MEMBER_OPTIONAL). */
#define FA_MEMBER(key_, kind_, type, member, ...)                                 \
    {                                                                             \
        .key = key_, .kind = FA_MEMBER_##kind_, .offset = offsetof(type, member), \
        .size = sizeof(((type *)NULL)->member), __VA_ARGS__                       \
    }

/* Joins the members to an object, or marks it where memory is short. */
void fa_struct_add_json(cJSON *object, const fa_member *members, const void *data);
/* A new object, owned by the caller. */
cJSON *fa_struct_to_json(const fa_member *members, const void *data);
/* Sets the members that the document has; FA_EINVAL with a sentence leaves some of them set. Keys that
 * are not in the table are passed over. */
int fa_struct_from_json(const cJSON *json, const fa_member *members, void *ret_data,
                        const char *where, fa_diag *diag);
/* The same of an object whose every key must be in the table, once; the table has no FA_MEMBER_PART, and at most so many
 * rows. */
enum { FA_MEMBERS_MAX = 63 };
int fa_struct_from_strict_json(const cJSON *json, const fa_member *members, void *ret_data,
                               const char *where, fa_diag *diag);

#endif
