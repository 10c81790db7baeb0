/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of buffers, in a proof and in a call; then snippets: types and ranges of their steps, and the CUDA C++ that is made of
 * steps alone, whose names are n0, n1 … and whose numbers are exact; then masks that are fields. See snippet.h.
 */
#include "snippet.h"

#include "buf.h"
#include "error.h"
#include "operation.h"
#include "trial.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- lists of buffers --------------------------------------------------------------------------*/
static const fa_buffer_type types[] = {{"f32", "float", 4, true, 0, 0},
                                       {"f16", "SnippetHalf", 2, true, 0, 0},
                                       {"bf16", "SnippetBrain", 2, true, 0, 0},
                                       {"i32", "int", 4, false, INT32_MIN, INT32_MAX},
                                       {"i64", "i64", 8, false, -(1LL << 61), 1LL << 61},
                                       {"u8", "unsigned char", 1, false, 0, UINT8_MAX}};

static const char *const places[] = {"b", "h", "hk", "q", "k", "len_q", "len_k", "score"};

/* Of "[:,:]" or nothing, up to a space; -2: it is neither. */
static int read_dims(const char **at)
{
    static const char *const forms[] = {"", "[]", "[:]", "[:,:]", "[:,:,:]", "[:,:,:,:]"};
    const size_t size = strcspn(*at, " *");
    for (int i = 0; i < (int)(sizeof forms / sizeof *forms); i++)
        if (strlen(forms[i]) == size && memcmp(*at, forms[i], size) == 0)
            return *at += size, i - 1;
    return -2;
}

static bool is_taken(const char *name, const fa_buffer *before, int count)
{
    bool taken = fa_expr_is_word(name) || isdigit((unsigned char)name[0]) || name[0] == 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        taken = taken || strcmp(name, places[i]) == 0;
    for (int i = 0; i < count; i++)
        taken = taken || strcmp(name, before[i].name) == 0;
    return taken;
}

/* NULL, or what is wrong. */
static const char *read_buffer(const char **at, fa_buffer *ret, const fa_buffer *before, int count)
{
    size_t size = 0, word;
    while (fa_is_word((*at)[size]))
        size++;
    if (size >= sizeof ret->name)
        return "has a name of more than 23 letters";
    *ret = (fa_buffer){.dims = -2};
    memcpy(ret->name, *at, size);
    *at += size;
    if (is_taken(ret->name, before, count))
        return "has no name where one is expected, or one that is taken";
    word = **at == ':' ? strcspn(*at + 1, "[ ") : 0;
    for (size_t i = 0; i < sizeof types / sizeof *types && word > 0; i++)
        if (strlen(types[i].name) == word && memcmp(*at + 1, types[i].name, word) == 0)
            ret->type = &types[i];
    if (ret->type == NULL)
        return "has a buffer whose type is not f32, f16, bf16, i32, i64 or u8";
    *at += 1 + word;
    ret->dims = read_dims(at);
    *at += (ret->wanted = **at == '*');
    if (ret->wanted && (ret->dims < 0 || !ret->type->real))
        return "has a gradient of whole numbers, or of a number that is no tensor";
    if (ret->dims == -2)
        return "has dimensions that are not [], [:], [:,:], [:,:,:] or [:,:,:,:]";
    return ret->dims >= 0 || ret->type == &types[0] || ret->type == &types[3]
               ? NULL
               : "has a number that is neither f32 nor i32";
}

int fa_buffers_read(const char *text, fa_buffer ret[FA_ATTN_BUFFERS], fa_diag *diag)
{
    const char *at = text != NULL ? text : "", *wrong = NULL;
    int count = 0;
    for (; *at != 0 && wrong == NULL; count++) {
        wrong = count == FA_ATTN_BUFFERS ? "has more than 8 buffers"
                                         : read_buffer(&at, &ret[count], ret, count);
        if (wrong == NULL && *at != 0 && (*at != ' ' || *++at == 0))
            wrong = "has more than one space between two buffers, or none";
    }
    return wrong == NULL
               ? count
               : fa_fail(diag, FA_EINVAL,
                         "buffers \"%.80s\" %s: write \"slope:f32[:] doc:i32[:,:] a:f32\"", text,
                         wrong);
}

int fa_buffers_names(const fa_buffer *buffers, int count, bool mask, const char *ret[FA_NAMES])
{
    for (int i = 0; i < FA_NAME_BUFFERS; i++)
        ret[i] = mask && i == FA_NAME_SCORE ? "" : places[i];
    for (int i = 0; i < count; i++)
        ret[FA_NAME_BUFFERS + i] = buffers[i].name;
    return FA_NAME_BUFFERS + count;
}

/* ---- buffers of a proof --------------------------------------------------------------------------*/
static int32_t value_of(const fa_problem *problem, const char *name)
{
    const int field = fa_operation_field_index(fa_operation_of(problem), name);
    return field >= 0 ? problem->value[field] : 0;
}

const char *fa_operand_text(const fa_problem *problem, const char *name)
{
    const int field = fa_operation_field_index(fa_operation_of(problem), name);
    const bool is = field >= 0 && fa_operation_of(problem)->field[field].kind == FA_FIELD_TEXT;
    return is && problem->value[field] != 0 ? fa_value_words(problem->value[field], NULL) : NULL;
}

const char *fa_buffers_of(const fa_problem *problem)
{
    return fa_operand_text(problem, "buffers");
}

int64_t fa_buffers_room(const fa_problem *problem)
{
    return value_of(problem, "d_buffers");
}

/* Where a text has a place alone as the index of a buffer's dimension, that place. */
static void find_axes(const char *text, const fa_buffer *buffers, int count,
                      int ret[FA_ATTN_BUFFERS][FA_ATTN_BUFFER_DIMS])
{
    const char *names[FA_NAMES];
    FA_ENDS(fa_expr_free) fa_expr *e = NULL;
    if (text == NULL || fa_expr_parse(text, names, fa_buffers_names(buffers, count, false, names),
                                      true, &e, NULL) != 0)
        return;
    for (int i = 0; i < e->count; i++) {
        const struct fa_expr_step *index = &e->step[i], *from = &e->step[index->at[0]];
        int axis = 0;
        if (index->op != OP_INDEX)
            continue;
        for (; from->op == OP_INDEX; axis++)
            from = &e->step[from->at[0]];
        const struct fa_expr_step *by = &e->step[index->at[1]];
        if (axis < FA_ATTN_BUFFER_DIMS && from->op == OP_NAME && from->at[0] >= FA_NAME_BUFFERS &&
            by->op == OP_NAME && by->at[0] < FA_PLACE_LEN_Q)
            ret[from->at[0] - FA_NAME_BUFFERS][axis] = by->at[0];
    }
}

int fa_buffers_plan(const fa_problem *p, bool gaps, uint64_t seed,
                    fa_buffer_plan ret[FA_ATTN_BUFFERS])
{
    const int64_t seq_q = value_of(p, "seq_q"), seq_k = value_of(p, "seq_k"), far = seq_q + seq_k;
    const int64_t sizes[] = {value_of(p, "batch"), value_of(p, "heads_q"), value_of(p, "heads_kv"),
                             seq_q > seq_k ? seq_q : seq_k, seq_k};
    int axis[FA_ATTN_BUFFERS][FA_ATTN_BUFFER_DIMS];
    fa_buffer list[FA_ATTN_BUFFERS];
    const int count = fa_buffers_read(fa_buffers_of(p), list, NULL);
    uint64_t room = (uint64_t)fa_buffers_room(p), wanted = 0;
    for (int i = 0; i < count; i++)
        wanted += list[i].wanted;
    memset(axis, -1, sizeof axis);
    find_axes(fa_operand_text(p, "score"), list, count, axis);
    find_axes(fa_operand_text(p, "mask"), list, count, axis);
    for (int i = 0; i < count; i++) {
        fa_attn_buffer *is = &ret[i].is;
        const uint64_t share = list[i].wanted ? room / wanted-- : 0;
        int64_t next = 1, apart = gaps && far % 64 == 0 ? 8 : 0; /* rows for the copy engine */
        ret[i] = (fa_buffer_plan){
            .is = {.dims = list[i].dims, .number = 21}, .type = list[i].type, .elements = 1};
        if (list[i].type->real)
            is->number = far % 2 == 0 ? 0.375 : 0.75;
        else
            ret[i].span = strcmp(list[i].name, "dropout_seed") == 0 ? 1LL << 53 : 3;
        for (int d = is->dims - 1, to = FA_ATTN_BUFFER_DIMS - 1; to >= 0; d--, to--) {
            const uint64_t at = ((uint64_t)1 << 53) + 8 * (uint64_t)i + (uint64_t)to;
            const int64_t most = list[i].wanted              ? (int64_t)(share / ret[i].elements)
                                 : d >= 0 && axis[i][d] >= 0 ? INT64_MAX
                                                             : 65536;
            const int64_t is_all = d < 0 ? 1 : axis[i][d] >= 0 ? sizes[axis[i][d]] : far;
            const int64_t less = gaps && d >= apart ? (int64_t)(fa_random(seed, at) % 3) : 0;
            const int64_t full = (is_all < most ? is_all : most) - less, size = full > 1 ? full : 1;
            if (d >= 0)
                is->size[d] = size, is->stride[d] = next;
            ret[i].extent[to] = (uint64_t)size, ret[i].stride[to] = (uint64_t)next;
            ret[i].elements *= (uint64_t)size, next = size * next + less + apart;
        }
        room -= list[i].wanted ? ret[i].elements : 0;
    }
    return count > 0 ? count : 0;
}

/* ---- what a call passes ------------------------------------------------------------------------*/
static int take_number(const fa_buffer *is, double number, struct fa_attn_buffer_params *ret,
                       fa_diag *diag)
{
    if (is->type->real)
        ret->real = (float)number;
    else if (number >= INT32_MIN && number <= INT32_MAX && number == floor(number))
        ret->whole = (int)number;
    else
        return fa_fail(diag, FA_EINVAL, "%s is %g, and is to be a whole number of 32 bits",
                       is->name, number);
    return 0;
}

static int take_tensor(const fa_buffer *is, const fa_attn_buffer *given,
                       struct fa_attn_buffer_params *ret, fa_diag *diag)
{
    ret->at = given->at;
    if (given->at == NULL || given->dims != is->dims)
        return fa_fail(diag, FA_EINVAL, "%s is missing, or has not the %d dimensions of its list",
                       is->name, is->dims);
    if ((uintptr_t)given->at % (uintptr_t)is->type->bytes != 0)
        return fa_fail(diag, FA_EALIGN, "%s at %p is not aligned to its elements", is->name,
                       given->at);
    for (int i = 0; i < is->dims; i++) {
        if (given->size[i] < 1 || given->size[i] > INT32_MAX)
            return fa_fail(diag, FA_EINVAL, "%s has %lld elements in dimension %d: 1 to %d can be",
                           is->name, (long long)given->size[i], i, INT32_MAX);
        ret->stride[i] = given->stride[i];
        ret->last[i] = (int)given->size[i] - 1;
    }
    return 0;
}

int fa_buffer_take(const fa_buffer *is, const fa_attn_buffer *given, int64_t *room,
                   struct fa_attn_buffer_params *ret, fa_diag *diag)
{
    int64_t elements = is->wanted;
    *ret = (struct fa_attn_buffer_params){.at = NULL};
    int rc = given == NULL  ? fa_fail(diag, FA_EINVAL, "%s is NULL", is->name)
             : is->dims < 0 ? take_number(is, given->number, ret, diag)
                            : take_tensor(is, given, ret, diag);
    for (int i = 0; rc == 0 && is->wanted && i < is->dims; i++)
        if (__builtin_mul_overflow(elements, given->size[i], &elements))
            elements = INT64_MAX;
    if (rc == 0 && elements > *room)
        return fa_fail(diag, FA_EINVAL,
                       "the gradient of %s has %lld elements, and d_buffers room for %lld",
                       is->name, (long long)elements, (long long)*room);
    *room -= elements;
    return rc;
}

size_t fa_buffers_pack(const fa_buffer *list, int count,
                       const struct fa_attn_buffer_params *buffers, const uint64_t *gradient,
                       unsigned char *ret)
{
    const size_t size = (size_t)count * sizeof *buffers;
    memcpy(ret, buffers, size);
    for (int i = 0; i < count; i++) {
        const uint64_t address = list[i].wanted ? *gradient++ : 0;
        memcpy(ret + size + 8 * (size_t)i, &address, sizeof address);
    }
    return size + 8 * (size_t)count;
}

int fa_buffers_take(const fa_buffer *list, int count, const fa_attn_args *args,
                    struct fa_attn_buffer_params ret[FA_ATTN_BUFFERS], fa_diag *diag)
{
    int rc = 0;
    int64_t room = INT64_MAX; /* forward has no gradients */
    if (args->buffer_count != count || (count > 0 && args->buffers == NULL))
        return fa_fail(diag, FA_EINVAL, "args->buffers has %d buffers, and the problem has %d",
                       (int)args->buffer_count, count);
    for (int i = 0; i < count && rc == 0; i++)
        rc = fa_buffer_take(&list[i], &args->buffers[i], &room, &ret[i], diag);
    return rc;
}

/* ---- snippets ----------------------------------------------------------------------------------*/
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
        n->type = step->value.kind == FA_EXPR_INTEGER ? WHOLE : REAL;
        n->whole = step->value.integer; /* or bits of a real number */
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
    FA_ENDS(fa_expr_free) fa_expr *expr = NULL;
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
    int at[FA_ATTN_BUFFER_DIMS], most = 0, fetched = -1, bytes = 0, by[FA_SNIPPET_NODES] = {0};
    enum { SCORE = 1 << FA_NAME_SCORE };
    bool pairs = false;
    for (int i = 0; i < s->count; i++) {
        const node *n = &s->node[i];
        const int kind = is_buffer(n) && n->type != TENSOR ? fetches_of(s, n, at) : 0;
        const int size = kind > 0 ? s->buffer[n->whole].type->bytes : 1;
        if (kind > most && size * kind <= 8 && (size > 1 || (s->mask && kind > 1)))
            most = kind, fetched = i, bytes = size; /* of wide rows it is none */
        by[i] = n->op == OP_NAME ? 1 << n->at[0] : 0;
        for (int j = 0; j < 3 && n->op > OP_NAME; j++)
            by[i] |= by[n->at[j]];
        pairs |= kind == 2;
    }
    /* by: the names that a node is computed of */
    const int all = by[s->count - 1] | (bytes == 1) << FA_NAMES;
    const node *n = &s->node[s->count - 1]; /* then the score, if the rest is added to it */
    while ((n->op == OP_ADD && ((by[n->at[0]] ^ by[n->at[1]]) & SCORE) != 0) ||
           (n->op == OP_SUBTRACT && (by[n->at[1]] & SCORE) == 0))
        n = &s->node[n->at[(by[n->at[1]] & SCORE) != 0]];
    if (s->mask)
        reads->mask_lists = pairs ? all : 0;
    fa_buf_printf(
        out, s->mask ? "#define MASK_NAMES %d\n#define MASK_LISTS %d\n" : "#define SCORE_ADDS %d\n",
        s->mask ? all : n->op == OP_NAME && n->at[0] == FA_NAME_SCORE, reads->mask_lists);
    if (most > 0 && !(pairs && s->mask))
        fa_buf_printf(out, "#define %s_FETCH_BYTES %d\n", s->mask ? "MASK" : "SCORE",
                      reads->fetch_bytes[s->mask] = bytes * (most == 2 ? 64 : 1));
    fa_buffers_names(s->buffer, s->buffer_count, s->mask, names);
    fa_buf_printf(out, "template <class As, class Q, class K%s> FA_DEVICE auto snippet_%s%s) {\n",
                  s->buffer_count > 0 ? ", class Held" : "",
                  s->mask ? "mask(SNIPPET_PLACES" : "score(typename As::Real score, SNIPPET_PLACES",
                  s->buffer_count > 0 ? ", const Held &held" : "");
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

/* ---- masks that are fields -----------------------------------------------------------------------*/
enum { Q, K, ONE, PARTS };                     /* of a sum: how often each is in it */
static const int64_t LARGE = (int64_t)1 << 40; /* larger numbers are left alone */

/* Keys that a query sees behind and before its position. */
struct limits {
    int64_t left, right; /* LARGE: to the end */
};

/* The step as a sum of q, k and a number; false: it is none. */
static bool read_sum(const fa_expr *e, int at, int64_t ret[PARTS])
{
    const struct fa_expr_step *s = &e->step[at];
    int64_t b[PARTS] = {0};
    memset(ret, 0, sizeof b);
    if (s->op == OP_NAME) {
        ret[s->at[0]] = 1;
        return true;
    }
    if (s->op == OP_VALUE) {
        ret[ONE] = s->value.integer;
        return s->value.kind == FA_EXPR_INTEGER && s->value.integer < LARGE &&
               s->value.integer > -LARGE;
    }
    const bool negates = s->op == OP_NEGATE, adds = s->op == OP_ADD;
    if (!(negates || adds || s->op == OP_SUBTRACT) || !read_sum(e, s->at[0], ret) ||
        (!negates && !read_sum(e, s->at[1], b)))
        return false;
    for (int i = 0; i < PARTS; i++) {
        ret[i] = negates ? -ret[i] : adds ? ret[i] + b[i] : ret[i] - b[i];
        if (ret[i] >= LARGE || ret[i] <= -LARGE)
            return false;
    }
    return true;
}

/* Narrows the limits by a mask; false: it says something else, too. */
static bool narrow(const fa_expr *e, int at, struct limits *limits)
{
    const struct fa_expr_step *s = &e->step[at];
    int64_t a[PARTS], b[PARTS];
    if (s->op == OP_AND)
        return narrow(e, s->at[0], limits) && narrow(e, s->at[1], limits);
    const bool more = s->op == OP_GREATER || s->op == OP_GREATER_EQUAL;
    const bool equal = s->op == OP_LESS_EQUAL || s->op == OP_GREATER_EQUAL;
    if (!(more || equal || s->op == OP_LESS) || !read_sum(e, s->at[more], a) ||
        !read_sum(e, s->at[!more], b))
        return false;
    /* a <= b, or a <= b - 1: (a - b) is k - q, or q - k, and a number. */
    const int64_t k = a[K] - b[K], most = b[ONE] - a[ONE] - !equal;
    int64_t *limit = k == 1 ? &limits->right : &limits->left;
    *limit = most < *limit ? most : *limit;
    return a[Q] - b[Q] == -k && (k == 1 || k == -1);
}

fa_problem fa_fields_settle(const fa_problem *problem)
{
    static const char *const names[] = {"q", "k"};
    static const char *const fields[] = {"mask", "causal", "window", "window_left", "window_right"};
    const fa_operation *operation = fa_operation_of(problem);
    fa_problem p = *problem;
    FA_ENDS(fa_expr_free) fa_expr *e = NULL;
    int32_t *is[5]; /* of attention's both passes */
    if (strcmp(operation->name, "attn_fwd") != 0 && strcmp(operation->name, "attn_bwd") != 0)
        return p;
    for (int i = 0; i < 5; i++)
        is[i] = &p.value[fa_operation_field_index(operation, fields[i])];
    int32_t *mask = is[0], *causal = is[1], *window = is[2], *left = is[3], *right = is[4];
    struct limits l = {*window && *left >= 0 ? *left : LARGE, *causal != FA_CAUSAL_NONE ? 0
                                                              : *window && *right >= 0  ? *right
                                                                                        : LARGE};
    if (*mask == 0 || fa_expr_parse(fa_value_words(*mask, NULL), names, 2, true, &e, NULL) != 0)
        return p;
    if (narrow(e, e->count - 1, &l) && l.left >= 0 && l.right >= 0) {
        *mask = 0;
        *causal = *causal == FA_CAUSAL_NONE && l.right == 0 ? FA_CAUSAL_BOTTOM_RIGHT : *causal;
        *window = l.left < LARGE || (l.right > 0 && l.right < LARGE);
        *left = !*window ? 0 : l.left > INT32_MAX ? -1 : (int32_t)l.left;
        *right = !*window ? 0 : l.right > INT32_MAX ? -1 : (int32_t)l.right;
    }
    return p;
}
