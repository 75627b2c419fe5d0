/* Out and back.
 *
 * Out: chunks are copied in groups; while one group is on its way the group before it, already copied, is unmapped and
 * released. Back: a chunk is made again and mapped, and its copy begins while the next one is made. A chunk's bytes are
 * in two places until the step that gives one of them up is known to have worked: its memory on the device goes only
 * after its copy is done, and no host copy goes before all chunks are back. */
#define _GNU_SOURCE
#include "moves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arena.h"
#include "blocks.h"

#define GROUP_BYTES (256ull << 20)

struct crew {
    struct chunk **at;
    size_t count;
    uint64_t bytes;
};

static uint64_t arena_used; /* grows while anything is out; 0 again when nothing is */

static int fail(struct move_result *result, const char *code, const char *format, uint64_t number)
{
    if (!result->code) {
        result->code = code;
        snprintf(result->message, sizeof result->message, format, (unsigned long long)number);
    }
    return 0;
}

/* Takes the chunks in the given state into our hands. */
static int gather(struct crew *crew, enum chunk_state state)
{
    size_t count = 0;
    *crew = (struct crew){0};
    pthread_mutex_lock(&blocks_lock);
    for (struct chunk *c = chunks_first(); c; c = c->next)
        count++;
    crew->at = malloc((count + 1) * sizeof *crew->at);
    for (struct chunk *c = crew->at ? chunks_first() : NULL; c; c = c->next)
        if (c->state == state && !c->fixed && chunk_wanted(c)) {
            c->state = MOVING;
            crew->at[crew->count++] = c;
            crew->bytes += c->empty ? 0 : c->bytes;
        }
    pthread_mutex_unlock(&blocks_lock);
    return crew->at != NULL;
}

/* Makes the chunk's context, or another one on its device, current on this thread. NULL: there is none. */
static CUstream work_in(const struct chunk *chunk)
{
    CUcontext context = contexts_alive(chunk->context) ? chunk->context : contexts_on(chunk->properties.location.id);
    if (!context || REAL(cuCtxSetCurrent)(context))
        return NULL;
    return contexts_stream(context);
}

/* An address at which our copies reach the whole chunk: a mapping of its own, or one made for the purpose. */
struct view {
    uint64_t address;
    uint64_t made_bytes; /* 0: the chunk's own mapping */
};

static CUresult view_open(struct chunk *chunk, int flags, struct view *view)
{
    for (struct mapping *m = chunk->mappings; m; m = m->next_of_chunk)
        for (unsigned i = 0; i < m->place_count; i++)
            if (m->bytes == chunk->bytes && m->places[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && !m->unmapped &&
                m->places[i].location.id == chunk->properties.location.id && (m->places[i].flags & flags) == flags) {
                *view = (struct view){m->address, 0};
                return CUDA_SUCCESS;
            }
    CUmemAccessDesc place = {chunk->properties.location, CU_MEM_ACCESS_READWRITE};
    CUresult result = REAL(cuMemAddressReserve)(&view->address, chunk->bytes, 0, 0, 0);
    if (result)
        return result;
    view->made_bytes = chunk->bytes;
    result = REAL(cuMemMap)(view->address, chunk->bytes, 0, chunk->real, 0);
    if (!result) {
        result = REAL(cuMemSetAccess)(view->address, chunk->bytes, &place, 1);
        if (result)
            REAL(cuMemUnmap)(view->address, chunk->bytes);
    }
    if (result)
        REAL(cuMemAddressFree)(view->address, chunk->bytes);
    return result;
}

static void view_close(const struct view *view)
{
    if (!view->made_bytes)
        return;
    REAL(cuMemUnmap)(view->address, view->made_bytes);
    REAL(cuMemAddressFree)(view->address, view->made_bytes);
}

static CUresult copy(struct chunk *chunk, const struct view *view, int out, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t part;
    for (uint64_t done = 0; done < chunk->bytes && !result; done += part) {
        void *host = arena_part(chunk->arena_at + done, chunk->bytes - done, &part);
        result = out ? REAL(cuMemcpyDtoHAsync_v2)(host, view->address + done, part, stream)
                     : REAL(cuMemcpyHtoDAsync_v2)(view->address + done, host, part, stream);
    }
    return result;
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

struct group {
    size_t from, to;
    CUevent copied;
    CUstream stream;
};

/* Begins the copies of as many chunks as make one group; all of one context. */
static CUresult group_begin(struct crew *crew, size_t from, struct group *group)
{
    uint64_t bytes = 0;
    CUresult result = CUDA_SUCCESS;
    *group = (struct group){.from = from, .to = from};
    group->stream = work_in(crew->at[from]);
    if (!group->stream)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext context = crew->at[from]->context;
    while (group->to < crew->count && bytes < GROUP_BYTES && !result) {
        struct chunk *chunk = crew->at[group->to];
        struct view view;
        if (chunk->context != context || chunk->properties.location.id != crew->at[from]->properties.location.id)
            break;
        pthread_mutex_lock(&blocks_lock);
        int wanted = chunk_wanted(chunk);
        chunk->hollow = chunk->empty || !wanted;
        result = chunk->hollow ? CUDA_SUCCESS : view_open(chunk, CU_MEM_ACCESS_READ, &view);
        pthread_mutex_unlock(&blocks_lock);
        if (!chunk->hollow && !result) {
            chunk->arena_at = arena_used;
            arena_used += chunk->bytes;
            result = copy(chunk, &view, 1, group->stream);
            if (view.made_bytes) {
                CUresult done = REAL(cuStreamSynchronize)(group->stream);
                result = result ? result : done;
                view_close(&view);
            }
            bytes += chunk->bytes;
        }
        group->to += !result;
    }
    CUresult mark = REAL(cuEventCreate)(&group->copied, 2 /* no timing */);
    if (!mark)
        mark = REAL(cuEventRecord)(group->copied, group->stream);
    return result ? result : mark;
}

/* Waits for the copies and gives the device memory back. */
static CUresult group_end(struct crew *crew, struct group *group, struct move_result *result)
{
    CUresult copied = group->copied ? REAL(cuEventSynchronize)(group->copied) : CUDA_ERROR_INVALID_HANDLE;
    if (group->copied)
        REAL(cuEventDestroy_v2)(group->copied);
    pthread_mutex_lock(&blocks_lock);
    for (size_t i = group->from; i < group->to; i++) {
        struct chunk *chunk = crew->at[i];
        uint64_t bytes = chunk->bytes;
        if (!copied) {
            chunk_unmap_all(chunk);
            REAL(cuMemRelease)(chunk->real);
            chunk->state = OUT;
            result->bytes += bytes;
            result->dropped += chunk->hollow ? bytes : 0;
        } else
            chunk->state = RESIDENT;
        crew->at[i] = NULL;
        chunk_settle(chunk);
    }
    pthread_mutex_unlock(&blocks_lock);
    return copied;
}

/* Those in our hands that were not moved are let go as they are. */
static void let_go(struct crew *crew, enum chunk_state state)
{
    pthread_mutex_lock(&blocks_lock);
    for (size_t i = 0; i < crew->count; i++)
        if (crew->at[i]) {
            crew->at[i]->state = state;
            chunk_settle(crew->at[i]);
        }
    blocks_settle_addresses();
    pthread_mutex_unlock(&blocks_lock);
    free(crew->at);
}

static int by_context(const void *left, const void *right)
{
    const struct chunk *a = *(struct chunk *const *)left, *b = *(struct chunk *const *)right;
    uintptr_t x = (uintptr_t)a->context, y = (uintptr_t)b->context;
    return x != y ? (x < y ? -1 : 1) : a->properties.location.id - b->properties.location.id;
}

void moves_out(uint64_t host_bytes, struct move_result *result)
{
    struct crew crew;
    double began = clock_now();
    *result = (struct move_result){0};
    if (contexts_fixed()) {
        result->code = "fixed";
        snprintf(result->message, sizeof result->message, "cannot move out: %s", contexts_fixed());
        return;
    }
    if (!gather(&crew, RESIDENT)) {
        fail(result, "host_memory", "cannot move out: no host memory for the list of chunks", 0);
        return;
    }
    if (!moves_anything_out())
        arena_used = 0; /* what was out may have been freed there, and nothing came back */
    uint64_t needed = arena_used + crew.bytes;
    const char *why = NULL;
    if (host_bytes && needed > host_bytes)
        fail(result, "host_memory", "cannot move out %llu bytes: more than the backend granted of the host's memory", needed);
    else if (crew.count && !work_in(crew.at[0]))
        fail(result, "no_context", "cannot move out: no context lives on the device", 0);
    else if (crew.bytes) {
        CUcontext current = NULL;
        REAL(cuCtxGetCurrent)(&current);
        why = arena_fit(needed, current, host_bytes != 0);
        if (why)
            fail(result, "host_memory", why, 0);
    }
    if (result->code) {
        let_go(&crew, RESIDENT);
        return;
    }
    qsort(crew.at, crew.count, sizeof *crew.at, by_context);
    struct group now, before = {0};
    int pending = 0;
    CUresult error = CUDA_SUCCESS;
    for (size_t next = 0; next < crew.count && !error;) {
        error = group_begin(&crew, next, &now);
        if (pending) {
            CUresult ended = group_end(&crew, &before, result);
            error = error ? error : ended;
        }
        before = now;
        pending = 1;
        next = now.to;
    }
    if (pending) {
        CUresult ended = group_end(&crew, &before, result);
        error = error ? error : ended;
    }
    let_go(&crew, RESIDENT);
    if (error)
        fail(result, "device_error", "cannot move out: the driver says error %llu", (uint64_t)error);
    result->seconds = clock_now() - began;
    link_holdings_changed();
}

/* --- back --------------------------------------------------------------------------------------------------------- */

static CUresult make_again(struct chunk *chunk, unsigned tries)
{
    CUresult result;
    while ((result = REAL(cuMemCreate)(&chunk->real, chunk->bytes, &chunk->properties, 0)) == CUDA_ERROR_OUT_OF_MEMORY &&
           --tries)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return result;
}

/* Makes one chunk again and begins to fill it. 1 if it is mapped and will hold its bytes once `stream` is done. */
static CUresult bring(struct chunk *chunk, unsigned tries, CUstream stream)
{
    struct view view = {0};
    CUresult result = make_again(chunk, tries);
    if (result)
        return result;
    pthread_mutex_lock(&blocks_lock);
    result = chunk_map_all(chunk);
    if (!result && !chunk->hollow) {
        result = view_open(chunk, CU_MEM_ACCESS_READWRITE, &view);
        if (result)
            chunk_unmap_all(chunk);
    }
    pthread_mutex_unlock(&blocks_lock);
    if (!result && !chunk->hollow) {
        result = copy(chunk, &view, 0, stream);
        if (view.made_bytes || result) {
            CUresult done = REAL(cuStreamSynchronize)(stream);
            result = result ? result : done;
            view_close(&view);
        }
        if (result) {
            pthread_mutex_lock(&blocks_lock);
            chunk_unmap_all(chunk);
            pthread_mutex_unlock(&blocks_lock);
        }
    }
    if (result)
        REAL(cuMemRelease)(chunk->real);
    return result;
}

/* The chunks [from, to) were filled through `stream`: once it is done they are resident. */
static CUresult filled(struct crew *crew, size_t from, size_t to, CUstream stream, struct move_result *result)
{
    CUresult done = from < to ? REAL(cuStreamSynchronize)(stream) : CUDA_SUCCESS;
    pthread_mutex_lock(&blocks_lock);
    for (size_t i = from; i < to; i++) {
        struct chunk *chunk = crew->at[i];
        if (!done) {
            result->bytes += chunk->bytes;
            result->dropped += chunk->hollow ? chunk->bytes : 0;
            chunk->state = RESIDENT;
        } else {
            chunk_unmap_all(chunk);
            REAL(cuMemRelease)(chunk->real);
            chunk->state = OUT;
        }
        crew->at[i] = NULL;
        chunk_settle(chunk);
    }
    pthread_mutex_unlock(&blocks_lock);
    return done;
}

void moves_back(unsigned tries, struct move_result *result)
{
    struct crew crew;
    double began = clock_now();
    CUresult error = CUDA_SUCCESS;
    CUstream stream = NULL;
    CUcontext context = NULL;
    size_t from = 0, i = 0;
    *result = (struct move_result){0};
    if (!gather(&crew, OUT)) {
        fail(result, "host_memory", "cannot bring back: no host memory for the list of chunks", 0);
        return;
    }
    qsort(crew.at, crew.count, sizeof *crew.at, by_context);
    for (; i < crew.count && !error; i++) {
        struct chunk *chunk = crew.at[i];
        pthread_mutex_lock(&blocks_lock);
        int wanted = chunk_wanted(chunk);
        pthread_mutex_unlock(&blocks_lock);
        if (!stream || chunk->context != context) {
            error = filled(&crew, from, i, stream, result);
            from = i;
            stream = work_in(chunk);
            context = chunk->context;
            if (!stream && !error)
                error = CUDA_ERROR_INVALID_CONTEXT;
        }
        if (!wanted && !error) {
            /* Freed meanwhile: it is settled as OUT, and the chunks before it are finished with first. */
            error = filled(&crew, from, i, stream, result);
            from = i + 1;
            continue;
        }
        if (!error)
            error = bring(chunk, tries, stream);
        if (error)
            break;
    }
    CUresult last = filled(&crew, from, i, stream, result);
    error = error ? error : last;
    let_go(&crew, OUT);
    if (error)
        fail(result, error == CUDA_ERROR_OUT_OF_MEMORY ? "out_of_memory" : "device_error",
             "cannot bring everything back: the driver says error %llu", (uint64_t)error);
    if (!moves_anything_out())
        arena_used = 0;
    result->seconds = clock_now() - began;
    link_holdings_changed();
}

void moves_prepare(uint64_t bytes, struct move_result *result)
{
    double began = clock_now();
    CUcontext context = NULL;
    *result = (struct move_result){.bytes = bytes};
    for (CUdevice d = 0; d < MAX_DEVICES && !context; d++)
        context = contexts_on(d);
    if (!context || REAL(cuCtxSetCurrent)(context))
        fail(result, "no_context", "cannot prepare host memory: no context lives yet", 0);
    else {
        const char *why = arena_fit(bytes, context, 1);
        if (why)
            fail(result, "host_memory", why, 0);
    }
    result->seconds = clock_now() - began;
}

int moves_anything_out(void)
{
    struct holdings held;
    blocks_holdings(&held);
    return held.evicted_bytes > 0;
}
