/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof: a candidate's launches, what the operation sees of each, the look at a case's tensors after it, and the verdict.
 *
 * Workload: up to a few hundred candidates; for each some 15 launches, a few checking kernels after each, one small copy.
 * fa_check.cuh compares on the device; what it does not find right is looked at once more on the host, which says why.
 */
#include "prover.h"

#include "buf.h"
#include "call.h"
#include "error.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- on the host -----------------------------------------------------------------------------*/
/* fp32 at once: partial sums and references are looked at whole. */
static double value_at(fa_element element, const void *at)
{
    float single;
    if (element != FA_ELEMENT_FP32)
        return fa_element_value(element, at);
    memcpy(&single, at, sizeof single);
    return (double)single;
}

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
        const double x = c->sampled ? value_at(t->element, at) : 0;
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
    double beside = value_at(is, wanted + (i ^ 1) * fa_element_size(is));
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
        double right = value_at(is, wanted + i * wanted_size);
        if (isfinite(right) && fabs(right) > largest)
            largest = fabs(right);
    }
    for (uint64_t i = 0, place = 0; i < of->count; i++, place++) {
        uint64_t at =
            c->sampled ? (uint64_t)c->row[i / of->columns] * of->columns + i % of->columns : i;
        double right = value_at(is, wanted + i * wanted_size), allowed;
        if (i % of->columns == 0) /* else it follows the one before */
            place = place_of(&of->place, at);
        double got = value_at(t->element, outputs + place * size);
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
        double value = value_at(is, at + i * size);
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
    if (t->made) { /* anew, as another kernel may have written the copy */
        b->type->refer(b, index);
        fa_bench_download(b, of->host, of->given, given);
    } else if (same && of->input_at >= 0)
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
    v->damaged = c->of[tensor].late; /* who wrote another output may have written the reference */
    if (v->damaged)
        b->type->refer(b, index), fa_proof_fetch(b, index, tensor);
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
    const int count = c->empty ? 0 : c->tensors.count;
    struct fa_verdict v = {.passed = true,
                           .tolerance = c->tensors.absolute > 0 ? c->tensors.absolute : 1};
    uint64_t found[FA_TENSORS_MAX] = {0};
    fa_bench_zero(b, b->result, sizeof found);
    if (!c->empty && c->by == FA_PROOF_FIRST && c->answered == 0)
        take_answer(b, index, &v);
    for (int t = 0; t < count; t++) {
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
    for (int t = 0; b->rc == 0 && t < count && (v.passed || !v.damaged); t++) {
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

/* ---- workspace and counters ------------------------------------------------------------------*/
enum {
    FENCE_BYTES = FA_PROVER_FENCE, /* in front of the memory, and as many behind it */
    RECYCLED_BYTES = 16384         /* of a workspace are changed between launches */
};

static void reserve(fa_bench *b, struct fa_fenced *memory, size_t bytes)
{
    if (b->rc != 0 || bytes <= memory->bytes)
        return;
    fa_device_free(b->driver, &memory->all);
    memory->bytes = 0;
    fa_bench_reserve(b, &memory->all, bytes + 2 * FENCE_BYTES);
    if (b->rc != 0)
        return;
    memory->at = memory->all + FENCE_BYTES;
    memory->bytes = bytes;
}

void fa_prover_load(fa_bench *b, fa_cubin_entry entry, fa_bench_kernel *kernel)
{
    const fa_launcher *launcher = b->type->launcher;
    void *again = NULL; /* of a second entry: it is the same */
    kernel->workspace_bytes = (kernel->workspace_bytes + 1) & ~(size_t)1; /* of 16-bit poison */
    entry.workspace = kernel->workspace_bytes > 0;
    entry.counters = kernel->counters > 0;
    reserve(b, &b->workspace, kernel->workspace_bytes);
    reserve(b, &b->counters, 4 * kernel->counters);
    if (b->rc == 0)
        b->rc = launcher->load(kernel->module, &b->at[0].problem, &entry,
                               kernel->shared != NULL ? &again : &kernel->shared, b->diag);
    launcher->unload(&again);
}

/* Whether all 16-bit words from there on have the value. */
static bool are_words(fa_bench *b, fa_device_ptr from, size_t bytes, uint16_t value)
{
    bool same = true;
    FA_ENDS(fa_free_at) uint16_t *word = malloc(bytes + 1);
    FA_TRY(b, fa_have(word != NULL, "a fence", b->diag));
    fa_bench_download(b, word, from, bytes);
    for (size_t i = 0; b->rc == 0 && i < bytes / 2 && same; i++)
        same = word[i] == value;
    return same;
}

/* What lies around workspace and counters must be as it was, and counters must be zero again. */
static void check_memory(fa_bench *b, const fa_bench_kernel *kernel, fa_proof *proof)
{
    const struct {
        const struct fa_fenced *memory;
        size_t bytes;
        const char *name;
    } all[] = {{&b->workspace, kernel->workspace_bytes, "workspace"},
               {&b->counters, 4 * kernel->counters, "counters"}};
    if (!proof->passed)
        return;
    for (int i = 0; i < 2 && proof->passed; i++) {
        const fa_device_ptr front = all[i].memory->all, behind = all[i].memory->at + all[i].bytes;
        const size_t fence = all[i].bytes > 0 ? FENCE_BYTES : 0;
        const bool before = are_words(b, front, fence, FA_CHECK_POISON);
        proof->passed = before && are_words(b, behind, fence, FA_CHECK_POISON);
        if (!proof->passed)
            snprintf(proof->reason, sizeof proof->reason, "it wrote %s its %s of %zu bytes",
                     before ? "past the end of" : "in front of", all[i].name, all[i].bytes);
    }
    if (proof->passed && !are_words(b, b->counters.at, all[1].bytes, 0)) {
        proof->passed = false;
        snprintf(proof->reason, sizeof proof->reason, "it left a counter that is not zero");
    }
    b->damaged = b->damaged || !proof->passed;
}

/* ---- launches -------------------------------------------------------------------------------*/
static void fill_with_poison(fa_bench *b, fa_device_ptr from, fa_device_ptr to)
{
    if (from != to)
        FA_TRY(b, fa_fill16(b->driver, from, FA_CHECK_POISON, (size_t)(to - from) / 2, b->stream,
                            b->diag));
}

void fa_prover_launch(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    void *arguments[FA_PROVER_ARGUMENTS + 2];
    const fa_launches *launches = b->launches = &kernel->launches[index];
    for (int i = 0; !b->at[index].empty && i < launches->count; i++) {
        int count = b->type->arguments(b, index, i, kernel->shared, arguments);
        if (kernel->workspace_bytes > 0)
            arguments[count++] = &b->workspace.at;
        arguments[count] = &b->counters.at;
        FA_TRY(b, fa_launch_shaped(b->driver, &launches->at[i], kernel->function[i], arguments,
                                   b->stream, b->diag));
    }
}

/* Makes of the workspace what an allocator hands out that other kernels share: what the last launch left there, with some
 * bytes of every word changed by a neighbour. */
static void recycle(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    static const size_t changed[] = {4, 1, 2, 8}; /* bytes */
    uint64_t word[RECYCLED_BYTES / 8] = {0};
    size_t bytes = kernel->workspace_bytes < sizeof word ? kernel->workspace_bytes : sizeof word;
    fa_bench_synchronize(b);
    fa_bench_download(b, word, b->workspace.at, bytes);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        uint64_t draw = fa_random(b->seed + (uint64_t)index, i);
        memcpy(&word[i], &draw, changed[(i + (size_t)index) % 4]);
    }
    fa_bench_upload(b, b->workspace.at, word, bytes);
}

/* Outputs that are inputs too, or partial, and variables of the module. */
void fa_prover_restore(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    if (b->at[index].empty)
        return;
    fa_proof_start_outputs(b, index, false);
    if (b->rc == 0 && b->type->copy_variables != NULL)
        b->type->copy_variables(b, index, kernel->shared, false);
}

void fa_prover_collect(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    if (b->rc == 0 && !b->at[index].empty && b->type->copy_variables != NULL)
        b->type->copy_variables(b, index, kernel->shared, true);
}

/* The launches on one case, on a workspace of which nothing is known, and the look at its outputs. */
static void try_case(fa_bench *b, const fa_bench_kernel *kernel, int round, int index)
{
    if (kernel->workspace_bytes > 0 && round > 0)
        recycle(b, kernel, index);
    else if (kernel->workspace_bytes > 0)
        fill_with_poison(b, b->workspace.at, b->workspace.at + kernel->workspace_bytes);
    fa_prover_restore(b, kernel, index);
    if (index == 0)
        FA_TRY(b, fa_event_record(b->driver, b->start[0], b->stream, b->diag));
    fa_prover_launch(b, kernel, index);
    if (index == 0)
        FA_TRY(b, fa_event_record(b->driver, b->stop[0], b->stream, b->diag));
    fa_prover_collect(b, kernel, index);
    fa_proof_check(b, round, index);
}

/* ---- proof ----------------------------------------------------------------------------------*/
/* Adds one verdict to a proof; the worst error relative to its tolerance is kept, and the first
 * reason. `other`: of the same case's other launch. */
static void add_verdict(fa_proof *proof, const fa_bench *p, int index, int round,
                        const struct fa_verdict *other, const struct fa_verdict *v)
{
    if (index + round == 0 || !(v->error / v->tolerance <= proof->max_error / proof->tolerance)) {
        proof->max_error = v->error;
        proof->tolerance = v->tolerance;
    }
    if (v->passed || proof->reason[0] != 0)
        return;
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&p->at[index].problem, key);
    proof->passed = false;
    snprintf(proof->reason, sizeof proof->reason, "case %d (%.159s): %s%s", index, key,
             !other->passed ? ""
             : round == 0   ? "launches differ: right in the second, but in the first "
                            : "launches differ: right in the first, but in the second ",
             v->reason);
}

/* The hash of each case's outputs as they are now, with what lies around them. */
static void take_bits(fa_bench *b, uint64_t ret_bits[FA_BENCH_CASES])
{
    const size_t size = FA_BENCH_CASES * sizeof *ret_bits;
    fa_bench_zero(b, b->result, size);
    for (int i = 0; i < b->count; i++) {
        uint64_t words = (b->at[i].outputs_end - b->at[i].outputs) / sizeof *ret_bits;
        fa_device_ptr result = b->result + sizeof *ret_bits * (size_t)i;
        void *arguments[] = {&b->at[i].outputs, &words, &result};
        fa_bench_run(b, b->check[FA_BITS], words, arguments);
    }
    fa_bench_synchronize(b);
    fa_bench_download(b, ret_bits, b->result, size);
}

int fa_bench_verify(fa_bench *b, fa_bench_kernel *kernel, fa_proof *ret_proof, fa_diag *diag)
{
    const size_t workspace = kernel->workspace_bytes, counters = 4 * kernel->counters;
    fa_proof proof = {.passed = false};
    uint64_t bits[FA_PROVER_ROUNDS][FA_BENCH_CASES] = {{0}};
    b->rc = 0;
    b->diag = diag;
    kernel->proved = false;
    if (b->damaged)
        fa_bench_prepare(b);
    b->proofs++;
    if (workspace > 0)
        fill_with_poison(b, b->workspace.all, b->workspace.at + workspace + FENCE_BYTES);
    if (counters > 0)
        fill_with_poison(b, b->counters.all, b->counters.at + counters + FENCE_BYTES);
    fa_bench_zero(b, b->counters.at, counters);
    for (int round = 0; round < FA_PROVER_ROUNDS; round++) {
        fill_with_poison(b, round > 0 && b->at[0].once ? b->at[0].outputs_end : b->outputs,
                         b->at[b->count - 1].outputs_end);
        for (int i = 0; i < b->count; i++)
            if (b->rc == 0 && kernel->launches[i].count > 0 && (round == 0 || !b->at[i].once))
                try_case(b, kernel, round, i);
        take_bits(b, bits[round]);
    }
    proof.passed = b->rc == 0;
    for (int i = 0; b->rc == 0 && i < b->count; i++) {
        proof.bits[i] = kernel->launches[i].count == 0 ? -1
                        : bits[0][i] == bits[1][i]     ? (double)(bits[0][i] >> 16)
                                                       : 0;
        if (proof.bits[i] < 0)
            continue;
        const struct fa_verdict *first = &b->at[i].verdict[0];
        const struct fa_verdict *second = &b->at[i].verdict[b->at[i].once ? 0 : 1];
        b->damaged = b->damaged || first->damaged || second->damaged;
        add_verdict(&proof, b, i, 0, second, first);
        add_verdict(&proof, b, i, 1, first, second);
    }
    if (b->rc == 0)
        check_memory(b, kernel, &proof);
    if (!b->at[0].empty)
        FA_TRY(b, fa_event_elapsed_us(b->driver, b->start[0], b->stop[0], &proof.launch_us, diag));
    for (int i = 0; (b->rc != 0 || !proof.passed) && i < b->count; i++)
        if (b->at[i].answered == b->proofs) /* the next kernel that is launched on it is its first */
            b->at[i].answered = 0;
    if (b->counters.bytes > 0) /* others, which may have more of them, are timed with them */
        fa_bench_zero(b, b->counters.at, b->counters.bytes);
    if (b->rc != 0) {
        b->damaged = true;
        return fa_fail_in(diag, b->rc, "proving a kernel");
    }
    kernel->proved = proof.passed;
    kernel->launch_us = proof.launch_us;
    *ret_proof = proof;
    return 0;
}

void fa_prover_poison(fa_bench *b)
{
    if (b->damaged)
        fa_bench_prepare(b);
    fill_with_poison(b, b->outputs, b->at[0].outputs_end);
}
