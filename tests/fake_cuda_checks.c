/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of kernel_templates/vocabulary/fa_check.cuh on the CPU.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#include "random.h"

static const uint64_t failed = UINT64_MAX;
enum { FP16, BF16, FP32, POISON = 0x7fa5 };

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

static uint32_t input_bits(uint64_t seed, uint64_t i, int element)
{
    uint64_t z = fa_random(seed, i);
    struct fake_build build = {.bf16 = element == BF16};
    int sum = (int)(z & 127) + (int)(z >> 16 & 127) + (int)(z >> 32 & 127) + (int)(z >> 48 & 127);
    float x = (float)(sum - 254) / 64.0f;
    return element == FP32 ? float_bits(x) : storage(&build, x);
}

static uint32_t stored_bits(const uint16_t *tensor, uint64_t i, int element)
{
    uint32_t wide;
    if (element != FP32)
        return tensor[i];
    memcpy(&wide, tensor + 2 * i, sizeof wide);
    return wide;
}

static bool fill(void **arguments)
{
    uint64_t count = word_of(arguments[1]), seed = word_of(arguments[3]);
    int element = int_of(arguments[2]);
    size_t size = element == FP32 ? 4 : 2;
    uint16_t *tensor = fake_memory(word_of(arguments[0]), count * size, true);
    for (uint64_t i = 0; tensor != NULL && i < count; i++) {
        uint32_t bits = input_bits(seed, i, element);
        memcpy(tensor + i * size / 2, &bits, size);
    }
    return tensor != NULL;
}

static bool find_largest(void **arguments)
{
    uint64_t count = word_of(arguments[1]);
    const float *wanted = fake_memory(word_of(arguments[0]), count * sizeof *wanted, false);
    float *largest = fake_memory(word_of(arguments[2]), sizeof *largest, true);
    for (uint64_t i = 0; wanted != NULL && largest != NULL && i < count; i++)
        if (isfinite(wanted[i]) && fabsf(wanted[i]) > *largest)
            *largest = fabsf(wanted[i]);
    return wanted != NULL && largest != NULL;
}

/* A tensor with its fences; NULL: not in one block. *ret_right: nothing was written to the fences. */
static const uint16_t *map_fenced(void **arguments, bool *ret_right)
{
    uint64_t fence = word_of(arguments[1]);
    uint64_t words = word_of(arguments[2]) * (int_of(arguments[3]) == FP32 ? 2 : 1);
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
    int element = int_of(arguments[3]);
    struct fake_build build = {.bf16 = element == BF16};
    const uint16_t *output = map_fenced(arguments, &right);
    const float *wanted = fake_memory(word_of(arguments[4]), count * sizeof *wanted, false);
    const float *largest = fake_memory(word_of(arguments[5]), sizeof *largest, false);
    uint64_t *result = fake_memory(word_of(arguments[9]), sizeof *result, true);
    if (output == NULL || wanted == NULL || largest == NULL || result == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = stored_bits(output, i, element);
        double got = (double)(element == FP32 ? bits_float(bits) : value(&build, (uint16_t)bits));
        double relative = isinf(wanted[i]) ? 0 : real_of(arguments[6]) * fabs((double)wanted[i]);
        double allowed =
            real_of(arguments[8]) + relative + real_of(arguments[7]) * (double)*largest;
        bool same = isinf(wanted[i]) && !isnan(got) && !(got < (double)wanted[i]) &&
                    !(got > (double)wanted[i]);
        double ratio = (same ? 0 : fabs(got - (double)wanted[i])) / allowed;
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
    const uint16_t *input = map_fenced(arguments, &right);
    uint64_t *result = fake_memory(word_of(arguments[5]), sizeof *result, true);
    for (uint64_t i = 0; input != NULL && i < count; i++)
        right = right && stored_bits(input, i, element) == input_bits(seed, i, element);
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
