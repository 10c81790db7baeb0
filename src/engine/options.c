/* SPDX-License-Identifier: Apache-2.0
 *
 * What options and environment say.
 */
#include "options.h"

#include "store.h"

#include "buf.h"
#include "compile_pool.h"
#include "error.h"
#include "own_place.h"
#include "session.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *option_or_environment(const char *option, const char *variable)
{
    if (option != NULL)
        return option;
    const char *value = getenv(variable);
    return value != NULL && *value != 0 ? value : NULL;
}

/* Cores by affinity, and no more than a container's quota pays for. */
int fa_usable_cores(void)
{
    cpu_set_t set;
    fa_buf quota = {0};
    long long used, period;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (fa_buf_read_file(&quota, "/sys/fs/cgroup/cpu.max", 4096) == 0 &&
        sscanf(quota.data, "%lld %lld", &used, &period) == 2 && used > 0 && period > 0 &&
        (used + period - 1) / period < cores)
        cores = (int)((used + period - 1) / period);
    fa_buf_free(&quota);
    return cores < 1 ? 1 : cores > FA_WORKERS_MAX ? FA_WORKERS_MAX : cores;
}

static int copy_path(const char *path, char *ret, size_t size, const char *what, fa_diag *diag)
{
    if (strlen(path) >= size)
        return fa_fail(diag, FA_EINVAL, "the path of the %s is longer than %zu bytes", what,
                       size - 1);
    memcpy(ret, path, strlen(path) + 1);
    return 0;
}

int fa_options_copy(const fa_options *options, fa_options *ret_options, fa_diag *diag)
{
    *ret_options = (fa_options){0};
    if (options == NULL)
        return 0;
    if (options->size < offsetof(fa_options, store) || options->size > 4096)
        return fa_fail(diag, FA_EINVAL, "options.size is %zu: set it to sizeof(fa_options)",
                       options->size);
    memcpy(ret_options, options,
           options->size < sizeof *ret_options ? options->size : sizeof *ret_options);
    return 0;
}

const char *fa_options_templates(const fa_options *options)
{
    return option_or_environment(options->templates, "FA_TUNE_TEMPLATES");
}

int fa_options_worker(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    const char *worker = option_or_environment(options->worker, "FA_TUNE_WORKER");
    if (worker != NULL)
        return copy_path(worker, ret_path, FA_STORE_PATH_MAX, "worker", diag);
    fa_own_program("fa-tune-worker", ret_path, FA_STORE_PATH_MAX);
    return 0;
}

static const char *const shared_prefixes[] = {"postgresql://", "postgres://", "sqlite:///"};
/* Whether a store's location means a store that hosts share. */
static bool is_shared(const char *location)
{
    for (size_t i = 0; i < sizeof shared_prefixes / sizeof *shared_prefixes; i++)
        if (strncmp(location, shared_prefixes[i], strlen(shared_prefixes[i])) == 0)
            return true;
    return false;
}

const char *fa_options_fleet(const fa_options *options)
{
    const char *location = option_or_environment(options->store, "FA_TUNE_STORE");
    return location != NULL && is_shared(location) ? location : "";
}

int fa_options_store(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    if (fa_options_fleet(options)[0] != 0)
        return fa_store_default_path("FA_TUNE_LOCAL_STORE", ret_path, diag);
    return options->store != NULL
               ? copy_path(options->store, ret_path, FA_STORE_PATH_MAX, "store", diag)
               : fa_store_default_path("FA_TUNE_STORE", ret_path, diag);
}
