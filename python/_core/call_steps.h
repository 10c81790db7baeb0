/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of attention while it is under way, and the steps that fill it in, in their order:
 * call_arguments.c (by the names of call_doors.c), call_tensors.c, call_serving.c. attention.c takes them and launches.
 */
#ifndef FA_PYTHON_CALL_STEPS_H
#define FA_PYTHON_CALL_STEPS_H

#include "tensors.h"

enum { Q, K, V, OUT, LSE, TENSORS };
/* Tensors that only serving passes. */
enum { CU_SEQLENS_Q, CU_SEQLENS_K, SEQUSED_K, BLOCK_TABLE, SINKS, K_SCALE, V_SCALE, EXTRAS };

/* As they came; NULL: not given. */
struct arguments {
    PyObject *q, *k, *v, *causal, *scale, *layout, *out, *return_lse, *stream;
    PyObject *window, *softcap, *max_seqlen_q, *max_seqlen_k, *deterministic, *v_dim, *q_scale,
        *score, *mask, *buffers, *dropout_p, *dropout_seed, *extra[EXTRAS];
};

/* What a score and mask read. */
enum { BUFFERS_MAX = 8 };
struct buffers {
    int count;
    fa_attn_buffer is[BUFFERS_MAX];
    tensor tensor[BUFFERS_MAX];
    bool wanted[BUFFERS_MAX]; /* its gradient */
};

enum { ARGUMENTS = sizeof(struct arguments) / sizeof(PyObject *) };

/* A function of the module that is a call of attention: its name, and the names of its arguments. */
struct keyword {
    const char *name;
    int argument;       /* its place in struct arguments, or what becomes of it: see below */
    PyObject *interned; /* set by call_doors_init() */
};
/* Names of the interfaces that we take our names from: what they say about the schedule is not needed here,
 * and what they compute beyond attention is refused unless it is off: None, False and 0, or 1 of one. */
enum { IGNORED = -1, OFF_OR_REFUSED = -2, ONE_OR_REFUSED = -3 };

struct door {
    const char *name;
    struct keyword *keywords; /* first q, k, v, which come by position too; the last has no name */
    fa_layout layout;    /* of a door without that keyword */
    const char *instead; /* of what is refused, for its sentence; NULL: nothing is */
};
enum door_number { DOOR_ATTENTION, DOOR_VARLEN, DOOR_DECODE, DOORS };
extern const struct door doors[DOORS];

struct call {
    const struct door *door;
    struct arguments is;
    uint8_t named[ARGUMENTS]; /* which keyword of the door each came by, plus one */
    fa_attn_args launch;
    tensor *extra;         /* EXTRAS of them, malloced; NULL: none is given */
    PyObject *result[2];   /* out and lse: new references, or NULL */
    dl_managed *workspace; /* owned, or NULL */
    struct buffers *buffers; /* malloced; NULL: there is none */
    PyObject *wanted; /* of backward: the names, in a tuple, of buffers with gradients; or NULL */
    PyObject *traced;        /* owned: what functions became; or NULL */
    PyObject *dropped;       /* owned: the buffers with those that ask for dropout; or NULL */
    PyObject *values;      /* owned, the view of k's first v_dim columns that is v; or NULL */
    PyObject *scales;      /* owned, those of fp8 queries times those of keys; or NULL */
    place place;
    fa_tuner *tuner;
    bool wants_lse, entered;
    int sequence, heads;   /* which dimensions */
    PyObject *const *args; /* all that came, for the policy's function */
    Py_ssize_t count;
    PyObject *names;
    fa_problem problem; /* with which begins what is not set to zero first */
    tensor tensor[TENSORS];
};

/* ---- call_doors.c ---------------------------------------------------------------------------*/
int call_doors_init(void);
/* The keyword of the door with this name, or -1 without an exception. */
int call_find_keyword(const struct door *door, PyObject *name);
/* What the caller calls an argument of struct arguments. */
const char *call_name_of(const struct call *c, PyObject *const *argument);

/* ---- call_arguments.c -----------------------------------------------------------------------*/
/* What was passed, by name, and fields of the problem that are no argument of their own. */
int call_take_arguments(struct call *c);
/* What the keywords say: before the tensors, as layout says what their dimensions are. */
int call_take_options(struct call *c);
/* A number that is finite in single precision. */
int call_take_number(const struct call *c, PyObject *const *argument, double *ret_number);
/* All arguments but None as a dict, by the names that attention() has for them. */
PyObject *call_words(const struct call *c);

/* ---- call_serving.c -------------------------------------------------------------------------*/
/* Window, soft cap and the tensors that only serving passes, after Q was taken. Sequences that lie behind one
 * another become tensors of one batch. */
int call_take_serving(struct call *c);
/* The numbers of keys and of sequences that these tensors say, after K and V were taken. */
int call_finish_serving(struct call *c);

/* ---- call_buffers.c -------------------------------------------------------------------------*/
/* The score and mask, texts or functions. */
int call_take_texts(struct call *c);
/* What they read besides, after Q was taken. */
int call_take_buffers(struct call *c);
void call_free_buffers(struct call *c);

/* ---- call_tensors.c -------------------------------------------------------------------------*/
int call_take_tensors(struct call *c);
/* A tensor of the shape, type and device of the output (OUT) or of its log-sum-exp (LSE). Sequences that lie behind one another
 * become one batch. */
int call_take_shaped(struct call *c, int which, tensor *t, PyObject *given, const char *name);
/* Strides of batch, head and row. Those of dimensions of one element say nothing and are made harmless. */
int call_take_strides(const struct call *c, const tensor *t, int64_t ret_stride[3]);
/* The caller's outputs. */
int call_take_outputs(struct call *c);
/* Makes the outputs that the caller did not pass. */
int call_make_outputs(struct call *c);
/* The workspace of this launch from the tensors' library, in the order of the stream. Where that has no allocator for the
 * stream, and for `small` bytes, fa_launch uses memory of its own for it. */
int call_make_workspace(struct call *c, const fa_kernel *kernel, size_t small);
void call_free_workspace(struct call *c);
bool call_is_unaligned(const struct call *c);

/* ---- attention.c ----------------------------------------------------------------------------*/
/* A bound kernel, or NULL, says what the tensors do not. */
void call_begin(struct call *c, enum door_number door, const fa_kernel *bound,
                PyObject *const *args, Py_ssize_t count, PyObject *names);
void call_end(struct call *c);
/* The problem's kernel where the context that is current is one of the tensors' device and has it loaded: one call of the
 * driver finds out. NULL: it takes more than that. */
const fa_kernel *call_find_at_hand(const struct call *c, const fa_problem *problem);
/* The exception where nothing may be loaded because the stream is captured; `what` would have been, which `advice` prevents. */
int call_refuse_capture(const struct call *c, const char *what, const char *advice);

#endif
