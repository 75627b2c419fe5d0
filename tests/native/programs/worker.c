/* A program that is linked to the driver and works until its standard input ends: for the sanitizers, and for the door of
 * our exported symbols. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);

static void *work(void *unused)
{
    CUcontext context;
    static unsigned char data[4096], back[4096];
    memset(data, 7, sizeof data);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        _exit(3);
    for (;;) {
        CUdeviceptr at = 0;
        CUresult result = cuMemAlloc_v2(&at, 3 << 20);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            continue;
        if (result || cuMemcpyHtoD_v2(at, data, sizeof data) || cuMemcpyDtoH_v2(back, at, sizeof back) ||
            memcmp(data, back, sizeof data) || cuMemFree_v2(at))
            _exit(4);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    char rest[256];
    if (pthread_create(&thread, NULL, work, NULL))
        return 2;
    while (read(0, rest, sizeof rest) > 0)
        ;
    _exit(0);
}
