/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of kernel_templates/vocabulary/fa_check.cuh on the CPU.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#include "hash.h"

static const uint64_t failed = UINT64_MAX;
enum { FP16, BF16, FP32, FP64, INT8, UINT8 = 8, E4M3 = 12, E5M2, COMPLEX64, COMPLEX128 };
enum { POISON = 0x7fa5 };

static uint64_t word_of(const void *argument)
{
    uint64_t word;
    memcpy(&word, argument, sizeof word);
    return word;
}

static double real_of(const void *argument)
{
    double real;
    memcpy(&real, argument, sizeof real);
    return real;
}

static int int_of(const void *argument)
{
    int number;
    memcpy(&number, argument, sizeof number);
    return number;
}

static size_t size_of(int element)
{
    static const size_t sizes[] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 1, 4, 8};
    return sizes[element];
}

static uint64_t input_bits(uint64_t seed, uint64_t i, int element, int64_t from, uint64_t span)
{
    uint64_t z = fa_random(seed, i), bits;
    struct fake_build build = {.bf16 = element == BF16};
    int sum = (int)(z & 127) + (int)(z >> 16 & 127) + (int)(z >> 32 & 127) + (int)(z >> 48 & 127);
    double x = (sum - 254) / 64.0;
    if (element == E4M3 || element == E5M2)
        return fp8_bits((float)((sum - 254) / 32) / 2, element == E4M3);
    if (element >= INT8 && element < E4M3)
        return span > 0          ? (uint64_t)(from + (int64_t)(z % span))
               : element < UINT8 ? (uint64_t)(int64_t)((sum - 254) / 2)
                                 : (uint64_t)(sum / 2);
    memcpy(&bits, &x, sizeof bits);
    return element == FP64 || element == COMPLEX128  ? bits
           : element == FP32 || element == COMPLEX64 ? float_bits((float)x)
                                                     : storage(&build, (float)x);
}

static double element_value(const void *tensor, uint64_t i, int element)
{
    const struct fake_build build = {.bf16 = element == BF16};
    size_t size = size_of(element);
    uint64_t bits = 0;
    double wide;
    memcpy(&bits, (const char *)tensor + i * size, size);
    if (element == E4M3 || element == E5M2)
        return (double)fp8_value((uint8_t)bits, element == E4M3);
    if (element >= UINT8 && element < E4M3)
        return (double)bits;
    if (element >= INT8 && element < E4M3)
        return (double)((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
    memcpy(&wide, &bits, sizeof wide);
    return element == FP64 || element == COMPLEX128  ? wide
           : element == FP32 || element == COMPLEX64 ? (double)bits_float((uint32_t)bits)
                                                     : (double)value(&build, (uint16_t)bits);
}

/* The elements that are given, where they are not drawn; NULL: they are, or lie in no block. */
static const char *map_given(const void *argument, size_t bytes)
{
    return word_of(argument) != 0 ? fake_memory(word_of(argument), bytes, false) : NULL;
}

static bool fill(void **arguments)
{
    uint64_t count = word_of(arguments[1]), seed = word_of(arguments[3]);
    int element = int_of(arguments[2]);
    size_t size = size_of(element);
    char *tensor = fake_memory(word_of(arguments[0]), count * size, true);
    const char *given = map_given(arguments[6], count * size);
    if (tensor != NULL && given != NULL)
        memcpy(tensor, given, count * size);
    for (uint64_t i = 0; tensor != NULL && given == NULL && i < count; i++) {
        uint64_t bits =
            input_bits(seed, i, element, (int64_t)word_of(arguments[4]), word_of(arguments[5]));
        memcpy(tensor + i * size, &bits, size);
    }
    return tensor != NULL && (given != NULL || word_of(arguments[6]) == 0);
}

static bool find_largest(void **arguments)
{
    uint64_t count = word_of(arguments[1]);
    int element = int_of(arguments[2]);
    const void *wanted = fake_memory(word_of(arguments[0]), count * size_of(element), false);
    float *largest = fake_memory(word_of(arguments[3]), sizeof *largest, true);
    for (uint64_t i = 0; wanted != NULL && largest != NULL && i < count; i++) {
        float magnitude = (float)fabs(element_value(wanted, i, element));
        if (isfinite(magnitude) && magnitude > *largest)
            *largest = magnitude;
    }
    return wanted != NULL && largest != NULL;
}

/* A tensor with its fences; NULL: not in one block. *ret_right: nothing was written to the fences. */
static const uint16_t *map_fenced(void **arguments, bool *ret_right)
{
    uint64_t fence = word_of(arguments[1]);
    uint64_t words = (word_of(arguments[2]) * size_of(int_of(arguments[3])) + 1) / 2;
    const uint16_t *all = fake_memory(word_of(arguments[0]), (2 * fence + words) * 2, false);
    *ret_right = true;
    for (uint64_t i = 0; all != NULL && i < fence; i++)
        *ret_right = *ret_right && all[i] == POISON && all[fence + words + i] == POISON;
    return all != NULL ? all + fence : NULL;
}

static bool check_output(void **arguments)
{
    bool right;
    uint64_t count = word_of(arguments[2]), worst = 0;
    int element = int_of(arguments[3]), is = int_of(arguments[5]);
    const uint16_t *output = map_fenced(arguments, &right);
    const void *wanted = fake_memory(word_of(arguments[4]), count * size_of(is), false);
    const float *largest = fake_memory(word_of(arguments[6]), sizeof *largest, false);
    uint64_t *result = fake_memory(word_of(arguments[10]), sizeof *result, true);
    if (output == NULL || wanted == NULL || largest == NULL || result == NULL)
        return false;
    double base = fmax(1e-30, real_of(arguments[9]) + real_of(arguments[8]) * (double)*largest);
    for (uint64_t i = 0; i < count; i++) {
        double got = element_value(output, i, element), wants = element_value(wanted, i, is);
        double beside = element >= COMPLEX64 ? element_value(wanted, i ^ 1, is) : 0;
        double magnitude = beside != 0 && isfinite(beside) ? hypot(wants, beside) : fabs(wants);
        double relative = isinf(wants) ? 0 : real_of(arguments[7]) * magnitude;
        double allowed = base + relative;
        bool same = isinf(wants) && !isnan(got) && !(got < wants) && !(got > wants);
        double ratio = (same ? 0 : fabs(got - wants)) / allowed;
        uint64_t key = ratio <= 1
                           ? (uint64_t)float_bits((float)ratio) << 32 | float_bits((float)allowed)
                           : failed;
        worst = key > worst ? key : worst;
    }
    worst = right ? worst : failed;
    *result = *result > worst ? *result : worst;
    return true;
}

static bool check_input(void **arguments)
{
    bool right;
    uint64_t count = word_of(arguments[2]), seed = word_of(arguments[4]);
    int element = int_of(arguments[3]);
    size_t size = size_of(element);
    const uint16_t *input = map_fenced(arguments, &right);
    const char *given = map_given(arguments[7], count * size);
    uint64_t *result = fake_memory(word_of(arguments[8]), sizeof *result, true);
    for (uint64_t i = 0; input != NULL && i < count; i++) {
        uint64_t bits =
            input_bits(seed, i, element, (int64_t)word_of(arguments[5]), word_of(arguments[6]));
        const void *wanted = given != NULL ? given + i * size : (const void *)&bits;
        right = right && memcmp((const char *)input + i * size, wanted, size) == 0;
    }
    if (result != NULL && !right)
        *result = failed;
    return input != NULL && result != NULL;
}

static const struct {
    const char *entry;
    bool (*run)(void **arguments);
} checks[] = {{"fa_check_fill", fill},
              {"fa_check_largest", find_largest},
              {"fa_check_output", check_output},
              {"fa_check_input", check_input}};

bool fake_checks_known(const char *entry)
{
    return fake_checks_run(entry, NULL);
}

bool fake_checks_run(const char *entry, void **arguments)
{
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (strcmp(checks[i].entry, entry) == 0)
            return arguments == NULL || checks[i].run(arguments);
    return false;
}
