/* Device memory: addresses, handles, mappings; the native allocator; stream-ordered requests; pinned host memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin.h"

enum { SMALL = 1 << 20, UNIT = 512 };

struct reservation {
    uint64_t address, bytes;
    struct reservation *next;
};

struct mapped {
    uint64_t address, bytes;
    struct physical *physical;
    int access[DEVICES];
    struct salus_ctx *native; /* memory of cuMemAlloc: the context it belongs to */
    uint64_t asked;
    int pooled;
    struct mapped *next;
};

struct pinned {
    unsigned char *at;
    uint64_t bytes;
    int ours;
    struct pinned *next;
};

struct salus_pool {
    int device;
    uint64_t used, high;
};

static struct reservation *reservations;
static struct mapped *maps;
static struct pinned *pinned_list;
static struct salus_pool pools[DEVICES];
static uint64_t small_bytes[DEVICES];

/* Requests below 1 MiB share granules. */
static int charge_small(int device, int64_t bytes)
{
    uint64_t before = (small_bytes[device] + PAGE_GRANULE - 1) / PAGE_GRANULE;
    uint64_t after = (small_bytes[device] + (uint64_t)bytes + PAGE_GRANULE - 1) / PAGE_GRANULE;
    if (!device_charge(device, ((int64_t)after - (int64_t)before) * PAGE_GRANULE))
        return 0;
    small_bytes[device] += (uint64_t)bytes;
    return 1;
}

static struct mapped *map_at(uint64_t address)
{
    for (struct mapped *m = maps; m; m = m->next)
        if (address - m->address < m->bytes)
            return m;
    return NULL;
}

int memory_is(uint64_t address)
{
    for (struct reservation *r = reservations; r; r = r->next)
        if (address - r->address < r->bytes)
            return 1;
    return 0;
}

struct stretch memory_at(struct salus_ctx *context, uint64_t address, uint64_t bytes, int write)
{
    struct mapped *m = map_at(address);
    struct stretch none = {0};
    if (!m)
        return none;
    int needed = write ? CU_MEM_ACCESS_READWRITE : CU_MEM_ACCESS_READ;
    int may = m->native ? (m->native->device == context->device || context->peers[m->native->device] ? 3 : 0)
                        : m->access[context->device];
    if ((may & needed) != needed)
        return none;
    uint64_t at = address - m->address, rest = m->bytes - at;
    m->physical->pins++;
    return (struct stretch){m->physical->memory + at, rest < bytes ? rest : bytes, m->physical};
}

/* --- addresses ------------------------------------------------------------------------------------------------------- */

static uint64_t reserve(uint64_t bytes)
{
    unsigned char *at = mmap(NULL, bytes + PAGE_GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    uint64_t address = ((uint64_t)(uintptr_t)at + PAGE_GRANULE - 1) / PAGE_GRANULE * PAGE_GRANULE;
    uint64_t before = address - (uint64_t)(uintptr_t)at;
    if (before)
        munmap(at, before);
    if (PAGE_GRANULE - before)
        munmap((unsigned char *)(uintptr_t)(address + bytes), PAGE_GRANULE - before);
    struct reservation *r = malloc(sizeof *r);
    *r = (struct reservation){address, bytes, reservations};
    reservations = r;
    return address;
}

static int unreserve(uint64_t address, uint64_t bytes)
{
    for (struct reservation **link = &reservations; *link; link = &(*link)->next)
        if ((*link)->address == address && (*link)->bytes == bytes) {
            struct reservation *gone = *link;
            *link = gone->next;
            munmap((void *)(uintptr_t)address, bytes);
            free(gone);
            return 1;
        }
    return 0;
}

#define NEED_INIT \
    if (!standin_ready) \
    return CUDA_ERROR_NOT_INITIALIZED
#define LOCKED(...) \
    CUresult result = CUDA_SUCCESS; \
    pthread_mutex_lock(&standin_lock); \
    __VA_ARGS__; \
    pthread_mutex_unlock(&standin_lock); \
    return result

ENTRY CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                                   unsigned long long flags)
{
    NEED_INIT;
    (void)wish;
    if (!bytes || bytes % PAGE_GRANULE || (alignment & (alignment - 1)) || alignment > PAGE_GRANULE || flags)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED({
        *address = reserve(bytes);
        if (!*address)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    });
}

ENTRY CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    NEED_INIT;
    LOCKED({
        for (struct mapped *m = maps; m; m = m->next)
            if (m->address < address + bytes && address < m->address + m->bytes)
                result = CUDA_ERROR_INVALID_VALUE;
        if (!result && !unreserve(address, bytes))
            result = CUDA_ERROR_INVALID_VALUE;
    });
}

/* --- handles --------------------------------------------------------------------------------------------------------- */

struct handle {
    struct physical *physical;
    struct handle *next;
};
static struct handle *handle_list;

static struct physical *handle_find(CUmemGenericAllocationHandle handle)
{
    for (struct handle *h = handle_list; h; h = h->next)
        if ((uint64_t)(uintptr_t)h->physical == handle && h->physical->handles)
            return h->physical;
    return NULL;
}

static void drop(struct physical *p)
{
    if (!p->handles && !p->mappings)
        for (struct handle **link = &handle_list; *link; link = &(*link)->next)
            if ((*link)->physical == p) {
                struct handle *gone = *link;
                *link = gone->next;
                free(gone);
                break;
            }
    physical_drop(p);
}

ENTRY CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, int option)
{
    NEED_INIT;
    (void)properties;
    (void)option;
    *granularity = PAGE_GRANULE;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                           unsigned long long flags)
{
    NEED_INIT;
    if (!handle || !properties || !bytes || bytes % PAGE_GRANULE || flags ||
        properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.id < 0 || properties->location.id >= device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    LOCKED({
        struct physical *p = physical_make(properties->location.id, bytes, bytes);
        if (p) {
            struct handle *h = malloc(sizeof *h);
            *h = (struct handle){p, handle_list};
            handle_list = h;
            p->handles = 1;
            p->properties = *properties;
            *handle = (uint64_t)(uintptr_t)p;
        } else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    });
}

ENTRY CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    NEED_INIT;
    LOCKED({
        struct physical *p = handle_find(handle);
        if (p) {
            p->handles--;
            drop(p);
        } else
            result = CUDA_ERROR_INVALID_VALUE;
    });
}

ENTRY CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags)
{
    NEED_INIT;
    LOCKED({
        struct physical *p = handle_find(handle);
        int inside = 0;
        if (!p || !bytes || bytes % PAGE_GRANULE || address % PAGE_GRANULE || offset || flags || bytes > p->bytes)
            result = CUDA_ERROR_INVALID_VALUE;
        for (struct reservation *r = reservations; r; r = r->next)
            inside |= address >= r->address && address + bytes <= r->address + r->bytes;
        for (struct mapped *m = maps; m; m = m->next)
            if (m->address < address + bytes && address < m->address + m->bytes)
                result = CUDA_ERROR_INVALID_VALUE;
        if (!inside)
            result = CUDA_ERROR_INVALID_VALUE;
        if (!result) {
            struct mapped *m = calloc(1, sizeof *m);
            *m = (struct mapped){.address = address, .bytes = bytes, .physical = p, .next = maps};
            maps = m;
            p->mappings++;
        }
    });
}

static void unmap(struct mapped *gone)
{
    struct mapped **link = &maps;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    gone->physical->mappings--;
    drop(gone->physical);
    free(gone);
}

/* The mapping that begins at an address; NULL if none does, or if it isn't a program's own. */
static struct mapped *own_at(uint64_t address)
{
    struct mapped *m = map_at(address);
    return m && m->address == address && !m->native ? m : NULL;
}

/* 1 if whole mappings of the program fill the range. */
static int filled(uint64_t address, uint64_t bytes)
{
    uint64_t at = address;
    for (struct mapped *m; at < address + bytes; at += m->bytes)
        if (!(m = own_at(at)))
            return 0;
    return at == address + bytes;
}

/* Addresses at which nothing is mapped may be unmapped too, but no mapping may be cut. Seen with driver 580.159. */
ENTRY CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    NEED_INIT;
    LOCKED({
        int inside = 0;
        for (struct reservation *r = reservations; r; r = r->next)
            inside |= address >= r->address && address + bytes <= r->address + r->bytes;
        if (!bytes || !inside)
            result = CUDA_ERROR_INVALID_VALUE;
        for (struct mapped *m = maps; m; m = m->next)
            if (m->address < address + bytes && address < m->address + m->bytes &&
                (m->native || m->address < address || m->address + m->bytes > address + bytes))
                result = CUDA_ERROR_INVALID_VALUE;
        for (struct mapped *m = maps, *next; m && !result; m = next) {
            next = m->next;
            if (m->address >= address && m->address < address + bytes)
                unmap(m);
        }
    });
}

ENTRY CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *places, size_t count)
{
    NEED_INIT;
    LOCKED({
        if (!bytes || !filled(address, bytes))
            result = CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count; i++)
            if (places[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || places[i].location.id < 0 ||
                places[i].location.id >= device_count())
                result = CUDA_ERROR_INVALID_VALUE;
        for (uint64_t at = address; !result && at < address + bytes;) {
            struct mapped *m = own_at(at);
            for (size_t i = 0; i < count; i++)
                m->access[places[i].location.id] = places[i].flags;
            at += m->bytes;
        }
    });
}

ENTRY CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *place, CUdeviceptr address)
{
    NEED_INIT;
    LOCKED({
        struct mapped *m = map_at(address);
        if (!m || m->native || place->type != CU_MEM_LOCATION_TYPE_DEVICE || place->id < 0 || place->id >= device_count())
            result = CUDA_ERROR_INVALID_VALUE;
        else
            *flags = (unsigned long long)m->access[place->id];
    });
}

ENTRY CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    NEED_INIT;
    LOCKED({
        struct mapped *m = map_at((uint64_t)(uintptr_t)address);
        if (!m || m->native)
            result = CUDA_ERROR_INVALID_VALUE;
        else {
            m->physical->handles++;
            *handle = (uint64_t)(uintptr_t)m->physical;
        }
    });
}

ENTRY CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    NEED_INIT;
    LOCKED({
        struct physical *p = handle_find(handle);
        if (p)
            *properties = p->properties;
        else
            result = CUDA_ERROR_INVALID_VALUE;
    });
}

/* Sharing with other processes isn't modelled. */
ENTRY CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                            unsigned long long flags)
{
    NEED_INIT;
    (void)out;
    (void)handle;
    (void)type;
    (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* --- the native allocator -------------------------------------------------------------------------------------------- */

CUresult memory_native(struct salus_ctx *context, uint64_t bytes, int pooled, CUdeviceptr *address)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > device_capacity())
        return CUDA_ERROR_OUT_OF_MEMORY;
    int small = bytes < SMALL;
    uint64_t unit = small ? UNIT : PAGE_GRANULE, rounded = (bytes + unit - 1) / unit * unit;
    LOCKED({
        struct physical *p = NULL;
        if (!small)
            p = physical_make(context->device, rounded, rounded);
        else if (charge_small(context->device, (int64_t)rounded))
            p = physical_make(context->device, rounded, 0);
        struct mapped *m = p ? calloc(1, sizeof *m) : NULL;
        if (m) {
            uint64_t at = reserve((rounded + 4095) / 4096 * 4096);
            *m = (struct mapped){.address = at, .bytes = rounded, .physical = p, .native = context, .asked = bytes,
                                 .pooled = pooled, .next = maps};
            p->mappings = 1;
            maps = m;
            *address = at;
            if (pooled) {
                pools[context->device].used += rounded;
                if (pools[context->device].used > pools[context->device].high)
                    pools[context->device].high = pools[context->device].used;
            }
        } else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    });
}

static void native_end(struct mapped *m)
{
    uint64_t address = m->address, bytes = m->bytes;
    if (bytes < PAGE_GRANULE)
        charge_small(m->physical->device, -(int64_t)bytes);
    if (m->pooled)
        pools[m->native->device].used -= bytes;
    unmap(m);
    unreserve(address, (bytes + 4095) / 4096 * 4096);
}

CUresult memory_native_free(uint64_t address)
{
    struct mapped *m = map_at(address);
    if (!m || !m->native || m->address != address)
        return CUDA_ERROR_INVALID_VALUE;
    native_end(m);
    return CUDA_SUCCESS;
}

void memory_end_context(struct salus_ctx *context)
{
    for (struct mapped *m = maps, *next; m; m = next) {
        next = m->next;
        if (m->native == context)
            native_end(m);
    }
}

#define NEED_CONTEXT \
    CUresult error = CUDA_SUCCESS; \
    struct salus_ctx *context = current(&error); \
    if (!context) \
    return error

ENTRY CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    NEED_CONTEXT;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    error = unsafe_call(context);
    return error ? error : memory_native(context, bytes, 0, address);
}

ENTRY CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    NEED_CONTEXT;
    if (!width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + UNIT - 1) / UNIT * UNIT;
    return memory_native(context, *pitch * height, 0, address);
}

ENTRY CUresult cuMemFree_v2(CUdeviceptr address)
{
    NEED_CONTEXT;
    if (!address)
        return CUDA_SUCCESS;
    error = unsafe_call(context);
    if (error)
        return error;
    streams_wait_all(context);
    LOCKED(result = memory_native_free(address));
}

ENTRY CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    NEED_CONTEXT;
    *total_bytes = device_capacity();
    *free_bytes = *total_bytes - device_used(context->device);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    NEED_CONTEXT;
    LOCKED({
        struct mapped *m = map_at(address);
        if (!m)
            result = CUDA_ERROR_NOT_FOUND;
        if (m && base)
            *base = m->address;
        if (m && bytes)
            *bytes = m->native ? m->asked : m->bytes;
    });
}

ENTRY CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    NEED_CONTEXT;
    LOCKED({
        struct mapped *m = map_at(address);
        unsigned type = CU_MEMORYTYPE_DEVICE;
        uint64_t size = m ? m->native ? m->asked : m->bytes : 0;
        if (!m)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
            memcpy(out, &m->native, sizeof m->native);
        else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            memcpy(out, &type, sizeof type);
        else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
            memcpy(out, &address, sizeof address);
        else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            memcpy(out, &m->physical->device, sizeof m->physical->device);
        else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            memcpy(out, &m->address, sizeof m->address);
        else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            memcpy(out, &size, sizeof size);
        else
            result = CUDA_ERROR_NOT_SUPPORTED;
    });
}

/* --- stream-ordered requests ------------------------------------------------------------------------------------------- */

ENTRY CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    NEED_INIT;
    if (device < 0 || device >= device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    pools[device].device = device;
    *pool = &pools[device];
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) { return cuDeviceGetMemPool(pool, device); }

ENTRY CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *out)
{
    NEED_INIT;
    LOCKED({
        int high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            *(uint64_t *)out = attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? 0 : high ? pool->high : pool->used;
    });
}

ENTRY CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    NEED_CONTEXT;
    (void)stream;
    if (streams_capturing(context))
        return CUDA_ERROR_NOT_SUPPORTED; /* a graph's own memory isn't modelled */
    return memory_native(context, bytes, 1, address);
}

ENTRY CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    NEED_CONTEXT;
    struct work *work = calloc(1, sizeof *work);
    work->kind = WORK_FREE;
    work->to = address;
    return submit(context, stream, work, NULL, NULL);
}

/* --- pinned host memory -------------------------------------------------------------------------------------------------- */

static CUresult pin(void *at, uint64_t bytes, int ours)
{
    LOCKED({
        unsigned char *from = at;
        for (struct pinned *p = pinned_list; p; p = p->next)
            if (p->at < from + bytes && from < p->at + p->bytes)
                result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        if (!result) {
            struct pinned *p = malloc(sizeof *p);
            *p = (struct pinned){from, bytes, ours, pinned_list};
            pinned_list = p;
        }
    });
}

static CUresult unpin(void *at, int ours)
{
    LOCKED({
        result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        for (struct pinned **link = &pinned_list; *link; link = &(*link)->next)
            if ((*link)->at == at && (*link)->ours == ours) {
                struct pinned *gone = *link;
                *link = gone->next;
                if (ours)
                    munmap(gone->at, gone->bytes);
                free(gone);
                result = CUDA_SUCCESS;
                break;
            }
    });
}

ENTRY CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    return at && bytes ? pin(at, bytes, 0) : CUDA_ERROR_INVALID_VALUE;
}

ENTRY CUresult cuMemHostUnregister(void *at)
{
    NEED_CONTEXT;
    return unpin(at, 0);
}

ENTRY CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : pin(*at, bytes, 1);
}

ENTRY CUresult cuMemFreeHost(void *at)
{
    NEED_CONTEXT;
    CUresult result = unpin(at, 1);
    return result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ? CUDA_ERROR_INVALID_VALUE : result;
}
