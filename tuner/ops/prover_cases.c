/* SPDX-License-Identifier: Apache-2.0
 *
 * The cases of a bench in device memory: how tensors lie between their fences, their inputs, and references.
 *
 * Workload: made once per problem; filled anew after a candidate wrote where it must not.
 */
#include "prover.h"

#include "problem.h"

#include <stdio.h>
#include <stdlib.h>

enum { INPUT_FENCE = 4096, RUNS_LEAST = 4096, RUNS_MOST = 1 << 20 };

/* Hands out addresses, 256-byte aligned; first counts from 0, then again from the real base. */
struct cursor {
    uint64_t at;
    bool overflow;
};

static fa_device_ptr take(struct cursor *cursor, uint64_t count, uint64_t size)
{
    uint64_t start = cursor->at, bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, 255u, &bytes) ||
        __builtin_add_overflow(start, bytes & ~(uint64_t)255, &cursor->at))
        cursor->overflow = true;
    return start;
}

void fa_bench_synchronize(fa_bench *b)
{
    FA_TRY(b, fa_stream_synchronize(b->driver, b->stream, b->diag));
}

void fa_bench_upload(fa_bench *b, fa_device_ptr to, const void *from, size_t size)
{
    FA_TRY(b, fa_copy_to_device(b->driver, to, from, size, b->diag));
}

void fa_bench_download(fa_bench *b, void *to, fa_device_ptr from, size_t size)
{
    FA_TRY(b, fa_copy_from_device(b->driver, to, from, size, b->diag));
}

void fa_bench_zero(fa_bench *b, fa_device_ptr at, size_t size)
{
    FA_TRY(b, fa_fill8(b->driver, at, 0, size, b->stream, b->diag));
}

void fa_bench_run(fa_bench *b, fa_function function, uint64_t work, void **arguments)
{
    uint64_t blocks = (work + FA_PROVER_THREADS - 1) / FA_PROVER_THREADS;
    uint32_t grid[3] = {blocks < b->blocks_max ? (uint32_t)blocks : b->blocks_max, 1, 1};
    if (blocks > 0)
        FA_TRY(b, fa_launch_kernel(b->driver, function, grid,
                                   (const uint32_t[]){FA_PROVER_THREADS, 1, 1}, 0, b->stream,
                                   arguments, b->diag));
}

void fa_bench_run_entry(fa_bench *b, const char *entry, uint64_t work, void **arguments)
{
    fa_function function = NULL;
    FA_TRY(b, fa_module_function(b->module, entry, 0, &function, b->diag));
    fa_bench_run(b, function, work, arguments);
}

/* ---- how tensors lie -------------------------------------------------------------------------*/
int fa_proof_device_element(fa_element element)
{
    return element == FA_ELEMENT_BOOL ? FA_ELEMENT_UINT8 : (int)element;
}

bool fa_proof_lay(const fa_tensor *tensor, const uint64_t extent[4], const uint64_t stride[4],
                  uint64_t offset, struct fa_proof_tensor *of)
{
    const size_t size = fa_element_size(tensor->element);
    const uint64_t fence = (tensor->output ? FA_PROVER_FENCE : INPUT_FENCE) / size;
    bool empty = false, fits = true,
         fp8 = tensor->element == FA_ELEMENT_FP8_E4M3 || tensor->element == FA_ELEMENT_FP8_E5M2;
    uint64_t span = 1, count = 1, reach;
    struct fa_check_tensor place = {.first = fence + offset,
                                    .element = fa_proof_device_element(tensor->element),
                                    .poison = fp8 && !tensor->output ? FA_CHECK_POISON_BYTES
                                                                     : FA_CHECK_POISON};
    for (int i = 0; i < 4; i++) {
        int at = place.levels;
        place.extent[i] = extent[i];
        place.stride[i] = extent[i] > 0 || stride[i] > 0 ? stride[i] : 1;
        empty = empty || extent[i] == 0;
        count *= stride[i] > 0 || extent[i] == 1 ? extent[i] : 0;
        if (!empty && (__builtin_mul_overflow(extent[i] - 1, stride[i], &reach) ||
                       __builtin_add_overflow(span, reach, &span)))
            fits = false;
        if (extent[i] == 1 || place.stride[i] == 0)
            continue;
        for (; at > 0 && place.stride[place.order[at - 1]] < place.stride[i]; at--)
            place.order[at] = place.order[at - 1];
        place.order[at] = i;
        place.levels++;
    }
    place.units = (place.first + (empty ? 0 : span) + fence + 1) & ~(uint64_t)1;
    place.dense = count == span ? span : 0;
    of->place = place;
    return empty || (fits && span <= (uint64_t)1 << 60);
}

bool fa_proof_pack(const fa_tensor *tensor, struct fa_proof_tensor *of)
{
    of->count = of->columns = tensor->elements;
    return fa_proof_lay(tensor, (const uint64_t[]){1, 1, 1, tensor->elements},
                        (const uint64_t[]){1, 1, 1, 1}, 0, of);
}

fa_element fa_proof_wanted_element(const struct fa_proof_case *c, int tensor)
{
    return c->tensors.parameter_count == 0 ? FA_ELEMENT_FP32 : c->tensors.at[tensor].element;
}

static void plan_case(struct fa_proof_case *c, struct cursor *inputs, struct cursor *outputs)
{
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        struct fa_proof_tensor *of = &c->of[t];
        const size_t size = fa_element_size(tensor->element);
        fa_device_ptr base = take(tensor->output ? outputs : inputs, of->place.units, size);
        of->place.base = (void *)(uintptr_t)base;
        of->first = base + of->place.first * size;
        if (of->input_at >= 0 || tensor->made || of->on_host)
            of->given = take(inputs, tensor->elements, size);
        if (tensor->output)
            of->wanted = take(inputs, of->count, fa_element_size(fa_proof_wanted_element(c, t)));
    }
    c->largest = take(inputs, FA_TENSORS_MAX, sizeof(float));
    c->rows = c->sampled ? take(inputs, FA_PROVER_ROWS, sizeof *c->row) : 0;
    c->room = take(inputs, c->room_bytes, 1);
}

/* ---- inputs ----------------------------------------------------------------------------------*/
struct fa_check_values fa_proof_values(const struct fa_proof_case *c, int tensor, bool given)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    const struct fa_proof_tensor *of = &c->of[tensor];
    return (struct fa_check_values){.given = given ? (void *)(uintptr_t)of->given : NULL,
                                    .seed = of->seed,
                                    .from = t->from,
                                    .span = (uint64_t)t->span,
                                    .scale = of->scale};
}

static void fill(fa_bench *b, const struct fa_proof_case *c, int tensor,
                 const struct fa_check_tensor *place)
{
    struct fa_check_values values = fa_proof_values(c, tensor, !c->tensors.at[tensor].made);
    void *arguments[] = {(void *)(uintptr_t)place, &values, &(fa_device_ptr){0}};
    fa_bench_run(b, b->check[FA_INPUT], place->units, arguments);
}

void fa_proof_start_outputs(fa_bench *b, int index, bool references)
{
    const struct fa_proof_case *c = &b->at[index];
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        const struct fa_proof_tensor *of = &c->of[t];
        const fa_element is = references ? fa_proof_wanted_element(c, t) : tensor->element;
        struct fa_check_tensor place = of->place;
        if (references) {
            place.base = (void *)(uintptr_t)of->wanted;
            place.first = 0;
            place.units = of->count;
        }
        if (tensor->updated)
            fill(b, c, t, &place);
        else if (tensor->partial || (tensor->summed && references))
            fa_bench_zero(b, references ? of->wanted : of->first,
                          tensor->elements * fa_element_size(is));
    }
}

size_t fa_proof_host(fa_bench *b, int index, int tensor)
{
    struct fa_proof_case *c = &b->at[index];
    const fa_tensor *t = &c->tensors.at[tensor];
    struct fa_proof_tensor *of = &c->of[tensor];
    size_t bytes = t->output
                       ? (size_t)of->count * fa_element_size(fa_proof_wanted_element(c, tensor))
                       : (size_t)t->elements * fa_element_size(t->element);
    if (of->host == NULL)
        of->host = malloc(bytes + 1);
    if (of->host == NULL)
        FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "out of memory for %s", t->name));
    return bytes;
}

/* From the file to the device. */
static void upload(fa_bench *b, int64_t at, fa_device_ptr to, uint64_t bytes)
{
    enum { PIECE = 4 << 20 };
    size_t size = 0;
    FA_ENDS(fa_free_at) char *piece = malloc(bytes < PIECE ? (size_t)bytes + 1 : PIECE);
    FA_TRY(b, fa_have(piece != NULL, "the data of a proof", b->diag));
    for (uint64_t done = 0; b->rc == 0 && done < bytes; done += size) {
        size = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
        FA_TRY(b, fa_case_data_read(b->data, at + (int64_t)done, piece, size, b->diag));
        fa_bench_upload(b, to + done, piece, size);
    }
}

/* ---- references ------------------------------------------------------------------------------*/
void fa_proof_largest(fa_bench *b, int index, int tensor)
{
    struct fa_proof_case *c = &b->at[index];
    int element = fa_proof_device_element(fa_proof_wanted_element(c, tensor));
    fa_device_ptr largest = c->largest + sizeof(float) * (size_t)tensor;
    void *arguments[] = {&c->of[tensor].wanted, &c->of[tensor].count, &element, &largest};
    fa_bench_zero(b, largest, sizeof(float));
    fa_bench_run(b, b->check[FA_LARGEST], c->of[tensor].count, arguments);
}

void fa_proof_fetch(fa_bench *b, int index, int tensor)
{
    const struct fa_proof_tensor *of = &b->at[index].of[tensor];
    size_t size = fa_proof_host(b, index, tensor);
    fa_proof_largest(b, index, tensor);
    fa_bench_synchronize(b);
    fa_bench_download(b, of->host, of->wanted, size);
}

/* ---- all cases -----------------------------------------------------------------------------*/
/* Addresses of everything, from the bases that the cursors hold. */
static void plan(fa_bench *b, struct cursor *inputs, struct cursor *outputs)
{
    for (int i = 0; i < b->count; i++) {
        b->at[i].outputs = outputs->at;
        plan_case(&b->at[i], inputs, outputs);
        b->at[i].outputs_end = outputs->at;
    }
    b->result = take(outputs, FA_TENSORS_MAX, sizeof(uint64_t));
}

void fa_bench_reserve(fa_bench *b, fa_device_ptr *at, size_t bytes)
{
    enum { CUDA_OUT_OF_MEMORY = 2 };
    if (b->rc == 0 && FA_TRY(b, fa_device_alloc(b->driver, bytes, at, b->diag)) != 0 &&
        fa_driver_last_result(b->driver) == CUDA_OUT_OF_MEMORY)
        b->rc = FA_ENOMEM;
}

/* Holds the tensors of this size and all else to the budget. */
static int keep_to_budget(fa_bench *b, size_t tensors, fa_diag *diag)
{
    enum { FENCES = 4 * FA_PROVER_FENCE }; /* of a workspace and of counters */
    char which[96];
    size_t available = 0, total = 0, need = tensors + b->flush_bytes + FENCES;
    FA_OR_RETURN(fa_device_memory(b->driver, &available, &total, diag));
    const bool all = b->memory > available;
    size_t budget = all ? available : b->memory > 0 ? b->memory : available / 2;
    snprintf(which, sizeof which,
             all             ? "all that is free: free some"
             : b->memory > 0 ? "as asked: raise \"memory\""
                             : "half of the %zu MiB that are free: raise \"memory\"",
             available >> 20);
    if (need > budget)
        return fa_fail(
            diag, FA_ENOMEM,
            "proving this problem needs %zu MiB of GPU memory and its budget is %zu MiB, "
            "%s, or tune a smaller batch",
            (need >> 20) + 1, budget >> 20, which);
    b->room = budget - need;
    return 0;
}

void fa_bench_allocate(fa_bench *b)
{
    struct cursor inputs = {0}, outputs = {0};
    for (int i = 0; i < b->count; i++) {
        struct fa_proof_case *c = &b->at[i];
        bool answered = false; /* an output without elements has its place in the file, too */
        for (int t = 0; t < c->tensors.count; t++) {
            c->of[t].input_at = b->data != NULL ? b->data->input[i][t] : -1;
            c->of[t].answer_at = b->data != NULL ? b->data->answer[i][t] : -1;
            answered = answered || (c->tensors.at[t].output && c->of[t].answer_at >= 0);
            c->tensors.at[t].runs &= i == 0 && c->tensors.at[t].elements >= RUNS_LEAST &&
                                     c->tensors.at[t].elements <= RUNS_MOST;
            c->of[t].on_host |= c->tensors.at[t].runs;
        }
        c->by = fa_problem_has_no_answer(&c->problem)     ? FA_PROOF_FIRST
                : answered                                ? FA_PROOF_ANSWER
                : fa_problem_answer_is_given(&c->problem) ? FA_PROOF_FIRST
                                                          : FA_PROOF_REFERENCE;
    }
    plan(b, &inputs, &outputs);
    if (inputs.overflow || outputs.overflow || inputs.at > SIZE_MAX / 4 ||
        outputs.at > SIZE_MAX / 4)
        FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "the tensors of this problem pass 2^62 bytes"));
    FA_TRY(b, keep_to_budget(b, (size_t)(inputs.at + outputs.at), b->diag));
    fa_bench_reserve(b, &b->inputs, (size_t)inputs.at);
    fa_bench_reserve(b, &b->outputs, (size_t)outputs.at);
    inputs = (struct cursor){.at = b->inputs};
    outputs = (struct cursor){.at = b->outputs};
    plan(b, &inputs, &outputs);
    for (int i = 0; b->rc == 0 && i < b->count; i++)
        b->type->place(b, i);
}

void fa_bench_prepare(fa_bench *b)
{
    if (b->rc != 0)
        return;
    for (int i = 0; b->rc == 0 && i < b->count; i++) {
        struct fa_proof_case *c = &b->at[i];
        fa_bench_synchronize(b);
        for (int t = c->tensors.count - 1; t >= 0; t--) { /* the last may say what others use */
            const fa_tensor *tensor = &c->tensors.at[t];
            struct fa_proof_tensor *of = &c->of[t];
            const uint64_t bytes = tensor->elements * fa_element_size(tensor->element);
            of->seed = fa_case_seed(b->seed, i, t);
            if (tensor->runs && fa_proof_host(b, i, t) > 0 && b->rc == 0)
                fa_case_draw(tensor, of->seed, of->host);
            if (of->input_at >= 0)
                upload(b, of->input_at, of->given, bytes);
            else if (of->on_host)
                fa_bench_upload(b, of->given, of->host, fa_proof_host(b, i, t));
            if (!tensor->output)
                fill(b, c, t, &of->place);
        }
        if (c->sampled)
            fa_bench_upload(b, c->rows, c->row, sizeof c->row);
        if (b->rc == 0 && !c->empty)
            b->type->refer(b, i);
    }
    fa_bench_synchronize(b);
    if (b->rc == 0)
        b->damaged = false;
    else
        fa_fail_in(b->diag, b->rc, "preparing the reference");
}
