/* The driver as such: start, devices, names of errors, and where its entries are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "standin.h"

enum { VERSION = 13000 };

ENTRY CUresult cuInit(unsigned flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_count())
        return CUDA_ERROR_NO_DEVICE;
    standin_ready = 1;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return CUDA_SUCCESS;
}

#define NEED_INIT \
    if (!standin_ready) \
    return CUDA_ERROR_NOT_INITIALIZED
#define NEED_DEVICE \
    NEED_INIT; \
    if (device < 0 || device >= device_count()) \
    return CUDA_ERROR_INVALID_DEVICE

ENTRY CUresult cuDeviceGetCount(int *count)
{
    NEED_INIT;
    *count = device_count();
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGet(CUdevice *out, int device)
{
    NEED_DEVICE;
    *out = device;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    NEED_DEVICE;
    snprintf(name, (size_t)size, "stand-in %d", device);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    NEED_DEVICE;
    memcpy(uuid->bytes, device_uuid, sizeof uuid->bytes);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    NEED_DEVICE;
    snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    NEED_DEVICE;
    *bytes = device_capacity();
    return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    enum { VIRTUAL_MEMORY = 102, MEMORY_POOLS = 115 };
    NEED_DEVICE;
    *value = attribute == VIRTUAL_MEMORY || attribute == MEMORY_POOLS;
    return CUDA_SUCCESS;
}

ENTRY CUresult cuGetErrorName(CUresult error, const char **name)
{
    static const struct {
        CUresult code;
        const char *name;
    } known[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    };
    *name = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == error)
            *name = known[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A name that no table of the guard knows. */
ENTRY CUresult cuStandinOnly(void)
{
    NEED_INIT;
    return CUDA_SUCCESS;
}

#define ENTRIES(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceTotalMem_v2) \
    X(cuDeviceGetUuid_v2) X(cuDeviceGetPCIBusId) \
    X(cuDeviceGetAttribute) X(cuGetErrorName) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) \
    X(cuDevicePrimaryCtxReset_v2) X(cuDevicePrimaryCtxGetState) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxGetCurrent) \
    X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice) X(cuCtxSynchronize) \
    X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess) X(cuMemAddressReserve) X(cuMemAddressFree) \
    X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) \
    X(cuMemGetAccess) X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle) X(cuMemAlloc_v2) \
    X(cuMemAllocPitch_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) X(cuMemGetAddressRange_v2) X(cuPointerGetAttribute) \
    X(cuDeviceGetMemPool) X(cuDeviceGetDefaultMemPool) X(cuMemPoolGetAttribute) X(cuMemAllocAsync) X(cuMemFreeAsync) \
    X(cuMemHostRegister_v2) X(cuMemHostUnregister) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuStreamCreate) \
    X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamQuery) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) \
    X(cuEventSynchronize) X(cuEventQuery) X(cuStreamWaitEvent) X(cuThreadExchangeStreamCaptureMode) \
    X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuGraphInstantiateWithFlags) \
    X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD_v2) \
    X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoD_v2) X(cuMemcpyDtoDAsync_v2) \
    X(cuMemsetD8_v2) X(cuMemsetD8Async) X(cuMemsetD32_v2) X(cuMemsetD32Async) X(cuModuleLoadData) X(cuModuleUnload) \
    X(cuModuleGetFunction) X(cuLaunchKernel) X(cuLaunchHostFunc) X(cuGetProcAddress) X(cuGetProcAddress_v2) \
    X(cuMemExportToShareableHandle) X(cuStandinOnly)

#define DECLARE(name) extern const char at_##name[] __asm__(#name);
ENTRIES(DECLARE)

static const struct {
    const char *name;
    const char *at;
} entries[] = {
#define ROW(name) {#name, at_##name},
    ENTRIES(ROW)};

static const void *entry_find(const char *name)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0)
            return entries[i].at;
    return NULL;
}

/* A base name is answered by its newest variant: all variants here are of CUDA 3.2 or 12 and before. */
ENTRY CUresult cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status)
{
    char variant[128];
    const void *found = NULL;
    (void)version;
    if (!name || !address || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 4; i > 1 && !found; i--) {
        snprintf(variant, sizeof variant, "%s_v%d", name, i);
        found = entry_find(variant);
    }
    if (!found)
        found = entry_find(name);
    *address = (void *)(uintptr_t)found;
    if (status)
        *status = found ? 0 : 1;
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

ENTRY CUresult cuGetProcAddress(const char *name, void **address, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, address, version, flags, NULL);
}
