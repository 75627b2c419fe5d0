/* Questions about device memory, answered from the table whether it is on the device or out, with the sizes asked for. */
#define _GNU_SOURCE
#include <string.h>

#include "blocks.h"

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    if (PASSES())
        return REAL(cuMemGetAddressRange_v2)(base, bytes, address);
    pthread_mutex_lock(&blocks_lock);
    struct block *block = blocks_find(address);
    struct mapping *m = block ? NULL : mappings_find(address);
    if (block && address - block->address >= block->asked_bytes)
        block = NULL; /* within the rounding: nobody asked for it, and the driver doesn't know it either */
    uint64_t from = block ? block->address : m ? m->address : 0;
    uint64_t size = block ? block->asked_bytes : m ? m->bytes : 0;
    pthread_mutex_unlock(&blocks_lock);
    if (!size)
        return REAL(cuMemGetAddressRange_v2)(base, bytes, address);
    if (base)
        *base = from;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

/* One attribute of an address in a block of ours; with the lock held. */
static CUresult block_attribute(const struct block *block, void *out, int attribute, uint64_t address)
{
    int number = 0;
    uint64_t large = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        memcpy(out, &block->context, sizeof block->context);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        memset(out, 0, sizeof(void *));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        large = address;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        /* Apart from the driver's own numbers, which count up from 1. */
        large = block->id | 1ull << 62;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        large = block->address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        large = block->asked_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        large = block->reserved_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        number = CU_MEMORYTYPE_DEVICE;
        memcpy(out, &number, sizeof number);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        memcpy(out, &block->device, sizeof block->device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        number = CU_MEM_ACCESS_READWRITE;
        memcpy(out, &number, sizeof number);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        number = 1;
        memcpy(out, &number, 1);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        memcpy(out, &number, 1);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(out, &large, sizeof large);
    return CUDA_SUCCESS;
}

/* 1 and the answer if the address is in a block of ours. Memory that the program mapped by itself is asked of the
 * driver while it is on the device; out, it answers like a block that begins at its mapping. */
static int answer(CUresult *result, void *out, int attribute, uint64_t address)
{
    pthread_mutex_lock(&blocks_lock);
    struct block *block = blocks_find(address), stand;
    struct mapping *m = block ? NULL : mappings_find(address);
    if (m && m->chunk->state != RESIDENT) {
        stand = (struct block){.address = m->address, .asked_bytes = m->bytes, .reserved_bytes = m->bytes,
                               .device = m->chunk->properties.location.id, .id = m->address >> 21};
        block = &stand;
    }
    if (block)
        *result = block_attribute(block, out, attribute, address);
    pthread_mutex_unlock(&blocks_lock);
    return block != NULL;
}

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    CUresult result;
    if (PASSES() || !out || !answer(&result, out, attribute, address))
        return REAL(cuPointerGetAttribute)(out, attribute, address);
    return result;
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **out, CUdeviceptr address)
{
    CUresult result = CUDA_SUCCESS;
    if (PASSES() || !attributes || !out)
        return REAL(cuPointerGetAttributes)(count, attributes, out, address);
    for (unsigned i = 0; i < count; i++)
        if (!out[i] || !answer(&result, out[i], attributes[i], address))
            return REAL(cuPointerGetAttributes)(count, attributes, out, address);
    /* What can't be told is left as it is: the driver answers success here whatever single attributes say. */
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = REAL(cuMemGetInfo_v2)(free_bytes, total_bytes);
    if (!result && !PASSES() && free_bytes && total_bytes)
        room_shape(free_bytes, total_bytes);
    return result;
}
