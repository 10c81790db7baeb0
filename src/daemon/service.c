/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "buf.h"
#include "error.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { RETRY_AFTER_S = 5, STOP_RETRY_S = 2 };

int64_t serve_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t serve_now_ms(const serve_service *service)
{
    return (int64_t)uv_now(service->loop);
}

bool serve_service_is_ready(const serve_service *service)
{
    return service->store_open && !service->store_broken && service->journal_open &&
           !service->stopping;
}

void serve_refuse(serve_service *service, serve_exchange *exchange, const char *message)
{
    service->counts.refused++;
    serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY, message,
                        service->stopping ? STOP_RETRY_S : RETRY_AFTER_S);
}

/* The journal's thread ends last, because the last jobs of the other threads are taken out of it. */
void serve_service_thread_ended(void *context)
{
    serve_service *service = context;
    service->threads--;
    if (service->stopping && service->threads == 1)
        serve_thread_stop(service->journal.thread);
}

/* ---- tuners ----------------------------------------------------------------------------------*/
/* The store as the threads use it: how tuners are opened, whether the store has changed or is broken, the devices of
 * this host, and the text of an answer. */
enum {
    WATCH_MS = 1000,
    UNWATCHED_MS = 5000, /* of a store that is no file here */
    SETTLED_MS = 100,
    REOPEN_MS = 1000
};

static void log_note(void *context, const char *sentence)
{
    (void)context;
    serve_log(SERVE_WARN, "note", "text", sentence, NULL);
}

void serve_tuner_options(const serve_settings *settings, fa_options *ret_options)
{
    *ret_options = (fa_options){.size = sizeof *ret_options,
                                .store = settings->store,
                                .templates = settings->templates,
                                .worker = settings->worker,
                                .compile_workers = settings->compile_workers,
                                .compile_timeout_ms = settings->compile_timeout_s * 1000,
                                .trial_timeout_ms = settings->trial_timeout_s * 1000,
                                .compile_nice = settings->compile_nice,
                                .untrusted_templates = settings->untrusted_templates == 1,
                                .log = log_note,
                                .server = ""}; /* it is one itself */
}

int serve_kernel_text(fa_tuner *tuner, const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    char *text = NULL, hash[65];
    size_t size = 0;
    fa_buf out = {0};
    int rc = fa_answer_write(answer, &text, diag);
    if (rc != 0)
        return rc;
    rc = fa_answer_cubin_hash(tuner, answer, hash, &size, diag);
    if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT) {
        free(text);
        return rc;
    }
    fa_buf_printf(&out, "{\"answer\":%s", text);
    if (rc == 0)
        fa_buf_printf(&out, ",\"cubin\":{\"key\":\"%s\",\"sha256\":\"%s\",\"size\":%zu}}",
                      answer->cubin_key, hash, size);
    else
        fa_buf_text(&out, ",\"cubin\":null}");
    free(text);
    *ret_text = serve_text_of(&out);
    return *ret_text != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for an answer");
}

/* ---- told to the loop -------------------------------------------------------------------------*/
struct change {
    serve_task task;
    serve_service *service;
    bool broken;
    fa_diag reason;
};

static void take_change(serve_task *task)
{
    struct change *change = (struct change *)task;
    serve_service *service = change->service;
    if (change->broken && !service->stopping)
        service->unready = change->reason;
    if (change->broken != service->store_broken)
        serve_log(SERVE_WARN,
                  change->broken ? "the store cannot be used" : "the store is usable again",
                  "reason", change->broken ? change->reason.text : "", NULL);
    service->store_broken = change->broken;
    serve_cache_mark_stale(service->cache);
    free(change);
}

static void tell_loop(serve_service *service, const fa_diag *broken)
{
    struct change *change = calloc(1, sizeof *change);
    if (change == NULL)
        return;
    change->task.done = take_change;
    change->service = service;
    change->broken = broken != NULL;
    if (broken != NULL)
        change->reason = *broken;
    serve_loop_post(service->queue, &change->task);
}

/* ---- a store that is broken -------------------------------------------------------------------*/
/* Opening a store makes the tables of an empty file, and moves a damaged file away. */
static bool open_anew(serve_service *service, int64_t now_ms)
{
    fa_options options;
    fa_tuner *fresh = NULL;
    fa_diag diag;
    int64_t waited = now_ms - service->seen.reopened_ms;
    if (waited >= 0 && waited < REOPEN_MS)
        return false;
    service->seen.reopened_ms = now_ms;
    serve_tuner_options(service->settings, &options);
    service->reopen_failed = fa_open(&options, &fresh, &diag) != 0;
    if (!service->reopen_failed) {
        fa_close(&service->tuner);
        service->tuner = fresh;
        fa_close(&service->family.tuner);
    }
    tell_loop(service, service->reopen_failed ? &diag : NULL);
    return !service->reopen_failed;
}

int serve_tuner_need(const serve_service *service, fa_tuner **tuner, fa_diag *diag)
{
    fa_options options;
    if (*tuner != NULL)
        return 0;
    serve_tuner_options(service->settings, &options);
    return fa_open(&options, tuner, diag);
}

static bool is_broken(const fa_tuner *tuner, int rc)
{
    return rc == FA_ECORRUPT || (rc == FA_ESTORE && fa_store_location(tuner)[0] == '/');
}

void serve_tuner_close_broken(fa_tuner **tuner, int rc)
{
    if (*tuner != NULL && is_broken(*tuner, rc))
        fa_close(tuner);
}

bool serve_tuner_reopen(serve_service *service, int rc)
{
    return is_broken(service->tuner, rc) && open_anew(service, serve_unix_ms());
}

/* ---- the watch ------------------------------------------------------------------------------*/
/* A file's modification time moves in steps of some milliseconds, so a file that was written just now is
 * looked at again. */
void serve_tuner_watch(void *context)
{
    serve_service *service = context;
    struct stat st;
    if (service->tuner == NULL)
        return;
    int64_t now_ms = serve_unix_ms();
    int64_t waited = now_ms - service->seen.looked_ms;
    bool watched = stat(fa_store_location(service->tuner), &st) == 0;
    if (waited >= 0 && waited < (watched ? WATCH_MS : UNWATCHED_MS))
        return;
    service->seen.looked_ms = now_ms;
    if (service->reopen_failed || (watched && st.st_size == 0)) {
        open_anew(service, now_ms);
        return;
    }
    if (watched) {
        int64_t age = now_ms - ((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
        if (service->seen.seconds == st.st_mtim.tv_sec &&
            service->seen.nanoseconds == st.st_mtim.tv_nsec &&
            service->seen.size == (int64_t)st.st_size && service->seen.inode == (int64_t)st.st_ino)
            return;
        service->seen.seconds = age >= 0 && age < SETTLED_MS ? -1 : st.st_mtim.tv_sec;
        service->seen.nanoseconds = st.st_mtim.tv_nsec;
        service->seen.size = (int64_t)st.st_size;
        service->seen.inode = (int64_t)st.st_ino;
    }
    tell_loop(service, NULL);
}

void serve_tuner_close(void *context)
{
    serve_service *service = context;
    fa_close(&service->tuner);
    fa_close(&service->family.tuner);
}

void serve_find_devices(serve_service *service)
{
    if (service->devices_known)
        return;
    service->devices_known = true;
    while (service->device_count < SERVE_DEVICES_MAX) {
        int i = service->device_count;
        int rc = fa_gpu_device(i, &service->device[i], &service->device_reason);
        if (rc != 0) {
            service->device_code = i == 0 ? rc : 0;
            return;
        }
        service->device_count++;
    }
}
