/* Contexts: current per thread, primary per device, and the end of all that is theirs. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { DEEPEST = 16 };

static struct salus_ctx *all, *primaries[DEVICES];
static __thread struct salus_ctx *stack[DEEPEST];
static __thread int depth;

int context_alive(const struct salus_ctx *context)
{
    for (const struct salus_ctx *c = all; c; c = c->next)
        if (c == context)
            return c->alive;
    return 0;
}

struct salus_ctx *current(CUresult *error)
{
    struct salus_ctx *context = depth ? stack[depth - 1] : NULL;
    if (!standin_ready)
        *error = CUDA_ERROR_NOT_INITIALIZED;
    else if (!context)
        *error = CUDA_ERROR_INVALID_CONTEXT;
    else if (!context->alive)
        *error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else if (context->sticky)
        *error = context->sticky;
    else
        return context;
    return NULL;
}

static CUresult make(struct salus_ctx **out, int device)
{
    if (!device_charge(device, CONTEXT_COST))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct salus_ctx *context = calloc(1, sizeof *context);
    *context = (struct salus_ctx){.device = device, .alive = 1, .next = all};
    all = context; /* records stay: a pointer to one that ended must be known as such */
    *out = context;
    return CUDA_SUCCESS;
}

static void end(struct salus_ctx *context)
{
    streams_end_context(context);
    pthread_mutex_lock(&standin_lock);
    context->alive = 0;
    memory_end_context(context);
    pthread_mutex_unlock(&standin_lock);
    device_charge(context->device, -CONTEXT_COST);
}

#define CHECK_DEVICE(device) \
    if (!standin_ready) \
        return CUDA_ERROR_NOT_INITIALIZED; \
    if ((device) < 0 || (device) >= device_count()) \
    return CUDA_ERROR_INVALID_DEVICE

ENTRY CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CHECK_DEVICE(device);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&standin_lock);
    struct salus_ctx *primary = primaries[device];
    if (!primary || !primary->alive)
        result = make(&primary, device);
    if (!result) {
        primary->primary = 1;
        primary->retained++;
        primaries[device] = primary;
        *context = primary;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

static CUresult primary_release(CUdevice device, int all_of_it)
{
    CHECK_DEVICE(device);
    struct salus_ctx *primary = primaries[device];
    if (!primary || !primary->alive || (!all_of_it && !primary->retained))
        return all_of_it ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (!all_of_it && --primary->retained)
        return CUDA_SUCCESS;
    end(primary);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return primary_release(device, 0); }
ENTRY CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return primary_release(device, 1); }

ENTRY CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    CHECK_DEVICE(device);
    *flags = 0;
    *active = primaries[device] && primaries[device]->alive;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    CHECK_DEVICE(device);
    pthread_mutex_lock(&standin_lock);
    CUresult result = make(context, device);
    pthread_mutex_unlock(&standin_lock);
    if (!result)
        stack[depth++] = *context;
    return result;
}

ENTRY CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!context_alive(context) || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    end(context);
    if (depth && stack[depth - 1] == context)
        depth--;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxGetCurrent(CUcontext *context)
{
    if (!standin_ready)
        return CUDA_ERROR_NOT_INITIALIZED;
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxSetCurrent(CUcontext context)
{
    if (!standin_ready)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (context && !context_alive(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth)
        depth--;
    if (context)
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    if (!context_alive(context) || depth == DEEPEST)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult error = CUDA_SUCCESS;
    struct salus_ctx *context = current(&error);
    if (context)
        *device = context->device;
    return error;
}

ENTRY CUresult cuCtxSynchronize(void)
{
    CUresult error = CUDA_SUCCESS;
    struct salus_ctx *context = current(&error);
    if (!context)
        return error;
    if (streams_capturing(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    streams_wait_all(context);
    return context->sticky;
}

ENTRY CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUresult error = CUDA_SUCCESS;
    struct salus_ctx *context = current(&error);
    if (!context)
        return error;
    if (flags || !context_alive(peer))
        return CUDA_ERROR_INVALID_VALUE;
    if (peer->device == context->device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (context->peers[peer->device])
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers[peer->device] = 1;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUresult error = CUDA_SUCCESS;
    struct salus_ctx *context = current(&error);
    if (!context)
        return error;
    if (!context_alive(peer) || !context->peers[peer->device])
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers[peer->device] = 0;
    return CUDA_SUCCESS;
}
