/* Device memory as private virtual-memory handles: the requests and frees of cuMemAlloc, and the table of it all.
 *
 * Theory of operation. A request reserves addresses, makes chunks, maps them and lets every device that may reach
 * memory of this one access them; only then it enters the table. Requests are gated calls, and the mover works only
 * while nothing is in flight, so the two never meet. Frees aren't gated and do meet it: they take an entry out of the
 * table at once, mark its mappings as gone, and leave to `chunk_settle` what the driver has to be told, which the mover
 * calls instead if the chunk is in its hands. */
#define _GNU_SOURCE
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#include "ranges.h"

pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static struct ranges block_table, mapping_table;
static struct chunk *chunks;
static struct block *limbo;
static uint64_t next_id = 1;

struct block *blocks_find(uint64_t address) { return ranges_find(&block_table, address); }
struct mapping *mappings_find(uint64_t address) { return ranges_find(&mapping_table, address); }
struct ranges *mappings_all(void) { return &mapping_table; }
struct chunk *chunks_first(void) { return chunks; }

void chunk_link(struct chunk *chunk)
{
    chunk->next = chunks;
    if (chunks)
        chunks->previous = chunk;
    chunks = chunk;
}

static void chunk_unlink(struct chunk *chunk)
{
    if (chunk->next)
        chunk->next->previous = chunk->previous;
    if (chunk->previous)
        chunk->previous->next = chunk->next;
    else
        chunks = chunk->next;
}

int chunk_wanted(const struct chunk *chunk)
{
    for (const struct mapping *m = chunk->mappings; m; m = m->next_of_chunk)
        if (!m->gone)
            return 1;
    return chunk->references > 0;
}

static void block_settled(struct block *block)
{
    if (--block->unsettled)
        return;
    REAL(cuMemAddressFree)(block->address, block->reserved_bytes);
    free(block->mappings);
    free(block);
}

void chunk_settle(struct chunk *chunk)
{
    struct mapping **link = &chunk->mappings;
    while (*link) {
        struct mapping *m = *link;
        if (!m->gone) {
            link = &m->next_of_chunk;
            continue;
        }
        if (chunk->state == RESIDENT && !m->unmapped)
            REAL(cuMemUnmap)(m->address, m->bytes);
        *link = m->next_of_chunk;
        m->chunk = NULL;
        if (m->block)
            block_settled(m->block);
        else
            free(m);
    }
    if (chunk->mappings || chunk->references)
        return;
    if (chunk->state == RESIDENT)
        REAL(cuMemRelease)(chunk->real);
    chunk_unlink(chunk);
    handles_forget(chunk->handle);
    free(chunk);
}

CUresult chunk_map_all(struct chunk *chunk)
{
    CUresult result = CUDA_SUCCESS;
    struct mapping *m = chunk->mappings;
    for (; m && !result; m = m->next_of_chunk) {
        m->unmapped |= m->gone;
        if (m->gone)
            continue;
        result = REAL(cuMemMap)(m->address, m->bytes, 0, chunk->real, 0);
        if (!result && m->place_count) {
            result = REAL(cuMemSetAccess)(m->address, m->bytes, m->places, m->place_count);
            if (result)
                REAL(cuMemUnmap)(m->address, m->bytes);
        }
        if (result)
            break;
    }
    if (result)
        for (struct mapping *done = chunk->mappings; done != m; done = done->next_of_chunk)
            if (!done->gone)
                REAL(cuMemUnmap)(done->address, done->bytes);
    return result;
}

void chunk_unmap_all(struct chunk *chunk)
{
    for (struct mapping *m = chunk->mappings; m; m = m->next_of_chunk)
        if (!m->unmapped)
            REAL(cuMemUnmap)(m->address, m->bytes);
}

void mapping_set_access(struct mapping *m, const CUmemAccessDesc *desc)
{
    for (unsigned i = 0; i < m->place_count; i++)
        if (m->places[i].location.type == desc->location.type && m->places[i].location.id == desc->location.id) {
            m->places[i].flags = desc->flags;
            return;
        }
    if (m->place_count < MAX_PLACES)
        m->places[m->place_count++] = *desc;
    else
        contexts_fix("memory that more places may access than the guard keeps count of");
}

/* --- requests ----------------------------------------------------------------------------------------------- */

static void block_unmake(struct block *block, unsigned made)
{
    for (unsigned i = 0; i < made; i++) {
        struct mapping *m = &block->mappings[i];
        REAL(cuMemUnmap)(m->address, m->bytes);
        REAL(cuMemRelease)(m->chunk->real);
        free(m->chunk);
    }
    REAL(cuMemAddressFree)(block->address, block->reserved_bytes);
    free(block->mappings);
    free(block);
}

static CUresult chunk_make(struct mapping *m, CUdevice device, CUcontext context)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    chunk->bytes = m->bytes;
    chunk->context = context;
    chunk->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    chunk->properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUresult result = REAL(cuMemCreate)(&chunk->real, chunk->bytes, &chunk->properties, 0);
    if (!result) {
        result = REAL(cuMemMap)(m->address, m->bytes, 0, chunk->real, 0);
        if (result)
            REAL(cuMemRelease)(chunk->real);
    }
    if (result) {
        free(chunk);
        return result;
    }
    chunk->mappings = m;
    m->chunk = chunk;
    return CUDA_SUCCESS;
}

static CUresult block_make(uint64_t bytes, CUdeviceptr *address)
{
    CUcontext context;
    CUdevice device;
    CUresult result = contexts_current(&context, &device);
    if (result)
        return result;
    uint64_t reserved = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    unsigned count = (unsigned)((reserved + CHUNK_BYTES - 1) / CHUNK_BYTES), made = 0;
    struct block *block = calloc(1, sizeof *block);
    struct mapping *mappings = calloc(count, sizeof *mappings);
    if (!block || !mappings) {
        free(block);
        free(mappings);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = (struct block){.asked_bytes = bytes, .reserved_bytes = reserved, .context = context, .device = device,
                            .mappings = mappings, .mapping_count = count, .unsettled = count + 1};
    result = REAL(cuMemAddressReserve)(&block->address, reserved, 0, 0, 0);
    if (result) {
        free(mappings);
        free(block);
        return result;
    }
    CUmemAccessDesc places[MAX_PLACES];
    unsigned place_count = contexts_accessors(device, places, MAX_PLACES);
    for (; made < count && !result; made += !result) {
        struct mapping *m = &mappings[made];
        uint64_t at = (uint64_t)made * CHUNK_BYTES;
        m->address = block->address + at;
        m->bytes = reserved - at < CHUNK_BYTES ? reserved - at : CHUNK_BYTES;
        m->block = block;
        memcpy(m->places, places, place_count * sizeof *places);
        m->place_count = place_count;
        result = chunk_make(m, device, context);
    }
    if (!result)
        result = REAL(cuMemSetAccess)(block->address, reserved, places, place_count);
    if (!result) {
        pthread_mutex_lock(&blocks_lock);
        if (ranges_room(&block_table, 1) && ranges_room(&mapping_table, count)) {
            block->id = next_id++;
            ranges_add(&block_table, block);
            for (unsigned i = 0; i < count; i++) {
                ranges_add(&mapping_table, &mappings[i]);
                chunk_link(mappings[i].chunk);
            }
        } else
            result = CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&blocks_lock);
    }
    if (result) {
        block_unmake(block, made);
        return result;
    }
    *address = block->address;
    link_holdings_changed();
    return CUDA_SUCCESS;
}

static CUresult block_request(uint64_t bytes, CUdeviceptr *address)
{
    if (bytes > 1ull << 48)
        return CUDA_ERROR_OUT_OF_MEMORY; /* no device has addresses for it: nobody needs to be asked */
    for (unsigned tries = 0;;) {
        struct flight *me = gate_enter();
        CUresult result = room_allows(bytes) ? block_make(bytes, address) : CUDA_ERROR_OUT_OF_MEMORY;
        gate_leave(me);
        if (result != CUDA_ERROR_OUT_OF_MEMORY || !room_ask(bytes, "block", &tries))
            return result;
    }
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    if (PASSES() || !address || !bytes)
        return REAL(cuMemAlloc_v2)(address, bytes);
    return bytes < SMALL_BYTES ? pools_small_alloc(address, bytes) : block_request(bytes, address);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    enum { PITCH_ALIGNMENT = 512 }; /* what the driver answers for every device since compute capability 2 */
    size_t row = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    int sound = address && pitch && width && height && (element == 4 || element == 8 || element == 16);
    if (PASSES() || !sound || row < width || row > (SIZE_MAX >> 1) / height || row * height < SMALL_BYTES) {
        struct flight *me = gate_enter();
        CUresult result = REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
        gate_leave(me);
        return result;
    }
    *pitch = row;
    return block_request(row * height, address);
}

/* --- frees -------------------------------------------------------------------------------------------------- */

/* Takes the block out of the table; with the lock held. 1 if the device may still be using it. */
static int block_forget(struct block *block)
{
    int resident = 0;
    ranges_remove(&block_table, block->address);
    for (unsigned i = 0; i < block->mapping_count; i++) {
        struct mapping *m = &block->mappings[i];
        m->gone = 1;
        ranges_remove(&mapping_table, m->address);
        resident |= m->chunk->state != OUT;
    }
    return resident;
}

static void block_complete(struct block *block)
{
    pthread_mutex_lock(&blocks_lock);
    for (unsigned i = 0; i < block->mapping_count; i++) {
        struct chunk *chunk = block->mappings[i].chunk;
        if (chunk && chunk->state != MOVING)
            chunk_settle(chunk);
    }
    block_settled(block);
    pthread_mutex_unlock(&blocks_lock);
    link_holdings_changed();
}

/* What the driver's own free does before it frees: later launches may get these addresses at once. */
static CUresult synchronise(CUcontext context)
{
    CUresult result = REAL(cuCtxPushCurrent_v2)(context);
    if (result)
        return result;
    result = REAL(cuCtxSynchronize)();
    REAL(cuCtxPopCurrent_v2)(&context);
    return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    if (PASSES())
        return REAL(cuMemFree_v2)(address);
    pthread_mutex_lock(&blocks_lock);
    struct block *block = blocks_find(address);
    if (!block || block->address != address) {
        pthread_mutex_unlock(&blocks_lock);
        return pools_small_free(address);
    }
    int resident = block_forget(block);
    int capturing = captures_running() > 0;
    if (resident && capturing) {
        block->next_in_limbo = limbo;
        limbo = block;
    }
    CUcontext context = block->context;
    pthread_mutex_unlock(&blocks_lock);
    if (resident && capturing)
        return CUDA_SUCCESS;
    CUresult result = resident ? synchronise(context) : CUDA_SUCCESS;
    block_complete(block);
    return result;
}

void blocks_run_limbo(void)
{
    pthread_mutex_lock(&blocks_lock);
    struct block *list = limbo;
    limbo = NULL;
    pthread_mutex_unlock(&blocks_lock);
    while (list) {
        struct block *block = list;
        list = block->next_in_limbo;
        synchronise(block->context);
        block_complete(block);
    }
}

void blocks_end_context(CUcontext context)
{
    for (;;) {
        struct block *found = NULL;
        pthread_mutex_lock(&blocks_lock);
        for (size_t i = 0; i < block_table.count && !found; i++) {
            struct block *block = block_table.at[i];
            if (block->context == context)
                found = block;
        }
        if (found)
            block_forget(found);
        for (struct chunk *c = chunks; c; c = c->next)
            if (c->context == context && !found)
                c->context = NULL; /* made by the program itself: outlives the context, as with the driver */
        pthread_mutex_unlock(&blocks_lock);
        if (!found)
            return;
        block_complete(found);
    }
}

/* --- peers, marks, counts ------------------------------------------------------------------------------------ */

void blocks_set_peer(CUdevice owner, CUdevice accessor, int flags)
{
    CUmemAccessDesc place = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, accessor}, .flags = flags};
    pthread_mutex_lock(&blocks_lock);
    for (size_t i = 0; i < block_table.count; i++) {
        struct block *block = block_table.at[i];
        if (block->device != owner)
            continue;
        for (unsigned j = 0; j < block->mapping_count; j++) {
            struct mapping *m = &block->mappings[j];
            mapping_set_access(m, &place);
            if (m->chunk->state == RESIDENT)
                REAL(cuMemSetAccess)(m->address, m->bytes, &place, 1);
        }
    }
    pthread_mutex_unlock(&blocks_lock);
}

unsigned blocks_mark_empty(uint64_t address, uint64_t bytes)
{
    unsigned marked = 0;
    pthread_mutex_lock(&blocks_lock);
    for (size_t i = ranges_from(&mapping_table, address); i < mapping_table.count; i++) {
        struct mapping *m = mapping_table.at[i];
        if (m->address + m->bytes > address + bytes)
            break;
        if (m->chunk->state == RESIDENT && m->chunk->mappings == m && !m->next_of_chunk && m->bytes == m->chunk->bytes) {
            m->chunk->empty = 1;
            marked++;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
    return marked;
}

void blocks_clear_marks(void)
{
    pthread_mutex_lock(&blocks_lock);
    for (struct chunk *c = chunks; c; c = c->next)
        c->empty = 0;
    pthread_mutex_unlock(&blocks_lock);
}

void blocks_holdings(struct holdings *held)
{
    *held = (struct holdings){0};
    pthread_mutex_lock(&blocks_lock);
    for (struct chunk *c = chunks; c; c = c->next) {
        held->persistent_bytes += c->bytes;
        held->evicted_bytes += c->state == OUT ? c->bytes : 0;
        held->fixed_bytes += c->fixed ? c->bytes : 0;
    }
    held->blocks = block_table.count;
    pthread_mutex_unlock(&blocks_lock);
}

/* The parent's device memory isn't the child's: nothing is freed, everything is forgotten. */
void blocks_after_fork(void)
{
    pthread_mutex_init(&blocks_lock, NULL);
    block_table.count = mapping_table.count = 0;
    chunks = NULL;
    limbo = NULL;
    handles_forget_all();
}
