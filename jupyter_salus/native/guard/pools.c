/* Memory that stays with the driver: requests below 1 MiB, and stream-ordered pools.
 *
 * Small requests aren't worth 2 MiB each; their bytes are counted so that the figures add up. Pools are an allocator of
 * their own, with rules about streams: they are passed through and read, and leave the device only with the context. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "guard.h"

enum { MAX_POOLS = 64 };

pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;

/* A hash table of the small requests, open addressing; an address of 0 is a free place, 1 a removed one. */
static struct {
    struct small {
        uint64_t address, bytes;
    } *at;
    size_t size, used; /* used: with the removed ones */
    uint64_t bytes;
    CUmemoryPool pools[MAX_POOLS];
    unsigned pool_count;
} own;

static size_t small_place(const struct small *at, size_t size, uint64_t address)
{
    size_t i = (size_t)(address * 0x9e3779b97f4a7c15ull >> 20) & (size - 1);
    while (at[i].address && at[i].address != address)
        i = (i + 1) & (size - 1);
    return i;
}

static int small_grow(void)
{
    size_t size = own.size ? own.size * 2 : 256, used = 0;
    struct small *at = calloc(size, sizeof *at);
    if (!at)
        return 0;
    for (size_t i = 0; i < own.size; i++)
        if (own.at[i].address > 1) {
            at[small_place(at, size, own.at[i].address)] = own.at[i];
            used++;
        }
    free(own.at);
    own.at = at;
    own.size = size;
    own.used = used;
    return 1;
}

CUresult pools_small_alloc(CUdeviceptr *address, size_t bytes)
{
    CUresult result;
    unsigned tries = 0;
    do {
        struct flight *me = gate_enter();
        result = REAL(cuMemAlloc_v2)(address, bytes);
        gate_leave(me);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && room_ask(bytes, "small block", &tries));
    if (result)
        return result;
    pthread_mutex_lock(&pools_lock);
    if (own.used * 2 < own.size || small_grow()) {
        size_t i = small_place(own.at, own.size, *address);
        own.used += own.at[i].address == 0;
        own.at[i] = (struct small){*address, bytes};
        own.bytes += bytes;
    }
    pthread_mutex_unlock(&pools_lock);
    link_holdings_changed();
    return result;
}

CUresult pools_small_free(CUdeviceptr address)
{
    pthread_mutex_lock(&pools_lock);
    if (own.size && address > 1) {
        size_t i = small_place(own.at, own.size, address);
        if (own.at[i].address == address) {
            own.bytes -= own.at[i].bytes;
            own.at[i].address = 1;
        }
    }
    pthread_mutex_unlock(&pools_lock);
    link_holdings_changed();
    return REAL(cuMemFree_v2)(address);
}

static void note_pool(CUmemoryPool pool)
{
    pthread_mutex_lock(&pools_lock);
    unsigned i = 0;
    while (i < own.pool_count && own.pools[i] != pool)
        i++;
    if (i == own.pool_count && i < MAX_POOLS)
        own.pools[own.pool_count++] = pool;
    pthread_mutex_unlock(&pools_lock);
    if (i == MAX_POOLS)
        contexts_fix("more pools than the guard keeps count of");
}

static void note_current_pool(void)
{
    CUcontext context;
    CUdevice device;
    CUmemoryPool pool;
    if (!contexts_current(&context, &device) && HAS(cuDeviceGetMemPool) && !REAL(cuDeviceGetMemPool)(&pool, device))
        note_pool(pool);
}

/* In a capture a request becomes a part of the graph; nobody is asked for room then. */
#define ALLOCATE(call, note) \
    CUresult result; \
    unsigned tries = 0; \
    if (PASSES()) \
        return call; \
    do { \
        struct flight *me = gate_enter(); \
        result = call; \
        if (!result) \
            note; \
        gate_leave(me); \
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && !captures_running() && room_ask(bytes, "pool", &tries)); \
    link_holdings_changed(); \
    return result

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    ALLOCATE(REAL(cuMemAllocAsync)(address, bytes, stream), note_current_pool());
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    ALLOCATE(REAL(cuMemAllocAsync_ptsz)(address, bytes, stream), note_current_pool());
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ALLOCATE(REAL(cuMemAllocFromPoolAsync)(address, bytes, pool, stream), note_pool(pool));
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ALLOCATE(REAL(cuMemAllocFromPoolAsync_ptsz)(address, bytes, pool, stream), note_pool(pool));
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < own.pool_count; i++)
        if (own.pools[i] == pool)
            own.pools[i--] = own.pools[--own.pool_count];
    pthread_mutex_unlock(&pools_lock);
    return REAL(cuMemPoolDestroy)(pool);
}

void pools_holdings(struct holdings *held)
{
    uint64_t bytes;
    pthread_mutex_lock(&pools_lock);
    bytes = own.bytes;
    for (unsigned i = 0; i < own.pool_count; i++) {
        uint64_t reserved = 0;
        if (!REAL(cuMemPoolGetAttribute)(own.pools[i], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
            bytes += reserved;
    }
    pthread_mutex_unlock(&pools_lock);
    held->persistent_bytes += bytes;
    held->fixed_bytes += bytes;
}

void pools_after_fork(void)
{
    pthread_mutex_init(&pools_lock, NULL);
    own.size = own.used = 0;
    own.at = NULL;
    own.bytes = 0;
    own.pool_count = 0;
}
