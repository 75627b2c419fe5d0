/* Memory that a program maps by itself (expandable segments, XLA's allocator): its calls, with handles of ours.
 *
 * Same handle mapped twice, release before unmap and unmapping several mappings at once behave as the driver's, whose
 * answer is passed on wherever the memory is on the device. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "ranges.h"

/* A handle: this mark, a generation so that a stale one isn't taken for its successor, and an index. The driver's own
 * handles (imported ones, multicast objects) are passed on as they are; no driver was seen to make such numbers. */
#define HANDLE_MARK 0x5a1f000000000000ull
#define HANDLE_MARK_BITS 0xffff000000000000ull

static struct {
    struct {
        struct chunk *chunk;
        uint16_t generation;
    } *at;
    size_t count;
} handles;

/* Addresses given back while a mapping in them was in the mover's hands. */
static struct late_address {
    uint64_t address, bytes;
    struct late_address *next;
} *late_addresses;

static uint64_t handles_add(struct chunk *chunk)
{
    size_t i = 0;
    while (i < handles.count && handles.at[i].chunk)
        i++;
    if (i == handles.count) {
        size_t more = handles.count ? handles.count * 2 : 64;
        void *at = realloc(handles.at, more * sizeof *handles.at);
        if (!at)
            return 0;
        handles.at = at;
        memset(handles.at + handles.count, 0, (more - handles.count) * sizeof *handles.at);
        handles.count = more;
    }
    handles.at[i].chunk = chunk;
    handles.at[i].generation++;
    return HANDLE_MARK | (uint64_t)handles.at[i].generation << 32 | (uint64_t)i;
}

struct chunk *chunks_by_handle(uint64_t handle)
{
    size_t i = (uint32_t)handle;
    if ((handle & HANDLE_MARK_BITS) != HANDLE_MARK || i >= handles.count || !handles.at[i].chunk)
        return NULL;
    return handles.at[i].chunk->handle == handle ? handles.at[i].chunk : NULL;
}

void handles_forget(uint64_t handle)
{
    if (chunks_by_handle(handle))
        handles.at[(uint32_t)handle].chunk = NULL;
}

void handles_forget_all(void)
{
    for (size_t i = 0; i < handles.count; i++)
        handles.at[i].chunk = NULL;
    late_addresses = NULL;
}

static CUresult mapped_make(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(&chunk->real, bytes, properties, flags);
    if (result) {
        free(chunk);
        return result;
    }
    CUdevice device;
    chunk->bytes = bytes;
    chunk->properties = *properties;
    chunk->references = 1;
    if (contexts_current(&chunk->context, &device))
        chunk->context = NULL;
    pthread_mutex_lock(&blocks_lock);
    chunk->handle = handles_add(chunk);
    if (chunk->handle)
        chunk_link(chunk);
    pthread_mutex_unlock(&blocks_lock);
    if (!chunk->handle) {
        REAL(cuMemRelease)(chunk->real);
        free(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = chunk->handle;
    link_holdings_changed();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags)
{
    if (PASSES() || !handle || !properties || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return REAL(cuMemCreate)(handle, bytes, properties, flags);
    for (unsigned tries = 0;;) {
        struct flight *me = gate_enter();
        CUresult result =
            room_allows(bytes) ? mapped_make(handle, bytes, properties, flags) : CUDA_ERROR_OUT_OF_MEMORY;
        gate_leave(me);
        if (result != CUDA_ERROR_OUT_OF_MEMORY || !room_ask(bytes, "handle", &tries))
            return result;
    }
}

/* The chunk behind a handle that the program still holds; with the lock held. */
static struct chunk *held_chunk(CUmemGenericAllocationHandle handle)
{
    struct chunk *chunk = chunks_by_handle(handle);
    return chunk && chunk->references ? chunk : NULL;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    if (PASSES() || (handle & HANDLE_MARK_BITS) != HANDLE_MARK)
        return REAL(cuMemRelease)(handle);
    pthread_mutex_lock(&blocks_lock);
    struct chunk *chunk = held_chunk(handle);
    if (chunk && --chunk->references == 0 && chunk->state != MOVING)
        chunk_settle(chunk);
    pthread_mutex_unlock(&blocks_lock);
    link_holdings_changed();
    return chunk ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    if (PASSES())
        return REAL(cuMemMap)(address, bytes, offset, handle, flags);
    struct flight *me = gate_enter();
    pthread_mutex_lock(&blocks_lock);
    struct chunk *chunk = held_chunk(handle);
    struct mapping *m = chunk && ranges_room(mappings_all(), 1) ? calloc(1, sizeof *m) : NULL;
    CUresult result;
    if (chunk && !m)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        result = REAL(cuMemMap)(address, bytes, offset, chunk ? chunk->real : handle, flags);
    if (!result && m) {
        *m = (struct mapping){.address = address, .bytes = bytes, .chunk = chunk, .next_of_chunk = chunk->mappings};
        chunk->mappings = m;
        ranges_add(mappings_all(), m);
    } else
        free(m);
    pthread_mutex_unlock(&blocks_lock);
    gate_leave(me);
    return result;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *places, size_t count)
{
    if (PASSES())
        return REAL(cuMemSetAccess)(address, bytes, places, count);
    struct flight *me = gate_enter();
    CUresult result = REAL(cuMemSetAccess)(address, bytes, places, count);
    if (!result) {
        struct ranges *all = mappings_all();
        pthread_mutex_lock(&blocks_lock);
        for (size_t i = ranges_from(all, address); i < all->count; i++) {
            struct mapping *m = all->at[i];
            if (m->address >= address + bytes)
                break;
            for (size_t j = 0; j < count; j++)
                mapping_set_access(m, &places[j]);
        }
        pthread_mutex_unlock(&blocks_lock);
    }
    gate_leave(me);
    return result;
}

/* How many mappings of the program lie in the range, from index `first` on. -1 if one would be cut, or is a block's: the
 * driver refuses that; gaps it doesn't mind (580.159). With the lock held. */
static long mappings_within(uint64_t address, uint64_t bytes, size_t first)
{
    struct ranges *all = mappings_all();
    struct mapping *before = mappings_find(address);
    long count = 0;
    if (before && (before->address < address || before->block))
        return -1;
    for (size_t i = first; i < all->count; i++, count++) {
        struct mapping *m = all->at[i];
        if (m->address >= address + bytes)
            break;
        if (m->block || m->address + m->bytes > address + bytes)
            return -1;
    }
    return count;
}

static void mapping_forget(struct mapping *m)
{
    struct chunk *chunk = m->chunk;
    m->gone = 1;
    ranges_remove(mappings_all(), m->address);
    if (chunk->state != MOVING)
        chunk_settle(chunk);
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    if (PASSES())
        return REAL(cuMemUnmap)(address, bytes);
    struct ranges *all = mappings_all();
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&blocks_lock);
    size_t first = ranges_from(all, address);
    long count = mappings_within(address, bytes, first);
    int away = 0;
    for (long i = 0; i < count; i++)
        away |= ((struct mapping *)all->at[first + (size_t)i])->chunk->state != RESIDENT;
    if (count < 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!away)
        result = REAL(cuMemUnmap)(address, bytes);
    for (long i = 0; i < count && !result; i++) {
        struct mapping *m = all->at[first];
        m->unmapped = !away;
        mapping_forget(m);
    }
    pthread_mutex_unlock(&blocks_lock);
    link_holdings_changed();
    return result;
}

/* 1 if a mapping that the program is done with still lies in the range, in the mover's hands. With the lock held. */
static int range_settling(uint64_t address, uint64_t bytes)
{
    for (struct chunk *c = chunks_first(); c; c = c->next)
        for (struct mapping *m = c->state == MOVING ? c->mappings : NULL; m; m = m->next_of_chunk)
            if (m->gone && m->address < address + bytes && address < m->address + m->bytes)
                return 1;
    return 0;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    if (PASSES())
        return REAL(cuMemAddressFree)(address, bytes);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&blocks_lock);
    struct late_address *late = range_settling(address, bytes) ? malloc(sizeof *late) : NULL;
    if (late) {
        *late = (struct late_address){address, bytes, late_addresses};
        late_addresses = late;
    } else
        result = REAL(cuMemAddressFree)(address, bytes);
    pthread_mutex_unlock(&blocks_lock);
    return result;
}

void blocks_settle_addresses(void)
{
    struct late_address **link = &late_addresses;
    while (*link) {
        struct late_address *late = *link;
        if (range_settling(late->address, late->bytes)) {
            link = &late->next;
            continue;
        }
        REAL(cuMemAddressFree)(late->address, late->bytes);
        *link = late->next;
        free(late);
    }
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *place, CUdeviceptr address)
{
    if (PASSES() || !flags || !place)
        return REAL(cuMemGetAccess)(flags, place, address);
    pthread_mutex_lock(&blocks_lock);
    struct mapping *m = mappings_find(address);
    if (m) {
        *flags = CU_MEM_ACCESS_NONE;
        for (unsigned i = 0; i < m->place_count; i++)
            if (m->places[i].location.type == place->type && m->places[i].location.id == place->id)
                *flags = (unsigned long long)m->places[i].flags;
    }
    pthread_mutex_unlock(&blocks_lock);
    return m ? CUDA_SUCCESS : REAL(cuMemGetAccess)(flags, place, address);
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    if (PASSES() || !handle)
        return REAL(cuMemRetainAllocationHandle)(handle, address);
    pthread_mutex_lock(&blocks_lock);
    struct mapping *m = mappings_find((uint64_t)(uintptr_t)address);
    int ours = m && !m->block;
    if (ours) {
        m->chunk->references++;
        *handle = m->chunk->handle;
    }
    pthread_mutex_unlock(&blocks_lock);
    if (m)
        return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return REAL(cuMemRetainAllocationHandle)(handle, address);
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                       CUmemGenericAllocationHandle handle)
{
    if (PASSES() || !properties || (handle & HANDLE_MARK_BITS) != HANDLE_MARK)
        return REAL(cuMemGetAllocationPropertiesFromHandle)(properties, handle);
    pthread_mutex_lock(&blocks_lock);
    struct chunk *chunk = held_chunk(handle);
    if (chunk)
        *properties = chunk->properties;
    pthread_mutex_unlock(&blocks_lock);
    return chunk ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- what others may come to know, and so can't move ------------------------------------------------------------ */

/* The driver's handle for one of ours, for good: the chunk is fixed from now on. In flight only. */
static CUmemGenericAllocationHandle reveal(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&blocks_lock);
    struct chunk *chunk = held_chunk(handle);
    if (chunk) {
        chunk->fixed = 1;
        handle = chunk->real;
    }
    pthread_mutex_unlock(&blocks_lock);
    link_holdings_changed();
    return handle;
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                             unsigned long long flags)
{
    if (PASSES())
        return REAL(cuMemExportToShareableHandle)(out, handle, type, flags);
    struct flight *me = gate_enter();
    CUresult result = REAL(cuMemExportToShareableHandle)(out, reveal(handle), type, flags);
    gate_leave(me);
    return result;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from, int type)
{
    struct flight *me = gate_enter();
    CUresult result = REAL(cuMemImportFromShareableHandle)(handle, from, type);
    gate_leave(me);
    if (!result && guard_on)
        contexts_fix("memory imported from another process");
    return result;
}

EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at, CUmemGenericAllocationHandle handle,
                                   size_t offset, size_t bytes, unsigned long long flags)
{
    struct flight *me = gate_enter();
    CUresult result = REAL(cuMulticastBindMem)(multicast, at, guard_on ? reveal(handle) : handle, offset, bytes, flags);
    gate_leave(me);
    return result;
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t bytes, int type,
                                              unsigned long long flags)
{
    struct flight *me = gate_enter();
    struct ranges *all = mappings_all();
    pthread_mutex_lock(&blocks_lock);
    for (size_t i = 0; i < all->count; i++) {
        struct mapping *m = all->at[i];
        if (m->address < address + bytes && address < m->address + m->bytes)
            m->chunk->fixed = 1;
    }
    pthread_mutex_unlock(&blocks_lock);
    CUresult result = REAL(cuMemGetHandleForAddressRange)(out, address, bytes, type, flags);
    gate_leave(me);
    return result;
}

static CUresult map_arrays(void *list, unsigned count, CUstream stream, cuMemMapArrayAsync_fn real)
{
    if (PASSES())
        return real(list, count, stream);
    guard_say("cannot map %u sparse arrays: their memory can't be moved; start the program without the guard", count);
    return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuMemMapArrayAsync(void *list, unsigned count, CUstream stream)
{
    return map_arrays(list, count, stream, REAL(cuMemMapArrayAsync));
}

EXPORT CUresult cuMemMapArrayAsync_ptsz(void *list, unsigned count, CUstream stream)
{
    return map_arrays(list, count, stream, REAL(cuMemMapArrayAsync_ptsz));
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    pthread_mutex_lock(&blocks_lock);
    int ours = guard_on && mappings_find(address) != NULL;
    pthread_mutex_unlock(&blocks_lock);
    if (!ours) {
        CUresult result = REAL(cuIpcGetMemHandle)(handle, address);
        if (!result && guard_on)
            contexts_fix("memory exported to another process");
        return result;
    }
    guard_say("cannot share the device memory at %#llx with another process: it is memory that may be moved out",
              (unsigned long long)address);
    return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    struct flight *me = gate_enter();
    CUresult result = REAL(cuIpcOpenMemHandle)(address, handle, flags);
    gate_leave(me);
    if (!result && guard_on)
        contexts_fix("memory imported from another process");
    return result;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    struct flight *me = gate_enter();
    CUresult result = REAL(cuIpcOpenMemHandle_v2)(address, handle, flags);
    gate_leave(me);
    if (!result && guard_on)
        contexts_fix("memory imported from another process");
    return result;
}
