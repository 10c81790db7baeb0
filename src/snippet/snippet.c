/* SPDX-License-Identifier: Apache-2.0
 *
 * Snippets: types and ranges of their steps, and the CUDA C++ that is made of steps alone: their names are n0, n1 …,
 * and numbers are exact. See snippet.h.
 */
#include "snippet.h"

#include "error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS_MAX = 65535, COUNT_MAX = 1 << 24 };

/* TENSOR: a buffer that is not read yet, since it has no index, or too few. */
enum type { TRUTH, WHOLE, REAL, TENSOR };

typedef struct node {
    enum fa_expr_op op;
    enum type type;
    int at[3]; /* earlier nodes; of a name, which */
    union {
        int64_t whole; /* of an OP_VALUE; of an OP_INDEX and a TENSOR, which buffer */
        double real;
    };
    int64_t low, high; /* of whole numbers, and truths; low: the indices that a TENSOR lacks */
} node;

typedef struct fa_snippet {
    bool mask;
    int count, buffer_count;
    fa_buffer buffer[FA_ATTN_BUFFERS];
    node node[FA_SNIPPET_NODES];
} fa_snippet;

/* ---- ranges ------------------------------------------------------------------------------------*/
/* Of a whole number from those of what it is computed of: the corners decide; where they do not, all. False: it may be
 * beyond 64 bits. */
static bool find_range(const fa_snippet *s, node *n)
{
    const node *a = &s->node[n->at[0]], *b = &s->node[n->at[1]];
    const enum fa_expr_op op = n->op;
    const __int128 x[] = {a->low, a->high}, y[] = {b->low, b->high};
    const __int128 most = -x[0] > x[1] ? -x[0] : x[1];
    __int128 low = INT64_MIN, high = INT64_MAX; /* of bits */
    if ((op >= OP_ADD && op <= OP_MULTIPLY) || op == OP_MIN || op == OP_MAX || op == OP_CHOOSE) {
        for (int i = 0; i < 4; i++) {
            const __int128 p = x[i / 2], r = y[i % 2], less = p < r ? p : r;
            const __int128 is = op == OP_ADD        ? p + r
                                : op == OP_SUBTRACT ? p - r
                                : op == OP_MULTIPLY ? p * r
                                : op == OP_MIN      ? less
                                                    : p + r - less;
            low = i == 0 || is < low ? is : low;
            high = i == 0 || is > high ? is : high;
        }
        if (op == OP_CHOOSE)
            low = x[0] < y[0] ? x[0] : y[0];
    } else if (op == OP_NEGATE) {
        low = -x[1], high = -x[0];
    } else if (op == OP_ABS) {
        low = x[0] > 0 ? x[0] : x[1] < 0 ? -x[1] : 0, high = most;
    } else if (op == OP_REMAINDER) { /* between 0 and the divisor */
        low = y[0] < 0 ? y[0] + 1 : 0, high = y[1] > 0 ? y[1] - 1 : 0;
    } else if (op == OP_FLOOR_DIV || op == OP_CEIL_DIV) {
        low = -most - 1, high = most + 1; /* no larger than what is divided, and one apart */
        for (int i = 0; i < 4 && y[0] > 0; i++) {
            const __int128 is = x[i / 2] / y[i % 2];
            low = i == 0 || is - 1 < low ? is - 1 : low;
            high = i == 0 || is + 1 > high ? is + 1 : high;
        }
    } else if (op == OP_INT) {
        low = a->type == REAL ? INT32_MIN : x[0], high = a->type == REAL ? INT32_MAX : x[1];
    } else if (op == OP_BIT_AND && (x[0] >= 0 || y[0] >= 0)) {
        low = 0, high = x[0] < 0 ? y[1] : y[0] < 0 ? x[1] : x[1] < y[1] ? x[1] : y[1];
    }
    if (low < INT64_MIN || high > INT64_MAX)
        return false;
    n->low = (int64_t)low, n->high = (int64_t)high;
    return true;
}

/* ---- from text ---------------------------------------------------------------------------------*/
static bool is_one(enum fa_expr_op op)
{
    return op >= OP_NOT && op <= OP_FLOAT;
}

/* A buffer's element, number, or itself while indices are missing. */
static void be_buffer(const fa_snippet *s, node *n, int64_t which, int left)
{
    const fa_buffer_type *type = s->buffer[which].type;
    n->type = left > 0 ? TENSOR : type->real ? REAL : WHOLE;
    n->whole = which;
    n->low = left > 0 ? left : type->low, n->high = type->high;
}

static enum type type_of(enum fa_expr_op op, enum type a, enum type b)
{
    const bool keeps = op == OP_NEGATE || op == OP_ABS || op == OP_CHOOSE,
               both = a == TRUTH && b == TRUTH;
    if (op <= OP_GREATER_EQUAL || op == OP_NOT || (keeps && op != OP_NEGATE && both))
        return TRUTH;
    return op == OP_INT || op == OP_BIT_NOT ? WHOLE
           : op == OP_TRUE_DIV || op == OP_POWER || a == REAL || b == REAL || (is_one(op) && !keeps)
               ? REAL
               : WHOLE;
}

static const char TOO_FEW[] = "has a tensor with too few indices: write slope[h], doc[b][q]";
static const char *add_operator(fa_snippet *s, node *n)
{
    if (is_one(n->op))
        n->at[1] = n->at[0];
    if (n->op != OP_CHOOSE)
        n->at[2] = n->at[0];
    const node *a = &s->node[n->at[0]], *b = &s->node[n->at[1]], *c = &s->node[n->at[2]];
    n->op = n->op == OP_DIVIDE ? OP_TRUE_DIV : n->op;
    if (n->op == OP_INDEX && (a->type != TENSOR || b->type > WHOLE))
        return "has an index that is no whole number, or one too many";
    if (n->op == OP_INDEX)
        return be_buffer(s, n, a->whole, (int)a->low - 1), NULL;
    if (a->type == TENSOR || b->type == TENSOR || c->type == TENSOR)
        return TOO_FEW;
    if (((n->op >= OP_BIT_OR && n->op <= OP_SHIFT_RIGHT) || n->op == OP_BIT_NOT) &&
        (a->type == REAL || b->type == REAL))
        return "takes bits of a fraction";
    n->type = type_of(n->op, a->type, b->type);
    n->low = 0, n->high = 1;
    return n->type == WHOLE && !find_range(s, n)
               ? "has a whole number that may be beyond 64 bits: use float()"
               : NULL;
}

/* NULL, or what is wrong. */
static const char *add(fa_snippet *s, const struct fa_expr_step *step)
{
    node *n = &s->node[s->count++];
    *n = (node){.op = step->op, .type = WHOLE, .high = INT32_MAX};
    memcpy(n->at, step->at, sizeof n->at);
    if (step->op == OP_NAME && n->at[0] >= FA_NAME_BUFFERS) {
        const int which = n->at[0] - FA_NAME_BUFFERS;
        be_buffer(s, n, which, s->buffer[which].dims);
    } else if (step->op == OP_NAME) {
        n->type = n->at[0] == FA_NAME_SCORE ? REAL : WHOLE;
        n->low = n->at[0] == FA_PLACE_Q || n->at[0] == FA_PLACE_K ? -FA_SNIPPET_POSITIONS : 0;
        n->high = n->at[0] == FA_PLACE_B                              ? INT32_MAX
                  : n->at[0] == FA_PLACE_H || n->at[0] == FA_PLACE_HK ? HEADS_MAX
                                                                      : FA_SNIPPET_POSITIONS;
    } else if (step->op == OP_VALUE) {
        if (step->value.kind == FA_EXPR_WORD)
            return "has a text, where numbers alone can be";
        const bool integer = step->value.kind == FA_EXPR_INTEGER;
        n->type = integer ? WHOLE : REAL;
        if (integer)
            n->whole = step->value.integer;
        else
            n->real = step->value.real;
        n->low = n->high = n->type == WHOLE ? n->whole : 0;
    } else {
        return add_operator(s, n);
    }
    return NULL;
}

/* Of a snippet that has its kind and its buffers. */
static int parse(fa_snippet *s, const char *text, fa_diag *diag)
{
    const char *wrong = NULL, *names[FA_NAMES];
    const int count = fa_buffers_names(s->buffer, s->buffer_count, s->mask, names);
    fa_expr *expr = NULL;
    int rc = fa_expr_parse(text, names, count, true, &expr, diag);
    if (rc == 0 && expr->count > FA_SNIPPET_NODES)
        wrong = "is too large";
    for (int i = 0; rc == 0 && wrong == NULL && i < expr->count; i++)
        wrong = add(s, &expr->step[i]);
    if (rc == 0 && wrong == NULL && s->node[s->count - 1].type == TENSOR)
        wrong = TOO_FEW;
    if (rc == 0 && wrong == NULL && s->mask && s->node[s->count - 1].type != TRUTH)
        wrong = "is a number, where a mask is true or false: write a comparison";
    if (wrong != NULL)
        rc = fa_fail(diag, FA_EINVAL, "%s", wrong);
    fa_expr_free(&expr);
    return rc == 0 ? 0
                   : fa_fail_in(diag, rc == FA_ENOMEM ? rc : FA_EINVAL, "%s \"%.80s\"",
                                s->mask ? "mask" : "score", text);
}

static bool is_buffer(const node *n)
{
    return n->op == OP_INDEX || (n->op == OP_NAME && n->at[0] >= FA_NAME_BUFFERS);
}

/* The nodes of a buffer's indices, and how many. */
static int list_indices(const fa_snippet *s, const node *n, int ret[FA_ATTN_BUFFER_DIMS])
{
    const int dims = s->buffer[n->whole].dims;
    for (int i = dims - 1; i >= 0; i--, n = &s->node[n->at[0]])
        ret[i] = n->at[1];
    return dims;
}

/* ---- CUDA --------------------------------------------------------------------------------------*/
/* What fa_snippet.cuh's structs have a function for. A COUNT is exact as a float, too. */
enum rank { TRUE_OR_FALSE, COUNT, NARROW, WIDE, FRACTION, LINEAR };
static const char *const ranks[] = {"truth", "count", "whole", "large", "number", "real"};

static enum rank rank_of(const node *n)
{
    return n->type == TRUTH                               ? TRUE_OR_FALSE
           : n->type == REAL                              ? FRACTION
           : n->low >= -COUNT_MAX && n->high <= COUNT_MAX ? COUNT
           : n->low >= INT32_MIN && n->high <= INT32_MAX  ? NARROW
                                                          : WIDE;
}

static void print_value(const node *n, fa_buf *out)
{
    fa_buf_printf(out, "As::%s(", ranks[rank_of(n)]);
    if (n->type == REAL)
        fa_buf_printf(out, "%a)", n->real);
    else if (n->whole == INT64_MIN)
        fa_buf_text(out, "-9223372036854775807LL - 1)");
    else
        fa_buf_printf(out, "%" PRId64 "LL)", n->whole);
}

/* As what an operator takes its operands: the widest of their ranks and that of the result. */
static enum rank operands_rank(const fa_snippet *s, const node *n)
{
    const enum rank a = rank_of(&s->node[n->at[0]]), b = rank_of(&s->node[n->at[1]]);
    const bool sums =
        n->op == OP_ADD || n->op == OP_SUBTRACT || n->op == OP_MULTIPLY || n->op == OP_NEGATE;
    const bool counts = sums || n->op == OP_MIN || n->op == OP_MAX || n->op == OP_ABS ||
                        n->op == OP_CHOOSE || (n->op >= OP_EQUAL && n->op <= OP_GREATER_EQUAL);
    enum rank wide = rank_of(n) > a ? rank_of(n) : a;
    wide = wide > b ? wide : b;
    if (n->op == OP_AND || n->op == OP_OR || n->op == OP_NOT)
        return TRUE_OR_FALSE;
    if (wide <= COUNT)
        return n->op == OP_CHOOSE ? wide : counts ? COUNT : NARROW;
    return wide == FRACTION && (sums || n->op == OP_FLOAT) ? LINEAR : wide;
}

static void print_operator(const fa_snippet *s, const node *n, fa_buf *out)
{
    static const char *const how[] = {
        /* from OP_OR on */
        "||",        "&&",   "==",    "!=",   "<",        "<=",    ">",     ">=", "|",
        "&",         "left", "right", "+",    "-",        "*",     "power", "",   "/",
        "floor_div", "rest", "min",   "max",  "ceil_div", "",      "!",     "-",  "~",
        "abs",       "exp",  "log",   "tanh", "sqrt",     "floor", "int",   "",   "choose"};
    const enum rank rank = operands_rank(s, n);
    const char *as = ranks[rank], *text = how[n->op - OP_OR];
    const bool whole = n->op == OP_INT && s->node[n->at[0]].type != REAL;
    if (n->op == OP_CHOOSE)
        fa_buf_printf(out, "snippet_choose(As::truth(n%d), As::%s(n%d), As::%s(n%d))", n->at[2], as,
                      n->at[0], as, n->at[1]);
    else if (is_one(n->op))
        fa_buf_printf(out, "%s%s(As::%s(n%d))", strlen(text) > 2 && !whole ? "snippet_" : "",
                      whole ? "" : text, n->op == OP_INT && !whole ? "number" : as, n->at[0]);
    else if (strlen(text) > 2)
        fa_buf_printf(out, "snippet_%s(As::%s(n%d), As::%s(n%d))", text, as, n->at[0], as,
                      n->at[1]);
    else
        fa_buf_printf(out, "As::%s(n%d) %s As::%s(n%d)", as, n->at[0], text, as, n->at[1]);
}

/* Of a load by keys: 1: its other indices are places that no query changes, 2: one of them is q; 0: it is none. ret_at: the nodes
 * of its indices. */
static int fetches_of(const fa_snippet *s, const node *n, int ret_at[FA_ATTN_BUFFER_DIMS])
{
    const int dims = list_indices(s, n, ret_at);
    int kind = dims > 0;
    for (int i = 0; i < dims; i++) {
        const node *by = &s->node[ret_at[i]];
        if (by->op != OP_NAME || by->at[0] >= FA_PLACES ||
            (by->at[0] == FA_PLACE_K) != (i == dims - 1))
            return 0;
        kind = by->at[0] == FA_PLACE_Q ? 2 : kind;
    }
    return kind;
}

static void print_buffer(const fa_snippet *s, const node *n, bool fetched, fa_buf *out)
{
    const int which = (int)n->whole, site = (int)(n - s->node);
    const fa_buffer *is = &s->buffer[which];
    int at[FA_ATTN_BUFFER_DIMS], dims = is->dims;
    const int kind = fetches_of(s, n, at);
    const char *number = is->type->real ? "real" : "whole";
    if (dims < 0)
        fa_buf_printf(out, "As::%s(held[%d].%s", number, which, number);
    else if (fetched)
        fa_buf_printf(out, "snippet_of_key<As, %s, %d, %d>(held, %d", is->type->device, kind == 1,
                      site, which);
    else
        fa_buf_printf(out, "snippet_%s<As, %s, %d>(held[%d]", kind == 1 ? "column" : "load",
                      is->type->device, site, which);
    if (fetched || kind == 1)
        fa_buf_printf(out, ", n%d", at[--dims]);
    for (int i = 0; i < dims; i++)
        fa_buf_printf(out, ", As::%s(n%d)", ranks[rank_of(&s->node[at[i]]) == WIDE ? WIDE : NARROW],
                      at[i]);
    fa_buf_text(out, ")");
}

static void print(const fa_snippet *s, fa_buf *out, fa_snippet_reads *reads)
{
    const char *names[FA_NAMES]; /* fetched: the load that families fetch ahead, the largest */
    int at[FA_ATTN_BUFFER_DIMS], most = 0, fetched = -1, by = 0, pairs = 0; /* by: its names */
    for (int i = 0; i < s->count; i++) {
        const node *n = &s->node[i];
        const int kind = is_buffer(n) && n->type != TENSOR ? fetches_of(s, n, at) : 0;
        const int bytes = kind > 0 ? s->buffer[n->whole].type->bytes : 1;
        if (kind > most && bytes * kind <= 8 && (bytes > 1 || (s->mask && kind > 1)))
            most = kind, fetched = i, by |= (bytes == 1) << FA_NAMES; /* of wide rows it is none */
        pairs |= kind == 2, by |= n->op == OP_NAME ? 1 << n->at[0] : 0;
    }
    const int bytes = most > 0 ? s->buffer[s->node[fetched].whole].type->bytes : 0;
    if (s->mask)
        fa_buf_printf(out, "#define MASK_NAMES %d\n#define MASK_LISTS %d\n", by,
                      reads->mask_lists = pairs ? by : 0);
    if (most > 0 && !(pairs && s->mask)) {
        reads->fetch_bytes[s->mask] = bytes * (most == 2 ? 64 : 1);
        fa_buf_printf(out, "#define %s_FETCH_BYTES %d\n", s->mask ? "MASK" : "SCORE",
                      reads->fetch_bytes[s->mask]);
    }
    fa_buffers_names(s->buffer, s->buffer_count, s->mask, names);
    fa_buf_printf(out, "template <class As, class Q, class K%s> FA_DEVICE auto snippet_%s(%s",
                  s->buffer_count > 0 ? ", class Held" : "", s->mask ? "mask" : "score",
                  s->mask ? "" : "typename As::Real score, ");
    for (int i = 0; i < FA_PLACES; i++)
        fa_buf_printf(out, "%s%s %s", i > 0 ? ", " : "",
                      i == FA_PLACE_Q   ? "Q"
                      : i == FA_PLACE_K ? "K"
                                        : "typename As::Whole",
                      names[i]);
    fa_buf_text(out, s->buffer_count > 0 ? ", const Held &held) {\n" : ") {\n");
    for (int i = 0; i < s->count; i++) {
        const node *n = &s->node[i];
        if (n->type == TENSOR)
            continue;
        fa_buf_printf(out, "    const auto n%d = ", i);
        if (is_buffer(n))
            print_buffer(s, n, i == fetched, out);
        else if (n->op == OP_VALUE)
            print_value(n, out);
        else if (n->op == OP_NAME)
            fa_buf_text(out, names[n->at[0]]);
        else
            print_operator(s, n, out);
        fa_buf_text(out, ";\n");
    }
    fa_buf_printf(out, "    return As::%s(n%d);\n}\n", s->mask ? "truth" : "number", s->count - 1);
    for (int i = 0, sites = 0; i < s->count && !s->mask; i++) {
        const node *n = &s->node[i];
        if (n->type == REAL && is_buffer(n) && s->buffer[n->whole].wanted)
            fa_buf_printf(out, "%sF(%d, %d, %d)", sites > 0 ? " " : "#define GRADIENT_SITES(F) ",
                          sites, i, (int)n->whole),
                sites++;
    }
    fa_buf_text(out, "\n");
}

int fa_snippet_print(const char *text, const fa_buffer *buffers, int count, bool mask, fa_buf *out,
                     fa_snippet_reads *reads, fa_diag *diag)
{
    fa_snippet s = {.mask = mask, .buffer_count = count};
    memcpy(s.buffer, buffers, (size_t)count * sizeof *buffers);
    FA_OR_RETURN(parse(&s, text, diag));
    print(&s, out, reads);
    return 0;
}

/* The two buffers that ask for dropout (attn_dropout.cuh), whose names no others have. */
static int print_dropout(const fa_buffer *is, int count, fa_buf *out, fa_diag *diag)
{
    int found = 0;
    bool right = true;
    for (int i = 0; i < count; i++) {
        const bool seed = strcmp(is[i].name, "dropout_seed") == 0;
        if (!seed && strcmp(is[i].name, "dropout") != 0)
            continue;
        fa_buf_printf(out, "#define DROPOUT%s_AT %d\n%s", seed ? "_SEED" : "", i,
                      found++ > 0 ? "#define DROPOUT 1\n" : "");
        right = right && is[i].dims == (seed ? 1 : -1) &&
                strcmp(is[i].type->name, seed ? "i64" : "f32") == 0;
    }
    if (right && found != 1)
        return 0;
    return fa_fail(diag, FA_EINVAL,
                   "dropout takes two buffers: write \"dropout:f32 dropout_seed:i64[:]\"");
}

int fa_snippets_print(const fa_problem *problem, fa_buf *ret_text, fa_snippet_reads *ret_reads,
                      fa_diag *diag)
{
    fa_buffer list[FA_ATTN_BUFFERS];
    fa_buf unseen = {0}, *out = ret_text != NULL ? ret_text : &unseen;
    fa_snippet_reads reads = {.mask_lists = 0};
    const int count = fa_buffers_read(fa_buffers_of(problem), list, diag);
    int rc = count < 0 ? count : print_dropout(list, count, out, diag);
    for (int i = 0; i < count && rc == 0 && fa_buffers_room(problem) == 0; i++)
        if (list[i].wanted)
            rc = fa_fail(diag, FA_EINVAL,
                         "buffers \"%.80s\" asks for gradients: they are attention backward's, "
                         "and d_buffers is to give them room",
                         fa_buffers_of(problem));
    if (count > 0)
        fa_buf_printf(out, "#define BUFFER_COUNT %d\n", count);
    for (int i = 0, any = 0; i < 2 && rc == 0; i++) {
        const char *text = fa_operand_text(problem, i == 0 ? "score" : "mask");
        if (text == NULL)
            continue;
        if (any++ == 0)
            fa_buf_printf(out, "#include \"fa_snippet%s.cuh\"\n", count > 0 ? "_buffers" : "");
        rc = fa_snippet_print(text, list, count, i == 1, out, &reads, diag);
    }
    fa_buf_free(&unseen);
    if (ret_reads != NULL)
        *ret_reads = reads;
    return rc;
}
