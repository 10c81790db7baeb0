/* SPDX-License-Identifier: Apache-2.0
 *
 * A C struct as a JSON object, by a table of its members: one table writes it, reads it and knows its
 * keys. db/statements.h keeps a struct in the columns of a row by the same tables.
 */
#ifndef FA_BASE_JSON_STRUCT_H
#define FA_BASE_JSON_STRUCT_H

#include "json.h"

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
    int64_t least, most;      /* most 0: the largest that the kind takes */
    const char
        *known_by; /* the key of a number of its table: while that is not above 0, this is null */
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

/* Joins the members to an object, or marks it (json.h) where memory is short. */
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
