/* A stand-in for the library that reads devices from outside (NVML), over the same devices as the stand-in driver.
 *
 * It has what a backend asks for, by the names by which `nvidia-ml-py` asks. It takes no entry in the table: who only
 * looks uses no memory.
 *
 * Environment, beside that of the driver's stand-in: SALUS_STANDIN_DRIVER (its version), SALUS_STANDIN_MIG (1: every
 * device is divided), SALUS_STANDIN_HIDE_PIDS (1: as in a container, no process is told). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "../shared.h"

#define ENTRY __attribute__((visibility("default")))

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

typedef int nvmlReturn;
typedef struct device {
    int number;
} *nvmlDevice;

static struct device devices[DEVICES];
static int users;

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
enum { MEMORY_V2 = sizeof(struct memory_v2) | 2 << 24 };
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
};
struct rates {
    unsigned gpu, memory;
};

static int flag(const char *name)
{
    const char *text = getenv(name);
    return text && *text && strcmp(text, "0") != 0;
}

/* --- the library -------------------------------------------------------------------------------------------------------- */

ENTRY nvmlReturn nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    for (int i = 0; i < DEVICES; i++)
        devices[i].number = i;
    users++;
    return shared_table() ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

ENTRY nvmlReturn nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

ENTRY nvmlReturn nvmlShutdown(void)
{
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    users--;
    return NVML_SUCCESS;
}

ENTRY const char *nvmlErrorString(nvmlReturn code)
{
    switch (code) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument Version Mismatch";
    default:
        return "Unknown Error";
    }
}

#define NEED_INIT \
    if (!users) \
    return NVML_ERROR_UNINITIALIZED

static nvmlReturn text_out(char *out, unsigned size, const char *text)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    NEED_INIT;
    const char *version = getenv("SALUS_STANDIN_DRIVER");
    return text_out(out, size, version && *version ? version : "580.0.0");
}

ENTRY nvmlReturn nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    NEED_INIT;
    return text_out(out, size, "13.580.0.0");
}

ENTRY nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    NEED_INIT;
    *version = 13000;
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* --- devices -------------------------------------------------------------------------------------------------------------- */

ENTRY nvmlReturn nvmlDeviceGetCount_v2(unsigned *count)
{
    NEED_INIT;
    *count = (unsigned)shared_devices(shared_table());
    return NVML_SUCCESS;
}

static void uuid_of(int number, char text[64])
{
    const unsigned char *u = device_uuid;
    snprintf(text, 64, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
             u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], number);
}

ENTRY nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *device)
{
    NEED_INIT;
    if (index >= (unsigned)shared_devices(shared_table()))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (shared_table()->lost[index])
        return NVML_ERROR_GPU_IS_LOST;
    *device = &devices[index];
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *device)
{
    NEED_INIT;
    char text[64];
    for (int i = 0; i < shared_devices(shared_table()); i++) {
        uuid_of(i, text);
        if (uuid && strcmp(uuid, text) == 0)
            return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

#define NEED_DEVICE \
    NEED_INIT; \
    if (device < devices || device >= devices + DEVICES) \
        return NVML_ERROR_INVALID_ARGUMENT; \
    if (shared_table()->lost[device->number]) \
    return NVML_ERROR_GPU_IS_LOST

ENTRY nvmlReturn nvmlDeviceGetIndex(nvmlDevice device, unsigned *index)
{
    NEED_DEVICE;
    *index = (unsigned)device->number;
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetMinorNumber(nvmlDevice device, unsigned *number) { return nvmlDeviceGetIndex(device, number); }

ENTRY nvmlReturn nvmlDeviceGetName(nvmlDevice device, char *out, unsigned size)
{
    NEED_DEVICE;
    char text[32];
    snprintf(text, sizeof text, "stand-in %d", device->number);
    return text_out(out, size, text);
}

ENTRY nvmlReturn nvmlDeviceGetUUID(nvmlDevice device, char *out, unsigned size)
{
    NEED_DEVICE;
    char text[64];
    uuid_of(device->number, text);
    return text_out(out, size, text);
}

ENTRY nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice device, struct pci *pci)
{
    NEED_DEVICE;
    *pci = (struct pci){.bus = (unsigned)device->number + 1};
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02x:00.0", pci->bus);
    snprintf(pci->id, sizeof pci->id, "00000000:%02x:00.0", pci->bus);
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetMigMode(nvmlDevice device, unsigned *now, unsigned *pending)
{
    NEED_DEVICE;
    *now = *pending = (unsigned)flag("SALUS_STANDIN_MIG");
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetComputeMode(nvmlDevice device, unsigned *mode)
{
    NEED_DEVICE;
    *mode = 0; /* shared by processes */
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetVirtualizationMode(nvmlDevice device, unsigned *mode)
{
    NEED_DEVICE;
    *mode = 0; /* none */
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice device, struct rates *rates)
{
    NEED_DEVICE;
    *rates = (struct rates){0};
    return NVML_SUCCESS;
}

/* --- who uses how much ---------------------------------------------------------------------------------------------------- */

ENTRY nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, struct memory *memory)
{
    NEED_DEVICE;
    shared_lock(LOCK_SH);
    uint64_t used = shared_used(shared_table(), device->number), total = shared_table()->capacity;
    shared_lock(LOCK_UN);
    *memory = (struct memory){total, total - used, used};
    return NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, struct memory_v2 *memory)
{
    struct memory first;
    if (memory->version != MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn code = nvmlDeviceGetMemoryInfo(device, &first);
    if (!code)
        *memory = (struct memory_v2){memory->version, first.total, 0, first.free, first.used};
    return code;
}

ENTRY nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice device, unsigned *count, struct process *processes)
{
    NEED_DEVICE;
    const struct shared *shared = shared_table();
    unsigned found = 0, room = processes ? *count : 0;
    shared_lock(LOCK_SH);
    for (int i = 0; i < MOST_PROCESSES && !flag("SALUS_STANDIN_HIDE_PIDS"); i++)
        if (shared->at[i].used[device->number] && shared_lives(shared, i)) {
            if (found < room)
                processes[found] = (struct process){(unsigned)shared->at[i].pid, shared->at[i].used[device->number],
                                                    0xffffffffu, 0xffffffffu};
            found++;
        }
    shared_lock(LOCK_UN);
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

ENTRY nvmlReturn nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice device, unsigned *count, struct process *processes)
{
    NEED_DEVICE;
    (void)processes;
    *count = 0;
    return NVML_SUCCESS;
}
