/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel families: a manifest (NAME.json) and a template (NAME.cu), built in or from a directory,
 * and what follows from them for one problem on one GPU: the space, each config with its budget.
 *
 * May be used by: tuner, engine. May use: base.
 * A manifest may be hostile: size, depth, counts, cycles and the size of the space are bounded,
 * expressions can call nothing but arithmetic, and every result is range-checked.
 */
#ifndef FA_TUNER_MANIFEST_H
#define FA_TUNER_MANIFEST_H

#include "buf.h"
#include "call.h"
#include "fa_types.h"
#include "operation.h"

/* ---- template files -------------------------------------------------------------------------*/
typedef struct fa_template_file {
    /* "attn_fwd_sm80.cu"; "attn_fwd/operation.json" for an operation's contract */
    const char *name;
    const char *folder; /* "attn_fwd", "vocabulary"; "" for a file of a flat directory */
    const char *text;
    size_t size;
} fa_template_file;

/* By the names in which sources include them, or in a folder of templates. */
typedef struct fa_template_text {
    const char *name, *text;
} fa_template_text;
/* What else sources are compiled with. No key and no hash covers it: a template's own text has to name it. */
typedef struct fa_compiled_with {
    const fa_template_text *header;
    int header_count;
    const char *const *option; /* of fa_compile_request */
    int option_count, cuda_headers;
    /* what of the sources the compiler does not see, "NAME in line 7\n" each; "" */
    const char *left;
} fa_compiled_with;

/* The hash over all files that an operation may be made of. */
typedef struct fa_template_closure {
    const char *operation;
    char hash[FA_HASH_HEX];
} fa_template_closure;

enum { FA_TEMPLATES_MAX = 128 }; /* of a directory; and built in, by embed.py */

typedef struct fa_templates {
    fa_template_file file[2 * FA_TEMPLATES_MAX]; /* sorted by name */
    int count;
    bool owned[2 * FA_TEMPLATES_MAX]; /* name and text of file[i] are ours */
    char *folder[FA_TEMPLATES_MAX];   /* names of the directory's folders */
    int folders;
    bool builtin;                 /* no file is of a directory or a specification */
    const fa_compiled_with *with; /* as given to fa_templates_of(); NULL: of other templates */
    fa_template_closure closure[2 * FA_TEMPLATES_MAX];
    int closures;
} fa_templates;

/* As fa_input_read(), of a text: FA_EINVAL also where it holds a NUL byte. */
int fa_source_read(fa_buf *ret_text, const char *path, size_t limit, fa_diag *diag);

/* All template files: the built-in ones (embedded at build time), each replaced by or joined with the regular files *.cu,
 * *.cuh, *.h, *.json of `directory` (NULL: built-in only) and of the folders of operations in it, laid out as
 * kernel_templates/ is. A file is known by its name alone, in which folder it may lie: headers are included and families are
 * found by it. FA_EINVAL also where no file there is a manifest or takes the place of a built-in one. ret_templates NULL: its
 * operations become known, and nothing is hashed. */
int fa_templates_open(const char *directory, fa_templates **ret_templates, fa_diag *diag);
/* The built-in files, joined with these of one folder: "NAME/operation.json" and others by their plain names. Texts are
 * copied, `with` lives as long. FA_EINVAL where one has the name of a built-in file. */
int fa_templates_of(const char *folder, const fa_template_text *files, int count,
                    const fa_compiled_with *with, fa_templates **ret_templates, fa_diag *diag);
void fa_templates_close(fa_templates **templates);
const fa_template_file *fa_templates_find(const fa_templates *templates, const char *name);
bool fa_template_is_builtin(const char *name);  /* some built-in file is called so */
bool fa_template_is_manifest(const char *name); /* NAME.json, and no contract */
/* Hash over names and contents of the files that an operation may be made of: those of its folder, the
 * vocabulary, and of no folder. The template closure, by which winners are stored. Computed on open, but for operations whose
 * files are all built in: theirs are known at build time, and cover of a manifest what may be compiled and is launched alone.
 * It does not change with what other operations are there. */
const char *fa_templates_hash(const fa_templates *templates, const fa_operation *operation);
/* Whether a winner of the problem that was stored under this closure is one of these templates. */
bool fa_templates_match(const fa_templates *templates, const fa_problem *problem,
                        const char *closure);
/* Whether the reference of the problem's operation is one of ours, with nothing of a user's in it: these compile. */
bool fa_templates_reference_is_builtin(const fa_templates *templates, const fa_problem *problem);

/* What embed.py generates from kernel_templates/: sorted by name, texts end in a NUL. */
extern const fa_template_file fa_templates_builtin[];
extern const int fa_templates_builtin_count;

extern const fa_template_closure fa_templates_builtin_closures[];
extern const int fa_templates_builtin_closure_count;

/* ---- families -------------------------------------------------------------------------------*/
typedef struct fa_family fa_family;

enum { FA_FAMILIES_MAX = 256 }; /* in a list */

typedef struct fa_family_list {
    fa_family **family;
    int count;
} fa_family_list;

/* Parses every manifest of `operation` ("attn_fwd"; NULL: of every operation that is known here);
 * FA_EMANIFEST names file, field and reason. */
int fa_families_load(const fa_templates *templates, const char *operation, fa_family_list *ret_list,
                     fa_diag *diag);
void fa_families_free(fa_family_list *list);

/* Whether the family's manifest has one launch of blocks with one side, and neither a workspace, counters nor splits, without
 * reading the rest of it, which takes milliseconds. FA_ENOTFOUND, without a sentence: there is no such manifest. */
int fa_family_peek(const fa_templates *templates, const char *family, bool *ret_simple);
/* 0, or FA_ENOTSUP with the manifest's own sentence why this family cannot serve the problem on
 * this GPU (SM range first, then features). */
int fa_family_supports(const fa_family *family, const fa_problem *problem, const fa_gpu *gpu,
                       fa_diag *diag);

/* ---- the space ------------------------------------------------------------------------------*/
enum {
    FA_MAX_ADDENDS = 12,
    FA_MAX_LETS = 28,
    FA_SPACE_MAX = 20000 /* configs that a space keeps */
};
#define FA_SPACE_POINTS_MAX INT64_C(1000000000000) /* of a family's domains */

typedef struct fa_addend {
    char name[FA_NAME_MAX];
    int64_t bytes;
} fa_addend;

/* One point of the space. trial.status is PENDING for survivors, else CONSTRAINT, BUDGET or REGISTERS with the reason, e.g.
 * "needs 229,376 B = q 32,768 + k 98,304 + v 98,304; L4 allows 101,376". */
typedef struct fa_candidate {
    fa_trial trial;              /* config, status, reason; threads and grid of the first
                                          launch, the most shared memory of any */
    fa_launches launches;        /* all of them */
    int family;                  /* index into the list */
    bool is_default;             /* the family's default config */
    int32_t estimated_registers; /* 0: the manifest has no estimate */
    int32_t addend_count;
    fa_addend addend[FA_MAX_ADDENDS]; /* of the first launch, or of the one that does not fit */
    int32_t let_count;
    fa_tunable let[FA_MAX_LETS]; /* values of the manifest's lets: go into the prologue */
} fa_candidate;

typedef struct fa_space {
    fa_candidate *candidate;
    int count;
    /* how many hold to the constraints where that is more than FA_SPACE_MAX, or all points where counting takes long:
     * none of them is kept, and the space is to be searched (search.h); else 0 */
    int64_t held;
    int survivors;     /* PENDING */
    int default_index; /* the default config of the family listed last that supports it; -1: none */
} fa_space;

/* Whose configs are asked about: the kernels of these families, for a problem on a GPU. */
typedef struct fa_task {
    const fa_family_list *families;
    const fa_problem *problem;
    const fa_gpu *gpu;
} fa_task;

/* The whole space of every supporting family, in a fixed order; where a family with an architecture
 * suffix supports the problem, of such families only. FA_ENOTSUP when no family serves
 * (the sentence gives each family's reason); FA_EMANIFEST where an expression has no integer value. */
int fa_space_enumerate(const fa_task *task, fa_space *ret_space, fa_diag *diag);
void fa_space_free(fa_space *space);
/* Index of the candidate of this config and status; -1: there is none. */
int fa_space_find(const fa_space *space, const fa_config *config, fa_status status);

/* The default config of a specification's family for its default sizes, on a GPU that has no limit; where none is found but
 * other sizes may have one, what the manifest presets. FA_EMANIFEST: no sizes have one, or it has no launch. */
int fa_space_first(const fa_family_list *families, const fa_problem *problem, fa_config *ret_config,
                   fa_diag *diag);
/* The family's default config for the problem, as judged. */
int fa_space_default(const fa_task *task, int family, fa_candidate *ret_candidate, fa_diag *diag);
/* The launch of a specification's answer for the task's problem, in a config that another problem's default may be. */
int fa_space_answer(const fa_task *task, const fa_config *config, fa_launch_shape *ret_shape,
                    fa_diag *diag);

/* Budget, threads, grid and lets of a single config (a stored winner) for a problem. */
int fa_space_one(const fa_task *task, const fa_config *config, fa_candidate *ret_candidate,
                 fa_diag *diag);
/* The same for `count` configs (1 or more) of one family in one go, into as many candidates, in their
 * order; what they hold after a failure is not defined. */
int fa_space_some(const fa_task *task, const fa_config *const *config, int count,
                  fa_candidate *ret_candidate, fa_diag *diag);

/* The launches of `count` candidates that survived, for the task's problem, which may be another than the one that they
 * were judged for: those of candidate[i] into ret_launches[i * stride]. Constraints are not judged again; what cannot be
 * launched there has a grid of 0. What did not survive, has failed since, or lacks shared memory there gets none. */
int fa_space_launches(const fa_task *task, const fa_candidate *candidate, int count,
                      fa_launches *ret_launches, int stride, fa_diag *diag);

/* ---- from a candidate to the text that NVRTC sees (candidate.c) ------------------------------*/
/* The rendered source of a candidate: every tunable and every let as a macro, but for lets that read fields which do not
 * shape the source (batch, heads, lengths), so that one cubin serves problems of every size. Names of the manifest's
 * "run_time" are not rendered, nor are lets that read them, nor FA_SMEM_BYTES where it does: configs that differ in such
 * names alone have one source, and one cubin. The text ends with
 *   extern "C" __device__ const char fa_tune_config[] = "fa_tune_config=family=...;BLOCK_M=...;";
 * so that a cubin says what it was made from: the family, every tunable not of "run_time", then FA_SM and the operation's
 * fields that shape the source (HEAD_DIM, DTYPE_BF16, CAUSAL, ALIGNED), each NAME=value and ';'. */
int fa_render(const fa_templates *templates, const fa_task *task, const fa_candidate *candidate,
              fa_buf *ret_source, fa_diag *diag);

/* Whether two configs of one problem's space render to the same source. */
bool fa_render_is_same(const fa_family_list *families, const fa_candidate *a,
                       const fa_candidate *b);

/* The rendered source of the operation's reference and checking kernels: the file that "reference" of
 * its operation.json names (attn_ref.cu). It ends with the same string:
 * "fa_tune_config=family=attn_ref;FA_SM=...;HEAD_DIM=...;...". Of a kernel specification it is the answer's file, with the
 * macros of the default config of the task's families, or the checking kernels alone. */
int fa_render_reference(const fa_templates *templates, const fa_task *task, fa_buf *ret_source,
                        fa_diag *diag);

/* "sm_89", "sm_90a". */
void fa_render_architecture(const fa_family *family, const fa_gpu *gpu, char *ret_text,
                            size_t size);

/* Hash over source, every header that the source can include, options, architecture and NVRTC identity. */
void fa_render_key(const fa_templates *templates, const char *source, const char *options,
                   const char *architecture, const char *nvrtc_identity, char ret_key[FA_HASH_HEX]);

#endif
