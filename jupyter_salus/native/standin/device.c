/* What this process holds of the stand-in's devices, and physical memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

int standin_ready;
pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_progress = PTHREAD_COND_INITIALIZER;

static struct shared *shared;
static int mine = -1, mine_of;

static void attach(void)
{
    if (mine >= 0 && mine_of == getpid())
        return;
    shared = shared_table();
    shared_lock(LOCK_EX);
    mine_of = getpid();
    for (mine = 0; mine < MOST_PROCESSES - 1; mine++)
        if (!shared_lives(shared, mine))
            break;
    memset(&shared->at[mine], 0, sizeof shared->at[mine]);
    shared->at[mine].pid = (uint64_t)mine_of;
    shared->at[mine].born = process_born((uint64_t)mine_of);
    shared_lock(LOCK_UN);
}

int device_count(void)
{
    attach();
    return shared_devices(shared);
}

uint64_t device_capacity(void)
{
    attach();
    return shared->capacity;
}

uint64_t device_used(int device)
{
    attach();
    shared_lock(LOCK_EX);
    uint64_t sum = shared_used(shared, device);
    shared_lock(LOCK_UN);
    return sum;
}

int device_charge(int device, int64_t bytes)
{
    attach();
    shared_lock(LOCK_EX);
    int fits = bytes <= 0 || shared_used(shared, device) + (uint64_t)bytes <= shared->capacity;
    if (fits)
        shared->at[mine].used[device] += (uint64_t)bytes;
    shared_lock(LOCK_UN);
    return fits;
}

struct physical *physical_make(int device, uint64_t bytes, uint64_t charged)
{
    if (!device_charge(device, (int64_t)charged))
        return NULL;
    struct physical *p = calloc(1, sizeof *p);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!p || memory == MAP_FAILED)
        abort(); /* the machine of the test is too small for its devices */
    memset(memory, 0xd5, bytes); /* fresh memory of a device holds anything, not nought */
    *p = (struct physical){.memory = memory, .bytes = bytes, .device = device};
    return p;
}

void physical_drop(struct physical *p)
{
    if (p->handles || p->mappings || p->pins)
        return;
    munmap(p->memory, p->bytes);
    if (p->bytes >= PAGE_GRANULE)
        device_charge(p->device, -(int64_t)p->bytes);
    free(p);
}
