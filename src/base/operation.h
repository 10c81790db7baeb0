/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations: what can be computed, each as a table of the fields of its problems. The table is read from the "sizes" of a
 * specification or of an operation's file (operation.json), in one grammar: NAME: its default, or an object of properties, whose
 * default's type or "choices" say which kind of field it is. It decides how a problem is checked, printed, keyed, compared and
 * asked for; no code here knows what an operation computes.
 *
 * Workload: a few operations, each read once per process, when it is first asked for; their tables are then only read, by any
 * thread.
 * Invariant: an operation that was handed out stays as it is until the process ends.
 */
#ifndef FA_BASE_OPERATION_H
#define FA_BASE_OPERATION_H

#include "fa_types.h"

#include <cJSON.h>

enum {
    FA_CHOICES_MAX = 16, /* names of one choice */
    FA_PRODUCTS_MAX = 4,
    FA_OPERATIONS_MAX = 1024 /* in one process */
};

/* TEXT: fa_value_of_line(); keys have so many digits of its hash. */
enum { FA_FIELD_KEY_DIGITS = 32 };
typedef enum fa_field_kind {
    FA_FIELD_INTEGER,
    FA_FIELD_CHOICE,
    FA_FIELD_BOOLEAN,
    FA_FIELD_TEXT
} fa_field_kind;

/* How a value appears in a key or as a macro. */
typedef enum fa_field_as { FA_AS_VALUE, FA_AS_NONZERO, FA_AS_NOT } fa_field_as;

/* One field of an operation's problems. Texts are never NULL; "" means: none. */
typedef struct fa_field {
    const char *name; /* in JSON and in CSV: "lse" */
    fa_field_kind kind;
    /* of a choice: names in the order of their values, NULL */
    const char *choice[FA_CHOICES_MAX + 1];
    int32_t min, multiple; /* what an integer may be; multiple is at least 1 */
    int64_t max;           /* above INT32_MAX of a specification's size alone */
    const char *above; /* what values above `max` are, and that they are not covered */
    int32_t preset;                  /* "default": the value of what is not given */
    int divides, follows, at_most;   /* fields by index, -1: none */
    const char *bars;                /* "causal=top-left": what an earlier field may not be where this
                                        one is not at its default; "": nothing */
    int needs;                       /* likewise: at its default where that field is at its own */
    bool length, rounds_up;          /* bucketed; never downwards */
    bool nonempty;                   /* 0 makes the problem empty: 1 stands for it */
    bool optional;      /* absent from keys and JSON at its default, so that older ones stay */
    bool feature;       /* optional, and away from its default served by those families alone whose
                           manifest takes it; the others do not see its macro */
    /* "fixed", too: its macro is defined in front of a kernel's source; of a specification, macros made of it. */
    bool shapes_source;
    const char *key;    /* its word in the key: "d" makes "d=64", "" makes "64" */
    const char *macro;  /* its name in manifests and kernels; "": they do not see it */
    fa_field_as shown_as; /* of a choice, its macro alone: a key has the name */
    /* The command line. */
    const char *option;               /* "--heads" */
    char own_option[FA_NAME_MAX + 2]; /* that of a specification's size: "--n" */
    const char *also;                 /* an option that sets several fields: --seq both lengths */
    bool required;                    /* has no default and follows nothing */
    /* For people. */
    const char *label; /* "D" makes "D 64" */
    const char *words; /* "sequence length, of the queries": help alone has what follows ,;:( */
    bool quiet;        /* told only where it is not the default */
} fa_field;

/* An option of sweeps that derives one field from another: --tokens makes the batch tokens / seq_q. */
typedef struct fa_product {
    const char *option, *help;
    int field, by; /* field = the option's value / by */
} fa_product;

struct fa_operation {
    const char *name, *title;            /* "attn_fwd", "attention forward" */
    const char *example, *sweep_example; /* options that ask for a problem, for a sweep; or "" */
    int field_count, product_count;
    fa_field field[FA_PROBLEM_VALUES];
    fa_product product[FA_PRODUCTS_MAX];
    bool is_default;       /* what a problem without an operation means */
    /* The hash of the specification that it was made of, whose keys the document then has; "": it is of an
     * operation's file. */
    const char *specification;
    struct fa_spec *spec;  /* what the tuner keeps of it (spec.h); NULL: it is of none */
    const cJSON *document; /* the texts lie in it */
    cJSON *owned;          /* the document, where it is freed with the operation */
    _Atomic int32_t contents; /* a hash of what the caller gives as inputs of proofs; 0: nothing */
};

/* The operation of that name, or FA_ENOTSUP with a sentence that lists those known. Of the specifications that had
 * one name it is the newest; "NAME@HASH" is the one whose text has that hash, of which some digits will do. */
int fa_operation_find(const char *name, const fa_operation **ret_operation, fa_diag *diag);

/* The problem's operation; for a problem that names none, attention forward. Never NULL: when memory
 * ran out while that was read, it has no fields and fa_problem_check() fails. */
const fa_operation *fa_operation_of(const fa_problem *problem);

/* Makes the operation of this operation.json known to the process for good. FA_EINVAL when the text is
 * not valid, or when an operation of this name is known that differs in more than words for people (in
 * its fields, tensors, tolerance …); the same again is fine. `where` names the text in sentences. */
int fa_operation_register(const char *text, size_t size, const char *where,
                          const fa_operation **ret_operation, fa_diag *diag);

/* The i-th operation known, built-in ones first; NULL: there are no more. */
const fa_operation *fa_operation_at(int index);

/* Index of the field of this name; -1: there is none. */
int fa_operation_field_index(const fa_operation *operation, const char *name);

/* The value as text ("bf16", "512", "true"); its name for a choice or the
 * digits in `room`. */
const char *fa_field_text(const fa_field *field, int32_t value, char room[16]);
/* Behind the name of an integer field and a value that it may not have: ": use 1 to 8", with what to do about it. */
enum { FA_FIELD_RANGE_MAX = 256 };
const char *fa_field_range(const fa_field *field, int64_t value, char room[FA_FIELD_RANGE_MAX]);
/* Whether its option's value may be left out, and then stands for the second choice, as the first is "none"; a sweep's list
 * has "both" for these two. */
bool fa_field_may_be_bare(const fa_field *field);
/* The value of this name among a choice's; -1: there is none. */
int fa_field_choice(const fa_field *field, const char *name);
/* What a value is: of a specification's size above INT32_MAX, fa_problem.value has a name of this process. */
int64_t fa_field_number(const fa_field *field, int32_t value);
/* The value as keys and macros show it. */
int64_t fa_field_shown(const fa_field *field, int32_t value);
/* What fa_problem.value has of a number. */
int fa_field_keep(const fa_field *field, int64_t number, int32_t *ret_value, fa_diag *diag);
enum { FA_SIZE_DIGITS = 15 };
#define FA_SIZE_MAX INT64_C(999999999999999)

/* ---- from an operation.json to an operation that nobody knows yet ---------------------------*/
/* Takes `owned`, the document itself, also on failure; NULL: it is built in, its keys are not looked at again, and it lives as
 * long as the program. `where` names it in sentences. The caller frees what it does not make known. */
int fa_operation_make(const cJSON *document, cJSON *owned, const char *where,
                      fa_operation **ret_operation, fa_diag *diag);
/* As fa_operation_register(); takes the operation, also on failure. */
int fa_operation_add(fa_operation *operation, const char *where, const fa_operation **ret_operation,
                     fa_diag *diag);
void fa_operation_free(fa_operation **operation);

/* The documents kernel_templates/OPERATION/operation.json, embedded by embed_operations.py. */
struct fa_operation_builtin {
    const char *name, *where; /* "attn_fwd", "attn_fwd/operation.json" */
    const cJSON *document;
};

extern const struct fa_operation_builtin fa_operations_builtin[];
extern const int fa_operations_builtin_count, fa_operations_builtin_default;

#endif
