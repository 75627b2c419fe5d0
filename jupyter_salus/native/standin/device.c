/* What all processes on the stand-in's devices share, and physical memory.
 *
 * A process that dies frees what it held: entries of dead processes don't count. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

enum { MOST_PROCESSES = 256, FILE_MARK = 0x5a105 };

struct shared {
    uint64_t mark, capacity, devices;
    struct {
        uint64_t pid, born, used[DEVICES];
    } at[MOST_PROCESSES];
};

int standin_ready;
pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_progress = PTHREAD_COND_INITIALIZER;

static struct shared *shared;
static int shared_file = -1, mine = -1, mine_of;

static uint64_t setting(const char *name, uint64_t missing)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : missing;
}

/* When a process began, in the kernel's ticks, so that a number used again isn't taken for the old process; 0: gone. */
static uint64_t born(uint64_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *at = strrchr(text, ')');
    if (!at || at[2] == 'Z' || at[2] == 'X')
        return 0;
    unsigned long long value = 0;
    sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &value);
    return value;
}

static void lock_shared(int how)
{
    while (shared_file >= 0 && flock(shared_file, how) && errno == EINTR)
        ;
}

static void attach(void)
{
    const char *path = getenv("SALUS_STANDIN_FILE");
    if (!shared) {
        if (path && *path) {
            shared_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            lock_shared(LOCK_EX);
            if (shared_file < 0 || ftruncate(shared_file, sizeof *shared))
                abort();
        }
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                      shared_file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, shared_file, 0);
        if (shared == MAP_FAILED)
            abort();
        if (shared->mark != FILE_MARK) {
            memset(shared, 0, sizeof *shared);
            shared->mark = FILE_MARK;
            shared->capacity = setting("SALUS_STANDIN_CAPACITY", 256ull << 20);
            shared->devices = setting("SALUS_STANDIN_DEVICES", 1);
        }
        lock_shared(LOCK_UN);
    }
    if (mine >= 0 && mine_of == getpid())
        return;
    lock_shared(LOCK_EX);
    mine_of = getpid();
    for (mine = 0; mine < MOST_PROCESSES - 1; mine++)
        if (!shared->at[mine].pid || born(shared->at[mine].pid) != shared->at[mine].born)
            break;
    memset(&shared->at[mine], 0, sizeof shared->at[mine]);
    shared->at[mine].pid = (uint64_t)mine_of;
    shared->at[mine].born = born((uint64_t)mine_of);
    lock_shared(LOCK_UN);
}

int device_count(void)
{
    attach();
    return shared->devices > DEVICES ? DEVICES : (int)shared->devices;
}

uint64_t device_capacity(void)
{
    attach();
    return shared->capacity;
}

static uint64_t used_now(int device)
{
    uint64_t sum = 0;
    for (int i = 0; i < MOST_PROCESSES; i++)
        if (shared->at[i].used[device] && (i == mine || born(shared->at[i].pid) == shared->at[i].born))
            sum += shared->at[i].used[device];
    return sum;
}

uint64_t device_used(int device)
{
    attach();
    lock_shared(LOCK_EX);
    uint64_t sum = used_now(device);
    lock_shared(LOCK_UN);
    return sum;
}

int device_charge(int device, int64_t bytes)
{
    attach();
    lock_shared(LOCK_EX);
    int fits = bytes <= 0 || used_now(device) + (uint64_t)bytes <= shared->capacity;
    if (fits)
        shared->at[mine].used[device] += (uint64_t)bytes;
    lock_shared(LOCK_UN);
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
