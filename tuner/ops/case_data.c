/* SPDX-License-Identifier: Apache-2.0
 *
 * Workload: up to eight cases, of which one has the problem's own size: as much memory on the host as its tensors have.
 */
#include "bench.h"

#include "buf.h"
#include "error.h"
#include "problem.h"
#include "spec.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- drawn inputs ----------------------------------------------------------------------------*/
uint64_t fa_case_seed(uint64_t seed, int index, int tensor)
{
    return fa_random(seed, (uint64_t)(1000 + FA_TENSORS_MAX * index + tensor));
}

enum { SUMS = 4 * 127 + 1 };

/* The value of a sum of four numbers below 128, which is near enough to normal: k / 64 with |k| < 256, coarser of fp8, which
 * every type of fractions has exactly. As fa_check.cuh. */
static double drawn_value(fa_element element, int sum)
{
    const int k = sum - SUMS / 2;
    if (fa_element_is_integer(element))
        return element < FA_ELEMENT_UINT8 ? k / 2 : sum / 2;
    return element == FA_ELEMENT_FP8_E4M3 || element == FA_ELEMENT_FP8_E5M2 ? k / 32 / 2.0
                                                                            : k / 64.0;
}

/* As fa_check.cuh fills them in, but for runs. Without a range there are few values, which are made once: a tensor may have
 * hundreds of millions of them. */
void fa_case_draw(const fa_tensor *tensor, uint64_t seed, unsigned char *elements)
{
    enum { RUN = 384 };
    const size_t size = fa_element_size(tensor->element);
    const uint64_t span = (uint64_t)tensor->span;
    unsigned char of_sum[SUMS][8];
    for (int sum = 0; sum < SUMS; sum++)
        fa_element_store(tensor->element, drawn_value(tensor->element, sum), of_sum[sum]);
    for (uint64_t i = 0; i < tensor->elements; i++) {
        const uint64_t random = fa_random(seed, tensor->runs ? i / RUN : i);
        unsigned char *at = elements + i * size;
        const unsigned char *sum = of_sum[(random & 127) + (random >> 16 & 127) +
                                          (random >> 32 & 127) + (random >> 48 & 127)];
        if (span > 0)
            fa_element_store(tensor->element, (double)(tensor->from + (int64_t)(random % span)), at);
        else if (i + sizeof *of_sum <= tensor->elements) /* then more than one element is there, */
            memcpy(at, sum, sizeof *of_sum); /* and one move takes a fourth of a copy of `size` */
        else
            memcpy(at, sum, size);
    }
}

/* ---- who gives the rest ----------------------------------------------------------------------*/
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all specifications' functions */

const char *fa_spec_fault_of(const fa_problem *problem)
{
    const fa_spec *spec = fa_operation_of(problem)->spec;
    return spec != NULL ? spec->fault.text : "";
}

int fa_spec_set_cases(const fa_operation *operation, fa_case_function *function, void *context,
                      int32_t contents, fa_diag *diag)
{
    fa_spec *spec = operation->spec;
    if (spec == NULL || contents < 0)
        return fa_fail(diag, FA_EINVAL,
                       "%s is no kernel specification of this process, or the hash is negative",
                       operation->name);
    pthread_mutex_lock(&mutex);
    spec->cases = function;
    spec->cases_context = context;
    pthread_mutex_unlock(&mutex);
    atomic_store(&((fa_operation *)(uintptr_t)operation)->contents, contents);
    return 0;
}

fa_case_function *fa_spec_cases_of(const fa_operation *operation, void **ret_context)
{
    const fa_spec *spec = operation->spec;
    FA_HOLDS(&mutex);
    *ret_context = spec != NULL ? spec->cases_context : NULL;
    return spec != NULL ? spec->cases : NULL;
}

/* ---- one case --------------------------------------------------------------------------------*/
struct one_case {
    const fa_problem *problem;
    int index;
    fa_tensor_list list;
    fa_tensor_values values; /* of scalars */
    fa_case_argument argument[FA_PARAMETERS_MAX];
};

/* A case, and the file that keeps it, take at most half of the memory that the host has left: overcommitted, they would
 * take it all. */
static int fits_host(const fa_tensor_list *list, fa_diag *diag)
{
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    uint64_t bytes = 0, left_kib = UINT64_MAX;
    for (int t = 0; t < list->count; t++) {
        const fa_tensor *tensor = &list->at[t];
        bytes += (1u + tensor->updated) * 2 * tensor->elements * fa_element_size(tensor->element);
    }
    if (fa_buf_read_file(&text, "/proc/meminfo", 1 << 16) == 0) {
        const char *at = strstr(text.data, "MemAvailable:");
        if (at != NULL)
            left_kib = strtoull(at + strlen("MemAvailable:"), NULL, 10);
    }
    return bytes >> 10 <= left_kib / 2
               ? 0
               : fa_fail(
                     diag, FA_ENOMEM,
                     "the data of a proof needs %llu MiB on the host and may take %llu MiB, half "
                     "of what is left there: tune a smaller problem",
                     (unsigned long long)(bytes >> 20), (unsigned long long)(left_kib / 2 >> 10));
}

static int add_arguments(struct one_case *c, uint64_t seed, fa_diag *diag)
{
    FA_OR_RETURN(fa_tensors_read(c->problem, &c->list, diag));
    FA_OR_RETURN(fits_host(&c->list, diag));
    fa_tensors_scalars(c->problem, &c->list, true, &c->values);
    for (int i = 0; i < c->list.parameter_count; i++) {
        const int at = c->list.parameter[i];
        fa_case_argument *argument = &c->argument[i];
        fa_tensors_argument(&c->list, at, c->problem, &argument->is);
        if (at >= FA_TENSORS_MAX) {
            argument->input = &c->values.scalar[at - FA_TENSORS_MAX];
            argument->bytes = fa_element_size(c->list.scalar[at - FA_TENSORS_MAX].element);
            continue;
        }
        const fa_tensor *tensor = &c->list.at[at];
        const bool given = !tensor->output || tensor->updated;
        argument->bytes = (size_t)tensor->elements * fa_element_size(tensor->element);
        argument->answer = tensor->output ? calloc(1, argument->bytes + 1) : NULL;
        argument->input = given ? calloc(1, argument->bytes + 1) : NULL;
        if ((tensor->output && argument->answer == NULL) || (given && argument->input == NULL))
            return fa_fail(diag, FA_ENOMEM, "out of memory for %s on the host: %zu MiB",
                           tensor->name, argument->bytes >> 20);
        if (given)
            fa_case_draw(tensor, fa_case_seed(seed, c->index, at), argument->input);
    }
    return 0;
}

/* ---- the file --------------------------------------------------------------------------------*/
/* Appends what was given of a tensor; *ret_at: where it lies. */
static int keep(fa_case_data *data, const fa_tensor *tensor, const char *elements, size_t size,
                const char *what, int64_t *ret_at, fa_diag *diag)
{
    const bool integer = fa_element_is_integer(tensor->element);
    for (uint64_t i = 0; !integer && i < tensor->elements; i++)
        if (isnan(
                fa_element_value(tensor->element, elements + i * fa_element_size(tensor->element))))
            return fa_fail(diag, FA_EINVAL,
                           "element %llu of %s is NaN in %s: no kernel can be proved by it",
                           (unsigned long long)i / (unsigned)fa_element_numbers(tensor->element),
                           tensor->name, what);
    *ret_at = lseek(data->fd, 0, SEEK_CUR);
    int rc = fa_write_all(data->fd, elements, size);
    return rc == 0 ? 0
                   : fa_fail(diag, rc, "the data of a proof cannot be kept: %s", strerror(errno));
}

static int keep_case(fa_case_data *data, const struct one_case *c, fa_diag *diag)
{
    int outputs = 0, answered = 0;
    bool wanted = fa_problem_answer_is_given(c->problem);
    for (int i = 0; i < c->list.parameter_count; i++) {
        const fa_case_argument *argument = &c->argument[i];
        int t = c->list.parameter[i];
        if (!argument->is.tensor)
            continue;
        const fa_tensor *tensor = &c->list.at[t];
        if (argument->given && argument->input != NULL)
            FA_OR_RETURN(keep(data, tensor, argument->input, argument->bytes, "what is given",
                              &data->input[c->index][t], diag));
        outputs += tensor->output;
        answered += tensor->output && argument->answered;
        if (wanted && tensor->output && argument->answered)
            FA_OR_RETURN(keep(data, tensor, argument->answer, argument->bytes, "the answer",
                              &data->answer[c->index][t], diag));
    }
    return wanted && answered != outputs && (answered > 0 || c->index == 0)
               ? fa_fail(diag, FA_EINVAL, "the answer gives %d of the kernel's %d outputs",
                         answered, outputs)
               : 0;
}

int fa_case_data_make(const fa_problem *cases, int count, uint64_t seed, fa_case_function *function,
                      void *context, fa_case_data **ret_data, fa_diag *diag)
{
    int rc = 0;
    FA_ENDS(fa_case_data_close) fa_case_data *data = malloc(sizeof *data);
    FA_OR_RETURN(fa_have(data != NULL, "the data of a proof", diag));
    memset(data, 0xff, sizeof *data); /* every place is -1 */
    data->seed = seed;
    data->fd = memfd_create("fa-tune-cases", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (data->fd < 0 || lseek(data->fd, sizeof *data, SEEK_SET) < 0)
        rc = fa_fail(diag, FA_EIO, "no file for the data of a proof: %s", strerror(errno));
    for (int i = 0; i < count && rc == 0; i++) {
        struct one_case c = {.problem = &cases[i], .index = i};
        rc = add_arguments(&c, seed, diag);
        if (rc == 0 &&
            (rc = function(context, &cases[i], i, c.argument, c.list.parameter_count)) != 0)
            fa_fail(diag, rc, "the function that gives a proof's data failed");
        if (rc == 0)
            rc = keep_case(data, &c, diag);
        for (int k = 0; k < FA_PARAMETERS_MAX; k++) {
            if (c.argument[k].is.tensor)
                free(c.argument[k].input);
            free(c.argument[k].answer);
        }
        fa_tensors_free(&c.list);
    }
    /* The places lie in front of what they are of. What kernels are proved against then stays as it is, whoever opens it. */
    if (rc == 0 && (pwrite(data->fd, data, sizeof *data, 0) != (ssize_t)sizeof *data ||
                    fcntl(data->fd, F_ADD_SEALS,
                          F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0))
        rc = fa_fail(diag, FA_EIO, "the data of a proof cannot be sealed: %s", strerror(errno));
    if (rc == 0)
        *ret_data = data, data = NULL;
    return rc;
}

void fa_case_data_close(fa_case_data **data)
{
    if (*data != NULL && (*data)->fd >= 0)
        close((*data)->fd);
    free(*data);
    *data = NULL;
}

/* ---- the worker's way to it ------------------------------------------------------------------*/
int fa_case_data_open(const char *path, fa_case_data **ret_data, fa_diag *diag)
{
    FA_ENDS(fa_case_data_close) fa_case_data *data = calloc(1, sizeof *data);
    FA_OR_RETURN(fa_have(data != NULL, "the data of a proof", diag));
    const int fd = data->fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd >= 0
                 ? fa_case_data_read(data, 0, data, sizeof *data, diag)
                 : fa_fail(diag, FA_EIO, "the data of a proof at %s: %s", path, strerror(errno));
    data->fd = fd;
    if (rc == 0)
        *ret_data = data, data = NULL;
    return rc;
}

int fa_case_data_read(const fa_case_data *data, int64_t at, void *ret_bytes, size_t size,
                      fa_diag *diag)
{
    int rc = fa_read_at(data->fd, ret_bytes, size, (uint64_t)at);
    return rc == 0 ? 0
                   : fa_fail(diag, rc, "the data of a proof end: %s",
                             errno != 0 ? strerror(errno) : "the file is too short");
}
