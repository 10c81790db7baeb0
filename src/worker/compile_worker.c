/* SPDX-License-Identifier: Apache-2.0
 *
 * How a compile worker is started: the same way for a tune, for a bundle and for the doctor.
 */
#include "compile_worker.h"

#include "manifest.h"
#include "nvrtc.h"
#include "pool.h"

#include <stdio.h>
#include <string.h>

enum { START_TIMEOUT_MS = 30000 };

int fa_compile_worker_start(fa_loop *loop, const char *path, const fa_nvrtc_location *nvrtc,
                            int strict_ms, const fa_child_events *events, void *context,
                            fa_child **ret_child, fa_diag *diag)
{
    char major[16], minor[16], seconds[16];
    char *const arguments[] = {"fa-tune-worker",
                               "compile",
                               (char *)(uintptr_t)nvrtc->library,
                               (char *)(uintptr_t)nvrtc->builtins,
                               major,
                               minor,
                               strict_ms > 0 ? seconds : NULL,
                               NULL};
    char *const nothing[] = {NULL}; /* a source could read the environment */
    snprintf(major, sizeof major, "%d", nvrtc->major);
    snprintf(minor, sizeof minor, "%d", nvrtc->minor);
    /* More than the clock on the wall allows: for when nobody looks at that. */
    snprintf(seconds, sizeof seconds, "%d", strict_ms / 1000 + 10);
    return fa_child_start(loop, path, arguments, nothing, events, context, ret_child, diag);
}

int fa_compile_worker_headers(fa_child *child, const fa_templates *templates, fa_diag *diag)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "do", "headers");
    cJSON *headers = cJSON_AddObjectToObject(json, "headers");
    for (int i = 0; i < fa_templates_count(templates); i++) {
        const fa_template_file *file = fa_templates_at(templates, i);
        const char *dot = strrchr(file->name, '.');
        if (dot != NULL && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0))
            cJSON_AddStringToObject(headers, file->name, file->text);
    }
    int rc = fa_child_send(child, json, NULL, 0, START_TIMEOUT_MS, diag);
    cJSON_Delete(json);
    return rc;
}
