/* SPDX-License-Identifier: Apache-2.0
 *
 * The cases of a prover in device memory: how tensors lie between their fences, their inputs, and references.
 *
 * Workload: made once per problem; filled anew after a candidate wrote where it must not.
 */
#include "prover_base.h"

#include "case_data.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_FENCE = 4096, CHECK_THREADS = 256 };
enum { FILL, LARGEST };

fa_device_ptr fa_cursor_take(struct fa_cursor *cursor, uint64_t count, uint64_t size)
{
    uint64_t start = cursor->at, bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, 255u, &bytes) ||
        __builtin_add_overflow(start, bytes & ~(uint64_t)255, &cursor->at))
        cursor->overflow = true;
    return start;
}

int fa_prover_run(fa_prover *p, fa_function function, uint32_t threads, uint64_t work,
                  void **arguments, fa_diag *diag)
{
    uint64_t blocks = (work + threads - 1) / threads;
    if (blocks == 0)
        return 0;
    uint32_t grid[3] = {blocks < p->blocks_max ? (uint32_t)blocks : p->blocks_max, 1, 1};
    return fa_launch_kernel(p->driver, function, grid, (const uint32_t[]){threads, 1, 1}, 0,
                            p->stream, arguments, diag);
}

int fa_prover_run_entry(fa_prover *p, const char *entry, uint64_t work, void **arguments,
                        fa_diag *diag)
{
    fa_function function;
    int rc = fa_module_function(p->module, entry, 0, &function, diag);
    return rc != 0 ? rc
                   : fa_prover_run(p, function, FA_PROVER_REFERENCE_THREADS, work, arguments, diag);
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
    uint64_t span = 1, reach;
    struct fa_check_tensor place = {.first = fence + offset,
                                    .element = fa_proof_device_element(tensor->element),
                                    .poison = fp8 && !tensor->output ? FA_CHECK_POISON_BYTES
                                                                     : FA_CHECK_POISON};
    for (int i = 0; i < 4; i++) {
        int at = place.levels;
        place.extent[i] = extent[i];
        place.stride[i] = extent[i] > 0 || stride[i] > 0 ? stride[i] : 1;
        empty = empty || extent[i] == 0;
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

int64_t fa_proof_input_at(const fa_prover *prover, int index, int tensor)
{
    return prover->data != NULL ? prover->data->input[index][tensor] : -1;
}

int64_t fa_proof_answer_at(const fa_prover *prover, int index, int tensor)
{
    return prover->data != NULL ? prover->data->answer[index][tensor] : -1;
}

static void plan_case(fa_prover *prover, int index, struct fa_cursor *inputs,
                      struct fa_cursor *outputs)
{
    struct fa_proof_case *c = &prover->at[index];
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        struct fa_proof_tensor *of = &c->of[t];
        const size_t size = fa_element_size(tensor->element);
        fa_device_ptr base =
            fa_cursor_take(tensor->output ? outputs : inputs, of->place.units, size);
        of->place.base = (void *)(uintptr_t)base;
        of->first = base + of->place.first * size;
        if (fa_proof_input_at(prover, index, t) >= 0 || tensor->made || of->on_host)
            of->given = fa_cursor_take(inputs, tensor->elements, size);
        if (tensor->output)
            of->wanted =
                fa_cursor_take(inputs, of->count, fa_element_size(fa_proof_wanted_element(c, t)));
    }
    c->largest = fa_cursor_take(inputs, FA_TENSORS_MAX, sizeof(float));
    c->rows = c->sampled ? fa_cursor_take(inputs, FA_PROVER_ROWS, sizeof *c->row) : 0;
    c->room = fa_cursor_take(inputs, c->room_bytes, 1);
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

static int fill(fa_prover *prover, const struct fa_proof_case *c, int tensor,
                const struct fa_check_tensor *place, fa_diag *diag)
{
    struct fa_check_values values = fa_proof_values(c, tensor, !c->tensors.at[tensor].made);
    void *arguments[] = {(void *)(uintptr_t)place, &values};
    return fa_prover_run(prover, prover->kernel[FILL], CHECK_THREADS, place->units, arguments,
                         diag);
}

int fa_proof_start_outputs(fa_prover *prover, int index, bool references, fa_diag *diag)
{
    const struct fa_proof_case *c = &prover->at[index];
    int rc = 0;
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
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
            rc = fill(prover, c, t, &place, diag);
        else if (tensor->partial)
            rc = fa_fill8(prover->driver, references ? of->wanted : of->first, 0,
                          tensor->elements * fa_element_size(is), prover->stream, diag);
    }
    return rc;
}

int fa_proof_host(struct fa_proof_case *c, int tensor, size_t *ret_bytes, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    struct fa_proof_tensor *of = &c->of[tensor];
    *ret_bytes = t->output ? (size_t)of->count * fa_element_size(fa_proof_wanted_element(c, tensor))
                           : (size_t)t->elements * fa_element_size(t->element);
    if (of->host == NULL)
        of->host = malloc(*ret_bytes + 1);
    return of->host != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for %s", t->name);
}

/* From the file to the device. */
static int upload(fa_prover *prover, int64_t at, fa_device_ptr to, uint64_t bytes, fa_diag *diag)
{
    enum { PIECE = 4 << 20 };
    int rc = 0;
    size_t size = 0;
    char *piece = malloc(bytes < PIECE ? (size_t)bytes + 1 : PIECE);
    if (piece == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the data of a proof");
    for (uint64_t done = 0; rc == 0 && done < bytes; done += size) {
        size = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
        rc = fa_case_data_read(prover->data, at + (int64_t)done, piece, size, diag);
        if (rc == 0)
            rc = fa_copy_to_device(prover->driver, to + done, piece, size, diag);
    }
    free(piece);
    return rc;
}

static int make_on_host(fa_prover *prover, int index, int tensor, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    size_t bytes = 0;
    int rc = fa_proof_host(c, tensor, &bytes, diag);
    if (rc == 0)
        rc = prover->type->make_input(prover, index, tensor, c->of[tensor].host, diag);
    return rc != 0 || bytes == 0 ? rc
                                 : fa_copy_to_device(prover->driver, c->of[tensor].given,
                                                     c->of[tensor].host, bytes, diag);
}

static int prepare_case(fa_prover *prover, int index, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    int rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = c->tensors.count - 1; t >= 0 && rc == 0;
         t--) { /* the last may say what others use */
        const fa_tensor *tensor = &c->tensors.at[t];
        int64_t at = fa_proof_input_at(prover, index, t);
        c->of[t].seed = fa_case_seed(prover->seed, index, t);
        if (at >= 0)
            rc = upload(prover, at, c->of[t].given,
                        tensor->elements * fa_element_size(tensor->element), diag);
        else if (c->of[t].on_host)
            rc = make_on_host(prover, index, t, diag);
        if (rc == 0 && !tensor->output)
            rc = fill(prover, c, t, &c->of[t].place, diag);
    }
    if (rc == 0 && c->sampled)
        rc = fa_copy_to_device(prover->driver, c->rows, c->row, sizeof c->row, diag);
    return rc != 0 || c->empty ? rc : prover->type->refer(prover, index, diag);
}

/* ---- references ------------------------------------------------------------------------------*/
int fa_proof_largest(fa_prover *prover, int index, int tensor, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    int element = fa_proof_device_element(fa_proof_wanted_element(c, tensor));
    fa_device_ptr largest = c->largest + sizeof(float) * (size_t)tensor;
    void *arguments[] = {&c->of[tensor].wanted, &c->of[tensor].count, &element, &largest};
    int rc = fa_fill8(prover->driver, largest, 0, sizeof(float), prover->stream, diag);
    return rc != 0 ? rc
                   : fa_prover_run(prover, prover->kernel[LARGEST], CHECK_THREADS,
                                   c->of[tensor].count, arguments, diag);
}

int fa_proof_fetch(fa_prover *prover, int index, int tensor, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    size_t size = 0;
    int rc = fa_proof_host(c, tensor, &size, diag);
    if (rc == 0)
        rc = fa_proof_largest(prover, index, tensor, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    return rc != 0 || size == 0 ? rc
                                : fa_copy_from_device(prover->driver, c->of[tensor].host,
                                                      c->of[tensor].wanted, size, diag);
}

/* ---- all cases -----------------------------------------------------------------------------*/
/* Addresses of everything, from the bases that the cursors hold. */
static void plan(fa_prover *p, struct fa_cursor *inputs, struct fa_cursor *outputs)
{
    for (int i = 0; i < p->count; i++) {
        plan_case(p, i, inputs, outputs);
        if (i == 0)
            p->small_outputs = outputs->at;
    }
    p->outputs_end = outputs->at;
    p->result = fa_cursor_take(outputs, FA_TENSORS_MAX, sizeof(uint64_t));
}

int fa_prover_memory_error(const fa_driver *driver, int rc)
{
    enum { CUDA_OUT_OF_MEMORY = 2 };
    return fa_driver_last_result(driver) == CUDA_OUT_OF_MEMORY ? FA_ENOMEM : rc;
}

/* Twice the L2, so that no line of the tensors stays whatever the replacement policy. */
size_t fa_prover_flush_bytes(const fa_gpu *gpu)
{
    size_t least = (size_t)32 << 20;
    size_t twice = gpu->l2_bytes > 0 ? 2 * (size_t)gpu->l2_bytes : 8 * least;
    return twice > least ? twice : least;
}

size_t fa_prover_room(const fa_prover *prover)
{
    return prover->room;
}

/* Holds the tensors of this size and all else to the budget. */
static int keep_to_budget(fa_prover *p, size_t tensors, fa_diag *diag)
{
    enum { FENCES = 4 * FA_PROVER_FENCE }; /* of a workspace and of counters */
    char which[96];
    size_t available = 0, total = 0, need = tensors + p->flush_bytes + FENCES;
    int rc = fa_device_memory(p->driver, &available, &total, diag);
    if (rc != 0)
        return rc;
    size_t budget = p->memory > 0 ? p->memory : available / 2;
    if (need > available)
        return fa_fail(
            diag, FA_ENOMEM,
            "proving this problem needs %zu MiB of GPU memory and %zu MiB are free: free "
            "some, or tune a smaller batch",
            need >> 20, available >> 20);
    snprintf(which, sizeof which, p->memory > 0 ? "as asked" : "half of the %zu MiB that are free",
             available >> 20);
    if (need > budget)
        return fa_fail(
            diag, FA_ENOMEM,
            "proving this problem needs %zu MiB of GPU memory and its budget is %zu MiB, "
            "%s: raise \"memory\", or tune a smaller batch",
            (need >> 20) + 1, budget >> 20, which);
    p->room = budget - need;
    return 0;
}

int fa_prover_allocate(fa_prover *p, fa_diag *diag)
{
    struct fa_cursor inputs = {0}, outputs = {0};
    plan(p, &inputs, &outputs);
    if (inputs.overflow || outputs.overflow || inputs.at > SIZE_MAX / 4 ||
        outputs.at > SIZE_MAX / 4)
        return fa_fail(diag, FA_ENOMEM, "the tensors of this problem pass 2^62 bytes");
    int rc = keep_to_budget(p, (size_t)(inputs.at + outputs.at), diag);
    if (rc != 0)
        return rc;
    rc = fa_device_alloc(p->driver, (size_t)inputs.at, &p->inputs, diag);
    if (rc == 0)
        rc = fa_device_alloc(p->driver, (size_t)outputs.at, &p->outputs, diag);
    if (rc != 0)
        return fa_fail_in(diag, fa_prover_memory_error(p->driver, rc),
                          "allocating %llu MiB for tensors",
                          (unsigned long long)(inputs.at + outputs.at) >> 20);
    inputs = (struct fa_cursor){.at = p->inputs};
    outputs = (struct fa_cursor){.at = p->outputs};
    plan(p, &inputs, &outputs);
    for (int i = 0; rc == 0 && i < p->count; i++)
        rc = p->type->place(p, i, diag);
    return rc;
}

int fa_prover_prepare(fa_prover *p, fa_diag *diag)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < p->count; i++)
        rc = prepare_case(p, i, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(p->driver, p->stream, diag);
    if (rc == 0)
        p->damaged = false;
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "preparing the reference");
}

void fa_proof_release(fa_prover *prover)
{
    for (int i = 0; i < FA_BENCH_CASES; i++) {
        for (int t = 0; t < FA_TENSORS_MAX; t++)
            free(prover->at[i].of[t].host);
        fa_tensors_free(&prover->at[i].tensors);
    }
    free(prover->own);
    free(prover->host);
}
