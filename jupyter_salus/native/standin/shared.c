/* The file that all processes on the stand-in's devices share. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared.h"

enum { FILE_MARK = 0x5a106 };

const unsigned char device_uuid[16] = {0x5a, 0x1d, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0};

static struct shared *table;
static int file = -1;

static uint64_t setting(const char *name, uint64_t missing)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : missing;
}

uint64_t process_born(uint64_t pid)
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

void shared_lock(int how)
{
    while (file >= 0 && flock(file, how) && errno == EINTR)
        ;
}

struct shared *shared_table(void)
{
    const char *path = getenv("SALUS_STANDIN_FILE");
    if (table)
        return table;
    if (path && *path) {
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        shared_lock(LOCK_EX);
        if (file < 0 || ftruncate(file, sizeof *table))
            abort();
    }
    struct shared *fresh = mmap(NULL, sizeof *fresh, PROT_READ | PROT_WRITE,
                                file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
    if (fresh == MAP_FAILED)
        abort();
    if (fresh->mark != FILE_MARK) {
        memset(fresh, 0, sizeof *fresh);
        fresh->mark = FILE_MARK;
        fresh->capacity = setting("SALUS_STANDIN_CAPACITY", 256ull << 20);
        fresh->devices = setting("SALUS_STANDIN_DEVICES", 1);
    }
    shared_lock(LOCK_UN);
    table = fresh;
    return table;
}

int shared_devices(const struct shared *shared) { return shared->devices > DEVICES ? DEVICES : (int)shared->devices; }

int shared_lives(const struct shared *shared, int entry)
{
    return shared->at[entry].pid && process_born(shared->at[entry].pid) == shared->at[entry].born;
}

uint64_t shared_used(const struct shared *shared, int device)
{
    uint64_t sum = 0;
    for (int i = 0; i < MOST_PROCESSES; i++)
        if (shared->at[i].used[device] && shared_lives(shared, i))
            sum += shared->at[i].used[device];
    return sum;
}
