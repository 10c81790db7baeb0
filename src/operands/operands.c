/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands of snippets. See operands.h.
 */
#include "operands.h"

#include "error.h"
#include "hash.h"
#include "operation.h"
#include "trial.h"

#include <ctype.h>
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
    while (isalnum((unsigned char)(*at)[size]) || (*at)[size] == '_')
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
        return "has a buffer without a type: use f32, f16, bf16, i32, i64 or u8";
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
    fa_expr *e = NULL;
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
    fa_expr_free(&e);
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
