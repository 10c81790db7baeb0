/* SPDX-License-Identifier: Apache-2.0
 *
 * From a candidate to a kernel that the fake driver runs on the CPU: its template is rendered and made into a library
 * (emulate.py), and a cubin's marker names that.
 */
#ifndef FA_TESTS_EMULATED_FIXTURE_H
#define FA_TESTS_EMULATED_FIXTURE_H

#include "fake_cubin.h"
#include "attn_tensor_maps.h"
#include "gpu_attn_sweep.h"
#include "snippet.h"

#include <dlfcn.h>

static struct {
    char folder[256];
    fa_buf reference; /* of some problem: its marker is written over */
    fa_buf source;    /* of the newest library */
    int kernels;
} here;

/* An expression or a whole statement of a template or of its headers, and what stands there while EMULATOR_CHANGE is the change's
 * number in its list, from 1 on. A list ends with a `from` of NULL. */
struct change {
    const char *from, *to;
};

static inline const char *path_in(const char *name, char ret[320])
{
    snprintf(ret, 320, "%s/%s", here.folder, name);
    return ret;
}

static inline bool write_text(const char *name, const char *text)
{
    char path[320];
    return check_write_file(path_in(name, path), text, strlen(text));
}

/* What the fake driver reads of a module. */
static inline void marker_of(const fa_problem *p, char *ret, size_t size)
{
    snprintf(
        ret, size,
        "HEAD_DIM=%d;PAGE_SIZE=%d;HEAD_DIM_V=%d;DTYPE_BF16=%d;CAUSAL=%d;LENGTHS_K=%d;KV_FP8=%d;"
        "Q_FP8=%d;VARLEN_Q=%d;WINDOW=%d;SOFTCAP=%d;SINKS=%d;SCORE_SNIPPET=%s;MASK_SNIPPET=%s;BUFFERS=%s;",
        p->head_dim, p->page, p->head_dim_v, p->dtype, p->causal != 0, p->lengths_k, p->kv_dtype,
        p->q_dtype, p->varlen, p->window, p->softcap, p->sinks,
        p->score != 0 ? fa_value_words(p->score, NULL) : "",
        p->mask != 0 ? fa_value_words(p->mask, NULL) : "",
        p->buffers != 0 ? fa_value_words(p->buffers, NULL) : "");
}

/* The reference as if it had been compiled for the problem: the fake driver computes by the marker alone. */
static inline bool retarget_reference(const fa_problem *p)
{
    static const char start[] = "fa_tune_config=";
    char marker[512];
    char *at = memmem(here.reference.data, here.reference.size, start, sizeof start - 1);
    static size_t room;
    if (at == NULL)
        return false;
    at += sizeof start - 1;
    if (room == 0)
        room = strlen(at);
    marker_of(p, marker, sizeof marker);
    if (strlen(marker) > room)
        return false;
    memset(at, 0, room);
    memcpy(at, marker, strlen(marker));
    return true;
}

/* Makes a library of a source, unless the newest one is of the same; takes the source. */
static inline int make_library(fa_buf *source, char ret_library[320])
{
    char command[2048], name[32], path[320];
    bool same = here.kernels > 0 && strcmp(source->data, here.source.data) == 0;
    snprintf(name, sizeof name, "kernel-%d.so", same ? here.kernels - 1 : here.kernels);
    path_in(name, ret_library);
    fa_buf_free(same ? source : &here.source);
    if (same)
        return 0;
    here.source = *source;
    here.kernels++;
    snprintf(command, sizeof command, "'%s' '%s/tests/emulate.py' '%s' '%s'", getenv("FA_TEST_PYTHON"),
             getenv("FA_TEST_SOURCE"), path_in("kernel.cu", path), ret_library);
    if (!write_text("kernel.cu", here.source.data) || system(command) != 0)
        return fa_fail(&diag, FA_EIO, "no library could be made of %s", path);
    return 0;
}

/* The boxes that a library's kernel wants maps of; false: it takes none. */
static inline bool boxes_of(const char *library, struct fa_attn_boxes *ret_boxes)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *boxes = handle != NULL ? dlsym(handle, "fa_attn_boxes_wanted") : NULL;
    if (boxes != NULL)
        memcpy(ret_boxes, boxes, sizeof *ret_boxes);
    if (handle != NULL)
        dlclose(handle);
    return boxes != NULL;
}

/* Renders a candidate and makes a library of it that can make these changes, NULL: none; the cubin names that. */
static inline int emulate(const fa_candidate *candidate, const fa_problem *p,
                          const struct change *changes, fa_buf *ret_cubin)
{
    static unsigned char bytes[FAKE_CUBIN_MAX];
    char marker[1024], library[320];
    fa_buf source = {0};
    int rc = fa_render(world.fixture.templates, &(fa_task){&world.fixture.families, p, &world.gpu},
                       candidate, &source, &diag);
    for (const struct change *c = changes; c != NULL && c->from != NULL; c++)
        fa_buf_printf(&source, "\n//! %s => %s\n", c->from, c->to);
    if (rc != 0)
        return rc;
    bool dense = strstr(source.data, "attn_serving_params.h") == NULL;
    if ((rc = make_library(&source, library)) != 0)
        return rc;
    int at = snprintf(marker, sizeof marker, "family=x;emulated=%s;", library);
    marker_of(p, marker + at, sizeof marker - (size_t)at);
    fa_buffer list[FA_ATTN_BUFFERS];
    const int held =
        fa_buffers_read(p->buffers != 0 ? fa_value_words(p->buffers, NULL) : NULL, list, NULL);
    unsigned parameters = dense ? sizeof(struct fa_attn_params)
                                : (unsigned)(offsetof(struct fa_attn_serving_params, buffer[held]));
    struct fa_attn_boxes boxes;
    bool maps = boxes_of(library, &boxes);
    fake_cubin cubin = {.sm = 90,
                        .entry = "attn_fwd",
                        .second = candidate->launches.count > 1 ? "attn_fwd_add" : NULL,
                        .registers = 40,
                        .marker = marker,
                        .threads_x = (unsigned)candidate->trial.threads,
                        .threads_y = 1,
                        .threads_z = 1,
                        .parameters = parameters,
                        .boxes = maps ? &boxes : NULL,
                        .sizes = {parameters, maps ? sizeof(struct fa_attn_tensor_maps) : 0}};
    size_t size = fake_cubin_build(&cubin, bytes);
    fa_buf_append(ret_cubin, bytes, size);
    return ret_cubin->failed ? FA_ENOMEM : 0;
}

#endif
