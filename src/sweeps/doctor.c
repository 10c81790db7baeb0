/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what a tune will need: each check is one line with advice.
 */
#include "catalogue.h"
#include "compile_pool.h"
#include "manifest.h"
#include "nvrtc.h"
#include "session.h"
#include "store.h"

#include "error.h"
#include "sources.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct doctor {
    fa_options options;
    fa_list checks;
    fa_driver *driver;
    fa_gpu gpu; /* device 0, when there is one */
    bool has_gpu;
    fa_nvrtc_location nvrtc;
    bool has_nvrtc, worker_is_fit;
    fa_diag worker;          /* its path, or what is wrong with it */
    fa_templates *templates; /* NULL: they cannot be opened */
};

static void report(struct doctor *d, fa_check_level level, const char *name, const char *advice,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

static void report(struct doctor *d, fa_check_level level, const char *name, const char *advice,
                   const char *format, ...)
{
    fa_check check = {.level = level};
    va_list args;
    va_start(args, format);
    vsnprintf(check.text, sizeof check.text, format, args);
    va_end(args);
    snprintf(check.name, sizeof check.name, "%s", name);
    snprintf(check.advice, sizeof check.advice, "%s", level != FA_CHECK_OK ? advice : "");
    fa_list_add(&d->checks, &check, sizeof check);
}

static void check_driver(struct doctor *d)
{
    fa_diag diag;
    const int rc = fa_driver_open(&d->driver, &diag);
    const int version = rc == 0 ? fa_driver_version(d->driver) : 0;
    if (rc == 0)
        snprintf(diag.text, sizeof diag.text, "CUDA driver API %d.%d", version / 1000,
                 version % 1000 / 10);
    report(
        d, rc == 0 ? FA_CHECK_OK : FA_CHECK_WARN, "driver",
        rc == FA_ENODEVICE
            ? "name the GPU to tune for, such as L4"
            : "without one winners are predicted, not measured; driver 525 or newer is needed, 580 for NVRTC 13",
        "%s", diag.text);
}

static void check_gpu(struct doctor *d)
{
    if (d->driver == NULL)
        return;
    int count = fa_driver_device_count(d->driver);
    for (int i = 0; i < count; i++) {
        fa_diag diag;
        fa_gpu gpu;
        if (fa_driver_device(d->driver, i, &gpu, &diag) != 0) {
            report(d, FA_CHECK_FAIL, "gpu", "see the driver's log (dmesg, nvidia-smi)",
                   "device %d: %s", i, diag.text);
            continue;
        }
        if (!d->has_gpu)
            d->gpu = gpu;
        d->has_gpu = true;
        bool served = gpu.sm >= 75;
        report(
            d, served ? FA_CHECK_OK : FA_CHECK_FAIL, "gpu",
            served ? "" : "use a GPU of compute capability 7.5 or newer",
            "device %d: %s, sm_%d, %d SMs, %d B of shared memory a block, L2 %lld MiB, %.0f GB/s",
            i, gpu.name, gpu.sm, gpu.sm_count, gpu.smem_per_block, (long long)(gpu.l2_bytes >> 20),
            gpu.bandwidth_gbs);
    }
}

/* Finds NVRTC, and has a worker compile a small kernel with it. A worker that cannot even say that there is no NVRTC is at fault
 * itself. */
static void check_compiler(struct doctor *d)
{
    static const fa_nvrtc_location none = {.library = "/none", .builtins = "/none"};
    fa_diag diag;
    FA_ENDS(fa_buf_free) fa_buf passed = {0};
    char path[FA_STORE_PATH_MAX];
    int worker = fa_options_worker(&d->options, path, &d->worker);
    if (worker == 0) {
        worker = fa_compile_worker_try(path, &none, &d->worker);
        worker = worker == FA_ENONVRTC ? fa_fail(&d->worker, 0, "%s", path)
                                       : fa_fail_in(&d->worker, worker, "%s", path);
    }
    d->worker_is_fit = worker == 0;
    int rc = worker == 0
                 ? fa_compiler_choose(path, d->has_gpu ? d->gpu.sm : 0, &d->nvrtc, &passed, &diag)
                 : fa_nvrtc_locate(&d->nvrtc, &diag);
    if (rc == 0 && worker == 0 && (rc = fa_compile_worker_try(path, &d->nvrtc, &diag)) != 0 &&
        rc != FA_ENONVRTC)
        fa_fail_in(&diag, rc, "%s", d->nvrtc.library);
    d->has_nvrtc = rc == 0;
    if (rc == 0)
        report(d, FA_CHECK_OK, "nvrtc", "", "NVRTC %d.%d%s: %s", d->nvrtc.major, d->nvrtc.minor,
               worker == 0 ? " compiles" : "", d->nvrtc.library);
    else
        report(d, FA_CHECK_FAIL, "nvrtc", fa_nvrtc_advice(), "%s", diag.text);
    for (const char *line = passed.data; line != NULL && *line != 0;) { /* one for each */
        const int length = (int)strcspn(line, "\n");
        report(d, FA_CHECK_OK, "nvrtc", "", "passed over: %.*s", length < 400 ? length : 400, line);
        line += length + (line[length] == '\n');
    }
}

/* For kernels of one's own: the built-in ones include none. */
static void check_headers(struct doctor *d)
{
    fa_cuda_headers headers;
    char advice[200], of[40] = "an unknown version";
    if (!d->has_nvrtc)
        return;
    fa_cuda_headers_find(&headers);
    const bool same = headers.fit == FA_HEADERS_SAME;
    snprintf(
        advice, sizeof advice,
        "for kernels of your own that include them, install nvidia-cuda-runtime%s==%d.%d.* from "
        "PyPI or set CUDA_HOME",
        d->nvrtc.major == 12 ? "-cu12" : "", d->nvrtc.major, d->nvrtc.minor);
    if (headers.version != 0)
        snprintf(of, sizeof of, "CUDA %d.%d", headers.version / 1000, headers.version % 1000 / 10);
    if (headers.folder[0] == 0)
        report(d, FA_CHECK_OK, "headers", "", "CUDA's are not here; %s", advice);
    else
        report(d, same ? FA_CHECK_OK : FA_CHECK_WARN, "headers", advice,
               "of %s, read by NVRTC %d.%d: %s", of, d->nvrtc.major, d->nvrtc.minor,
               headers.folder);
}

static void check_skew(struct doctor *d)
{
    if (d->driver == NULL || !d->has_nvrtc)
        return;
    int driver = fa_driver_version(d->driver);
    if (driver / 1000 < d->nvrtc.major)
        report(
            d, FA_CHECK_FAIL, "skew",
            "install NVRTC 12 (pip install 'fa-tune[nvrtc12]', or the CUDA 12 toolkit), which is then "
            "taken, or update the driver to 580 or newer",
            "NVRTC is %d.%d, the driver only knows CUDA %d.%d", d->nvrtc.major, d->nvrtc.minor,
            driver / 1000, driver % 1000 / 10);
    else if (d->has_gpu && 100 * d->nvrtc.major + d->nvrtc.minor < fa_nvrtc_since(d->gpu.sm))
        report(d, FA_CHECK_FAIL, "skew", fa_nvrtc_advice(),
               "sm_%d needs NVRTC %d.%d, and this is %d.%d", d->gpu.sm,
               fa_nvrtc_since(d->gpu.sm) / 100, fa_nvrtc_since(d->gpu.sm) % 100, d->nvrtc.major,
               d->nvrtc.minor);
    else
        report(d, FA_CHECK_OK, "skew", "", "the driver loads what NVRTC %d.%d makes",
               d->nvrtc.major, d->nvrtc.minor);
}

static void check_clocks(struct doctor *d)
{
    fa_clock_state state;
    fa_diag diag;
    if (!d->has_gpu)
        return;
    if (fa_nvml_read(d->gpu.uuid, &state, &diag) != 0) {
        report(d, FA_CHECK_WARN, "clocks", "clocks are not stored beside the samples", "%s",
               diag.text);
    } else {
        report(d, state.throttle[0] != 0 ? FA_CHECK_WARN : FA_CHECK_OK, "clocks",
               "timings taken now are lower than the card can do",
               "SM %d of %d MHz, memory %d MHz, %d C%s%s", state.sm_mhz, state.max_sm_mhz,
               state.memory_mhz, state.temperature_c, state.throttle[0] != 0 ? ", throttled: " : "",
               state.throttle);
    }
}

static void check_store(struct doctor *d)
{
    fa_store *store = NULL;
    fa_diag diag;
    char path[FA_STORE_PATH_MAX] = "", directory[PATH_MAX];
    int rc = fa_options_store(&d->options, path, &diag);
    if (rc == 0)
        rc = fa_store_open(path, FA_STORE_EXISTING, NULL, &store, NULL, &diag);
    const bool none = rc == 0 && fa_store_is_absent(store);
    fa_directory_of(path, directory);
    if (none)
        rc = fa_db_need_directory(path, &diag);
    if (none && rc == 0 && access(directory, W_OK | X_OK) != 0 && errno != ENOENT)
        rc = fa_fail(&diag, FA_ESTORE, "%s cannot be made: nothing can be written there", path);
    if (rc == 0)
        report(d, FA_CHECK_OK, "store", "", none ? "%s, which the first tune makes" : "%s",
               none ? path : fa_store_path(store));
    else
        report(
            d, rc == FA_EREADONLY ? FA_CHECK_WARN : FA_CHECK_FAIL, "store",
            rc != FA_EREADONLY && fa_store_is_address(path)
                ? "until it answers, a local file serves; `fa-tune push` brings its winners later"
                : "set FA_TUNE_STORE to a file on a local disk that can be written",
            "%s", diag.text);
    fa_store_close(&store);
}

static void check_templates(struct doctor *d)
{
    fa_family_list families = {0};
    fa_diag diag;
    const char *directory = fa_options_templates(&d->options);
    int rc = fa_templates_open(directory, &d->templates, &diag);
    if (rc == 0)
        rc = fa_families_load(d->templates, NULL, &families, &diag);
    if (rc != 0)
        report(d, FA_CHECK_FAIL, "templates",
               "mend the file that is named, or use the built-in templates", "%s (templates: %s)",
               diag.text, directory != NULL ? directory : "built in");
    else
        report(d, FA_CHECK_OK, "templates", "", "%d families, %s", families.count,
               directory != NULL ? directory : "built in");
    fa_families_free(&families);
}

/* ---- system bundles -------------------------------------------------------------------------*/
static void note_bundle(void *context, const char *sentence)
{
    report(context, FA_CHECK_WARN, "bundles", "mend or remove the file, or set FA_TUNE_SYSTEM",
           "%s", sentence);
}

static void check_bundles(struct doctor *d)
{
    fa_source *system = NULL;
    fa_list list = {0};
    FA_ENDS(fa_free_at) fa_winner_record *winner = NULL;
    size_t count = 0;
    int32_t served = 0;
    if (d->templates == NULL)
        return; /* check_templates has said why */
    if (fa_system_make(note_bundle, d, &system, NULL) == 0)
        fa_system_list(system, NULL, &list);
    if (system == NULL || fa_winners_end(&list, 0, &winner, &count, NULL) != 0)
        report(d, FA_CHECK_FAIL, "bundles", "", "out of memory");
    for (size_t i = 0; i < count; i++)
        served +=
            fa_templates_match(d->templates, &winner[i].scope.problem, winner[i].scope.templates);
    if (count > 0)
        report(d, served > 0 ? FA_CHECK_OK : FA_CHECK_WARN, "bundles",
               "they were made for another fa-tune: install the bundle of this one",
               "%zu winner%s in system bundles, %d for these templates", count,
               count == 1 ? "" : "s", served);
    if (system != NULL)
        system->close(system);
}

/* Reports nothing if no server is named. */
static void check_server(struct doctor *d)
{
    FA_ENDS(fa_free_at) fa_service *server = NULL;
    fa_diag diag = {{0}};
    char text[400];
    if (fa_service_make(&d->options, &server, &diag) != 0)
        report(d, FA_CHECK_FAIL, "server", "mend the service's address, and FA_TUNE_TOKEN_FILE",
               "%s", diag.text);
    else if (server == NULL)
        return;
    else if (fa_service_check(server, text, sizeof text, &diag) != 0)
        report(
            d, FA_CHECK_WARN, "server",
            "see whether `fa-tune serve` runs there; until then the local store and tuner are used",
            "%s", diag.text);
    else
        report(d, FA_CHECK_OK, "server", "", "%s", text);
}

int fa_doctor(const fa_options *options, fa_check **ret_checks, size_t *ret_count, fa_diag *diag)
{
    struct doctor doctor = {.driver = NULL};
    FA_OR_RETURN(
        fa_expect(ret_checks != NULL && ret_count != NULL, "ret_checks or ret_count", diag));
    FA_OR_RETURN(fa_options_copy(options, &doctor.options, diag));
    check_driver(&doctor);
    check_gpu(&doctor);
    check_compiler(&doctor);
    check_headers(&doctor);
    check_skew(&doctor);
    check_templates(&doctor);
    report(&doctor, doctor.worker_is_fit ? FA_CHECK_OK : FA_CHECK_FAIL, "worker",
           "install fa-tune-worker beside the library, or set FA_TUNE_WORKER", "%s",
           doctor.worker.text);
    check_store(&doctor);
    check_bundles(&doctor);
    check_clocks(&doctor);
    check_server(&doctor);
    fa_driver_close(&doctor.driver);
    fa_templates_close(&doctor.templates);
    return fa_list_end(&doctor.checks, 0, NULL, ret_checks, ret_count, diag);
}
