/* How work comes in: copies, fills, modules and launches. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define NEED_CONTEXT \
    CUresult error = CUDA_SUCCESS; \
    struct salus_ctx *context = current(&error); \
    if (!context) \
    return error

/* 1 if a side of a copy is the host's, or device memory that is accessible throughout. */
static int reachable(struct salus_ctx *context, uint64_t address, uint64_t bytes, int write, int device)
{
    int sound = 1;
    pthread_mutex_lock(&standin_lock);
    if (device || memory_is(address))
        while (bytes && sound) {
            struct stretch s = memory_at(context, address, bytes, write);
            sound = s.bytes > 0;
            address += s.bytes;
            bytes -= s.bytes;
            if (s.physical)
                s.physical->pins--;
        }
    pthread_mutex_unlock(&standin_lock);
    return sound;
}

enum side { HOST, DEVICE, EITHER };

static CUresult copy(uint64_t to, enum side to_side, uint64_t from, enum side from_side, size_t bytes, CUstream stream,
                     int wait)
{
    NEED_CONTEXT;
    if (wait && (error = unsafe_call(context)))
        return error;
    if (!bytes)
        return CUDA_SUCCESS;
    if ((to_side != HOST && !reachable(context, to, bytes, 1, to_side == DEVICE)) ||
        (from_side != HOST && !reachable(context, from, bytes, 0, from_side == DEVICE)))
        return CUDA_ERROR_INVALID_VALUE;
    struct work *work = calloc(1, sizeof *work);
    struct salus_stream *on;
    uint64_t number;
    *work = (struct work){.kind = WORK_COPY, .to = to, .from = from, .bytes = bytes};
    error = submit(context, stream, work, &number, &on);
    if (!error && wait) {
        wait_for(on, number);
        error = context->sticky;
    }
    return error;
}

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

ENTRY CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, EITHER, from, EITHER, bytes, NULL, 1);
}
ENTRY CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(to, EITHER, from, EITHER, bytes, stream, 0);
}
ENTRY CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(to, DEVICE, ADDRESS(from), HOST, bytes, NULL, 1);
}
ENTRY CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy(to, DEVICE, ADDRESS(from), HOST, bytes, stream, 0);
}
ENTRY CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy(ADDRESS(to), HOST, from, DEVICE, bytes, NULL, 1);
}
ENTRY CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(ADDRESS(to), HOST, from, DEVICE, bytes, stream, 0);
}
ENTRY CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, DEVICE, from, DEVICE, bytes, NULL, 1);
}
ENTRY CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(to, DEVICE, from, DEVICE, bytes, stream, 0);
}

static CUresult fill(CUdeviceptr to, uint64_t value, unsigned element, size_t count, CUstream stream, int wait)
{
    NEED_CONTEXT;
    if (!count)
        return CUDA_SUCCESS;
    if (to % element || !reachable(context, to, count * element, 1, 1))
        return CUDA_ERROR_INVALID_VALUE;
    struct work *work = calloc(1, sizeof *work);
    struct salus_stream *on;
    uint64_t number;
    *work = (struct work){.kind = WORK_FILL, .to = to, .bytes = count * element, .value = value, .element = element};
    error = submit(context, stream, work, &number, &on);
    if (!error && wait && number)
        wait_for(on, number);
    return error;
}

ENTRY CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill(to, value, 1, count, NULL, 1);
}
ENTRY CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return fill(to, value, 1, count, stream, 0);
}
ENTRY CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) { return fill(to, value, 4, count, NULL, 1); }
ENTRY CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return fill(to, value, 4, count, stream, 0);
}

/* --- modules and launches ------------------------------------------------------------------------------------------------- */

struct salus_module {
    int unused;
};
struct salus_function {
    int kernel;
    unsigned arguments;
    const unsigned char *sizes;
};

/* Any text that declares PTX will do: what runs is chosen by the kernel's name. */
ENTRY CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    NEED_CONTEXT;
    if (!image || !strstr(image, ".version"))
        return CUDA_ERROR_INVALID_IMAGE;
    *module = calloc(1, sizeof **module);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuModuleUnload(CUmodule module)
{
    NEED_CONTEXT;
    free(module);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    NEED_CONTEXT;
    static struct salus_function found[8];
    unsigned arguments;
    const unsigned char *sizes;
    int kernel = module ? kernel_find(name, &arguments, &sizes) : -1;
    if (kernel < 0)
        return CUDA_ERROR_NOT_FOUND;
    found[kernel] = (struct salus_function){kernel, arguments, sizes};
    *function = &found[kernel];
    return CUDA_SUCCESS;
}

ENTRY CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments,
                              void **extra)
{
    NEED_CONTEXT;
    (void)shared_bytes;
    if (!function || !arguments || extra || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z ||
        block_x * block_y * block_z > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    struct work *work = calloc(1, sizeof *work);
    work->kind = WORK_KERNEL;
    work->kernel = function->kernel;
    for (unsigned i = 0; i < function->arguments; i++)
        memcpy(&work->arguments[i], arguments[i], function->sizes[i]);
    return submit(context, stream, work, NULL, NULL);
}

ENTRY CUresult cuLaunchHostFunc(CUstream stream, void (*host)(void *), void *data)
{
    NEED_CONTEXT;
    struct work *work = calloc(1, sizeof *work);
    work->kind = WORK_HOST;
    work->host = host;
    work->data = data;
    return submit(context, stream, work, NULL, NULL);
}
