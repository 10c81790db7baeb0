/* SPDX-License-Identifier: Apache-2.0
 *
 * The look at a case's tensors after a launch.
 *
 * Workload: fa_check.cuh compares on the device. What it does not find right is looked at once more on the host, which
 * decides and says why.
 */
#include "prover_base.h"

#include "case_data.h"

#include "error.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_THREADS = 256 };
enum { OUTPUT = 2, AROUND, INPUT };

bool fa_proof_is_answered(const fa_prover *prover, int index)
{
    const struct fa_proof_case *c = &prover->at[index];
    bool answered = false; /* an output without elements has its place in the file, too */
    for (int t = 0; t < c->tensors.count; t++)
        answered =
            answered || (c->tensors.at[t].output && fa_proof_answer_at(prover, index, t) >= 0);
    return answered;
}

bool fa_proof_has_no_answer(const fa_prover *prover, int index)
{
    const fa_problem *problem = &prover->at[index].problem;
    return fa_problem_has_no_answer(problem) ||
           (fa_problem_answer_is_given(problem) && !fa_proof_is_answered(prover, index));
}

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

/* What lies around a tensor's elements must be as it was; and where not all of them are compared, each must be written. */
static void check_around(const struct fa_proof_case *c, int tensor, const unsigned char *bytes,
                         struct fa_verdict *v)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    const struct fa_check_tensor *place = &c->of[tensor].place;
    const uint16_t poison[] = {[0 ... 3] = (uint16_t)place->poison};
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

static const char *said_by(const fa_prover *prover, int index)
{
    return prover->at[index].answered > 0        ? "in the config that was first"
           : fa_proof_is_answered(prover, index) ? "the answer says"
                                                 : "the reference says";
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
static void compare(const fa_prover *prover, int index, int tensor, const unsigned char *outputs,
                    struct fa_verdict *v)
{
    const struct fa_proof_case *c = &prover->at[index];
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
        snprintf(
            v->reason, sizeof v->reason, "%selement %llu of %s is %.6g, %s %.6g, allowed is %.3g",
            numbers == 1 ? ""
            : i % 2 == 0 ? "the real part of "
                         : "the imaginary part of ",
            (unsigned long long)at / numbers, t->name, got, said_by(prover, index), right, allowed);
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
static void compare_sum(const fa_prover *prover, int index, int tensor, unsigned part,
                        const unsigned char *elements, struct fa_verdict *v)
{
    const struct fa_proof_case *c = &prover->at[index];
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
             t->name, got, said_by(prover, index), wanted, allowed);
}

/* What a kernel only reads must be as it was: the next one is proved on it. Where it was drawn, the device has compared it
 * with nothing that a kernel could have written. */
static int check_input(fa_prover *prover, int index, int tensor, const unsigned char *bytes,
                       struct fa_verdict *v, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    const fa_tensor *t = &c->tensors.at[tensor];
    const struct fa_check_tensor *place = &c->of[tensor].place;
    const int64_t at = fa_proof_input_at(prover, index, tensor);
    const size_t size = fa_element_size(t->element), fence = place->first * size;
    size_t given = 0;
    bool same = c->of[tensor].given != 0;
    int rc = same ? fa_proof_host(c, tensor, &given, diag) : 0;
    if (rc == 0 && same && at >= 0)
        rc = fa_case_data_read(prover->data, at, c->of[tensor].host, given, diag);
    const uint16_t poison = (uint16_t)place->poison;
    for (size_t i = 0; rc == 0 && same && i < place->units * size; i++)
        same = i >= fence && i < fence + given
                   ? bytes[i] == c->of[tensor].host[i - fence]
                   : bytes[i] == (unsigned char)(poison >> (i % 2 == 0 ? 0 : 8));
    if (rc != 0 || same)
        return rc;
    v->damaged = true;
    if (v->passed)
        snprintf(v->reason, sizeof v->reason, "it wrote to its input %s", t->name);
    v->passed = false;
    return 0;
}

/* The tensor with all that lies around it, on the host until the next is fetched. */
static int fetch_tensor(fa_prover *prover, const struct fa_proof_case *c, int tensor,
                        const unsigned char **ret_bytes, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    size_t size = (size_t)c->of[tensor].place.units * fa_element_size(t->element);
    if (size > prover->host_bytes) {
        free(prover->host);
        prover->host = malloc(size);
        prover->host_bytes = prover->host != NULL ? size : 0;
    }
    *ret_bytes = prover->host;
    return prover->host == NULL
               ? fa_fail(diag, FA_ENOMEM, "out of memory for the tensor %s", t->name)
               : fa_copy_from_device(prover->driver, prover->host,
                                     (fa_device_ptr)(uintptr_t)c->of[tensor].place.base, size,
                                     diag);
}

/* Copies a tensor to the host and looks at it there; `around`: at what lies around it, too. */
static int check_tensor(fa_prover *prover, int index, int tensor, bool around, struct fa_verdict *v,
                        fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    const fa_tensor *t = &c->tensors.at[tensor];
    const unsigned char *bytes;
    int rc = fetch_tensor(prover, c, tensor, &bytes, diag);
    if (rc == 0 && !t->output)
        return check_input(prover, index, tensor, bytes, v, diag);
    if (rc == 0 && around)
        check_around(c, tensor, bytes, v);
    const unsigned char *elements = bytes + c->of[tensor].place.first * fa_element_size(t->element);
    for (int part = 0; rc == 0 && t->partial && part < fa_element_numbers(t->element) && v->passed;
         part++)
        compare_sum(prover, index, tensor, (unsigned)part, elements, v);
    if (rc == 0 && !t->partial && v->passed && t->elements > 0)
        compare(prover, index, tensor, bytes, v);
    return rc;
}

/* ---- on the device ---------------------------------------------------------------------------*/
static int run_check(fa_prover *prover, int kernel, uint64_t work, void **arguments, fa_diag *diag)
{
    return fa_prover_run(prover, prover->kernel[kernel], CHECK_THREADS, work, arguments, diag);
}

static int start_input(fa_prover *prover, int index, int tensor, fa_device_ptr result,
                       fa_diag *diag)
{
    struct fa_proof_tensor *of = &prover->at[index].of[tensor];
    struct fa_check_values values = fa_proof_values(&prover->at[index], tensor, true);
    void *arguments[] = {&of->place, &values, &result};
    return run_check(prover, INPUT, of->place.units, arguments, diag);
}

/* Each band of the compared rows has a tolerance of its own. */
static int start_output(fa_prover *prover, int index, int tensor, fa_device_ptr result,
                        fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    struct fa_proof_tensor *of = &c->of[tensor];
    const fa_element is = fa_proof_wanted_element(c, tensor);
    const bool compared = c->tensors.at[tensor].elements > 0;
    const uint64_t count = of->count / (uint64_t)c->bands,
                   rows = FA_PROVER_ROWS / (unsigned)c->bands;
    int elements = c->sampled;
    void *around[] = {&of->place, &elements, &result};
    int rc = run_check(prover, AROUND, of->place.units, around, diag);
    for (int band = 0; rc == 0 && compared && band < c->bands; band++) {
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
        rc = run_check(prover, OUTPUT, count, arguments, diag);
    }
    return rc;
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
/* The first element that was never written; `count`: none. Of 16-bit types and less any bits may be a value. */
static uint64_t find_unwritten(const unsigned char *bytes, uint64_t count, size_t size)
{
    const uint64_t poison = FA_CHECK_POISON * UINT64_C(0x0001000100010001);
    uint64_t i = 0;
    if (size < 4)
        return count;
    while (i < count && (size == 4 ? memcmp(bytes + 4 * i, &poison, 4) != 0
                                   : memcmp(bytes + 8 * i, &poison, 8) != 0))
        i++;
    return i;
}

/* Takes the first kernel's outputs as what is wanted of all others: on the device, and here for what is made anew. */
static int take_answer(fa_prover *prover, int index, struct fa_verdict *v, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    int rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        struct fa_proof_tensor *of = &c->of[t];
        size_t bytes = tensor->elements * fa_element_size(tensor->element);
        if (!tensor->output || bytes == 0)
            continue;
        if ((rc = fa_copy_on_device(prover->driver, of->wanted, of->first, bytes, prover->stream,
                                    diag)) != 0 ||
            (rc = fa_proof_fetch(prover, index, t, diag)) != 0 || !v->passed || tensor->partial)
            continue;
        uint64_t at = find_unwritten(of->host, tensor->elements, fa_element_size(tensor->element));
        v->passed = at == tensor->elements;
        if (!v->passed)
            snprintf(v->reason, sizeof v->reason, "element %llu of %s is not written",
                     (unsigned long long)at / (unsigned)fa_element_numbers(tensor->element),
                     tensor->name);
    }
    c->answered = prover->proofs;
    return rc;
}

/* ---- a case ----------------------------------------------------------------------------------*/
int fa_proof_check(fa_prover *prover, int round, int index, fa_diag *diag)
{
    enum { FAILED = -1, DIFFERS = -2 }; /* as fa_check.cuh */
    struct fa_proof_case *c = &prover->at[index];
    struct fa_verdict v = {.passed = true,
                           .tolerance = c->tensors.absolute > 0 ? c->tensors.absolute : 1};
    uint64_t found[FA_TENSORS_MAX] = {0};
    int rc = fa_fill8(prover->driver, prover->result, 0, sizeof found, prover->stream, diag);
    if (rc == 0 && !c->empty && fa_proof_has_no_answer(prover, index) &&
        (c->answered == 0 || c->answered == prover->refuted))
        rc = take_answer(prover, index, &v, diag);
    for (int t = 0; t < c->tensors.count && rc == 0 && !c->empty; t++) {
        fa_device_ptr result = prover->result + sizeof *found * (size_t)t;
        if (!c->tensors.at[t].partial)
            rc = (c->tensors.at[t].output ? start_output : start_input)(prover, index, t, result,
                                                                        diag);
    }
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    if (rc == 0)
        rc = fa_copy_from_device(prover->driver, found, prover->result, sizeof found, diag);
    for (int t = 0; t < c->tensors.count && rc == 0 && !c->empty; t++) {
        const bool failed = found[t] >= (uint64_t)DIFFERS, partial = c->tensors.at[t].partial;
        struct fa_verdict one = {.passed = true, .error = v.error, .tolerance = v.tolerance};
        if (failed || partial)
            rc =
                check_tensor(prover, index, t, partial || found[t] == (uint64_t)FAILED, &one, diag);
        else if (c->tensors.at[t].output)
            take_worst(found[t], &one);
        /* What is right here and was not on the device was compared with something that is wrong there. */
        one.damaged = one.damaged || (failed && one.passed) || v.damaged;
        if (v.passed)
            v = one;
        v.damaged = one.damaged;
    }
    c->verdict[round] = v;
    return rc;
}
