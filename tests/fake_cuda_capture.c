/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures of the fake CUDA driver, what their graphs keep, and whose memory a kernel counts in.
 *
 * Workload: fake_cuda_capture() stands for the beginning and the end of a capture, and launches run at
 * once; fake_cuda_destroy_graphs() stands for the destruction of all graphs that were captured.
 * Invariant: counters serve one stream, or one captured graph until that graph is destroyed. Those of a stream may pass to
 * another one that waited for an event behind their last launch, or to any after that event was seen to have passed. A launch
 * that finds the counters of another is noted and ends the context; one that finds them not zero
 * leaves its output unwritten, as the real kernels do.
 */
#include "fake_cuda_state.h"

#include "attn_serving_params.h"

#include <stdlib.h>
#include <string.h>

enum { CAPTURE_MODE_GLOBAL = 0, CAPTURE_MODE_RELAXED = 2 };

struct graph {
    struct graph *next;
    uint64_t id;
    struct user_object *objects;
};

struct user_object {
    struct user_object *next;
    void (*destroy)(void *data);
    void *data;
};

/* Counters, and the stream and the graph that they serve. */
struct counting {
    struct counting *next;
    uint64_t address, stream, capture;
    uint64_t last; /* of fake.uses */
    bool passed;   /* to the next stream, 0: whichever it is */
    uint64_t next_stream;
};

static struct graph *graphs; /* the one that is being captured first */
static struct counting *countings;
static uint64_t last_capture;
static _Thread_local int capture_mode = CAPTURE_MODE_GLOBAL;

bool fake_may_allocate(void)
{
    return !fake.capturing || capture_mode == CAPTURE_MODE_RELAXED;
}

/* Not a function of CUDA's: what a test calls in the place of beginning and ending a capture. While one
 * is under way, loading a module and allocating fail as they do in a real one. */
CUDA fake_cuda_capture(struct handle *stream, int on)
{
    ENTER_UNCHECKED;
    fake.capturing = on != 0;
    fake.captured = stream;
    if (!on)
        return FAKE_OK;
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return FAKE_OUT_OF_MEMORY;
    *graph = (struct graph){.next = graphs, .id = ++last_capture};
    graphs = graph;
    return FAKE_OK;
}

void fake_forget_counters(bool of_streams)
{
    for (struct counting **link = &countings; *link != NULL;) {
        struct counting *one = *link;
        if (one->capture == 0 && !of_streams) {
            link = &one->next;
            continue;
        }
        /* Executables of one graph that ran at the same time may leave them so. */
        uint32_t *counter = of_streams ? NULL : fake_memory(one->address, sizeof *counter, true);
        if (counter != NULL)
            *counter = 1;
        *link = one->next;
        free(one);
    }
}

/* Not a function of CUDA's either. */
CUDA fake_cuda_destroy_graphs(void)
{
    struct user_object *ended = NULL;
    {
        ENTER_UNCHECKED;
        fake_forget_counters(false);
        while (graphs != NULL) {
            struct graph *next = graphs->next;
            while (graphs->objects != NULL) {
                struct user_object *object = graphs->objects;
                graphs->objects = object->next;
                object->next = ended;
                ended = object;
            }
            free(graphs);
            graphs = next;
        }
    }
    while (ended != NULL) { /* on a thread of CUDA's in a real driver, which holds no lock */
        struct user_object *next = ended->next;
        ended->destroy(ended->data);
        free(ended);
        ended = next;
    }
    return FAKE_OK;
}

CUDA cuStreamIsCapturing(struct handle *stream, int *ret_status)
{
    ENTER;
    *ret_status = fake.capturing && fake.captured == stream;
    return FAKE_OK;
}

CUDA cuStreamGetCaptureInfo_v2(struct handle *stream, int *ret_status, uint64_t *ret_id,
                               struct graph **ret_graph, const void *ret_nodes, size_t *ret_count)
{
    ENTER;
    bool captured = fake.capturing && fake.captured == stream;
    (void)ret_nodes;
    (void)ret_count;
    *ret_status = captured;
    if (captured) {
        *ret_id = graphs->id;
        *ret_graph = graphs;
    }
    return FAKE_OK;
}

CUDA cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER_UNCHECKED;
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return FAKE_OK;
}

CUDA cuUserObjectCreate(struct user_object **ret, void *data, void (*destroy)(void *),
                        unsigned references, unsigned flags)
{
    ENTER;
    if (references != 1 || flags != 1)
        return FAKE_INVALID_VALUE;
    struct user_object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return FAKE_OUT_OF_MEMORY;
    *object = (struct user_object){.destroy = destroy, .data = data};
    *ret = object;
    return FAKE_OK;
}

CUDA cuUserObjectRelease(struct user_object *object, unsigned count)
{
    (void)count;
    object->destroy(object->data);
    free(object);
    return FAKE_OK;
}

CUDA cuGraphRetainUserObject(struct graph *graph, struct user_object *object, unsigned count,
                             unsigned flags)
{
    ENTER;
    if (graph != graphs || count != 1 || flags != 1)
        return FAKE_INVALID_VALUE;
    object->next = graph->objects;
    graph->objects = object;
    return FAKE_OK;
}

/* ---- whose memory a kernel counts in --------------------------------------------------------*/
static struct counting *find_counting(uint64_t address)
{
    struct counting *one = countings;
    while (one != NULL && one->address != address)
        one = one->next;
    return one;
}

void fake_pass_counters(const struct handle *event, uint64_t stream)
{
    for (struct counting *one = countings; one != NULL; one = one->next) {
        if (one->capture == 0 && one->stream == event->stream && one->last <= event->uses) {
            one->passed = true;
            one->next_stream = stream;
        }
    }
}

bool fake_counters_are_zero(const struct function *f, const struct handle *stream, void **arguments)
{
    struct fa_attn_serving_params p;
    if (f->info.parameter_count == 0 || f->info.parameter_size[0] != sizeof p)
        return true;
    memcpy(&p, arguments[0], sizeof p);
    uint64_t address = (uint64_t)(uintptr_t)p.counters, id = fake_stream_id(stream);
    uint64_t capture = fake.capturing && fake.captured == stream ? graphs->id : 0;
    const uint32_t *counter = address != 0 ? fake_memory(address, sizeof *counter, false) : NULL;
    struct counting *one = find_counting(address);
    if (counter == NULL) {
        fake.sticky = address != 0 ? FAKE_ILLEGAL_ADDRESS : fake.sticky;
        return address == 0;
    }
    if (one == NULL) {
        if ((one = calloc(1, sizeof *one)) == NULL)
            return false;
        *one = (struct counting){countings, address, id, capture, .passed = false};
        countings = one;
    }
    if (one->passed && capture == 0 && (one->next_stream == 0 || one->next_stream == id))
        one->stream = id;
    one->passed = false;
    one->last = ++fake.uses;
    if (one->stream != id || one->capture != capture) {
        fake_note("counters of another stream");
        fake.sticky = FAKE_ILLEGAL_ADDRESS;
        return false;
    }
    return *counter == 0;
}
