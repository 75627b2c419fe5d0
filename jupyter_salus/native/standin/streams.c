/* Streams: work in order, on a thread each; events; captures and graphs.
 *
 * The null stream is the old default one: it waits for all blocking streams of its context and they wait for it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

struct salus_stream {
    struct salus_ctx *context;
    int blocking, ended;
    uint64_t submitted, done;
    struct work *first, *last;
    pthread_t thread;
    struct work *gathered; /* waits to be put on the next piece of work */
    struct capture *capture;
    struct salus_stream *next;
};

struct capture {
    struct salus_graph *graph;
    struct salus_stream *origin;
    int mode, broken;
    pthread_t thread;
    struct capture *next;
};

struct salus_event {
    struct salus_stream *stream;
    uint64_t number;
    struct capture *capture;
    double at;
};

struct salus_graph_exec {
    struct salus_graph *graph;
};

static struct salus_stream *streams;
static struct capture *captures;
static __thread int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void *stream_run(void *argument)
{
    struct salus_stream *stream = argument;
    pthread_mutex_lock(&standin_lock);
    for (;;) {
        while (!stream->first && !stream->ended)
            pthread_cond_wait(&standin_progress, &standin_lock);
        struct work *work = stream->first;
        if (!work)
            break;
        for (unsigned i = 0; i < work->after_count; i++)
            while (work->after[i].stream->done < work->after[i].count)
                pthread_cond_wait(&standin_progress, &standin_lock);
        stream->first = work->next;
        if (!stream->first)
            stream->last = NULL;
        pthread_mutex_unlock(&standin_lock);
        work_do(work);
        pthread_mutex_lock(&standin_lock);
        if (work->kind == WORK_EVENT) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            work->event->at = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
        }
        free(work);
        stream->done++;
        pthread_cond_broadcast(&standin_progress);
    }
    pthread_mutex_unlock(&standin_lock);
    return NULL;
}

/* With the lock held. */
static struct salus_stream *stream_make(struct salus_ctx *context, int blocking)
{
    struct salus_stream *stream = calloc(1, sizeof *stream);
    *stream = (struct salus_stream){.context = context, .blocking = blocking, .next = streams};
    if (pthread_create(&stream->thread, NULL, stream_run, stream))
        abort();
    streams = stream;
    return stream;
}

/* The stream meant, or NULL if it isn't one of the context's. With the lock held. */
static struct salus_stream *stream_of(struct salus_ctx *context, CUstream stream)
{
    uintptr_t special = (uintptr_t)stream;
    if (special <= 1) {
        if (!context->null_stream)
            context->null_stream = stream_make(context, 1);
        return context->null_stream;
    }
    if (special == 2) {
        if (!context->per_thread)
            context->per_thread = stream_make(context, 1);
        return context->per_thread;
    }
    for (struct salus_stream *s = streams; s; s = s->next)
        if (s == stream && !s->ended && s->context->alive)
            return s;
    return NULL;
}

static void wait_on(struct work *work, struct salus_stream *stream, uint64_t count)
{
    if (count > stream->done && work->after_count < MOST_STREAMS) {
        work->after[work->after_count].stream = stream;
        work->after[work->after_count++].count = count;
    }
}

static void graph_add(struct salus_graph *graph, struct work *work)
{
    work->next = NULL;
    if (graph->last)
        graph->last->next = work;
    else
        graph->first = work;
    graph->last = work;
}

CUresult submit(struct salus_ctx *context, CUstream given, struct work *work, uint64_t *number, struct salus_stream **on)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&standin_lock);
    struct salus_stream *stream = stream_of(context, given);
    if (number)
        *number = 0;
    if (!stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (stream->capture) {
        if (stream->capture->broken)
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else {
            work->context = stream->context;
            graph_add(stream->capture->graph, work);
        }
    } else {
        int null = stream == stream->context->null_stream;
        for (struct capture *c = null ? captures : NULL; c; c = c->next)
            if (c->origin->context == stream->context && c->origin->blocking && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
                c->broken = 1;
                result = 906; /* implicit dependence of a capture on the null stream */
            }
        work->context = stream->context;
        if (stream->gathered) {
            for (unsigned i = 0; i < stream->gathered->after_count; i++)
                wait_on(work, stream->gathered->after[i].stream, stream->gathered->after[i].count);
            free(stream->gathered);
            stream->gathered = NULL;
        }
        for (struct salus_stream *s = streams; s; s = s->next)
            if (s != stream && s->context == stream->context && s->blocking &&
                (null || s == stream->context->null_stream) && stream->blocking)
                wait_on(work, s, s->submitted);
        if (!result) {
            if (stream->last)
                stream->last->next = work;
            else
                stream->first = work;
            stream->last = work;
            stream->submitted++;
            if (number)
                *number = stream->submitted;
            pthread_cond_broadcast(&standin_progress);
        }
    }
    if (on)
        *on = stream;
    pthread_mutex_unlock(&standin_lock);
    if (result)
        free(work);
    return result;
}

void wait_for(struct salus_stream *stream, uint64_t number)
{
    pthread_mutex_lock(&standin_lock);
    while (stream->done < number)
        pthread_cond_wait(&standin_progress, &standin_lock);
    pthread_mutex_unlock(&standin_lock);
}

void streams_wait_all(struct salus_ctx *context)
{
    pthread_mutex_lock(&standin_lock);
    for (struct salus_stream *s = streams; s; s = s->next)
        while (s->context == context && s->done < s->submitted)
            pthread_cond_wait(&standin_progress, &standin_lock);
    pthread_mutex_unlock(&standin_lock);
}

void streams_end_context(struct salus_ctx *context)
{
    pthread_mutex_lock(&standin_lock);
    for (struct salus_stream *s = streams; s; s = s->next)
        if (s->context == context)
            s->ended = 1;
    pthread_cond_broadcast(&standin_progress);
    pthread_mutex_unlock(&standin_lock);
    streams_wait_all(context);
}

/* 1 if any stream of the context is being captured; asking so breaks the captures, as a synchronisation does. */
int streams_capturing(struct salus_ctx *context)
{
    int any = 0;
    pthread_mutex_lock(&standin_lock);
    for (struct capture *c = captures; c; c = c->next)
        if (c->origin->context == context)
            any = c->broken = 1;
    pthread_mutex_unlock(&standin_lock);
    return any;
}

CUresult unsafe_call(struct salus_ctx *context)
{
    CUresult result = CUDA_SUCCESS;
    (void)context;
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&standin_lock);
    for (struct capture *c = captures; c; c = c->next) {
        int own = pthread_equal(c->thread, pthread_self()) && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        int global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || global) {
            c->broken = 1;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

#define NEED_CONTEXT \
    CUresult error = CUDA_SUCCESS; \
    struct salus_ctx *context = current(&error); \
    if (!context) \
    return error

ENTRY CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    NEED_CONTEXT;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    *stream = stream_make(context, !(flags & CU_STREAM_NON_BLOCKING));
    pthread_mutex_unlock(&standin_lock);
    return CUDA_SUCCESS;
}

/* Work already queued is still done. */
ENTRY CUresult cuStreamDestroy_v2(CUstream stream)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&standin_lock);
    struct salus_stream *s = (uintptr_t)stream > 2 ? stream_of(context, stream) : NULL;
    if (s)
        s->ended = 1;
    pthread_cond_broadcast(&standin_progress);
    pthread_mutex_unlock(&standin_lock);
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* How much there is to wait for; a captured stream can't be waited for, and asking breaks its capture. */
static CUresult look(struct salus_ctx *context, CUstream given, struct salus_stream **stream, uint64_t *number)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&standin_lock);
    *stream = stream_of(context, given);
    if (!*stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if ((*stream)->capture) {
        (*stream)->capture->broken = 1;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else
        *number = (*stream)->submitted;
    pthread_mutex_unlock(&standin_lock);
    return result;
}

ENTRY CUresult cuStreamSynchronize(CUstream stream)
{
    NEED_CONTEXT;
    struct salus_stream *s;
    uint64_t number;
    error = look(context, stream, &s, &number);
    if (error)
        return error;
    wait_for(s, number);
    return s->context->sticky;
}

ENTRY CUresult cuStreamQuery(CUstream stream)
{
    NEED_CONTEXT;
    struct salus_stream *s;
    uint64_t number;
    error = look(context, stream, &s, &number);
    if (error)
        return error;
    pthread_mutex_lock(&standin_lock);
    int done = s->done >= number;
    pthread_mutex_unlock(&standin_lock);
    return done ? s->context->sticky : CUDA_ERROR_NOT_READY;
}

/* --- events -------------------------------------------------------------------------------------------------------------- */

ENTRY CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    *event = calloc(1, sizeof **event);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuEventDestroy_v2(CUevent event)
{
    NEED_CONTEXT;
    if (event->stream)
        wait_for(event->stream, event->number);
    free(event);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuEventRecord(CUevent event, CUstream stream)
{
    NEED_CONTEXT;
    struct work *work = calloc(1, sizeof *work);
    struct salus_stream *on;
    uint64_t number;
    work->kind = WORK_EVENT;
    work->event = event;
    error = submit(context, stream, work, &number, &on);
    if (error)
        return error;
    pthread_mutex_lock(&standin_lock);
    event->stream = number ? on : NULL;
    event->number = number;
    event->capture = number ? NULL : on->capture;
    pthread_mutex_unlock(&standin_lock);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuEventSynchronize(CUevent event)
{
    NEED_CONTEXT;
    if (event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (event->stream)
        wait_for(event->stream, event->number);
    return context->sticky;
}

ENTRY CUresult cuEventQuery(CUevent event)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&standin_lock);
    int done = !event->stream || event->stream->done >= event->number;
    pthread_mutex_unlock(&standin_lock);
    return done ? context->sticky : CUDA_ERROR_NOT_READY;
}

ENTRY CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    pthread_mutex_lock(&standin_lock);
    struct salus_stream *s = stream_of(context, stream);
    if (!s)
        error = CUDA_ERROR_INVALID_HANDLE;
    else if (event->capture) {
        int known = 0;
        for (struct capture *c = captures; c; c = c->next)
            known |= c == event->capture;
        if (known && !s->capture)
            s->capture = event->capture; /* the other stream joins the capture */
        else if (!known)
            error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (event->stream && !s->capture) {
        if (!s->gathered)
            s->gathered = calloc(1, sizeof *s->gathered);
        wait_on(s->gathered, event->stream, event->number);
    }
    pthread_mutex_unlock(&standin_lock);
    return error;
}

/* --- captures and graphs ------------------------------------------------------------------------------------------------- */

ENTRY CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    if (*mode < 0 || *mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    NEED_CONTEXT;
    if ((uintptr_t)stream <= 1)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&standin_lock);
    struct salus_stream *s = stream_of(context, stream);
    if (!s || s->capture)
        error = s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    else {
        struct capture *c = calloc(1, sizeof *c);
        *c = (struct capture){.graph = calloc(1, sizeof(struct salus_graph)), .origin = s, .mode = mode,
                              .thread = pthread_self(), .next = captures};
        c->graph->references = 1;
        captures = c;
        s->capture = c;
    }
    pthread_mutex_unlock(&standin_lock);
    return error;
}

static void graph_release(struct salus_graph *graph)
{
    if (--graph->references)
        return;
    for (struct work *w = graph->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(graph);
}

ENTRY CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&standin_lock);
    struct salus_stream *s = stream_of(context, stream);
    struct capture *c = s ? s->capture : NULL;
    if (!c)
        error = s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    else if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        error = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else {
        for (struct salus_stream *other = streams; other; other = other->next)
            if (other->capture == c)
                other->capture = NULL;
        struct capture **link = &captures;
        while (*link != c)
            link = &(*link)->next;
        *link = c->next;
        *graph = c->broken ? NULL : c->graph;
        if (c->broken) {
            error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            graph_release(c->graph);
        }
        free(c);
    }
    pthread_mutex_unlock(&standin_lock);
    return error;
}

ENTRY CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&standin_lock);
    struct salus_stream *s = stream_of(context, stream);
    *status = s && s->capture ? 1 + s->capture->broken : 0;
    pthread_mutex_unlock(&standin_lock);
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

ENTRY CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    NEED_CONTEXT;
    (void)flags;
    *exec = calloc(1, sizeof **exec);
    (*exec)->graph = graph;
    pthread_mutex_lock(&standin_lock);
    graph->references++;
    pthread_mutex_unlock(&standin_lock);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    NEED_CONTEXT;
    struct work *work = calloc(1, sizeof *work);
    work->kind = WORK_GRAPH;
    work->graph = exec->graph;
    return submit(context, stream, work, NULL, NULL);
}

ENTRY CUresult cuGraphDestroy(CUgraph graph)
{
    pthread_mutex_lock(&standin_lock);
    graph_release(graph);
    pthread_mutex_unlock(&standin_lock);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    NEED_CONTEXT;
    streams_wait_all(context);
    CUresult result = cuGraphDestroy(exec->graph);
    free(exec);
    return result;
}
