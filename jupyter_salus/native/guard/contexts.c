/* Which contexts live, on which device, and who may reach whose memory; and waiting until all their work is done.
 *
 * The guard makes no context: it works in one that the program has. Making one is a gated call and a request for room,
 * since on a large card a context takes half a gibibyte and frameworks that fail to get it fall back to the processor
 * without a word. The end of a context never waits. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "guard.h"

enum { CONTEXT_BYTES = 640 << 20 }; /* what to ask for: 526 to 722 MiB were seen, with driver 580 on an H200 */

pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct known_context {
        CUcontext context; /* NULL: a free place */
        CUdevice device;
        int primary;
        CUstream stream;
    } at[MAX_CONTEXTS];
    unsigned char reaches[MAX_DEVICES][MAX_DEVICES]; /* [accessor][owner] */
    const char *fixed;
} contexts;

static _Atomic unsigned draining; /* drains that are waited for */

unsigned contexts_draining(void) { return atomic_load(&draining); }

CUresult contexts_current(CUcontext *context, CUdevice *device)
{
    *context = NULL;
    CUresult result = REAL(cuCtxGetCurrent)(context);
    if (!result && !*context)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        result = REAL(cuCtxGetDevice)(device);
    if (!result)
        contexts_note(*context, *device, 0);
    return result;
}

void contexts_note(CUcontext context, CUdevice device, int primary)
{
    struct known_context *place = NULL;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++) {
        if (contexts.at[i].context == context) {
            contexts.at[i].primary |= primary;
            pthread_mutex_unlock(&contexts_lock);
            return;
        }
        if (!contexts.at[i].context && !place)
            place = &contexts.at[i];
    }
    if (place)
        *place = (struct known_context){.context = context, .device = device, .primary = primary};
    pthread_mutex_unlock(&contexts_lock);
    if (!place)
        contexts_fix("more contexts than the guard keeps count of");
}

static void forget(CUcontext context)
{
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        if (contexts.at[i].context == context)
            contexts.at[i] = (struct known_context){0};
    pthread_mutex_unlock(&contexts_lock);
    blocks_end_context(context);
    arena_end_context(context);
}

CUcontext contexts_on(CUdevice device)
{
    CUcontext found = NULL;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS && !found; i++)
        if (contexts.at[i].context && contexts.at[i].device == device)
            found = contexts.at[i].context;
    pthread_mutex_unlock(&contexts_lock);
    return found;
}

int contexts_alive(CUcontext context)
{
    int alive = 0;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        alive |= context && contexts.at[i].context == context;
    pthread_mutex_unlock(&contexts_lock);
    return alive;
}

unsigned contexts_count(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        count += contexts.at[i].context != NULL;
    pthread_mutex_unlock(&contexts_lock);
    return count;
}

CUstream contexts_stream(CUcontext context)
{
    CUstream stream = NULL;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        if (contexts.at[i].context == context) {
            if (!contexts.at[i].stream && REAL(cuStreamCreate)(&contexts.at[i].stream, CU_STREAM_NON_BLOCKING))
                contexts.at[i].stream = NULL;
            stream = contexts.at[i].stream;
        }
    pthread_mutex_unlock(&contexts_lock);
    return stream;
}

unsigned contexts_accessors(CUdevice owner, CUmemAccessDesc *list, unsigned size)
{
    unsigned count = 0;
    list[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, owner}, CU_MEM_ACCESS_READWRITE};
    pthread_mutex_lock(&contexts_lock);
    for (int d = 0; d < MAX_DEVICES && count < size; d++)
        if (d != owner && owner < MAX_DEVICES && contexts.reaches[d][owner])
            list[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, d}, CU_MEM_ACCESS_READWRITE};
    pthread_mutex_unlock(&contexts_lock);
    return count;
}

void contexts_fix(const char *why)
{
    pthread_mutex_lock(&contexts_lock);
    int first = contexts.fixed == NULL;
    if (first)
        contexts.fixed = why;
    pthread_mutex_unlock(&contexts_lock);
    if (first) {
        guard_say("this process can't be moved out from now on: %s", why);
        link_holdings_changed();
    }
}

const char *contexts_fixed(void)
{
    pthread_mutex_lock(&contexts_lock);
    const char *why = contexts.fixed;
    pthread_mutex_unlock(&contexts_lock);
    return why;
}

void contexts_after_fork(void)
{
    pthread_mutex_init(&contexts_lock, NULL);
    memset(&contexts, 0, sizeof contexts);
    atomic_store(&draining, 0);
}

/* --- draining ------------------------------------------------------------------------------------------------ */

/* cuCtxSynchronize has no time limit, so it runs on a thread that is given up when the time is over. Such a thread may
 * still hold the record then: whoever leaves last frees it. */
struct drain {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    CUcontext contexts[MAX_CONTEXTS];
    unsigned count, users;
    int done;
    CUresult result;
};

static void drain_leave(struct drain *drain)
{
    pthread_mutex_lock(&drain->lock);
    int last = --drain->users == 0;
    pthread_mutex_unlock(&drain->lock);
    if (last)
        free(drain);
}

static void *drain_run(void *argument)
{
    struct drain *drain = argument;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < drain->count; i++) {
        CUresult one = REAL(cuCtxSetCurrent)(drain->contexts[i]);
        if (!one)
            one = REAL(cuCtxSynchronize)();
        if (one && contexts_alive(drain->contexts[i]))
            result = one;
    }
    REAL(cuCtxSetCurrent)(NULL);
    pthread_mutex_lock(&drain->lock);
    drain->done = 1;
    drain->result = result;
    pthread_cond_signal(&drain->changed);
    pthread_mutex_unlock(&drain->lock);
    drain_leave(drain);
    return NULL;
}

int contexts_drain(double deadline, char *why, size_t size)
{
    struct drain *drain = calloc(1, sizeof *drain);
    pthread_condattr_t monotonic;
    if (!drain) {
        snprintf(why, size, "cannot drain the device: no host memory");
        return 0;
    }
    pthread_mutex_init(&drain->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&drain->changed, &monotonic);
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        if (contexts.at[i].context)
            drain->contexts[drain->count++] = contexts.at[i].context;
    pthread_mutex_unlock(&contexts_lock);
    if (!drain->count) {
        free(drain);
        return 1;
    }
    drain->users = 2;
    if (thread_start(drain_run, drain)) {
        snprintf(why, size, "cannot drain the device: no thread to wait on");
        free(drain);
        return 0;
    }
    struct timespec until = {.tv_sec = (time_t)deadline, .tv_nsec = (long)((deadline - (double)(time_t)deadline) * 1e9)};
    int late = 0;
    atomic_fetch_add(&draining, 1);
    pthread_mutex_lock(&drain->lock);
    while (!drain->done && !late)
        late = pthread_cond_timedwait(&drain->changed, &drain->lock, &until);
    int done = drain->done;
    CUresult result = drain->result;
    pthread_mutex_unlock(&drain->lock);
    atomic_fetch_sub(&draining, 1);
    drain_leave(drain);
    if (!done)
        snprintf(why, size, "cannot drain the device in time: its work goes on");
    else if (result)
        snprintf(why, size, "cannot drain the device: the driver says error %d", result);
    return !done ? 0 : result ? -1 : 1;
}

/* --- making and ending contexts --------------------------------------------------------------------------------- */

/* Runs `call` as a gated call that may ask for the room of a context, and notes the context that it made. */
#define MAKE_CONTEXT(call, device, primary) \
    do { \
        CUresult result; \
        unsigned tries = 0; \
        if (PASSES()) \
            return call; \
        do { \
            struct flight *me = gate_enter(); \
            result = call; \
            if (!result) \
                contexts_note(*context, device, primary); \
            gate_leave(me); \
        } while (result == CUDA_ERROR_OUT_OF_MEMORY && room_ask(CONTEXT_BYTES, "context", &tries)); \
        return result; \
    } while (0)

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    MAKE_CONTEXT(REAL(cuCtxCreate_v2)(context, flags, device), device, 0);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device)
{
    MAKE_CONTEXT(REAL(cuCtxCreate_v3)(context, affinity, count, flags, device), device, 0);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device)
{
    MAKE_CONTEXT(REAL(cuCtxCreate_v4)(context, parameters, flags, device), device, 0);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    unsigned flags;
    int active = 0;
    if (!PASSES() && context && !REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) && active) {
        CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device); /* one more reference touches nothing */
        if (!result)
            contexts_note(*context, device, 1);
        return result;
    }
    MAKE_CONTEXT(REAL(cuDevicePrimaryCtxRetain)(context, device), device, 1);
}

static CUresult ended(CUresult result, CUcontext context)
{
    if (!result && guard_on)
        forget(context);
    return result;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) { return ended(REAL(cuCtxDestroy)(context), context); }
EXPORT CUresult cuCtxDestroy_v2(CUcontext context) { return ended(REAL(cuCtxDestroy_v2)(context), context); }

EXPORT CUresult cuCtxDetach(CUcontext context)
{
    contexts_fix("attached contexts"); /* whether it ended can't be asked: nothing of it is moved from now on */
    return REAL(cuCtxDetach)(context);
}

/* The primary context of a device, if one is known to live; and whether it still does. */
static CUresult primary_ended(CUresult result, CUdevice device)
{
    unsigned flags;
    int active = 1;
    CUcontext primary = NULL;
    if (result || !guard_on)
        return result;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        if (contexts.at[i].context && contexts.at[i].primary && contexts.at[i].device == device)
            primary = contexts.at[i].context;
    pthread_mutex_unlock(&contexts_lock);
    if (primary && !REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) && !active)
        forget(primary);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return primary_ended(REAL(cuDevicePrimaryCtxRelease)(device), device);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return primary_ended(REAL(cuDevicePrimaryCtxRelease_v2)(device), device);
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return primary_ended(REAL(cuDevicePrimaryCtxReset)(device), device);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return primary_ended(REAL(cuDevicePrimaryCtxReset_v2)(device), device);
}

/* --- peers ------------------------------------------------------------------------------------------------------ */

/* Access is given per place, not per context: it lasts while any context of the accessor has it. */
static void set_peer(CUcontext peer, int more)
{
    CUcontext mine;
    CUdevice accessor, owner = -1;
    if (contexts_current(&mine, &accessor))
        return;
    pthread_mutex_lock(&contexts_lock);
    for (unsigned i = 0; i < MAX_CONTEXTS; i++)
        if (contexts.at[i].context == peer)
            owner = contexts.at[i].device;
    int changed = 0;
    if (owner >= 0 && owner != accessor && owner < MAX_DEVICES && accessor < MAX_DEVICES) {
        unsigned char *count = &contexts.reaches[accessor][owner];
        changed = more > 0 ? (*count)++ == 0 : *count > 0 && --*count == 0;
    }
    pthread_mutex_unlock(&contexts_lock);
    if (changed)
        blocks_set_peer(owner, accessor, more > 0 ? CU_MEM_ACCESS_READWRITE : CU_MEM_ACCESS_NONE);
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    if (PASSES())
        return REAL(cuCtxEnablePeerAccess)(peer, flags);
    struct flight *me = gate_enter();
    CUresult result = REAL(cuCtxEnablePeerAccess)(peer, flags);
    if (!result)
        set_peer(peer, 1);
    gate_leave(me);
    return result;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    if (PASSES())
        return REAL(cuCtxDisablePeerAccess)(peer);
    struct flight *me = gate_enter();
    CUresult result = REAL(cuCtxDisablePeerAccess)(peer);
    if (!result)
        set_peer(peer, -1);
    gate_leave(me);
    return result;
}
