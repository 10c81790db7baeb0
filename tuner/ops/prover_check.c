/* SPDX-License-Identifier: Apache-2.0
 *
 * The look at a case's tensors after a launch.
 *
 * Workload: fa_check.cuh compares on the device. What it does not find right is looked at once more on the host, which
 * decides and says why.
 */
#include "prover.h"

#include "case_data.h"

#include "error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- on the host -----------------------------------------------------------------------------*/
/* Where element i lies. As fa_check.cuh. */
static uint64_t place_of(const struct fa_check_tensor *t, uint64_t i)
{
    uint64_t at = t->first;
    for (int d = 3; i > 0; d--) {
        at += i % t->extent[d] * t->stride[d];
        i /= t->extent[d];
    }
    return at;
}

/* Whether an element lies at the unit. */
static bool is_element(const struct fa_check_tensor *t, uint64_t unit)
{
    uint64_t rest = unit - t->first;
    for (int level = 0; level < t->levels; level++) {
        const int d = t->order[level];
        if (rest / t->stride[d] >= t->extent[d])
            return false;
        rest %= t->stride[d];
    }
    return unit >= t->first && rest == 0;
}

static const uint16_t poison[] = {[0 ... 3] = FA_CHECK_POISON}; /* of outputs */

/* What lies around a tensor's elements must be as it was; and where not all of them are compared, each must be written. */
static void check_around(const struct fa_proof_case *c, int tensor, const unsigned char *bytes,
                         struct fa_verdict *v)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    const struct fa_check_tensor *place = &c->of[tensor].place;
    const size_t size = fa_element_size(t->element);
    for (uint64_t i = 0; i < place->units && v->passed; i++) {
        const unsigned char *at = bytes + i * size;
        const bool poisoned = memcmp(at, (const char *)poison + (size == 1 ? i % 2 : 0), size) == 0;
        if (poisoned && !c->sampled)
            continue;
        const bool element = is_element(place, i);
        const double x = c->sampled ? fa_element_value(t->element, at) : 0;
        if (element ? !poisoned && !isnan(x) && (!isinf(x) || (x < 0 && size == 4)) : poisoned)
            continue;
        v->passed = false;
        v->damaged = !element;
        snprintf(v->reason, sizeof v->reason,
                 v->damaged ? "it wrote outside its output %s"
                 : poisoned ? "it left elements of %s unwritten"
                            : "elements of %s are NaN or infinite",
                 t->name);
    }
}

static const char *said_by(const struct fa_proof_case *c)
{
    static const char *const said[] = {[FA_PROOF_REFERENCE] = "the reference says",
                                       [FA_PROOF_ANSWER] = "the answer says",
                                       [FA_PROOF_FIRST] = "in the config that was first"};
    return said[c->by];
}

/* Of a wanted number that a complex one has beside it: the magnitude of the two together. */
static double magnitude_of(const fa_tensor *t, fa_element is, const unsigned char *wanted,
                           uint64_t i, double right)
{
    if (fa_element_numbers(t->element) == 1)
        return fabs(right);
    double beside = fa_element_value(is, wanted + (i ^ 1) * fa_element_size(is));
    return isfinite(beside) ? hypot(right, beside) : fabs(right);
}

/* `outputs`: the whole tensor, its fences included. */
static void compare(const struct fa_proof_case *c, int tensor, const unsigned char *outputs,
                    struct fa_verdict *v)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    const struct fa_proof_tensor *of = &c->of[tensor];
    const fa_element is = fa_proof_wanted_element(c, tensor);
    const unsigned char *wanted = of->host;
    size_t size = fa_element_size(t->element), wanted_size = fa_element_size(is);
    const unsigned numbers = (unsigned)fa_element_numbers(t->element);
    double worst = -1, largest = 0;
    for (uint64_t i = 0; i < of->count; i++) {
        double right = fa_element_value(is, wanted + i * wanted_size);
        if (isfinite(right) && fabs(right) > largest)
            largest = fabs(right);
    }
    for (uint64_t i = 0, place = 0; i < of->count; i++, place++) {
        uint64_t at =
            c->sampled ? (uint64_t)c->row[i / of->columns] * of->columns + i % of->columns : i;
        double right = fa_element_value(is, wanted + i * wanted_size), allowed;
        if (i % of->columns == 0) /* else it follows the one before */
            place = place_of(&of->place, at);
        double got = fa_element_value(t->element, outputs + place * size);
        double error =
            fa_tolerance_error(&of->tolerance[i * (uint64_t)c->bands / of->count], largest, got,
                               right, magnitude_of(t, is, wanted, i, right), &allowed);
        double ratio = error / allowed;
        if (ratio <= worst)
            continue;
        worst = ratio; /* NaN too, which nothing follows */
        v->error = error;
        v->tolerance = allowed;
        if (error <= allowed)
            continue;
        v->passed = false;
        snprintf(v->reason, sizeof v->reason,
                 "%selement %llu of %s is %.6g, %s %.6g, allowed is %.3g",
                 numbers == 1 ? ""
                 : i % 2 == 0 ? "the real part of "
                              : "the imaginary part of ",
                 (unsigned long long)at / numbers, t->name, got, said_by(c), right, allowed);
        if (!(ratio > 0))
            return;
    }
}

/* The sum of a tensor's elements, of complex ones that of one part, and that of their magnitudes. */
static double sum_of(const fa_tensor *t, fa_element is, unsigned part, const unsigned char *at,
                     double *ret_magnitude)
{
    const size_t size = fa_element_size(is);
    const unsigned numbers = (unsigned)fa_element_numbers(t->element);
    double sum = 0, magnitude = 0;
    for (uint64_t i = part; i < t->elements; i += numbers) {
        double value = fa_element_value(is, at + i * size);
        sum += value;
        magnitude += fabs(value);
    }
    *ret_magnitude = magnitude;
    return sum;
}

/* Of a partial output the sum of all elements, of complex ones that of each part. */
static void compare_sum(const struct fa_proof_case *c, int tensor, unsigned part,
                        const unsigned char *elements, struct fa_verdict *v)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    double magnitude = 0, allowed, got = sum_of(t, t->element, part, elements, &magnitude);
    double wanted =
        sum_of(t, fa_proof_wanted_element(c, tensor), part, c->of[tensor].host, &magnitude);
    double error =
        fa_tolerance_error(c->of[tensor].tolerance, magnitude, got, wanted, fabs(wanted), &allowed);
    if (!(error / allowed <= v->error / v->tolerance)) {
        v->error = error;
        v->tolerance = allowed;
    }
    if (error <= allowed)
        return;
    v->passed = false;
    snprintf(v->reason, sizeof v->reason, "the sum of %s is %.9g, %s %.9g, allowed is %.3g",
             t->name, got, said_by(c), wanted, allowed);
}

/* What a kernel only reads must be as it was: the next one is proved on it. Where it was drawn, the device has compared it
 * with nothing that a kernel could have written. */
static void check_input(fa_bench *b, int index, int tensor, const unsigned char *bytes,
                        struct fa_verdict *v)
{
    const fa_tensor *t = &b->at[index].tensors.at[tensor];
    const struct fa_proof_tensor *of = &b->at[index].of[tensor];
    const size_t size = fa_element_size(t->element), fence = of->place.first * size;
    const uint16_t around = (uint16_t)of->place.poison;
    bool same = of->given != 0;
    size_t given = same ? fa_proof_host(b, index, tensor) : 0;
    if (same && of->input_at >= 0)
        FA_TRY(b, fa_case_data_read(b->data, of->input_at, of->host, given, b->diag));
    for (size_t i = 0; b->rc == 0 && same && i < of->place.units * size; i++)
        same = i >= fence && i < fence + given
                   ? bytes[i] == of->host[i - fence]
                   : bytes[i] == (unsigned char)(around >> (i % 2 == 0 ? 0 : 8));
    if (b->rc != 0 || same)
        return;
    v->damaged = true;
    if (v->passed)
        snprintf(v->reason, sizeof v->reason, "it wrote to its input %s", t->name);
    v->passed = false;
}

/* Copies a tensor with all that lies around it to the host and looks at it there; `around`: at what lies around it, too. */
static void check_tensor(fa_bench *b, int index, int tensor, bool around, struct fa_verdict *v)
{
    const struct fa_proof_case *c = &b->at[index];
    const fa_tensor *t = &c->tensors.at[tensor];
    const struct fa_check_tensor *place = &c->of[tensor].place;
    const size_t size = fa_element_size(t->element), all = (size_t)place->units * size;
    if (all > b->host_bytes) {
        free(b->host);
        b->host = malloc(all);
        b->host_bytes = b->host != NULL ? all : 0;
    }
    if (b->host == NULL)
        FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "out of memory for the tensor %s", t->name));
    fa_bench_download(b, b->host, (fa_device_ptr)(uintptr_t)place->base, all);
    if (b->rc != 0)
        return;
    if (!t->output) {
        check_input(b, index, tensor, b->host, v);
        return;
    }
    if (around)
        check_around(c, tensor, b->host, v);
    for (int part = 0; t->partial && part < fa_element_numbers(t->element) && v->passed; part++)
        compare_sum(c, tensor, (unsigned)part, b->host + place->first * size, v);
    if (!t->partial && v->passed && t->elements > 0)
        compare(c, tensor, b->host, v);
}

/* ---- on the device ---------------------------------------------------------------------------*/
/* Each band of the compared rows has a tolerance of its own. */
static void start_output(fa_bench *b, int index, int tensor, fa_device_ptr result)
{
    struct fa_proof_case *c = &b->at[index];
    struct fa_proof_tensor *of = &c->of[tensor];
    const fa_element is = fa_proof_wanted_element(c, tensor);
    const bool compared = c->tensors.at[tensor].elements > 0;
    const uint64_t count = of->count / (uint64_t)c->bands,
                   rows = FA_PROVER_ROWS / (unsigned)c->bands;
    int elements = c->sampled;
    void *around[] = {&of->place, &elements, &result};
    fa_bench_run(b, b->check[FA_AROUND], of->place.units, around);
    for (int band = 0; compared && band < c->bands; band++) {
        const fa_tolerance *allowed = &of->tolerance[band];
        struct fa_check_wanted wanted = {
            .at = (void *)(uintptr_t)(of->wanted + (uint64_t)band * count * fa_element_size(is)),
            .largest = (void *)(uintptr_t)(c->largest + sizeof(float) * (size_t)tensor),
            .rows = c->sampled
                        ? (void *)(uintptr_t)(c->rows + (uint64_t)band * rows * sizeof *c->row)
                        : NULL,
            .count = count,
            .columns = of->columns,
            .relative = allowed->relative,
            .of_largest = allowed->of_largest,
            .absolute = allowed->absolute,
            .element = fa_proof_device_element(is)};
        void *arguments[] = {&of->place, &wanted, &result};
        fa_bench_run(b, b->check[FA_OUTPUT], count, arguments);
    }
}

/* Takes what the device found of an output that is right. */
static void take_worst(uint64_t found, struct fa_verdict *v)
{
    uint32_t bits[] = {(uint32_t)(found >> 32), (uint32_t)found};
    float ratio, allowed;
    memcpy(&ratio, &bits[0], sizeof ratio);
    memcpy(&allowed, &bits[1], sizeof allowed);
    if ((double)ratio < v->error / v->tolerance)
        return;
    v->error = (double)ratio * (double)allowed;
    v->tolerance = (double)allowed;
}

/* ---- a kernel that others are compared with --------------------------------------------------*/
/* Takes the first kernel's outputs as what is wanted of all others: on the device, and here for what is made anew. */
static void take_answer(fa_bench *b, int index, struct fa_verdict *v)
{
    struct fa_proof_case *c = &b->at[index];
    fa_bench_synchronize(b);
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        struct fa_proof_tensor *of = &c->of[t];
        const size_t size = fa_element_size(tensor->element), bytes = tensor->elements * size;
        if (!tensor->output || bytes == 0)
            continue;
        FA_TRY(b, fa_copy_on_device(b->driver, of->wanted, of->first, bytes, b->stream, b->diag));
        fa_proof_fetch(b, index, t);
        if (b->rc != 0 || !v->passed || tensor->partial)
            continue;
        uint64_t at = size < 4 ? tensor->elements : 0; /* any smaller bits may be a value */
        const unsigned char *is = of->host;
        while (at < tensor->elements &&
               (memcmp(is, poison, 4) != 0 || memcmp(is + size - 4, poison, 4) != 0))
            is += size, at++;
        v->passed = at == tensor->elements;
        if (!v->passed)
            snprintf(v->reason, sizeof v->reason, "element %llu of %s is not written",
                     (unsigned long long)at / (unsigned)fa_element_numbers(tensor->element),
                     tensor->name);
    }
    c->answered = b->proofs;
}

/* ---- a case ----------------------------------------------------------------------------------*/
void fa_proof_check(fa_bench *b, int round, int index)
{
    enum { FAILED = -1, DIFFERS = -2 }; /* as fa_check.cuh */
    struct fa_proof_case *c = &b->at[index];
    struct fa_verdict v = {.passed = true,
                           .tolerance = c->tensors.absolute > 0 ? c->tensors.absolute : 1};
    uint64_t found[FA_TENSORS_MAX] = {0};
    fa_bench_zero(b, b->result, sizeof found);
    if (!c->empty && c->by == FA_PROOF_FIRST && (c->answered == 0 || c->answered == b->refuted))
        take_answer(b, index, &v);
    for (int t = 0; t < c->tensors.count && !c->empty; t++) {
        fa_device_ptr result = b->result + sizeof *found * (size_t)t;
        struct fa_check_values values = fa_proof_values(c, t, true);
        void *arguments[] = {&c->of[t].place, &values, &result};
        if (!c->tensors.at[t].output)
            fa_bench_run(b, b->check[FA_INPUT], c->of[t].place.units, arguments);
        else if (!c->tensors.at[t].partial)
            start_output(b, index, t, result);
    }
    fa_bench_synchronize(b);
    fa_bench_download(b, found, b->result, sizeof found);
    for (int t = 0; b->rc == 0 && t < c->tensors.count && !c->empty; t++) {
        const bool failed = found[t] >= (uint64_t)DIFFERS, partial = c->tensors.at[t].partial;
        struct fa_verdict one = {.passed = true, .error = v.error, .tolerance = v.tolerance};
        if (failed || partial)
            check_tensor(b, index, t, partial || found[t] == (uint64_t)FAILED, &one);
        else if (c->tensors.at[t].output)
            take_worst(found[t], &one);
        /* What is right here and was not on the device was compared with something that is wrong there. */
        one.damaged = one.damaged || (failed && one.passed) || v.damaged;
        if (v.passed)
            v = one;
        v.damaged = one.damaged;
    }
    c->verdict[round] = v;
}
