// SPDX-License-Identifier: Apache-2.0
//
// What the functions are made of that a problem's "score" and "mask" become (src/snippet). They are templates of a struct `As`, which
// says what numbers are, so that one text gives values as well as what holds of many values at once:
//  - SnippetPlain<Real>: numbers as they are, for references.
//  - SnippetFast: of the many scores of a thread. A small whole number also is a float (a conversion takes as long as an exponential), and
//    a number that is linear in the key is its value at the thread's first key, and how it grows: one multiplication and addition.
//  - SnippetRest: of a text that is the score and something that is added to it (SCORE_ADDS): what is added, likewise.
//  - SnippetSlopes<one of these, T>: of a score: its value and its slope, by which the score that goes in changes it.
//  - SnippetSpans: of a mask: from ranges of q and k to whether none, some or all of them see each other.
// Everything has a value: a whole number divided by 0 is 0.
#ifndef FA_SNIPPET_CUH
#define FA_SNIPPET_CUH

#include "fa_numeric.cuh"

namespace {

#define SNIPPET_PLACES typename As::Whole b, typename As::Whole h, typename As::Whole hk, Q q, K k, typename As::Whole len_q, typename As::Whole len_k

// A whole number within 2^24 and the same as a real one, a float or a SnippetLine: what nobody asks for is not computed.
template <class Real> struct SnippetCount {
    int whole;
    Real real;
};
// A number that grows by `step` from key to key, `ahead` keys behind the one where it is `at`.
struct SnippetLine {
    float at, step;
    int ahead;
    __device__ __forceinline__ operator float() const { return at + step * (float)ahead; }
};
// What is computed of a score: no line, whatever is added.
struct SnippetScore {
    float x;
    __device__ __forceinline__ operator float() const { return x; }
};
// A score of which is only asked what is added to it.
struct SnippetNothing {};
template <class X> FA_DEVICE X operator+(SnippetNothing, X b) { return b; }
template <class X> FA_DEVICE X operator+(X a, SnippetNothing) { return a; }
template <class X> FA_DEVICE X operator-(SnippetNothing, X b) { return -b; }
// From `low` to `high`, both included. Truths are 0 and 1.
template <class T> struct SnippetSpan {
    T low, high;
};

template <class X> struct SnippetKind { enum { real = 0, count = 0, span = 0 }; };
template <> struct SnippetKind<float> { enum { real = 1, count = 0, span = 0 }; };
template <> struct SnippetKind<double> { enum { real = 1, count = 0, span = 0 }; };
template <class R> struct SnippetKind<SnippetCount<R>> { enum { real = 0, count = 1, span = 0 }; };
template <class T> struct SnippetKind<SnippetSpan<T>> { enum { real = 0, count = 0, span = 1 }; };
template <> struct SnippetKind<SnippetSpan<float>> { enum { real = 0, count = 0, span = 2 }; };

// Of real numbers, with room for all ways to round: no bounds where one is large, for such a number may be no number.
FA_DEVICE SnippetSpan<float> snippet_any_real() { return {neg_infinity(), -neg_infinity()}; }
FA_DEVICE bool snippet_has_bounds(SnippetSpan<float> a) { return a.low >= -1e30f && a.high <= 1e30f; }
FA_DEVICE SnippetSpan<float> snippet_around(float low, float high) {
    const float room = (fabsf(low) + fabsf(high)) * 1e-4f;
    return low <= high && snippet_has_bounds({low, high}) ? SnippetSpan<float>{low - room, high + room} : snippet_any_real();
}

// ---- functions of real numbers
// Of floats by the hardware's powers of 2: within 2^-22 of their arguments' sizes, tanh within 2^-23 of 1.
FA_DEVICE float snippet_fast_exp(float x) { return exp2_fast(x * 1.4426950408889634f); }
FA_DEVICE float snippet_fast_log(float x) { return log2_fast(x) * 0.69314718055994531f; }
FA_DEVICE float snippet_fast_tanh(float x) { return 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(x * 2.8853900817779268f)); }
#define SNIPPET_OF_REAL(name, single, twice, least, most)   /* of a span: functions that grow between the last two */ \
    FA_DEVICE float name(float x) { return single(x); } \
    FA_DEVICE double name(double x) { return twice(x); } \
    FA_DEVICE SnippetSpan<float> name(SnippetSpan<float> x) { return x.low >= least && x.high <= most ? snippet_around(single(x.low), single(x.high)) : snippet_any_real(); }
SNIPPET_OF_REAL(snippet_exp, snippet_fast_exp, exp, -60.0f, 60.0f)
SNIPPET_OF_REAL(snippet_log, snippet_fast_log, log, 1e-30f, 1e30f)
SNIPPET_OF_REAL(snippet_tanh, snippet_fast_tanh, tanh, -30.0f, 30.0f)
SNIPPET_OF_REAL(snippet_sqrt, sqrtf, sqrt, 0.0f, 1e30f)
SNIPPET_OF_REAL(snippet_floor, floorf, floor, -1e30f, 1e30f)
#undef SNIPPET_OF_REAL
FA_DEVICE float snippet_magnitude(float x) { return fabsf(x); }
FA_DEVICE double snippet_magnitude(double x) { return fabs(x); }
FA_DEVICE float snippet_power(float x, float y) { return powf(x, y); }
FA_DEVICE double snippet_power(double x, double y) { return pow(x, y); }
FA_DEVICE SnippetSpan<float> snippet_power(SnippetSpan<float>, SnippetSpan<float>) { return snippet_any_real(); }
template <class T> FA_DEVICE int snippet_int(T a) {
    return a != a ? 0 : a < (T)-2147483648.0 ? -2147483647 - 1 : a > (T)2147483647.0 ? 2147483647 : (int)a;
}
FA_DEVICE SnippetSpan<int> snippet_int(SnippetSpan<float> x) { return {snippet_int(x.low), snippet_int(x.high)}; }

// ---- spans
template <class T> FA_DEVICE T snippet_lower(T a, T b) { return a < b ? a : b; }
template <class T> FA_DEVICE T snippet_upper(T a, T b) { return a > b ? a : b; }
template <class T> FA_DEVICE SnippetSpan<T> snippet_hull(T a, T b, T c, T d) {
    return {snippet_lower(snippet_lower(a, b), snippet_lower(c, d)), snippet_upper(snippet_upper(a, b), snippet_upper(c, d))};
}
template <class T> FA_DEVICE SnippetSpan<T> operator+(SnippetSpan<T> a, SnippetSpan<T> b) { return {a.low + b.low, a.high + b.high}; }
template <class T> FA_DEVICE SnippetSpan<T> operator-(SnippetSpan<T> a, SnippetSpan<T> b) { return {a.low - b.high, a.high - b.low}; }
template <class T> FA_DEVICE SnippetSpan<T> operator-(SnippetSpan<T> a) { return {-a.high, -a.low}; }
template <class T> FA_DEVICE SnippetSpan<T> operator*(SnippetSpan<T> a, SnippetSpan<T> b) {
    return snippet_hull(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high);
}
template <class T> FA_DEVICE SnippetSpan<T> operator~(SnippetSpan<T> a) { return {~a.high, ~a.low}; }
template <class T> FA_DEVICE SnippetSpan<T> snippet_any_bits() { return {(T)((u64)1 << (8 * sizeof(T) - 1)), (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1)}; }
// The bits in which numbers of a span may differ: those of the highest one in which its ends do, and below.
template <class T> FA_DEVICE T snippet_open_bits(SnippetSpan<T> a) {
    u64 open = (u64)(a.low ^ a.high);
    for (int by = 1; by < 64; by *= 2) open |= open >> by;
    return (T)open;
}
template <class T> FA_DEVICE SnippetSpan<T> operator|(SnippetSpan<T> a, SnippetSpan<T> b) {
    const T x = snippet_open_bits(a), y = snippet_open_bits(b);
    if (x < 0 || y < 0) return snippet_any_bits<T>();
    return {(a.low & ~x) | (b.low & ~y), a.low | b.low | x | y};
}
template <class T> FA_DEVICE SnippetSpan<T> operator&(SnippetSpan<T> a, SnippetSpan<T> b) {
    const T x = snippet_open_bits(a), y = snippet_open_bits(b);
    if (y == 0 && b.low < 0 && ((u64)~b.low & ((u64)~b.low + 1)) == 0) return {a.low & b.low, a.high & b.low};   // down to a multiple of a power of 2
    if (a.low < 0 && b.low < 0 && (x < 0 || y < 0)) return snippet_any_bits<T>();
    const SnippetSpan<T> less = {0, a.low < 0 ? b.high : b.low < 0 ? a.high : snippet_lower(a.high, b.high)};
    if (x < 0 || y < 0) return less;
    const SnippetSpan<T> bits = {a.low & ~x & b.low & ~y, (a.low | x) & (b.low | y)};
    return a.low < 0 && b.low < 0 ? bits : SnippetSpan<T>{snippet_upper(bits.low, less.low), snippet_lower(bits.high, less.high)};
}
template <class T> FA_DEVICE SnippetSpan<int> operator<(SnippetSpan<T> a, SnippetSpan<T> b) { return {a.high < b.low, a.low < b.high}; }
template <class T> FA_DEVICE SnippetSpan<int> operator<=(SnippetSpan<T> a, SnippetSpan<T> b) { return {a.high <= b.low, a.low <= b.high}; }
FA_DEVICE SnippetSpan<int> operator<=(SnippetSpan<float> a, SnippetSpan<float> b) {   // NaN is not even up to infinity
    return {snippet_has_bounds(a) && snippet_has_bounds(b) && a.high <= b.low, a.low <= b.high};
}
template <class T> FA_DEVICE SnippetSpan<int> operator>(SnippetSpan<T> a, SnippetSpan<T> b) { return b < a; }
template <class T> FA_DEVICE SnippetSpan<int> operator>=(SnippetSpan<T> a, SnippetSpan<T> b) { return b <= a; }
template <class T> FA_DEVICE SnippetSpan<int> operator==(SnippetSpan<T> a, SnippetSpan<T> b) {
    return {a.low == b.high && a.high == b.low, a.low <= b.high && b.low <= a.high};
}
FA_DEVICE SnippetSpan<int> operator!(SnippetSpan<int> a) { return {1 - a.high, 1 - a.low}; }
template <class T> FA_DEVICE SnippetSpan<int> operator!=(SnippetSpan<T> a, SnippetSpan<T> b) { return !(a == b); }
FA_DEVICE SnippetSpan<int> operator&&(SnippetSpan<int> a, SnippetSpan<int> b) { return {a.low & b.low, a.high & b.high}; }
FA_DEVICE SnippetSpan<int> operator||(SnippetSpan<int> a, SnippetSpan<int> b) { return {a.low | b.low, a.high | b.high}; }
#define SNIPPET_REAL_SPANS(name, is, low, high) \
    FA_DEVICE SnippetSpan<float> name(SnippetSpan<float> a, SnippetSpan<float> b) { \
        return snippet_has_bounds(a) && snippet_has_bounds(b) && (is) ? snippet_around(low, high) : snippet_any_real(); \
    }
#define SNIPPET_HULL(of, op) of(of(a.low op b.low, a.low op b.high), of(a.high op b.low, a.high op b.high))
SNIPPET_REAL_SPANS(operator+, true, a.low + b.low, a.high + b.high)
SNIPPET_REAL_SPANS(operator-, true, a.low - b.high, a.high - b.low)
SNIPPET_REAL_SPANS(operator*, true, SNIPPET_HULL(snippet_lower, *), SNIPPET_HULL(snippet_upper, *))
SNIPPET_REAL_SPANS(operator/, b.low > 0 || b.high < 0, SNIPPET_HULL(snippet_lower, /), SNIPPET_HULL(snippet_upper, /))
#undef SNIPPET_HULL
#undef SNIPPET_REAL_SPANS

// ---- fast numbers
#define SNIPPET_FAST(op) \
    template <class X> FA_DEVICE SnippetScore operator op(SnippetScore a, X b) { return {a.x op (float)b}; } \
    template <class X> FA_DEVICE SnippetScore operator op(X a, SnippetScore b) { return {(float)a op b.x}; } \
    FA_DEVICE SnippetScore operator op(SnippetScore a, SnippetScore b) { return {a.x op b.x}; } \
    template <class A, class B> FA_DEVICE auto operator op(SnippetCount<A> a, SnippetCount<B> b) \
        -> SnippetCount<decltype(a.real op b.real)> { return {a.whole op b.whole, a.real op b.real}; }
#define SNIPPET_COMPARED(op) \
    template <class A, class B> FA_DEVICE bool operator op(SnippetCount<A> a, SnippetCount<B> b) { return a.whole op b.whole; }
FA_DEVICE SnippetLine operator-(SnippetLine a) { return {-a.at, -a.step, a.ahead}; }
FA_DEVICE SnippetLine operator+(SnippetLine a, SnippetLine b) { return {a.at + b.at, a.step + b.step, a.ahead}; }
FA_DEVICE SnippetLine operator-(SnippetLine a, SnippetLine b) { return {a.at - b.at, a.step - b.step, a.ahead}; }
FA_DEVICE SnippetLine operator+(SnippetLine a, float b) { return {a.at + b, a.step, a.ahead}; }
FA_DEVICE SnippetLine operator-(SnippetLine a, float b) { return {a.at - b, a.step, a.ahead}; }
FA_DEVICE SnippetLine operator*(SnippetLine a, float b) { return {a.at * b, a.step * b, a.ahead}; }
FA_DEVICE SnippetLine operator+(float a, SnippetLine b) { return b + a; }
FA_DEVICE SnippetLine operator-(float a, SnippetLine b) { return -b + a; }
FA_DEVICE SnippetLine operator*(float a, SnippetLine b) { return b * a; }
FA_DEVICE float operator*(SnippetLine a, SnippetLine b) { return (float)a * (float)b; }
SNIPPET_FAST(+)
SNIPPET_FAST(-)
SNIPPET_FAST(*)
FA_DEVICE SnippetScore operator-(SnippetScore a) { return {-a.x}; }
template <class R> FA_DEVICE auto operator-(SnippetCount<R> a) -> SnippetCount<decltype(-a.real)> { return {-a.whole, -a.real}; }
SNIPPET_COMPARED(<)
SNIPPET_COMPARED(<=)
SNIPPET_COMPARED(>)
SNIPPET_COMPARED(>=)
SNIPPET_COMPARED(==)
SNIPPET_COMPARED(!=)
#undef SNIPPET_FAST
#undef SNIPPET_COMPARED

// ---- functions of any numbers
// Rounded down, of numbers of any sign.
template <class T> FA_DEVICE T snippet_floor_div(T a, T b) {
    if constexpr (SnippetKind<T>::span == 1) {
        const auto m = snippet_upper(-a.low, a.high) + 1;
        if (b.low <= 0) return {-m, m};
        return snippet_hull(snippet_floor_div(a.low, b.low), snippet_floor_div(a.low, b.high), snippet_floor_div(a.high, b.low),
                            snippet_floor_div(a.high, b.high));
    } else if constexpr (SnippetKind<T>::real || SnippetKind<T>::span) return snippet_floor(a / b);
    else if (b == 0 || b == -1) return b == 0 ? 0 : (T)(0 - (u64)a);
    else return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
template <class T> FA_DEVICE T snippet_ceil_div(T a, T b) {
    if constexpr (SnippetKind<T>::span == 1) return -snippet_floor_div(-a, b);
    else if constexpr (SnippetKind<T>::real || SnippetKind<T>::span) return -snippet_floor(-(a / b));
    else if (b == 0 || b == -1) return b == 0 ? 0 : (T)(0 - (u64)a);
    else return a / b + (a % b != 0 && (a % b < 0) == (b < 0));
}
template <class T> FA_DEVICE T snippet_rest(T a, T b) {
    if constexpr (SnippetKind<T>::span == 1) {
        if (b.low == b.high && b.low > 0) {
            const auto times = snippet_floor_div(a.low, b.low);
            if (times == snippet_floor_div(a.high, b.low)) return {a.low - times * b.low, a.high - times * b.low};
        }
        return {b.low < 0 ? b.low + 1 : 0, b.high > 0 ? b.high - 1 : 0};
    } else if constexpr (SnippetKind<T>::span) {
        const float room = snippet_upper(-a.low, a.high) * 1e-6f;   // of the multiple that is taken off
        return snippet_has_bounds(a) && snippet_has_bounds(b) && b.low > 0 ? snippet_around(-room, b.high + room) : snippet_any_real();
    } else if constexpr (SnippetKind<T>::real) return a - b * snippet_floor(a / b);
    else if (b == 0 || b == -1) return 0;
    else return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}
template <class T> FA_DEVICE T snippet_left(T a, T b) {
    if constexpr (SnippetKind<T>::span) {
        const auto most = snippet_any_bits<decltype(a.low)>().high;
        const bool fits = b.low >= 0 && b.high < (int)sizeof most * 8 - 1 && a.low >= -(most >> b.high) && a.high <= most >> b.high;
        if (!fits) return snippet_any_bits<decltype(a.low)>();
        const decltype(a.low) one = 1;
        return a * T{one << b.low, one << b.high};
    } else return b < 0 || b > 63 ? 0 : (T)((u64)a << b);
}
template <class T> FA_DEVICE T snippet_right(T a, T b) {
    if constexpr (SnippetKind<T>::span) {
        if (b.low < 0 || b.high > 63) return snippet_any_bits<decltype(a.low)>();
        return snippet_hull<decltype(a.low)>((i64)a.low >> b.low, (i64)a.low >> b.high, (i64)a.high >> b.low, (i64)a.high >> b.high);
    } else return b < 0 || b > 63 ? 0 : (T)((i64)a >> b);
}
// Of a span: all that is meant are numbers; nothing is known of the like.
FA_DEVICE bool snippet_is_number(SnippetSpan<float> a) { return snippet_has_bounds(a); }
template <class T> FA_DEVICE bool snippet_is_number(SnippetSpan<T>) { return true; }
FA_DEVICE SnippetSpan<float> snippet_any_like(SnippetSpan<float>) { return snippet_any_real(); }
template <class T> FA_DEVICE SnippetSpan<T> snippet_any_like(SnippetSpan<T> a) { return a; }
// As torch.minimum has it: NaN goes through.
template <class T> FA_DEVICE T snippet_less(T a, T b) { return a != a || a < b ? a : b; }
template <class T> FA_DEVICE T snippet_more(T a, T b) { return a != a || a > b ? a : b; }
template <class A, class B> FA_DEVICE auto snippet_min(A a, B b) {
    if constexpr (SnippetKind<A>::count) return SnippetCount<float>{snippet_less(a.whole, b.whole), snippet_less((float)a.real, (float)b.real)};
    else if constexpr (SnippetKind<A>::span) return snippet_is_number(a) && snippet_is_number(b) ? A{snippet_less(a.low, b.low), snippet_less(a.high, b.high)} : snippet_any_like(a);
    else return snippet_less(a, b);
}
template <class A, class B> FA_DEVICE auto snippet_max(A a, B b) {
    if constexpr (SnippetKind<A>::count) return SnippetCount<float>{snippet_more(a.whole, b.whole), snippet_more((float)a.real, (float)b.real)};
    else if constexpr (SnippetKind<A>::span) return snippet_is_number(a) && snippet_is_number(b) ? A{snippet_more(a.low, b.low), snippet_more(a.high, b.high)} : snippet_any_like(a);
    else return snippet_more(a, b);
}
template <class A> FA_DEVICE auto snippet_abs(A a) {
    if constexpr (SnippetKind<A>::count) return SnippetCount<float>{a.whole < 0 ? -a.whole : a.whole, snippet_magnitude((float)a.real)};
    else if constexpr (SnippetKind<A>::span)
        return snippet_is_number(a) ? A{a.low > 0 ? a.low : a.high < 0 ? -a.high : 0, snippet_upper(-a.low, a.high)} : snippet_any_like(a);
    else if constexpr (SnippetKind<A>::real) return snippet_magnitude(a);
    else return a < 0 ? -a : a;
}
template <class A, class B> FA_DEVICE auto snippet_choose(bool is, A a, B b) {
    if constexpr (SnippetKind<A>::count) return SnippetCount<float>{is ? a.whole : b.whole, is ? (float)a.real : (float)b.real};
    else return is ? a : b;
}
template <class A> FA_DEVICE A snippet_choose(SnippetSpan<int> is, A a, A b) {
    return is.low == 1 ? a : is.high == 0 ? b : snippet_hull(a.low, b.low, a.high, b.high);
}

// ---- slopes
// A number and its derivative by the score. What does not depend on the score is a plain number, so that nothing is computed for it. Where
// there are two derivatives, this is PyTorch's: half of each of two equal numbers, 0 of an absolute value at 0; of a choice the chosen one's.
template <class T> struct SnippetSlope {
    T x, slope;
};
template <class T> FA_DEVICE T snippet_value(T a) { return a; }
template <class T> FA_DEVICE T snippet_slope(T) { return 0; }
template <class T> FA_DEVICE T snippet_value(SnippetSlope<T> a) { return a.x; }
template <class T> FA_DEVICE T snippet_slope(SnippetSlope<T> a) { return a.slope; }

#define SNIPPET_SLOPE_OF_ONE(name, its_value, its_slope) \
    template <class T> FA_DEVICE SnippetSlope<T> name(SnippetSlope<T> a) { \
        const T x = a.x, y = its_value; \
        return {y, a.slope * (its_slope)}; \
    }
SNIPPET_SLOPE_OF_ONE(snippet_exp, snippet_exp(x), y)
SNIPPET_SLOPE_OF_ONE(snippet_log, snippet_log(x), 1 / x)
SNIPPET_SLOPE_OF_ONE(snippet_tanh, snippet_tanh(x), 1 - y * y)
SNIPPET_SLOPE_OF_ONE(snippet_sqrt, snippet_sqrt(x), 1 / (2 * y))
SNIPPET_SLOPE_OF_ONE(snippet_abs, snippet_magnitude(x), (T)(x > 0) - (T)(x < 0))
#undef SNIPPET_SLOPE_OF_ONE
template <class T> FA_DEVICE SnippetSlope<T> operator-(SnippetSlope<T> a) { return {-a.x, -a.slope}; }
template <class T> FA_DEVICE T snippet_floor(SnippetSlope<T> a) { return snippet_floor(a.x); }
template <class T> FA_DEVICE int snippet_int(SnippetSlope<T> a) { return snippet_int(a.x); }

// Of two numbers, the first, the second or both of which have slopes. SNIPPET_SLOPE_OF_TWO: what of one that has none is 0 times something.
#define SNIPPET_SLOPE_OF_TWO(name, both, left, right) \
    template <class T> FA_DEVICE auto name(SnippetSlope<T> a, SnippetSlope<T> b) { return both; } \
    template <class T, class X> FA_DEVICE auto name(SnippetSlope<T> a, X other) { const T b = (T)other; return left; } \
    template <class T, class X> FA_DEVICE auto name(X other, SnippetSlope<T> b) { const T a = (T)other; return right; }
#define SNIPPET_SLOPE_COMPARED(op) SNIPPET_SLOPE_OF_TWO(operator op, a.x op b.x, a.x op b, a op b.x)
SNIPPET_SLOPE_COMPARED(<)
SNIPPET_SLOPE_COMPARED(<=)
SNIPPET_SLOPE_COMPARED(>)
SNIPPET_SLOPE_COMPARED(>=)
SNIPPET_SLOPE_COMPARED(==)
SNIPPET_SLOPE_COMPARED(!=)
#undef SNIPPET_SLOPE_COMPARED
#define SNIPPET_PAIR(...) (SnippetSlope<T>{__VA_ARGS__})
SNIPPET_SLOPE_OF_TWO(operator+, SNIPPET_PAIR(a.x + b.x, a.slope + b.slope), SNIPPET_PAIR(a.x + b, a.slope), SNIPPET_PAIR(a + b.x, b.slope))
SNIPPET_SLOPE_OF_TWO(operator-, SNIPPET_PAIR(a.x - b.x, a.slope - b.slope), SNIPPET_PAIR(a.x - b, a.slope), SNIPPET_PAIR(a - b.x, -b.slope))
SNIPPET_SLOPE_OF_TWO(operator*, SNIPPET_PAIR(a.x * b.x, a.slope * b.x + a.x * b.slope), SNIPPET_PAIR(a.x * b, a.slope * b),
                     SNIPPET_PAIR(a * b.x, a * b.slope))
SNIPPET_SLOPE_OF_TWO(operator/, SNIPPET_PAIR(a.x / b.x, (a.slope - a.x / b.x * b.slope) / b.x), SNIPPET_PAIR(a.x / b, a.slope / b),
                     SNIPPET_PAIR(a / b.x, -(a / b.x) * b.slope / b.x))
SNIPPET_SLOPE_OF_TWO(snippet_floor_div, snippet_floor_div(a.x, b.x), snippet_floor_div(a.x, b), snippet_floor_div(a, b.x))
SNIPPET_SLOPE_OF_TWO(snippet_ceil_div, snippet_ceil_div(a.x, b.x), snippet_ceil_div(a.x, b), snippet_ceil_div(a, b.x))
SNIPPET_SLOPE_OF_TWO(snippet_rest, SNIPPET_PAIR(snippet_rest(a.x, b.x), a.slope - snippet_floor(a.x / b.x) * b.slope),
                     SNIPPET_PAIR(snippet_rest(a.x, b), a.slope), SNIPPET_PAIR(snippet_rest(a, b.x), -snippet_floor(a / b.x) * b.slope))
// Of the base; and of the exponent, where PyTorch has 0 at a base of 0.
template <class T> FA_DEVICE T snippet_power_slope(T x, T y) { return y == 0 ? 0 : y * snippet_power(x, y - 1); }
template <class T> FA_DEVICE T snippet_power_growth(T x, T y) { return x == 0 && y >= 0 ? 0 : snippet_power(x, y) * snippet_log(x); }
SNIPPET_SLOPE_OF_TWO(snippet_power,
                     SNIPPET_PAIR(snippet_power(a.x, b.x), snippet_power_slope(a.x, b.x) * a.slope + snippet_power_growth(a.x, b.x) * b.slope),
                     SNIPPET_PAIR(snippet_power(a.x, b), snippet_power_slope(a.x, b) * a.slope),
                     SNIPPET_PAIR(snippet_power(a, b.x), snippet_power_growth(a, b.x) * b.slope))
// The lesser one's by `order` = 1, the larger one's by -1.
template <class T> FA_DEVICE T snippet_slope_between(T a, T b, T of_a, T of_b) {
    return a == b ? (T)0.5 * (of_a + of_b) : a < b ? of_a : a > b ? of_b : of_a + of_b;
}
#define SNIPPET_BETWEEN(name, x, y, of_x, of_y, order) \
    SNIPPET_PAIR(name((T)(x), (T)(y)), snippet_slope_between((T)(order * (x)), (T)(order * (y)), (T)(of_x), (T)(of_y)))
SNIPPET_SLOPE_OF_TWO(snippet_min, SNIPPET_BETWEEN(snippet_less, a.x, b.x, a.slope, b.slope, 1), SNIPPET_BETWEEN(snippet_less, a.x, b, a.slope, 0, 1),
                     SNIPPET_BETWEEN(snippet_less, a, b.x, 0, b.slope, 1))
SNIPPET_SLOPE_OF_TWO(snippet_max, SNIPPET_BETWEEN(snippet_more, a.x, b.x, a.slope, b.slope, -1), SNIPPET_BETWEEN(snippet_more, a.x, b, a.slope, 0, -1),
                     SNIPPET_BETWEEN(snippet_more, a, b.x, 0, b.slope, -1))
#undef SNIPPET_BETWEEN
#undef SNIPPET_SLOPE_OF_TWO
#undef SNIPPET_PAIR
template <class T> FA_DEVICE SnippetSlope<T> snippet_choose(bool is, SnippetSlope<T> a, SnippetSlope<T> b) {
    return {is ? a.x : b.x, is ? a.slope : b.slope};
}
template <class T, class X> FA_DEVICE SnippetSlope<T> snippet_choose(bool is, SnippetSlope<T> a, X b) { return {is ? a.x : (T)b, is ? a.slope : 0}; }
template <class T, class X> FA_DEVICE SnippetSlope<T> snippet_choose(bool is, X a, SnippetSlope<T> b) { return {is ? (T)a : b.x, is ? 0 : b.slope}; }

// ---- what numbers are
template <class R> struct SnippetPlain {
    using Real = R;
    using Truth = bool;
    using Whole = int;
    template <class X> FA_DEVICE bool truth(X x) { return x != 0; }
    template <class X> FA_DEVICE int count(X x) { return (int)x; }
    template <class X> FA_DEVICE int whole(X x) { return (int)x; }
    template <class X> FA_DEVICE i64 large(X x) { return (i64)x; }
    template <class X> FA_DEVICE R real(X x) { return (R)x; }
    template <class X> FA_DEVICE R number(X x) { return (R)x; }
};
struct SnippetFast {
    using Real = SnippetScore;
    using Truth = bool;
    using Whole = int;
    template <class X> FA_DEVICE auto whole(X x) {
        if constexpr (SnippetKind<X>::count) return x.whole;
        else return (int)x;
    }
    template <class X> FA_DEVICE bool truth(X x) {
        if constexpr (SnippetKind<X>::count) return x.whole != 0;
        else return x != 0;
    }
    template <class X> FA_DEVICE auto count(X x) {
        if constexpr (SnippetKind<X>::count) return x;
        else return SnippetCount<float>{(int)x, (float)(int)x};
    }
    template <class X> FA_DEVICE i64 large(X x) {
        if constexpr (SnippetKind<X>::count) return x.whole;
        else return (i64)x;
    }
    template <class X> FA_DEVICE auto real(X x) {
        if constexpr (SnippetKind<X>::count) return x.real;
        else return (float)x;
    }
    FA_DEVICE SnippetScore real(SnippetScore x) { return x; }
    FA_DEVICE SnippetLine real(SnippetLine x) { return x; }
    template <class X> FA_DEVICE float number(X x) { return (float)real(x); }
};
struct SnippetRest : SnippetFast {
    using Real = SnippetNothing;
    using SnippetFast::number, SnippetFast::real;
    FA_DEVICE SnippetNothing real(SnippetNothing x) { return x; }
    FA_DEVICE float number(SnippetNothing) { return 0.0f; }
};
template <class As, class T> struct SnippetSlopes : As {
    using Real = SnippetSlope<T>;
    using As::number, As::real, As::truth;
    FA_DEVICE bool truth(Real x) { return x.x != 0; }
    FA_DEVICE Real real(Real x) { return x; }
    FA_DEVICE Real number(Real x) { return x; }
};
struct SnippetSpans {
    using Truth = SnippetSpan<int>;
    using Whole = SnippetSpan<int>;
    template <class T> FA_DEVICE SnippetSpan<int> whole(SnippetSpan<T> x) { return {(int)x.low, (int)x.high}; }
    FA_DEVICE SnippetSpan<int> whole(i64 x) { return {(int)x, (int)x}; }
    template <class X> FA_DEVICE SnippetSpan<int> count(X x) { return whole(x); }
    template <class T> FA_DEVICE SnippetSpan<i64> large(SnippetSpan<T> x) { return {x.low, x.high}; }
    FA_DEVICE SnippetSpan<i64> large(i64 x) { return {x, x}; }
    template <class T> FA_DEVICE SnippetSpan<int> truth(SnippetSpan<T> x) { return {x.low > 0 || x.high < 0, x.low != 0 || x.high != 0}; }
    template <class X> FA_DEVICE SnippetSpan<float> real(X x) {
        if constexpr (SnippetKind<X>::span == 2) return x;
        else if constexpr (SnippetKind<X>::span == 1) return x.low > -(1 << 24) && x.high < 1 << 24 ? SnippetSpan<float>{(float)x.low, (float)x.high} : snippet_around((float)x.low, (float)x.high);
        else return (X)(float)x == x ? SnippetSpan<float>{(float)x, (float)x} : snippet_around((float)x, (float)x);
    }
    template <class X> FA_DEVICE SnippetSpan<float> number(X x) { return real(x); }
};

}  // namespace

#endif
