/* The part of the CUDA driver's interface that the guard and the stand-in speak: its types, codes and calls.
 *
 * Written from the public documentation of CUDA 13.0, so that neither needs a toolkit to be built; a test holds these
 * layouts and numbers against the toolkit's header where one is installed. */
#ifndef SALUS_DRIVER_H
#define SALUS_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUmemGenericAllocationHandle;
typedef struct salus_ctx *CUcontext;
typedef struct salus_stream *CUstream;
typedef struct salus_event *CUevent;
typedef struct salus_module *CUmodule;
typedef struct salus_function *CUfunction;
typedef struct salus_graph *CUgraph;
typedef struct salus_graph_exec *CUgraphExec;
typedef struct salus_pool *CUmemoryPool;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
    CUDA_ERROR_UNKNOWN = 999,
};

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEM_ACCESS_NONE = 0, CU_MEM_ACCESS_READ = 1, CU_MEM_ACCESS_READWRITE = 3 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum { CU_MEMHOSTREGISTER_PORTABLE = 1 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum {
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
};
enum {
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
};
enum { CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10 };

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    char reserved[64];
} CUipcMemHandle;

typedef struct {
    char bytes[16];
} CUuuid;

/* X(name, parameters): the calls that our code itself makes, or answers with a signature of its own. */
#define SALUS_DRIVER_CALLS(X) \
    X(cuGetProcAddress, (const char *, void **, int, uint64_t)) \
    X(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *)) \
    X(cuCtxGetCurrent, (CUcontext *)) \
    X(cuCtxSetCurrent, (CUcontext)) \
    X(cuCtxPushCurrent_v2, (CUcontext)) \
    X(cuCtxPopCurrent_v2, (CUcontext *)) \
    X(cuCtxGetDevice, (CUdevice *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) \
    X(cuCtxCreate_v3, (CUcontext *, void *, int, unsigned, CUdevice)) \
    X(cuCtxCreate_v4, (CUcontext *, void *, unsigned, CUdevice)) \
    X(cuCtxDestroy, (CUcontext)) \
    X(cuCtxDestroy_v2, (CUcontext)) \
    X(cuCtxDetach, (CUcontext)) \
    X(cuCtxEnablePeerAccess, (CUcontext, unsigned)) \
    X(cuCtxDisablePeerAccess, (CUcontext)) \
    X(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    X(cuDeviceGetPCIBusId, (char *, int, CUdevice)) \
    X(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) \
    X(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice)) \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(cuDevicePrimaryCtxRelease, (CUdevice)) \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    X(cuDevicePrimaryCtxReset, (CUdevice)) \
    X(cuDevicePrimaryCtxReset_v2, (CUdevice)) \
    X(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    X(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemFree_v2, (CUdeviceptr)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *)) \
    X(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
    X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
    X(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream)) \
    X(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
    X(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
    X(cuMemPoolDestroy, (CUmemoryPool)) \
    X(cuMemPoolGetAttribute, (CUmemoryPool, int, void *)) \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    X(cuMemAddressFree, (CUdeviceptr, size_t)) \
    X(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    X(cuMemRelease, (CUmemGenericAllocationHandle)) \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)) \
    X(cuMemUnmap, (CUdeviceptr, size_t)) \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
    X(cuMemGetAccess, (unsigned long long *, const CUmemLocation *, CUdeviceptr)) \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *)) \
    X(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp *, CUmemGenericAllocationHandle)) \
    X(cuMemExportToShareableHandle, (void *, CUmemGenericAllocationHandle, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *, void *, int)) \
    X(cuMemGetHandleForAddressRange, (void *, CUdeviceptr, size_t, int, unsigned long long)) \
    X(cuMulticastBindMem, \
      (CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t, unsigned long long)) \
    X(cuMemMapArrayAsync, (void *, unsigned, CUstream)) \
    X(cuMemMapArrayAsync_ptsz, (void *, unsigned, CUstream)) \
    X(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr)) \
    X(cuIpcOpenMemHandle, (CUdeviceptr *, CUipcMemHandle, unsigned)) \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned)) \
    X(cuPointerGetAttribute, (void *, int, CUdeviceptr)) \
    X(cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr)) \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    X(cuMemHostUnregister, (void *)) \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
    X(cuStreamCreate, (CUstream *, unsigned)) \
    X(cuStreamSynchronize, (CUstream)) \
    X(cuStreamDestroy, (CUstream)) \
    X(cuStreamDestroy_v2, (CUstream)) \
    X(cuStreamBeginCapture, (CUstream)) \
    X(cuStreamBeginCapture_ptsz, (CUstream)) \
    X(cuStreamBeginCapture_v2, (CUstream, int)) \
    X(cuStreamBeginCapture_v2_ptsz, (CUstream, int)) \
    X(cuStreamBeginCaptureToGraph, (CUstream, CUgraph, const void *, const void *, size_t, int)) \
    X(cuStreamBeginCaptureToGraph_ptsz, (CUstream, CUgraph, const void *, const void *, size_t, int)) \
    X(cuStreamEndCapture, (CUstream, CUgraph *)) \
    X(cuStreamEndCapture_ptsz, (CUstream, CUgraph *)) \
    X(cuThreadExchangeStreamCaptureMode, (int *)) \
    X(cuEventCreate, (CUevent *, unsigned)) \
    X(cuEventRecord, (CUevent, CUstream)) \
    X(cuEventSynchronize, (CUevent)) \
    X(cuEventDestroy_v2, (CUevent)) \
    X(cuGraphAddNode, (void *, CUgraph, const void *, size_t, void *)) \
    X(cuGraphAddNode_v2, (void *, CUgraph, const void *, const void *, size_t, void *))

#define SALUS_DRIVER_TYPE(name, parameters) typedef CUresult(*name##_fn) parameters;
SALUS_DRIVER_CALLS(SALUS_DRIVER_TYPE)
#undef SALUS_DRIVER_TYPE

#endif
