/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets the compiler compare what a kernel takes with what it is passed: a line of FA_ARRAY or FA_SCALAR for each argument stands
 * behind a specification's source. A pointer to integers may be one to what is packed into them, or to the bits of fractions, and a
 * complex number is a pair: such agree. All names begin with fa_, as the source may have macros of any other.
 * Nothing here has a place in a cubin: constants are enumerators. */
#if __cplusplus >= 201103L
struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;
struct fa_complex64;
struct fa_complex128;
template <class fa_t> struct fa_number { enum { fa_size = 0, fa_kind = 0 }; };
#define FA_NUMBER(kind, size, ...) \
    template <> struct fa_number<__VA_ARGS__> { enum { fa_size = size, fa_kind = kind }; };
FA_NUMBER('i', 1, bool) FA_NUMBER('i', 1, char) FA_NUMBER('i', 1, signed char) FA_NUMBER('i', 1, unsigned char)
FA_NUMBER('i', 2, short) FA_NUMBER('i', 2, unsigned short) FA_NUMBER('i', 4, int) FA_NUMBER('i', 4, unsigned int)
FA_NUMBER('i', sizeof(long), long) FA_NUMBER('i', sizeof(long), unsigned long)
FA_NUMBER('i', 8, long long) FA_NUMBER('i', 8, unsigned long long)
FA_NUMBER('r', 4, float) FA_NUMBER('r', 8, double) FA_NUMBER('r', 2, __half) FA_NUMBER('r', 2, __nv_bfloat16)
FA_NUMBER('r', 1, __nv_fp8_e4m3) FA_NUMBER('r', 1, __nv_fp8_e5m2)
FA_NUMBER('c', 4, fa_complex64) FA_NUMBER('c', 8, fa_complex128)
typedef bool fa_bool;
typedef signed char fa_int8;
typedef short fa_int16;
typedef int fa_int32;
typedef long long fa_int64;
typedef unsigned char fa_uint8;
typedef unsigned short fa_uint16;
typedef unsigned int fa_uint32;
typedef unsigned long long fa_uint64;
typedef __half fa_fp16;
typedef __nv_bfloat16 fa_bf16;
typedef float fa_fp32;
typedef double fa_fp64;
typedef __nv_fp8_e4m3 fa_fp8_e4m3;
typedef __nv_fp8_e5m2 fa_fp8_e5m2;

template <class fa_a, class fa_b> struct fa_same { enum { fa_is = 0 }; };
template <class fa_a> struct fa_same<fa_a, fa_a> { enum { fa_is = 1 }; };
template <class fa_t> struct fa_plain { typedef fa_t fa_type; };
template <class fa_t> struct fa_plain<const fa_t> { typedef fa_t fa_type; };
template <class fa_t> struct fa_plain<volatile fa_t> { typedef fa_t fa_type; };
template <class fa_t> struct fa_plain<const volatile fa_t> { typedef fa_t fa_type; };

/* What a kernel has, and what is stated of a number or of an array's elements. */
#define FA_KIND(type) int(fa_number<type>::fa_kind)
#define FA_SIZE(type) int(fa_number<type>::fa_size)
template <class fa_t, class fa_s> struct fa_like {
    enum { fa_is = fa_same<fa_t, fa_s>::fa_is || (FA_KIND(fa_t) == 'i' && FA_KIND(fa_s) == 'i' && FA_SIZE(fa_t) == FA_SIZE(fa_s)) };
};
/* By value a class is a struct, whose "fields" a specification says; one of four bytes may be an integer by another name. */
template <class fa_t, class fa_s, bool fa_array> struct fa_struct {
    enum { fa_is = (__is_class(fa_t) || __is_union(fa_t)) && FA_KIND(fa_t) == 0 && (sizeof(fa_t) > 4 || fa_array || FA_KIND(fa_s) != 'i') };
};
template <class fa_s, bool fa_array> struct fa_struct<void, fa_s, fa_array> { enum { fa_is = 0 }; };
template <class fa_t, class fa_s, bool fa_array> struct fa_takes {
    enum { fa_is = FA_KIND(fa_t) == 0 || (FA_KIND(fa_t) == 'i') == (fa_array || FA_KIND(fa_s) == 'i') };
};
template <class fa_t, class fa_s> struct fa_takes<fa_t *, fa_s, false> { enum { fa_is = FA_KIND(fa_s) == 'i' }; };
template <class fa_t, class fa_s> struct fa_takes<fa_t *, fa_s, true> {
    typedef typename fa_plain<fa_t>::fa_type fa_to;
    enum { fa_is = fa_like<fa_to, fa_s>::fa_is || FA_KIND(fa_to) == 0 || FA_KIND(fa_s) == 'c' ||
                   (FA_KIND(fa_to) == 'i' && (FA_SIZE(fa_to) == 1 || FA_SIZE(fa_to) >= FA_SIZE(fa_s))) };
};
template <class fa_s, bool fa_array> struct fa_takes<void, fa_s, fa_array> { enum { fa_is = 1 }; };

template <class fa_t> struct fa_points { enum { fa_is = 0 }; };
template <class fa_t> struct fa_points<fa_t *> { enum { fa_is = 1 }; };
template <class fa_t> struct fa_deep { enum { fa_is = 0 }; };
template <class fa_t> struct fa_deep<fa_t *> : fa_points<typename fa_plain<fa_t>::fa_type> {};

/* The type of a function's parameter; void: it has none there. */
template <int fa_i, class... fa_p> struct fa_at { typedef void fa_type; };
template <class fa_p, class... fa_rest> struct fa_at<0, fa_p, fa_rest...> { typedef fa_p fa_type; };
template <int fa_i, class fa_p, class... fa_rest> struct fa_at<fa_i, fa_p, fa_rest...> : fa_at<fa_i - 1, fa_rest...> {};
template <int fa_i, class fa_f> struct fa_parameter { typedef void fa_type; };
template <int fa_i, class... fa_p> struct fa_parameter<fa_i, void(fa_p...)> : fa_at<fa_i, fa_p...> {};
template <int fa_i, class fa_f> using fa_taken = typename fa_plain<typename fa_parameter<fa_i, fa_f>::fa_type>::fa_type;
#define FA_PASSED(words, name, stated, array, index, ...)                                        \
    static_assert(!array || !fa_deep<fa_taken<index, decltype(__VA_ARGS__)>>::fa_is,              \
                  words " is a pointer to pointers: addresses cannot be drawn");                 \
    static_assert(!fa_struct<fa_taken<index, decltype(__VA_ARGS__)>, stated, array>::fa_is,      \
                  words " is a struct: say its \"fields\", each an argument as others are"); \
    static_assert(fa_takes<fa_taken<index, decltype(__VA_ARGS__)>, stated, array>::fa_is,        \
                  words " is not " name " in the kernel");
#define FA_ARRAY(index, words, type, ...) FA_PASSED(words, #type " *", fa_##type, true, index, __VA_ARGS__)
#define FA_SCALAR(index, words, type, ...) FA_PASSED(words, #type, fa_##type, false, index, __VA_ARGS__)
#else
#define FA_ARRAY(...)
#define FA_SCALAR(...)
#endif
