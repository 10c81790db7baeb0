/* SPDX-License-Identifier: Apache-2.0
 *
 * A specification that is being read, of a single kernel or of a family of an operation (then `where`, `json`, `name` and
 * `diag` alone are set), and its parts: CUDA C++ as far as a specification looks into it, the files that this includes, and
 * the line that a sentence is about.
 *
 * The compiler opens no included file: all are read here, before anything is compiled, and go to it with the source, so
 * that one hash covers them.
 */
#ifndef FA_TUNER_SPEC_READING_H
#define FA_TUNER_SPEC_READING_H

#include "buf.h"
#include "code.h"
#include "error.h"
#include "expr.h"
#include "json.h"
#include "manifest.h"
#include "spec.h"
#include "trial.h"

struct fa_spec_reading {
    const char *where;
    const char *folder; /* of files that it names, with a slash at its end; NULL: it names none */
    const char *text; /* of the JSON */
    const char *file; /* of the source, for the compiler's lines; "": it is in none */
    cJSON *json;      /* becomes the document of the specification's operation */
    char name[FA_NAME_MAX], answer[FA_NAME_MAX];
    char entry[FA_LAUNCHES_MAX][FA_NAME_MAX]; /* of the kernel, or of those of "launches" */
    char *called[FA_THE_ANSWER + 1]; /* these, in the source: with the arguments of a template */
    char end[FA_THE_ANSWER + 1];     /* the bytes that marks stand for */
    int launches;
    bool answered, apart;                     /* by a kernel; of a text of its own */
    char *source;                             /* as it is compiled */
    char *answer_source;                      /* NULL: it is in the same text */
    fa_cut *cut;
    fa_spec *spec;
    bool keeps_host; /* by "options" all functions are the device's */
    bool uses_std;   /* a kernel reaches the name */
    bool beside;     /* the JSON is no part of the source's file */
    char hash[FA_HASH_HEX];
    fa_family *family;                    /* which the rest is of */
    const char *known[FA_EXPR_NAMES_MAX]; /* names, so far: given, tunables, lets */
    int known_count;
    int rc; /* the first failure, with its sentence in diag */
    fa_diag *diag;
};

enum {
    FA_SPEC_MARK = 1
}; /* this byte of a source and those behind it: of each launch, and of the answer */

/* ---- what its parts are read with, and the line of a sentence below: manifest.c ----------------*/
/* FA_EMANIFEST, with a sentence, unless there was a failure before: it stays in r->rc. */
int fa_spec_fault(struct fa_spec_reading *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* FA_ENOMEM, likewise, unless there was enough memory. */
void fa_spec_memory(struct fa_spec_reading *r, bool enough);

/* As fa_json_string(); "" where it has none. */
const char *fa_spec_text(const cJSON *json, const char *key);
/* As fa_json_check_keys(), of the specification's own kind of failure. */
void fa_spec_check_keys(struct fa_spec_reading *r, const cJSON *object, const char *place,
                        const char *const *keys);
/* Small letters, digits and _, a letter first, less than `size` bytes. */
bool fa_spec_is_name(const char *text, size_t size);
/* How many launches there are, once they are known to be objects with a "kernel" and no unknown keys; 0: they are not. */
int fa_spec_check_launches(struct fa_spec_reading *r);
/* What describes a launch: the specification itself, or one of its "launches". */
const cJSON *fa_spec_launch(struct fa_spec_reading *r, int launch);

/* ---- spec_reading.c ------------------------------------------------------------------------*/
/* Makes r->json the document of the specification's operation. */
void fa_spec_make_operation(struct fa_spec_reading *r);

/* The JSON object in the first comment, `fa-tune` before it; NULL: there is none. Its lines are counted from the file's. */
char *fa_source_head(const char *text, fa_diag *diag);

enum { FA_DEFINES_MAX = 64 };

/* Replaces what changes a macro of the specification by an #error of FA_SPEC_REFUSED, where the compiler meets it. */
void fa_source_guard(const cJSON *json, fa_buf *text);
/* The macros as lines of CUDA C++. */
void fa_source_put_macros(struct fa_spec_reading *r, fa_buf *ret_text);
/* Finds the kernels and the answer's in the cut, and lets what they and the specification use reach into it. */
void fa_source_look(struct fa_spec_reading *r, bool answer_source);

/* ---- spec_include.c ------------------------------------------------------------------------*/
/* The files of standard/: what stands for headers of the standard library, NULL behind the last; usual.cuh, arguments.cuh. */
extern const fa_template_text fa_standard[];
extern const char fa_usual[], fa_arguments[];

/* Files are looked for in the specification's folder, and in those of its "include", which count from it; where it has none a
 * source may include the vocabulary and CUDA's own headers alone. */
void fa_includes_open(struct fa_spec_reading *r);
void fa_includes_close(fa_includes **includes); /* NULL is allowed */

/* Reads the author's files that the sources include, the second of which may be NULL, whatever the preprocessor will leave out.
 * Returns all texts, the sources first, to be cut in place (free()); NULL: r->rc says why. */
struct fa_cut_text *fa_includes_read_own(struct fa_spec_reading *r, const char *source,
                                         const char *answer_source);
/* Reads other files as far as the author's still include them, for what the cut left of them. Texts name files as the compiler
 * will know them then, and the author's are guarded by fa_source_guard(). An #include of the author's that is not found is
 * blanked, as those of host headers are, and told in r->spec->left, a line for each. */
void fa_includes_read(struct fa_spec_reading *r);
const char *fa_includes_source(const fa_includes *includes, int source);

/* What was read so far, CUDA's own headers among it, as sources are compiled with it; and over all of it. */
void fa_includes_with(const fa_includes *includes, fa_compiled_with *with);
void fa_includes_hash(const fa_includes *includes, char ret_hash[FA_HASH_HEX]);

/* ---- from a sentence to a line --------------------------------------------------------------*/
/* Puts "WHERE:LINE: " before the sentence in place of the file's name that it begins with: `where`, or a file that was made
 * of the specification called `name`. The line is that of the first thing in the sentence. It is left out if the JSON is a
 * text of the caller's, beside the file, in one line. */
void fa_spec_locate(const char *where, const char *name, const char *json, bool beside,
                    fa_diag *diag);

#endif
