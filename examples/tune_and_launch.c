/* SPDX-License-Identifier: Apache-2.0
 *
 * Gets the best kernel for a problem and launches it on buffers of this program, in a context of
 * this program; checks the result on the CPU.
 *
 * The first run tunes and keeps the winner; the second finds it and launches at once. With
 * FA_TUNE_SERVER=unix:/PATH, where `fa-tune serve` listens, that service tunes and keeps, and this
 * program asks it for the kernel; should it be gone, a note says so and everything is done here. Exit
 * status 77: no CUDA device here.
 *
 * A program that uses CUDA already has a context and buffers and needs main()'s middle part only.
 * This one opens the driver by hand, so that it builds where no CUDA toolkit is.
 */
#include <fa_tune.h>

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1, HEADS = 2, SEQ = 128, DIM = 64, COUNT = BATCH * HEADS * SEQ * DIM };
enum { NO_DEVICE = 77 };

/* ---- as much of the driver as this needs ------------------------------------------------------ */
typedef unsigned long long device_pointer;

static struct {
    int (*init)(unsigned);
    int (*device_get)(int *, int);
    int (*context_retain)(void **, int);
    int (*context_release)(int);
    int (*context_push)(void *);
    int (*alloc)(device_pointer *, size_t);
    int (*release)(device_pointer);
    int (*to_device)(device_pointer, const void *, size_t);
    int (*from_device)(void *, device_pointer, size_t);
    int (*wait)(void *);
} cuda;

static int load_driver(void)
{
    const char *named = getenv("FA_TUNE_LIBCUDA");
    void *library = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    const struct {
        const char *symbol;
        void *member;
    } symbols[] = {{"cuInit", &cuda.init},
                   {"cuDeviceGet", &cuda.device_get},
                   {"cuDevicePrimaryCtxRetain", &cuda.context_retain},
                   {"cuDevicePrimaryCtxRelease_v2", &cuda.context_release},
                   {"cuCtxPushCurrent_v2", &cuda.context_push},
                   {"cuMemAlloc_v2", &cuda.alloc},
                   {"cuMemFree_v2", &cuda.release},
                   {"cuMemcpyHtoD_v2", &cuda.to_device},
                   {"cuMemcpyDtoH_v2", &cuda.from_device},
                   {"cuStreamSynchronize", &cuda.wait}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = library != NULL ? dlsym(library, symbols[i].symbol) : NULL;
        if (address == NULL)
            return -1;
        memcpy(symbols[i].member, &address, sizeof address);
    }
    return 0;
}

/* ---- fp16, for values whose magnitude is 0 or in [2^-14, 65504] -------------------------------- */
static unsigned short half_of(float value)
{
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent); /* in [0.5, 1) */
    if (!(fraction > 0) || exponent < -13)
        return 0;
    unsigned mantissa = (unsigned)lrintf(fraction * 2048); /* in [1024, 2048], rounded to even */
    unsigned bits =
        ((unsigned)(exponent + 13) << 10) + mantissa; /* 2048 carries into the exponent */
    return (unsigned short)(bits | (value < 0 ? 0x8000u : 0));
}

static float float_of(unsigned short half)
{
    int exponent = half >> 10 & 31;
    float value = exponent == 0 ? ldexpf((float)(half & 1023), -24)
                                : ldexpf((float)(half & 1023) + 1024, exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* ---- the reference: softmax(Q K^T / sqrt(D)) V, causal, in double ------------------------------ */
static void reference_row(const unsigned short *q, const unsigned short *k, const unsigned short *v,
                          int row, double ret_out[DIM])
{
    double score[SEQ], largest = -INFINITY, sum = 0;
    for (int j = 0; j <= row; j++) {
        score[j] = 0;
        for (int d = 0; d < DIM; d++)
            score[j] += (double)float_of(q[row * DIM + d]) * (double)float_of(k[j * DIM + d]);
        score[j] /= sqrt(DIM);
        largest = score[j] > largest ? score[j] : largest;
    }
    memset(ret_out, 0, DIM * sizeof *ret_out);
    for (int j = 0; j <= row; j++) {
        double weight = exp(score[j] - largest);
        sum += weight;
        for (int d = 0; d < DIM; d++)
            ret_out[d] += weight * (double)float_of(v[j * DIM + d]);
    }
    for (int d = 0; d < DIM; d++)
        ret_out[d] /= sum;
}

/* Largest |o - reference|; NaN when there is one. */
static double largest_error(unsigned short *const tensor[4])
{
    double worst = 0;
    for (int head = 0; head < BATCH * HEADS; head++) {
        size_t at = (size_t)head * SEQ * DIM;
        for (int row = 0; row < SEQ; row++) {
            double expected[DIM];
            reference_row(tensor[0] + at, tensor[1] + at, tensor[2] + at, row, expected);
            for (int d = 0; d < DIM; d++) {
                double error =
                    fabs((double)float_of(tensor[3][at + (size_t)(row * DIM + d)]) - expected[d]);
                if (!(error <= worst))
                    worst = error;
            }
        }
    }
    return worst;
}

static void fill(unsigned short *tensor, unsigned seed)
{
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        tensor[i] = half_of((float)(seed >> 8) / (float)(1 << 23) - 1); /* [-1, 1) */
    }
}

static void print_answer(const fa_answer *answer)
{
    printf("kernel %s", answer->trial.config.family);
    for (int i = 0; i < answer->trial.config.count; i++)
        printf(" %s=%d", answer->trial.config.tunable[i].name,
               answer->trial.config.tunable[i].value);
    printf("\norigin %s, %s", fa_name_of_origin(answer->origin),
           answer->from_store ? "found in the store" : "tuned now");
    if (answer->trial.median_us > 0)
        printf(", %.2f us", answer->trial.median_us);
    printf(" on %s\n", answer->gpu.name);
}

static void print_note(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "note: %s\n", sentence);
}

/* The part that a program of your own needs: `tuner` once, the rest per problem. */
static int attend(fa_tuner *tuner, const device_pointer buffer[4], fa_diag *diag)
{
    const fa_problem problem = {.dtype = FA_FP16,
                                .causal = FA_CAUSAL_BOTTOM_RIGHT,
                                .layout = FA_BHSD,
                                .head_dim = DIM,
                                .batch = BATCH,
                                .heads_q = HEADS,
                                .heads_kv = HEADS,
                                .seq_q = SEQ,
                                .seq_k = SEQ};
    const fa_kernel *kernel;
    const char *server = fa_server_location(tuner);
    int rc = fa_get_best_kernel(tuner, &problem, FA_EFFORT_CACHED, &kernel, diag);
    if (rc == FA_ENOTFOUND) {
        printf("not in %s yet: tuning\n", server[0] != 0 ? server : fa_store_location(tuner));
        fflush(stdout);
        rc = fa_get_best_kernel(tuner, &problem, FA_EFFORT_MEASURE, &kernel, diag);
    }
    if (rc != 0)
        return rc;
    const fa_answer *answer = fa_kernel_answer(kernel);
    if (answer == NULL) {
        snprintf(diag->text, sizeof diag->text, "out of memory for the answer");
        return FA_ENOMEM;
    }
    print_answer(answer);
    server = fa_server_location(tuner); /* "" when it could not help */
    if (server[0] != 0)
        printf("from the service at %s\n", server);
    fa_attn_args args = {.size = sizeof(fa_attn_args),
                         .q = (const void *)(size_t)buffer[0],
                         .k = (const void *)(size_t)buffer[1],
                         .v = (const void *)(size_t)buffer[2],
                         .o = (void *)(size_t)buffer[3]};
    return fa_launch(kernel, &args, NULL, diag);
}

int main(void)
{
    int device = 0, rc = -1, failed = 0;
    void *context = NULL;
    fa_tuner *tuner = NULL;
    fa_options options = {.size = sizeof options, .log = print_note};
    fa_diag diag = {""};
    device_pointer buffer[4] = {0};
    unsigned short *tensor[4]; /* q, k, v, o: [BATCH, HEADS, SEQ, DIM] */
    if (load_driver() != 0 || cuda.init(0) != 0 || cuda.device_get(&device, 0) != 0 ||
        cuda.context_retain(&context, device) != 0 || cuda.context_push(context) != 0) {
        puts("no CUDA device");
        return NO_DEVICE;
    }
    for (int i = 0; i < 4; i++) {
        tensor[i] = calloc(COUNT, sizeof *tensor[i]);
        if (tensor[i] == NULL) {
            fprintf(stderr, "out of memory for a tensor\n");
            return 1;
        }
        fill(tensor[i], (unsigned)i + 1);
        failed |= cuda.alloc(&buffer[i], COUNT * sizeof *tensor[i]) != 0 ||
                  cuda.to_device(buffer[i], tensor[i], COUNT * sizeof *tensor[i]) != 0;
    }
    if (!failed)
        rc = fa_open(&options, &tuner, &diag);
    if (rc == 0)
        rc = attend(tuner, buffer, &diag);
    if (rc == 0 && (cuda.wait(NULL) != 0 ||
                    cuda.from_device(tensor[3], buffer[3], COUNT * sizeof *tensor[3]) != 0))
        rc = -1;
    double error = rc == 0 ? largest_error(tensor) : NAN;
    fa_close(&tuner); /* unloads the kernel: nothing may run on it any more */
    for (int i = 0; i < 4; i++) {
        cuda.release(buffer[i]);
        free(tensor[i]);
    }
    cuda.context_release(device);
    if (rc != 0) {
        fprintf(stderr, "%s\n", diag.text[0] != 0 ? diag.text : "a CUDA call failed");
        return 1;
    }
    printf("largest error %.2g against the CPU\n", error);
    return error <= 2e-3 ? 0 : 1;
}
