// SPDX-License-Identifier: Apache-2.0
//
// What the functions are made of that a problem's "score" and "mask" become (src/snippet). Real is float, or double in a reference.
// Everything has a value: a whole number divided by 0 is 0.
#ifndef FA_SNIPPET_CUH
#define FA_SNIPPET_CUH

#include "fa_numeric.cuh"

namespace {

template <class T> struct SnippetIsReal { static constexpr bool value = false; };
template <> struct SnippetIsReal<float> { static constexpr bool value = true; };
template <> struct SnippetIsReal<double> { static constexpr bool value = true; };
#define SNIPPET_OF_REAL(name, single, twice) \
    FA_DEVICE float name(float x) { return single(x); } \
    FA_DEVICE double name(double x) { return twice(x); }
SNIPPET_OF_REAL(snippet_exp, expf, exp)
SNIPPET_OF_REAL(snippet_log, logf, log)
SNIPPET_OF_REAL(snippet_tanh, tanhf, tanh)
SNIPPET_OF_REAL(snippet_sqrt, sqrtf, sqrt)
SNIPPET_OF_REAL(snippet_floor, floorf, floor)
#undef SNIPPET_OF_REAL
FA_DEVICE float snippet_power(float x, float y) { return powf(x, y); }
FA_DEVICE double snippet_power(double x, double y) { return pow(x, y); }

// Rounded down, of numbers of any sign.
template <class T> FA_DEVICE T snippet_floor_div(T a, T b) {
    if constexpr (SnippetIsReal<T>::value) return snippet_floor(a / b);
    else if (b == 0 || b == -1) return b == 0 ? 0 : (T)(0 - (u64)a);
    else return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
template <class T> FA_DEVICE T snippet_ceil_div(T a, T b) {
    if constexpr (SnippetIsReal<T>::value) return -snippet_floor(-(a / b));
    else if (b == 0 || b == -1) return b == 0 ? 0 : (T)(0 - (u64)a);
    else return a / b + (a % b != 0 && (a % b < 0) == (b < 0));
}
template <class T> FA_DEVICE T snippet_rest(T a, T b) {
    if constexpr (SnippetIsReal<T>::value) return a - b * snippet_floor(a / b);
    else if (b == 0 || b == -1) return 0;
    else return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}
template <class T> FA_DEVICE T snippet_left(T a, T b) { return b < 0 || b > 63 ? 0 : (T)((u64)a << b); }
template <class T> FA_DEVICE T snippet_right(T a, T b) { return b < 0 || b > 63 ? 0 : (T)((i64)a >> b); }
template <class T> FA_DEVICE T snippet_min(T a, T b) { return a != a || a < b ? a : b; }
template <class T> FA_DEVICE T snippet_max(T a, T b) { return a != a || a > b ? a : b; }
template <class T> FA_DEVICE T snippet_abs(T a) { return a < 0 ? -a : a; }
template <class T> FA_DEVICE int snippet_int(T a) {
    return a != a ? 0 : a < (T)-2147483648.0 ? -2147483647 - 1 : a > (T)2147483647.0 ? 2147483647 : (int)a;
}

}  // namespace

#endif
