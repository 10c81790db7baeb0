/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory by stream and by capture.
 *
 * CUDA does not say when a stream is destroyed, and a handle that may be gone cannot be asked. So the first
 * KEPT_STREAMS streams keep their memory, at no cost for their launches. Later streams share further owners, up to
 * MOST_STREAMS in all, each with an event that is recorded behind every launch. Invariant: an owner passes to another
 * stream only while none of its launches lies between take and leave, and only if its event has passed or that stream
 * has been made to wait for it. Waiting comes last: while all events are pending and there is room, an owner is made.
 *
 * A capture's owner ends when CUDA destroys the last that refers to its graph: the graph holds a user
 * object whose destructor puts the owner on a list. The destructor may call nothing of CUDA's and should
 * not wait, so the next call takes the list and makes the owner's blocks free again.
 *
 * Sizes are powers of two, so that what one graph leaves fits the next, and an owner whose kernels grow
 * holds less than four times what it needs.
 */
#include "driver.h"

#include "driver_api.h"
#include "error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SLAB_BYTES = 1 << 20, KEPT_STREAMS = 16, MOST_STREAMS = 64 };

static const size_t least_bytes[FA_STREAM_KINDS] = {256, 65536};

struct block {
    struct block *next;          /* of those that an owner has, or nobody */
    struct block *older;         /* of all */
    fa_device_ptr at, allocated; /* allocated: what is to be freed with it; 0: nothing */
    size_t bytes;
};

/* A stream, or the launches that one capture takes from a stream. */
struct fa_stream_owner {
    struct fa_stream_owner *next, *next_ended;
    fa_stream_memory *memory;
    fa_event used; /* recorded behind each launch; NULL: a stream keeps it, or a graph has it */
    int launching; /* launches that have memory and no event behind them yet */
    unsigned long long stream; /* its id; in a capture, which may not ask for that, its handle */
    uint64_t capture; /* 0: launches run as they come */
    struct block *held[FA_STREAM_KINDS]; /* in use is the first; others are of launches before */
};

struct fa_stream_memory {
    fa_driver *driver;
    cu_context context;
    unsigned long long context_id;
    fa_stream zeroing;
    atomic_int references; /* the creator's, and one of each capture */
    _Atomic(struct fa_stream_owner *) ended;
    pthread_mutex_t lock; /* guards what follows */
    struct fa_stream_owner *streams, *captures; /* asked last, first */
    int stream_count;
    struct block *free[FA_STREAM_KINDS], *newest;
    fa_device_ptr slab; /* zeros that nobody has */
    size_t slab_bytes;
};

static void free_owners(struct fa_stream_owner *owner)
{
    while (owner != NULL) {
        struct fa_stream_owner *next = owner->next;
        free(owner);
        owner = next;
    }
}

static void drop_reference(fa_stream_memory *memory)
{
    if (atomic_fetch_sub(&memory->references, 1) > 1)
        return;
    free_owners(memory->streams);
    free_owners(memory->captures);
    while (memory->newest != NULL) {
        struct block *older = memory->newest->older;
        free(memory->newest);
        memory->newest = older;
    }
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* ---- device memory --------------------------------------------------------------------------*/
/* Makes the memory's context current, and allows this thread what a capture elsewhere would forbid it; `mode`
 * is for leave(). */
static int enter(const fa_stream_memory *memory, int *ret_mode, fa_diag *diag)
{
    fa_driver *driver = memory->driver;
    int rc = FA_DRIVER_CALL(driver, diag, driver->context_push(memory->context), "cuCtxPushCurrent",
                            "reaching the memory of a stream");
    *ret_mode = CU_CAPTURE_RELAXED;
    if (rc == 0)
        driver->capture_mode(ret_mode); /* where that fails, what follows does */
    return rc;
}

static void leave(const fa_stream_memory *memory, int mode)
{
    memory->driver->capture_mode(&mode);
    fa_driver_leave(memory->driver);
}

static int make_zero(fa_stream_memory *memory, fa_device_ptr at, size_t bytes, fa_diag *diag)
{
    int mode, rc = enter(memory, &mode, diag);
    if (rc != 0)
        return rc;
    rc = fa_fill8(memory->driver, at, 0, bytes, memory->zeroing, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(memory->driver, memory->zeroing, diag);
    leave(memory, mode);
    return rc;
}

/* A new block with memory of its own. */
static int allocate(fa_stream_memory *memory, size_t bytes, struct block **ret_block, fa_diag *diag)
{
    int mode;
    FA_ENDS(fa_free_at) struct block *made = calloc(1, sizeof *made);
    int rc = made == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for a kernel")
                          : enter(memory, &mode, diag);
    if (rc == 0) {
        rc = fa_device_alloc(memory->driver, bytes, &made->allocated, diag);
        leave(memory, mode);
        if (rc != 0)
            fa_fail_in(diag, rc, "allocating %zu bytes for a stream", bytes);
    }
    FA_OR_RETURN(rc);
    made->at = made->allocated;
    made->bytes = bytes;
    made->older = memory->newest;
    *ret_block = memory->newest = made, made = NULL;
    return 0;
}

static int reserve_slab(fa_stream_memory *memory, size_t bytes, fa_diag *diag)
{
    struct block *slab = NULL;
    size_t all = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
    if (bytes <= memory->slab_bytes)
        return 0;
    int rc = allocate(memory, all, &slab, diag);
    if (rc == 0)
        rc = make_zero(memory, slab->at, all, diag);
    if (rc == 0) {
        memory->slab = slab->at;
        memory->slab_bytes = all;
    }
    return rc;
}

/* A block of that many bytes for an owner. Counters of a graph that is gone are made zero again: executables of it that ran
 * at the same time may have left anything there. */
static int make_block(fa_stream_memory *memory, int kind, size_t bytes, struct block **ret_block,
                      fa_diag *diag)
{
    for (struct block **link = &memory->free[kind]; *link != NULL; link = &(*link)->next) {
        if ((*link)->bytes != bytes)
            continue;
        FA_OR_RETURN(kind == FA_STREAM_COUNTERS ? make_zero(memory, (*link)->at, bytes, diag) : 0);
        *ret_block = *link;
        *link = (*link)->next;
        return 0;
    }
    if (kind == FA_STREAM_SCRATCH)
        return allocate(memory, bytes, ret_block, diag);
    FA_OR_RETURN(reserve_slab(memory, bytes, diag));
    struct block *made = calloc(1, sizeof *made);
    FA_OR_RETURN(fa_have(made != NULL, "a kernel", diag));
    *made = (struct block){.older = memory->newest, .at = memory->slab, .bytes = bytes};
    memory->slab += bytes;
    memory->slab_bytes -= bytes;
    *ret_block = memory->newest = made;
    return 0;
}

/* Every captured launch counts in a block of its own: who captures may let two launches of one stream run at once
 * (cuStreamUpdateCaptureDependencies). */
static int hold(struct fa_stream_owner *owner, int kind, size_t bytes, fa_diag *diag)
{
    struct block *block = owner->held[kind];
    size_t size = least_bytes[kind];
    bool shared = owner->capture == 0 || kind == FA_STREAM_SCRATCH;
    if (bytes == 0 || (shared && block != NULL && block->bytes >= bytes))
        return 0;
    while (size < bytes)
        size *= 2;
    int rc = make_block(owner->memory, kind, size, &block, diag);
    if (rc == 0) {
        block->next = owner->held[kind];
        owner->held[kind] = block;
    }
    return rc;
}

/* ---- owners ---------------------------------------------------------------------------------*/
/* A user object's destructor, on a thread of CUDA's: nothing of CUDA's may be called. */
static void end_capture(void *data)
{
    struct fa_stream_owner *owner = data;
    fa_stream_memory *memory = owner->memory;
    owner->next_ended = atomic_load(&memory->ended);
    while (!atomic_compare_exchange_weak(&memory->ended, &owner->next_ended, owner)) {
    }
    drop_reference(memory);
}

/* Makes free what graphs held that are gone. */
static void collect_ended(fa_stream_memory *memory)
{
    struct fa_stream_owner *ended = atomic_exchange(&memory->ended, NULL);
    while (ended != NULL) {
        struct fa_stream_owner *next = ended->next_ended, **link = &memory->captures;
        while (*link != NULL && *link != ended)
            link = &(*link)->next;
        if (*link != NULL) /* else no launch ever had it */
            *link = ended->next;
        for (int kind = 0; kind < FA_STREAM_KINDS; kind++)
            while (ended->held[kind] != NULL) {
                struct block *block = ended->held[kind];
                ended->held[kind] = block->next;
                block->next = memory->free[kind];
                memory->free[kind] = block;
            }
        free(ended);
        ended = next;
    }
}

static struct fa_stream_owner *unlink_owner(struct fa_stream_owner **link)
{
    struct fa_stream_owner *owner = *link;
    *link = owner->next;
    return owner;
}

/* graph: that is being captured, and ends the owner when it is gone; or NULL: a stream's. */
static int make_owner(fa_stream_memory *memory, cu_graph graph, struct fa_stream_owner **ret_owner,
                      fa_diag *diag)
{
    static const char doing[] = "keeping memory for a captured graph";
    fa_driver *driver = memory->driver;
    cu_user_object object = NULL;
    int mode, rc = 0;
    FA_ENDS(fa_free_at) struct fa_stream_owner *owner = calloc(1, sizeof *owner);
    FA_OR_RETURN(fa_have(owner != NULL, "a kernel", diag));
    owner->memory = memory;
    if (graph != NULL) {
        rc = fa_driver_fail(
            driver,
            driver->user_object_create(&object, owner, end_capture, 1, CU_NO_DESTRUCTOR_SYNC),
            "cuUserObjectCreate", diag, "%s", doing);
    } else if (memory->stream_count >= KEPT_STREAMS && (rc = enter(memory, &mode, diag)) == 0) {
        rc = FA_DRIVER_CALL(driver, diag, driver->event_create(&owner->used, CU_DISABLE_TIMING),
                            "cuEventCreate", "making an event for the memory of a stream");
        leave(memory, mode);
    }
    FA_OR_RETURN(rc);
    memory->stream_count += graph == NULL;
    if (graph != NULL) {
        atomic_fetch_add(&memory->references, 1);
        rc = fa_driver_fail(driver, driver->graph_retain(graph, object, 1, CU_USER_OBJECT_MOVE),
                            "cuGraphRetainUserObject", diag, "%s", doing);
        if (rc != 0) /* that ends the owner */
            driver->user_object_release(object, 1);
    }
    *ret_owner = rc == 0 ? owner : NULL;
    owner = NULL;
    return rc;
}

/* An owner of other streams' whose launches have ended, or that the stream now waits for; else a new one. */
static int borrow(fa_stream_memory *memory, fa_stream stream, struct fa_stream_owner **ret_owner,
                  fa_diag *diag)
{
    fa_driver *driver = memory->driver;
    struct fa_stream_owner **link = &memory->streams, **oldest = NULL;
    int mode = CU_CAPTURE_RELAXED; /* the query would spoil another thread's capture */
    driver->capture_mode(&mode);
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->used == NULL || (*link)->launching > 0)
            continue;
        if (driver->event_query((*link)->used) == CU_OK)
            break;
        oldest = link;
    }
    driver->capture_mode(&mode);
    if (*link == NULL && (oldest == NULL || memory->stream_count < MOST_STREAMS))
        return make_owner(memory, NULL, ret_owner, diag);
    int rc = 0;
    if (*link == NULL) {
        link = oldest;
        rc = FA_DRIVER_CALL(driver, diag, driver->stream_wait(stream, (*link)->used, 0),
                            "cuStreamWaitEvent", "waiting for the memory of another stream");
    }
    if (rc == 0)
        *ret_owner = unlink_owner(link);
    return rc;
}

/* The owner of these launches, first of its list; capture: 0, or of a graph. */
static int find_owner(fa_stream_memory *memory, fa_stream stream, unsigned long long id,
                      uint64_t capture, cu_graph graph, struct fa_stream_owner **ret_owner,
                      fa_diag *diag)
{
    struct fa_stream_owner **list = capture != 0 ? &memory->captures : &memory->streams;
    struct fa_stream_owner **link = list, *owner = NULL;
    int rc = 0;
    while (*link != NULL && ((*link)->stream != id || (*link)->capture != capture))
        link = &(*link)->next;
    if (*link != NULL)
        owner = unlink_owner(link);
    else if (capture != 0 || memory->stream_count < KEPT_STREAMS)
        rc = make_owner(memory, capture != 0 ? graph : NULL, &owner, diag);
    else
        rc = borrow(memory, stream, &owner, diag);
    if (rc != 0)
        return rc;
    owner->stream = id;
    owner->capture = capture;
    owner->next = *list;
    *list = owner;
    *ret_owner = owner;
    return 0;
}

int fa_stream_memory_take(fa_stream_memory *memory, fa_stream stream,
                          const size_t bytes[FA_STREAM_KINDS], fa_stream_lease *ret_lease,
                          fa_diag *diag)
{
    fa_driver *driver = memory->driver;
    struct fa_stream_owner *owner = NULL;
    unsigned long long id = 0;
    uint64_t capture = 0;
    cu_graph graph = NULL;
    int status = CU_CAPTURE_NONE;
    fa_stream_lease lease = {.stream = stream};
    FA_RETURN_IF_FORKED(diag);
    cu_result result = driver->stream_capture(stream, &status, &capture, &graph, NULL, NULL);
    if (result != CU_OK) /* also of the default stream while another one is captured */
        return fa_driver_fail(driver, result, "cuStreamGetCaptureInfo", diag,
                              "asking whether a stream is captured");
    if (status == CU_CAPTURE_ACTIVE)
        id = (uintptr_t)stream;
    else if ((result = driver->stream_id(stream, &id)) != CU_OK)
        return fa_driver_fail(driver, result, "cuStreamGetId", diag, "asking for a stream's id");
    pthread_mutex_lock(&memory->lock);
    collect_ended(memory);
    int rc = find_owner(memory, stream, id, status == CU_CAPTURE_ACTIVE ? capture : 0, graph,
                        &owner, diag);
    for (int kind = 0; rc == 0 && kind < FA_STREAM_KINDS; kind++) {
        rc = hold(owner, kind, bytes[kind], diag);
        if (rc == 0)
            lease.at[kind] = bytes[kind] > 0 ? owner->held[kind]->at : 0;
    }
    if (owner != NULL && owner->used != NULL) {
        lease.lent = owner;
        owner->launching++;
    }
    pthread_mutex_unlock(&memory->lock);
    if (rc != 0)
        fa_stream_memory_leave(&lease);
    else
        *ret_lease = lease;
    return rc;
}

void fa_stream_memory_leave(const fa_stream_lease *lease)
{
    struct fa_stream_owner *owner = lease->lent;
    if (owner == NULL)
        return;
    FA_HOLDS(&owner->memory->lock);
    /* Where the event cannot be recorded, no other stream ever gets the memory. */
    if (owner->memory->driver->event_record(owner->used, lease->stream) == CU_OK)
        owner->launching--;
}

/* ---- create and free ------------------------------------------------------------------------*/
int fa_stream_memory_create(fa_driver *driver, fa_stream_memory **ret_memory, fa_diag *diag)
{
    FA_RETURN_IF_FORKED(diag);
    fa_stream_memory *memory = calloc(1, sizeof *memory);
    FA_OR_RETURN(fa_have(memory != NULL, "a kernel", diag));
    memory->driver = driver;
    atomic_store(&memory->references, 1);
    pthread_mutex_init(&memory->lock, NULL);
    cu_result result = driver->context_current(&memory->context);
    if (result == CU_OK)
        result = driver->context_id(memory->context, &memory->context_id);
    if (result == CU_OK)
        result = driver->stream_create(&memory->zeroing, CU_STREAM_NON_BLOCKING);
    int rc = result != CU_OK ? fa_driver_fail(driver, result, "cuStreamCreate", diag,
                                              "making a stream that zeroes memory")
                             : reserve_slab(memory, SLAB_BYTES, diag);
    if (rc != 0)
        fa_stream_memory_free(&memory);
    else
        *ret_memory = memory;
    return rc;
}

void fa_stream_memory_free(fa_stream_memory **memory)
{
    fa_stream_memory *m = *memory;
    if (m == NULL)
        return;
    *memory = NULL;
    collect_ended(m);
    int mode;
    if (fa_driver_context_lives(m->driver, m->context, m->context_id) &&
        enter(m, &mode, NULL) == 0) {
        for (struct block *block = m->newest; block != NULL; block = block->older)
            fa_device_free(m->driver, &block->allocated);
        for (struct fa_stream_owner *owner = m->streams; owner != NULL; owner = owner->next)
            fa_event_destroy(m->driver, &owner->used);
        fa_stream_destroy(m->driver, &m->zeroing);
        leave(m, mode);
    }
    drop_reference(m);
}
