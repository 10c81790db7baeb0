/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions: a recursive-descent parser that emits the steps of a stack machine, and that machine. See expr.h.
 *
 * Invariants: steps jump forward only, so that evaluation ends after at most as many as there are; the parser counts the
 * height of the stack and refuses what exceeds it; it goes at most DEPTH_MAX calls deep.
 */
#include "expr.h"

#include "wording.h"
#include "error.h"
#include "trial.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, STACK_MAX = 128, STEPS_MAX = 2 * FA_EXPR_TEXT_MAX + 64 };

enum op {
    OP_VALUE, /* pushes the step's value */
    OP_NAME,  /* pushes the value of the name `at` */
    /* Replace the two values on top by one. */
    OP_OR,
    OP_AND,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_BIT_OR,
    OP_BIT_AND,
    OP_SHIFT_LEFT,
    OP_SHIFT_RIGHT,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_POWER,
    OP_DIVIDE,
    OP_TRUE_DIV,
    OP_FLOOR_DIV,
    OP_REMAINDER,
    OP_MIN,
    OP_MAX,
    OP_CEIL_DIV,
    /* Replace the value on top. */
    OP_NOT,
    OP_NEGATE,
    OP_BIT_NOT,
    OP_ABS,
    /* Move values and jump. */
    OP_COPY,      /* pushes what lies `at` values below the top */
    OP_SWAP,      /* exchanges the two values on top */
    OP_DROP_NEXT, /* removes the value below the top */
    OP_CHOOSE /* pops a condition: if it holds, jumps to step `at`, else pops the value below it, too */
};

struct step {
    enum op op;
    int at;
    fa_expr_value value;
};

struct fa_expr {
    uint64_t uses;
    int count;
    struct step step[];
};

/* ---- values ------------------------------------------------------------------------------------*/
static fa_expr_value none(void)
{
    return (fa_expr_value){.kind = FA_EXPR_NONE};
}

static fa_expr_value integer(int64_t number)
{
    return (fa_expr_value){.kind = FA_EXPR_INTEGER, .integer = number};
}

static fa_expr_value real(double number)
{
    return isfinite(number) ? (fa_expr_value){.kind = FA_EXPR_REAL, .real = number} : none();
}

/* Holds every value exactly: a long double has at least the 64 bits of an integer. */
static long double number_of(fa_expr_value value)
{
    return value.kind == FA_EXPR_INTEGER ? (long double)value.integer : (long double)value.real;
}

int fa_expr_truth(fa_expr_value value)
{
    return value.kind == FA_EXPR_NONE || value.kind == FA_EXPR_WORD
               ? -1
               : number_of(value) < 0 || number_of(value) > 0;
}

const char *fa_expr_fault(fa_expr_value value)
{
    static const char *const faults[] = {
        [FA_EXPR_NONE] = "has no value (it divides by zero, or a text is used as a number)",
        [FA_EXPR_INTEGER] = NULL,
        [FA_EXPR_REAL] = "is beyond 64 bits",
        [FA_EXPR_WORD] = "is a text, which can only be compared with == and !="};
    bool fraction = value.kind == FA_EXPR_REAL && fabs(value.real) < 9e18;
    return fraction ? "is a fraction, where an integer is needed: write // or ceil_div"
                    : faults[value.kind];
}

fa_expr_value fa_expr_of_value(int32_t value)
{
    double number = value < 0 && !fa_value_is_text(value) ? fa_value_number(value) : value;
    return value < 0 && fa_value_is_text(value)
               ? (fa_expr_value){.kind = FA_EXPR_WORD, .integer = value}
           : fabs(number) < 9e15 && number == floor(number) ? integer((int64_t)number)
                                                            : real(number);
}

bool fa_expr_to_value(fa_expr_value value, int32_t *ret_value)
{
    *ret_value = (int32_t)value.integer;
    return value.kind == FA_EXPR_WORD ||
           (value.kind != FA_EXPR_NONE &&
            fa_value_of_number((double)number_of(value), ret_value, NULL) == 0);
}

static fa_expr_value logic(enum op op, int a, int b)
{
    int decides = op == OP_OR ? 1 : 0; /* whatever the other is */
    if (a == decides || b == decides)
        return integer(decides);
    return a < 0 || b < 0 ? none() : integer(!decides);
}

static fa_expr_value compare(enum op op, fa_expr_value a, fa_expr_value b)
{
    long double x = number_of(a), y = number_of(b);
    int order = a.kind == FA_EXPR_INTEGER && b.kind == FA_EXPR_INTEGER
                    ? (a.integer > b.integer) - (a.integer < b.integer)
                    : (x > y) - (x < y);
    return integer(op == OP_EQUAL        ? order == 0
                   : op == OP_UNEQUAL    ? order != 0
                   : op == OP_LESS       ? order < 0
                   : op == OP_LESS_EQUAL ? order <= 0
                   : op == OP_GREATER    ? order > 0
                                         : order >= 0);
}

/* Of bits: a shift by less than 0 or by more than 63 has no value. */
static fa_expr_value combine_bits(enum op op, fa_expr_value a, fa_expr_value b)
{
    bool shifts = op == OP_SHIFT_LEFT || op == OP_SHIFT_RIGHT;
    if (a.kind != FA_EXPR_INTEGER || b.kind != FA_EXPR_INTEGER ||
        (shifts && (b.integer < 0 || b.integer > 63)))
        return none();
    switch (op) {
    case OP_BIT_OR:
        return integer(a.integer | b.integer);
    case OP_BIT_AND:
        return integer(a.integer & b.integer);
    case OP_SHIFT_LEFT:
        return integer((int64_t)((uint64_t)a.integer << b.integer));
    default:
        return integer(a.integer >> b.integer);
    }
}

static fa_expr_value divide(enum op op, fa_expr_value a, fa_expr_value b)
{
    if (fa_expr_truth(b) == 0)
        return none();
    if (a.kind == FA_EXPR_REAL || b.kind == FA_EXPR_REAL ||
        (a.integer == INT64_MIN && b.integer == -1)) {
        double x = (double)number_of(a), y = (double)number_of(b);
        return real(op == OP_REMAINDER   ? fmod(x, y)
                    : op == OP_CEIL_DIV  ? ceil(x / y)
                    : op == OP_FLOOR_DIV ? floor(x / y)
                                         : x / y);
    }
    int64_t quotient = a.integer / b.integer, rest = a.integer % b.integer;
    if (op == OP_REMAINDER)
        return integer(rest);
    if (op == OP_TRUE_DIV && rest != 0)
        return real((double)a.integer / (double)b.integer);
    bool below = rest != 0 && (rest < 0) == (b.integer < 0), above = rest != 0 && !below;
    return integer(quotient + (op == OP_CEIL_DIV && below) - (op == OP_FLOOR_DIV && above));
}

/* Of whole numbers exact, unless it does not fit. */
static fa_expr_value power(fa_expr_value a, fa_expr_value b)
{
    int64_t result = 1, times = b.integer;
    bool exact = a.kind == FA_EXPR_INTEGER && b.kind == FA_EXPR_INTEGER && times >= 0 && times < 64;
    while (exact && times-- > 0)
        exact = !__builtin_mul_overflow(result, a.integer, &result);
    return exact ? integer(result) : real(pow((double)number_of(a), (double)number_of(b)));
}

static fa_expr_value calculate(enum op op, fa_expr_value a, fa_expr_value b)
{
    double x = (double)number_of(a), y = (double)number_of(b);
    bool exact = a.kind == FA_EXPR_INTEGER && b.kind == FA_EXPR_INTEGER;
    int64_t result = 0;
    switch (op) {
    case OP_ADD:
        return exact && !__builtin_add_overflow(a.integer, b.integer, &result) ? integer(result)
                                                                               : real(x + y);
    case OP_SUBTRACT:
        return exact && !__builtin_sub_overflow(a.integer, b.integer, &result) ? integer(result)
                                                                               : real(x - y);
    case OP_MULTIPLY:
        return exact && !__builtin_mul_overflow(a.integer, b.integer, &result) ? integer(result)
                                                                               : real(x * y);
    case OP_POWER:
        return power(a, b);
    case OP_MIN:
        return compare(OP_LESS, b, a).integer != 0 ? b : a;
    case OP_MAX:
        return compare(OP_GREATER, b, a).integer != 0 ? b : a;
    default:
        return divide(op, a, b);
    }
}

static fa_expr_value combine(enum op op, fa_expr_value a, fa_expr_value b)
{
    if (op == OP_OR || op == OP_AND)
        return logic(op, fa_expr_truth(a), fa_expr_truth(b));
    if (a.kind == FA_EXPR_NONE || b.kind == FA_EXPR_NONE)
        return none();
    if (a.kind == FA_EXPR_WORD || b.kind == FA_EXPR_WORD) {
        bool equal = a.kind == b.kind && a.integer == b.integer;
        return op == OP_EQUAL || op == OP_UNEQUAL ? integer(equal == (op == OP_EQUAL)) : none();
    }
    if (op <= OP_GREATER_EQUAL)
        return compare(op, a, b);
    return op <= OP_SHIFT_RIGHT ? combine_bits(op, a, b) : calculate(op, a, b);
}

static fa_expr_value change(enum op op, fa_expr_value a)
{
    if (a.kind == FA_EXPR_NONE || a.kind == FA_EXPR_WORD)
        return none();
    if (op == OP_NOT)
        return integer(!fa_expr_truth(a));
    if (op == OP_BIT_NOT)
        return a.kind == FA_EXPR_INTEGER ? integer(~a.integer) : none();
    if (op == OP_ABS && number_of(a) >= 0)
        return a;
    return calculate(OP_SUBTRACT, integer(0), a);
}

fa_expr_value fa_expr_evaluate(const fa_expr *expr, const fa_expr_value *value)
{
    fa_expr_value stack[STACK_MAX], top = none();
    int height = 0; /* values below the top; the first of them is not used */
    for (int i = 0; i < expr->count; i++) {
        const struct step *step = &expr->step[i];
        switch (step->op) {
        case OP_VALUE:
            stack[height++] = top;
            top = step->value;
            break;
        case OP_NAME:
            stack[height++] = top;
            top = value[step->at];
            break;
        case OP_COPY:
            stack[height++] = top;
            top = stack[height - 1 - step->at];
            break;
        case OP_SWAP: {
            fa_expr_value next = stack[height - 1];
            stack[height - 1] = top;
            top = next;
            break;
        }
        case OP_DROP_NEXT:
            height--;
            break;
        case OP_CHOOSE:
            if (fa_expr_truth(top) == 1)
                i = step->at - 1;
            else
                height--;
            top = stack[--height];
            break;
        case OP_NOT:
        case OP_NEGATE:
        case OP_BIT_NOT:
        case OP_ABS:
            top = change(step->op, top);
            break;
        default:
            top = combine(step->op, stack[--height], top);
        }
    }
    return top;
}

uint64_t fa_expr_uses(const fa_expr *expr)
{
    return expr->uses;
}

int fa_expr_steps(const fa_expr *expr)
{
    return expr->count;
}

void fa_expr_free(fa_expr **expr)
{
    free(*expr);
    *expr = NULL;
}

/* ---- the parser ----------------------------------------------------------------------------------*/
/* The first error stays in `rc`: nothing is taken or emitted after it, so that every loop ends. */
struct parser {
    const char *at; /* what is not read yet */
    const char *const *name;
    int name_count;
    uint64_t uses;
    int height, depth;
    int count;
    struct step step[STEPS_MAX];
    int rc;
    fa_diag *diag;
};

static void parse_any(struct parser *p);

__attribute__((format(printf, 2, 3))) static void fail(struct parser *p, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (p->rc == 0)
        p->rc = fa_fail(p->diag, FA_EMANIFEST, "%s", text);
}

/* Says where reading ended. */
static void fail_here(struct parser *p, const char *fault)
{
    int size = 0;
    while (size < 24 && p->at[size] >= 0x20 && p->at[size] < 0x7f)
        size++;
    if (*p->at == 0)
        fail(p, "ends where %s", fault);
    else if (size == 0)
        fail(p, "has a byte that is not printable ASCII");
    else
        fail(p, "has \"%.*s\" where %s", size, p->at, fault);
}

static void parse_deeper(struct parser *p, void (*parse)(struct parser *))
{
    if (++p->depth > DEPTH_MAX)
        fail(p, "is nested too deeply: split it into lets");
    if (p->rc == 0)
        parse(p);
    p->depth--;
}

static void emit_step(struct parser *p, enum op op, int at, fa_expr_value value)
{
    bool pops = (op > OP_NAME && op <= OP_CEIL_DIV) || op == OP_DROP_NEXT;
    p->height += op == OP_CHOOSE ? -2 : pops ? -1 : op <= OP_NAME || op == OP_COPY;
    if (p->count == STEPS_MAX || p->height >= STACK_MAX)
        fail(p, "is too large: split it into lets");
    if (p->rc == 0)
        p->step[p->count++] = (struct step){op, at, value};
}

static void emit(struct parser *p, enum op op, int at)
{
    emit_step(p, op, at, none());
}

static void skip_space(struct parser *p)
{
    p->at += strspn(p->at, " \t\r\n");
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Reads the word, or sign, if it stands here. */
static bool take(struct parser *p, const char *token)
{
    size_t size = strlen(token);
    skip_space(p);
    if (p->rc != 0 || strncmp(p->at, token, size) != 0 ||
        (is_word(token[0]) && is_word(p->at[size])))
        return false;
    p->at += size;
    return true;
}

static void expect(struct parser *p, const char *token)
{
    char fault[40];
    snprintf(fault, sizeof fault, "%s is expected", token);
    if (!take(p, token))
        fail_here(p, fault);
}

/* min() and max() take two values or more, ceil_div() two, abs() one. */
static void parse_arguments(struct parser *p, enum op op)
{
    parse_any(p);
    if (op != OP_ABS && *p->at != ',')
        fail_here(p, "the second of two values is expected");
    for (int count = 1; op != OP_ABS && (count == 1 || op != OP_CEIL_DIV) && take(p, ",");
         count++) {
        parse_any(p);
        emit(p, op, 0);
    }
    if (op == OP_ABS)
        emit(p, op, 0);
    expect(p, ")");
}

static bool is_same(const char *word, int size, const char *name)
{
    return strlen(name) == (size_t)size && memcmp(word, name, (size_t)size) == 0;
}

static void parse_call(struct parser *p, const char *word, int size)
{
    static const struct {
        const char *name;
        enum op op;
    } functions[] = {{"min", OP_MIN}, {"max", OP_MAX}, {"abs", OP_ABS}, {"ceil_div", OP_CEIL_DIV}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (is_same(word, size, functions[i].name)) {
            parse_arguments(p, functions[i].op);
            return;
        }
    }
    fail(p, "calls %.*s(), which is unknown: use min, max, abs or ceil_div", size < 40 ? size : 40,
         word);
}

static void parse_word(struct parser *p)
{
    const char *word = p->at;
    int size = 0;
    while (is_word(word[size]))
        size++;
    p->at += size;
    if (take(p, "(")) {
        parse_call(p, word, size);
        return;
    }
    for (int i = 0; i < p->name_count; i++) {
        if (is_same(word, size, p->name[i])) {
            p->uses |= (uint64_t)1 << i;
            emit(p, OP_NAME, i);
            return;
        }
    }
    fail(p, "uses the unknown name %.*s", size < 40 ? size : 40, word);
}

static void parse_number(struct parser *p)
{
    const char *start = p->at;
    char *end;
    int64_t number = 0;
    double large = 0;
    bool exact = true;
    for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
        int digit = *p->at - '0';
        exact = exact && !__builtin_mul_overflow(number, 10, &number) &&
                !__builtin_add_overflow(number, digit, &number);
        large = large * 10 + digit;
    }
    if (p->at[0] == '.' && isdigit((unsigned char)p->at[1])) {
        large = fa_strtod(start, &end);
        p->at = end;
        exact = false;
    }
    if (is_word(*p->at))
        fail_here(p, "a number must end");
    emit_step(p, OP_VALUE, 0, exact ? integer(number) : real(large));
}

/* A text in quotes of either kind. */
static void parse_text(struct parser *p)
{
    char text[FA_VALUE_TEXT_MAX], close[] = {*p->at, 0};
    int32_t value = 0;
    size_t size = strcspn(p->at + 1, close);
    snprintf(text, sizeof text, "%.*s", (int)(size < sizeof text ? size : sizeof text), p->at + 1);
    if (p->at[size + 1] == 0)
        fail(p, "has a text that does not end");
    else if (fa_value_of_text(text, &value, NULL) != 0)
        fail(p, "has \"%.40s\", which is the value of no tunable", text);
    else
        p->at += size + 2;
    emit_step(p, OP_VALUE, 0, (fa_expr_value){.kind = FA_EXPR_WORD, .integer = value});
}

static void parse_primary(struct parser *p)
{
    skip_space(p);
    if (*p->at >= '0' && *p->at <= '9') {
        parse_number(p);
    } else if (*p->at == '\'' || *p->at == '"') {
        parse_text(p);
    } else if (take(p, "(")) {
        parse_any(p);
        expect(p, ")");
    } else if (is_word(*p->at)) {
        parse_word(p);
    } else {
        fail_here(p, "a value is expected");
    }
}

static void parse_signs(struct parser *p)
{
    bool plus = take(p, "+");
    enum op op = take(p, "-") ? OP_NEGATE : take(p, "~") ? OP_BIT_NOT : OP_VALUE;
    if (op == OP_VALUE && !plus) {
        parse_primary(p);
        if (take(p, "**")) { /* binds from the right, and before a sign in front of it */
            parse_deeper(p, parse_signs);
            emit(p, OP_POWER, 0);
        }
        return;
    }
    parse_deeper(p, parse_signs);
    if (op != OP_VALUE)
        emit(p, op, 0);
}

struct sign {
    const char *text;
    enum op op;
};

/* Takes one of these, up to one without text. */
static bool take_sign(struct parser *p, const struct sign *sign, enum op *ret_op)
{
    while (sign->text != NULL && !take(p, sign->text))
        sign++;
    *ret_op = sign->op;
    return sign->text != NULL;
}

static void parse_not(struct parser *p);
static void parse_level(struct parser *p, int level);

/* Operators of two values that bind from the left, the weakest first; comparisons stand between `and` and `|`. */
enum { LEVEL_OR, LEVEL_AND, LEVEL_BITS, LEVEL_SUMS, LEVEL_PRODUCTS };

static void parse_operand(struct parser *p, int level)
{
    if (level == LEVEL_AND)
        parse_not(p);
    else if (level == LEVEL_PRODUCTS)
        parse_signs(p);
    else
        parse_level(p, level + 1);
}

static void parse_level(struct parser *p, int level)
{
    static const struct sign signs[][5] = {
        {{"or", OP_OR}},
        {{"and", OP_AND}},
        {{"<<", OP_SHIFT_LEFT}, {">>", OP_SHIFT_RIGHT}, {"|", OP_BIT_OR}, {"&", OP_BIT_AND}},
        {{"+", OP_ADD}, {"-", OP_SUBTRACT}},
        {{"*", OP_MULTIPLY}, {"//", OP_FLOOR_DIV}, {"/", OP_DIVIDE}, {"%", OP_REMAINDER}}};
    enum op op;
    parse_operand(p, level);
    while (take_sign(p, signs[level], &op)) {
        parse_operand(p, level);
        emit(p, op, 0);
    }
}

/* x in (a, b), with x on the stack: x == a or x == b. */
static void parse_in(struct parser *p)
{
    expect(p, "(");
    emit_step(p, OP_VALUE, 0, integer(0));
    do {
        emit(p, OP_COPY, 1);
        parse_any(p);
        emit(p, OP_EQUAL, 0);
        emit(p, OP_OR, 0);
    } while (take(p, ","));
    expect(p, ")");
    emit(p, OP_DROP_NEXT, 0);
}

static void parse_comparison(struct parser *p)
{
    static const struct sign signs[] = {
        {"!=", OP_UNEQUAL}, {"==", OP_EQUAL},  {"<=", OP_LESS_EQUAL}, {">=", OP_GREATER_EQUAL},
        {"<", OP_LESS},     {">", OP_GREATER}, {NULL, OP_EQUAL}};
    enum op op, next;
    int links = 0;
    parse_level(p, LEVEL_BITS);
    for (bool more = take_sign(p, signs, &op); more; op = next) {
        parse_level(p, LEVEL_BITS);
        more = take_sign(p, signs, &next);
        if (more) { /* a b becomes (a op b) b, and b is compared again */
            emit(p, OP_SWAP, 0);
            emit(p, OP_COPY, 1);
            links++;
        }
        emit(p, op, 0);
        if (more)
            emit(p, OP_SWAP, 0);
    }
    while (links-- > 0)
        emit(p, OP_AND, 0);
    bool not = take(p, "not");
    if (take(p, "in"))
        parse_in(p);
    else if (not )
        fail_here(p, "in is expected");
    if (not )
        emit(p, OP_NOT, 0);
}

static void parse_not(struct parser *p)
{
    if (!take(p, "not")) {
        parse_comparison(p);
        return;
    }
    parse_deeper(p, parse_not);
    emit(p, OP_NOT, 0);
}

/* x if condition else y. */
static void parse_choice(struct parser *p)
{
    parse_level(p, LEVEL_OR);
    if (!take(p, "if"))
        return;
    parse_level(p, LEVEL_OR);
    emit(p, OP_CHOOSE, 0);
    int chooses = p->count - 1;
    expect(p, "else");
    parse_any(p);
    if (p->rc == 0)
        p->step[chooses].at = p->count;
}

static void parse_any(struct parser *p)
{
    parse_deeper(p, parse_choice);
}

bool fa_expr_is_word(const char *text)
{
    static const char *const words[] = {"or",   "and", "not", "in",  "if",
                                        "else", "min", "max", "abs", "ceil_div"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], text) == 0)
            return true;
    return false;
}

int fa_expr_parse(const char *text, const char *const *name, int count, fa_expr **ret_expr,
                  fa_diag *diag)
{
    struct parser p = {.at = text, .name = name, .name_count = count, .diag = diag};
    size_t size = strlen(text);
    if (size == 0 || size > FA_EXPR_TEXT_MAX)
        return fa_fail(diag, FA_EMANIFEST, "is %zu bytes long: use 1 to %d", size,
                       FA_EXPR_TEXT_MAX);
    parse_any(&p);
    skip_space(&p);
    if (*p.at != 0)
        fail_here(&p,
                  "an operator or the end is expected (as in Python: ==, and, or, x if c else y)");
    if (p.rc != 0)
        return p.rc;
    size_t bytes = (size_t)p.count * sizeof *p.step;
    fa_expr *expr = malloc(sizeof *expr + bytes);
    if (expr == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    expr->uses = p.uses;
    expr->count = p.count;
    memcpy(expr->step, p.step, bytes);
    *ret_expr = expr;
    return 0;
}

void fa_expr_divide_truly(fa_expr *expr)
{
    for (int i = 0; i < expr->count; i++)
        if (expr->step[i].op == OP_DIVIDE)
            expr->step[i].op = OP_TRUE_DIV;
}
