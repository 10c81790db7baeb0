/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions: a parser by the strength of operators, which lists steps, each of which reads earlier ones. See expr.h.
 *
 * Invariants: a step reads only earlier steps, so that evaluation takes as many as there are; the parser goes at most DEPTH_MAX
 * calls deep.
 */
#include "expr.h"

#include "error.h"
#include "trial.h"
#include "words.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 96, STEPS_MAX = FA_EXPR_STEPS_MAX };

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

double fa_expr_number(fa_expr_value value)
{
    return fa_expr_truth(value) < 0 ? 0 : (double)number_of(value);
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

static fa_expr_value compare(enum fa_expr_op op, fa_expr_value a, fa_expr_value b)
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

static fa_expr_value divide(enum fa_expr_op op, fa_expr_value a, fa_expr_value b)
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

static fa_expr_value calculate(enum fa_expr_op op, fa_expr_value a, fa_expr_value b)
{
    double x = (double)number_of(a), y = (double)number_of(b);
    bool exact = a.kind == FA_EXPR_INTEGER && b.kind == FA_EXPR_INTEGER;
    bool shifts = exact && b.integer >= 0 && b.integer <= 63; /* by no other number of bits */
    int64_t result = 0;
    switch (op) {
    case OP_BIT_OR:
        return exact ? integer(a.integer | b.integer) : none();
    case OP_BIT_AND:
        return exact ? integer(a.integer & b.integer) : none();
    case OP_SHIFT_LEFT:
        return shifts ? integer((int64_t)((uint64_t)a.integer << b.integer)) : none();
    case OP_SHIFT_RIGHT:
        return shifts ? integer(a.integer >> b.integer) : none();
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

static fa_expr_value combine(enum fa_expr_op op, fa_expr_value a, fa_expr_value b)
{
    if (op == OP_OR || op == OP_AND) {
        const int decides = op == OP_OR, x = fa_expr_truth(a), y = fa_expr_truth(b);
        if (x == decides || y == decides) /* whatever the other is */
            return integer(decides);
        return x < 0 || y < 0 ? none() : integer(!decides);
    }
    if (a.kind == FA_EXPR_NONE || b.kind == FA_EXPR_NONE || op == OP_INDEX)
        return none();
    if (a.kind == FA_EXPR_WORD || b.kind == FA_EXPR_WORD) {
        bool equal = a.kind == b.kind && a.integer == b.integer;
        return op == OP_EQUAL || op == OP_UNEQUAL ? integer(equal == (op == OP_EQUAL)) : none();
    }
    return op <= OP_GREATER_EQUAL ? compare(op, a, b) : calculate(op, a, b);
}

static fa_expr_value change(enum fa_expr_op op, fa_expr_value a)
{
    if (a.kind == FA_EXPR_NONE || a.kind == FA_EXPR_WORD)
        return none();
    if (op == OP_NOT)
        return integer(!fa_expr_truth(a));
    if (op == OP_BIT_NOT)
        return a.kind == FA_EXPR_INTEGER ? integer(~a.integer) : none();
    const double x = (double)number_of(a);
    if (op == OP_INT)
        return fabs(x) < 0x1p63 ? integer((int64_t)x) : none();
    if (op >= OP_EXP && op <= OP_FLOOR)
        return real(op == OP_EXP    ? exp(x)
                    : op == OP_LOG  ? log(x)
                    : op == OP_TANH ? tanh(x)
                    : op == OP_SQRT ? sqrt(x)
                                    : floor(x));
    if (op == OP_FLOAT || (op == OP_ABS && number_of(a) >= 0))
        return a;
    return calculate(OP_SUBTRACT, integer(0), a);
}

fa_expr_value fa_expr_evaluate(const fa_expr *expr, const fa_expr_value *value)
{
    fa_expr_value is[STEPS_MAX];
    for (int i = 0; i < expr->count; i++) {
        const struct fa_expr_step *step = &expr->step[i];
        const int *at = step->at;
        switch (step->op) {
        case OP_VALUE:
            is[i] = step->value;
            break;
        case OP_NAME:
            is[i] = value[at[0]];
            break;
        case OP_CHOOSE:
            is[i] = is[fa_expr_truth(is[at[2]]) == 1 ? at[0] : at[1]];
            break;
        default:
            is[i] = step->op >= OP_NOT ? change(step->op, is[at[0]])
                                       : combine(step->op, is[at[0]], is[at[1]]);
        }
    }
    return is[expr->count - 1];
}

void fa_expr_free(fa_expr **expr)
{
    free(*expr);
    *expr = NULL;
}

/* ---- the parser ----------------------------------------------------------------------------------*/
/* How strongly operators bind, the weakest first. */
enum {
    CALL, /* a function's name */
    CHOICE,
    OR,
    AND,
    NOT,
    COMPARISON,
    BITS,
    SUMS,
    PRODUCTS,
    SIGNS
};

/* One that begins as another does stands before it. */
static const struct infix {
    const char *text;
    enum fa_expr_op op;
    int level;
} operators[] = {{"if", OP_CHOOSE, CHOICE},
                 {"or", OP_OR, OR},
                 {"and", OP_AND, AND},
                 {"in", OP_IN, COMPARISON},
                 {"not", OP_NOT_IN, COMPARISON},
                 {"<<", OP_SHIFT_LEFT, BITS},
                 {">>", OP_SHIFT_RIGHT, BITS},
                 {"|", OP_BIT_OR, BITS},
                 {"&", OP_BIT_AND, BITS},
                 {"!=", OP_UNEQUAL, COMPARISON},
                 {"==", OP_EQUAL, COMPARISON},
                 {"<=", OP_LESS_EQUAL, COMPARISON},
                 {">=", OP_GREATER_EQUAL, COMPARISON},
                 {"<", OP_LESS, COMPARISON},
                 {">", OP_GREATER, COMPARISON},
                 {"+", OP_ADD, SUMS},
                 {"-", OP_SUBTRACT, SUMS},
                 {"*", OP_MULTIPLY, PRODUCTS},
                 {"//", OP_FLOOR_DIV, PRODUCTS},
                 {"/", OP_DIVIDE, PRODUCTS},
                 {"%", OP_REMAINDER, PRODUCTS},
                 {"min", OP_MIN, CALL},
                 {"max", OP_MAX, CALL},
                 {"abs", OP_ABS, CALL},
                 {"ceil_div", OP_CEIL_DIV, CALL},
                 {"exp", OP_EXP, CALL},
                 {"log", OP_LOG, CALL},
                 {"tanh", OP_TANH, CALL},
                 {"sqrt", OP_SQRT, CALL},
                 {"floor", OP_FLOOR, CALL},
                 {"int", OP_INT, CALL},
                 {"float", OP_FLOAT, CALL}};
enum { OPERATORS = sizeof operators / sizeof *operators };

/* The first error stays in `rc`: nothing is taken or listed after it, so that every loop ends. Functions return the step that
 * has the value of what they read. */
struct parser {
    const char *at; /* what is not read yet */
    const char *const *name;
    int name_count;
    bool indexes; /* x[i] is known */
    uint64_t uses;
    int depth;
    int count;
    struct fa_expr_step *step; /* [STEPS_MAX] */
    int rc;
    fa_diag *diag;
};

static int parse(struct parser *p, int level);

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

static int add(struct parser *p, const struct fa_expr_step *step)
{
    if (p->count == STEPS_MAX) /* never: a byte of the text makes two at most */
        fail(p, "is too large: split it into lets");
    if (p->rc == 0)
        p->step[p->count++] = *step;
    return p->count - 1;
}

static int add_value(struct parser *p, fa_expr_value value)
{
    return add(p, &(struct fa_expr_step){.op = OP_VALUE, .value = value});
}

static int combine_steps(struct parser *p, enum fa_expr_op op, int a, int b)
{
    return add(p, &(struct fa_expr_step){.op = op, .at = {a, b}});
}

static const char SPACE[] = " \t\r\n";

/* Reads the word, or sign, if it stands here. */
static bool take(struct parser *p, const char *token)
{
    size_t size = strlen(token);
    p->at += strspn(p->at, SPACE);
    if (p->rc != 0 || strncmp(p->at, token, size) != 0 ||
        (fa_is_word(token[0]) && fa_is_word(p->at[size])))
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

static bool is_same(const char *word, int size, const char *name)
{
    return strlen(name) == (size_t)size && memcmp(word, name, (size_t)size) == 0;
}

/* min() and max() take two values or more, ceil_div() two, the others one. */
static int parse_call(struct parser *p, const char *word, int size)
{
    const struct infix *is = operators, *end = operators + OPERATORS;
    while (is < end && (is->level != CALL || !is_same(word, size, is->text)))
        is++;
    if (is == end) {
        fail(p,
             "calls %.*s(), which is unknown: use min, max, abs, ceil_div, exp, log, tanh, sqrt, "
             "floor, int or float",
             size < 40 ? size : 40, word);
        return 0;
    }
    int value = parse(p, CHOICE);
    const bool one = is->op >= OP_ABS;
    if (one)
        value = combine_steps(p, is->op, value, 0);
    else if (*p->at != ',')
        fail_here(p, "the second of two values is expected");
    for (int count = 1; !one && (count == 1 || is->op != OP_CEIL_DIV) && take(p, ","); count++)
        value = combine_steps(p, is->op, value, parse(p, CHOICE));
    expect(p, ")");
    return value;
}

static int parse_word(struct parser *p)
{
    const char *word = p->at;
    int size = 0;
    while (fa_is_word(word[size]))
        size++;
    p->at += size;
    if (take(p, "("))
        return parse_call(p, word, size);
    for (int i = 0; i < p->name_count; i++)
        if (is_same(word, size, p->name[i])) {
            p->uses |= (uint64_t)1 << i;
            int value = combine_steps(p, OP_NAME, i, 0);
            for (; p->indexes && take(p, "["); expect(p, "]"))
                do /* x[a, b] is x[a][b] */
                    value = combine_steps(p, OP_INDEX, value, parse(p, CHOICE));
                while (take(p, ","));
            return value;
        }
    fail(p, "uses the unknown name %.*s", size < 40 ? size : 40, word);
    return 0;
}

static int parse_number(struct parser *p)
{
    const char *start = p->at;
    char *end;
    errno = 0;
    const int64_t number = strtoll(start, &end, 10);
    const bool fraction = end[0] == '.' && isdigit((unsigned char)end[1]),
               exact = errno == 0 && !fraction;
    p->at = end;
    const double large = exact ? 0 : fa_strtod(start, &end);
    p->at = fraction ? end : p->at;
    if (fa_is_word(*p->at))
        fail_here(p, "a number must end");
    return add_value(p, exact ? integer(number) : real(large));
}

/* A text in quotes of either kind. */
static int parse_text(struct parser *p)
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
    return add_value(p, (fa_expr_value){.kind = FA_EXPR_WORD, .integer = value});
}

static int parse_primary(struct parser *p)
{
    if (take(p, "(")) {
        int value = parse(p, CHOICE);
        expect(p, ")");
        return value;
    }
    if (*p->at >= '0' && *p->at <= '9')
        return parse_number(p);
    if (*p->at == '\'' || *p->at == '"')
        return parse_text(p);
    if (fa_is_word(*p->at))
        return parse_word(p);
    fail_here(p, "a value is expected");
    return 0;
}

/* Signs, and what they stand before. */
static int parse_signs(struct parser *p)
{
    bool plus = take(p, "+");
    if (take(p, "-"))
        return combine_steps(p, OP_NEGATE, parse(p, SIGNS), 0);
    if (take(p, "~"))
        return combine_steps(p, OP_BIT_NOT, parse(p, SIGNS), 0);
    if (plus)
        return parse(p, SIGNS);
    int value = parse_primary(p);
    if (take(p, "**")) /* binds from the right, and before a sign in front of it */
        value = combine_steps(p, OP_POWER, value, parse(p, SIGNS));
    return value;
}

static const struct infix *take_operator(struct parser *p, int level, int most)
{
    for (const struct infix *is = operators; is < operators + OPERATORS; is++)
        if (is->level >= level && is->level <= most && take(p, is->text))
            return is;
    return NULL;
}

/* Operators that bind as strongly as `level` or more. */
static int parse(struct parser *p, int level)
{
    int most = SIGNS;       /* a weaker one ends what a stronger one is between */
    int value, middle = -1; /* of a < b < c, which is a < b and b < c */
    if (++p->depth > DEPTH_MAX)
        fail(p, "is nested too deeply: split it into lets");
    if (p->rc != 0)
        return 0;
    if (level <= NOT && take(p, "not"))
        value = combine_steps(p, OP_NOT, parse(p, most = NOT), 0);
    else
        value = parse_signs(p);
    for (const struct infix *is; (is = take_operator(p, level, most)) != NULL;) {
        most = is->level;
        if (is->op == OP_CHOOSE) {
            struct fa_expr_step choice = {.op = OP_CHOOSE, .at = {value, 0, parse(p, OR)}};
            expect(p, "else");
            choice.at[1] = parse(p, CHOICE);
            value = add(p, &choice);
        } else if (is->op == OP_IN || is->op == OP_NOT_IN) {
            int found = add_value(p, integer(0)); /* x in (a, b): x == a or x == b */
            if (is->op == OP_NOT_IN)
                expect(p, "in");
            expect(p, "(");
            do
                found = combine_steps(p, OP_OR, found,
                                      combine_steps(p, OP_EQUAL, value, parse(p, CHOICE)));
            while (take(p, ","));
            expect(p, ")");
            value = is->op == OP_IN ? found : combine_steps(p, OP_NOT, found, 0);
            most = NOT;
        } else if (is->level == COMPARISON) {
            int right = parse(p, BITS);
            int pair = combine_steps(p, is->op, middle < 0 ? value : middle, right);
            value = middle < 0 ? pair : combine_steps(p, OP_AND, value, pair);
            middle = right;
        } else {
            value = combine_steps(p, is->op, value, parse(p, is->level + 1));
        }
    }
    p->depth--;
    return value;
}

bool fa_expr_is_word(const char *text)
{
    bool found = strcmp(text, "else") == 0;
    for (int i = 0; i < OPERATORS; i++) /* a size may be called log */
        found = found || ((operators[i].op < OP_EXP || operators[i].op > OP_FLOAT) &&
                          strcmp(operators[i].text, text) == 0);
    return found;
}

int fa_expr_parse(const char *text, const char *const *name, int count, bool indexes,
                  fa_expr **ret_expr, fa_diag *diag)
{
    struct fa_expr_step step[STEPS_MAX]; /* 64 KiB, of which most texts use a few hundred bytes */
    struct parser p = {.at = text,
                       .name = name,
                       .name_count = count,
                       .indexes = indexes,
                       .step = step,
                       .diag = diag};
    size_t size = strlen(text);
    if (size == 0 || size > FA_EXPR_TEXT_MAX)
        return fa_fail(diag, FA_EMANIFEST, "is %zu bytes long: use 1 to %d", size,
                       FA_EXPR_TEXT_MAX);
    parse(&p, CHOICE);
    p.at += strspn(p.at, SPACE);
    if (*p.at != 0)
        fail_here(&p,
                  "an operator or the end is expected (as in Python: ==, and, or, x if c else y)");
    if (p.rc != 0)
        return p.rc;
    size_t bytes = (size_t)p.count * sizeof *p.step;
    fa_expr *expr = malloc(sizeof *expr + bytes);
    FA_OR_RETURN(fa_have(expr != NULL, "an expression", diag));
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
