/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a kernel for a GPU that is not in this machine, as a build server does, and writes its
 * cubin to a file, with the numbers that its launch needs.
 *
 *     compile_for_absent_gpu [GPU] [FILE]      (L4, attention.cubin)
 *
 * The answer says "predicted": a model ranked the kernels, nothing was timed.
 */
#include <fa_tune.h>

#include <stdio.h>
#include <stdlib.h>

static int write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return -1;
    size_t written = fwrite(bytes, 1, size, file);
    int closed = fclose(file);
    return written == size && closed == 0 ? 0 : -1;
}

static void print_answer(const fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    printf("gpu        %s, sm_%d\n", answer->gpu.name, answer->gpu.sm);
    printf("origin     %s, %s\n", fa_name_of_origin(answer->origin),
           answer->from_store ? "found in the store" : "made now");
    printf("config     %s", trial->config.family);
    for (int i = 0; i < trial->config.count; i++)
        printf(" %s=%d", trial->config.tunable[i].name, trial->config.tunable[i].value);
    printf("\nentry      %s\n", answer->entry);
    printf("grid       %u x %u x %u blocks of %d threads\n", trial->grid[0], trial->grid[1],
           trial->grid[2], trial->threads);
    printf("resources  %d bytes of dynamic shared memory, %d registers\n", trial->smem_bytes,
           trial->registers);
    printf("time       about %.0f us by the model\n", trial->predicted_us);
}

int main(int argc, char **argv)
{
    const char *gpu = argc > 1 ? argv[1] : "L4", *path = argc > 2 ? argv[2] : "attention.cubin";
    fa_tuner *tuner = NULL;
    fa_answer answer = {.size = sizeof answer};
    fa_diag diag;
    void *cubin = NULL;
    size_t size = 0;
    fa_request request = {
        .size = sizeof request,
        .problem = {.dtype = FA_BF16,
                    .causal = FA_CAUSAL_BOTTOM_RIGHT,
                    .head_dim = 128,
                    .batch = 1,
                    .heads_q = 32,
                    .heads_kv = 8,
                    .seq_q = 2048,
                    .seq_k = 2048},
        .gpu = gpu,
        .effort = FA_EFFORT_PREDICT, /* the model's first choices; FA_EFFORT_MEASURE: all of them */
    };

    int rc = fa_open(NULL, &tuner, &diag);
    if (rc == 0)
        rc = fa_tune(tuner, &request, &answer, &diag);
    if (rc == 0)
        rc = fa_answer_cubin(tuner, &answer, &cubin, &size, &diag);
    fa_close(&tuner);
    if (rc != 0) {
        fprintf(stderr, "%s\n", diag.text);
        return 1;
    }
    print_answer(&answer);
    rc = write_file(path, cubin, size);
    free(cubin);
    if (rc != 0) {
        perror(path);
        return 1;
    }
    printf("cubin      %s, %zu bytes\n", path, size);
    return 0;
}
