/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of attention while it is under way, and the steps that fill it in, in their order:
 * call_arguments.c, call_tensors.c, call_serving.c. attention.c takes them and launches.
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
    PyObject *window, *softcap, *max_seqlen_q, *max_seqlen_k, *extra[EXTRAS];
};

struct call {
    struct arguments is;
    fa_problem problem;
    fa_attn_args launch;
    tensor tensor[TENSORS];
    tensor *extra;         /* EXTRAS of them, malloced; NULL: none is given */
    PyObject *result[2];   /* out and lse: new references, or NULL */
    dl_managed *workspace; /* owned, or NULL */
    place place;
    fa_tuner *tuner;
    bool wants_lse, entered;
    int sequence, heads;   /* which dimensions */
    PyObject *const *args; /* all that came, for the policy's function */
    Py_ssize_t count;
    PyObject *names;
};

/* ---- call_arguments.c -----------------------------------------------------------------------*/
int call_arguments_init(void);
/* What was passed, by name, and fields of the problem that are no argument of their own. */
int call_take_arguments(struct call *c);
/* What the keywords say: before the tensors, as layout says what their dimensions are. */
int call_take_options(struct call *c);
/* All arguments as a dict. */
PyObject *call_words(const struct call *c);

/* ---- call_serving.c -------------------------------------------------------------------------*/
/* Window, soft cap and the tensors that only serving passes, after Q was taken. Sequences that lie behind one
 * another become tensors of one batch. */
int call_take_serving(struct call *c);
/* The numbers of keys and of sequences that these tensors say, after K and V were taken. */
int call_finish_serving(struct call *c);

/* ---- call_tensors.c -------------------------------------------------------------------------*/
int call_take_tensors(struct call *c);
/* The caller's outputs. */
int call_take_outputs(struct call *c);
/* Makes the outputs that the caller did not pass. */
int call_make_outputs(struct call *c);
/* Device memory of the tensors' library for this launch alone, in the order of the stream, so that launches on several
 * streams may overlap. Where the library has no allocator for that stream, kernels share one of their own. */
int call_make_workspace(struct call *c, const fa_kernel *kernel);
void call_free_workspace(struct call *c);
bool call_is_unaligned(const struct call *c);

#endif
