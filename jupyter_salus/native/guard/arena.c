/* The arena. A memory file and not plain memory, so that a forked child doesn't carry it along, a core dump leaves it
 * out, and it goes with the process whatever ends it.
 *
 * Pinning fresh pages is what makes a first eviction slow (2.3 GiB/s were seen; 19 on pages touched before), so the
 * pages are touched first, by as many threads as there are processors, up to 16. The arena stays for the next time until it is
 * dropped on the backend's word. */
#define _GNU_SOURCE
#include "arena.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { STEP_BYTES = 64 << 20, MAX_PIECES = 4096, MAX_TOUCHERS = 16 };
#define MOST_BYTES (1ull << 41)

static struct {
    int fd;
    unsigned char *base; /* MOST_BYTES of addresses, kept for growth in place */
    uint64_t bytes;
    struct piece {
        uint64_t from, to;
        CUcontext pinned_in; /* NULL: not pinned */
    } pieces[MAX_PIECES];
    unsigned piece_count;
    CUdevice device;
} arena = {.fd = -1};

uint64_t arena_bytes(void) { return arena.bytes; }

uint64_t arena_pinned_bytes(void)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < arena.piece_count; i++)
        bytes += arena.pieces[i].pinned_in ? arena.pieces[i].to - arena.pieces[i].from : 0;
    return bytes;
}

/* --- how much the host has ---------------------------------------------------------------------------------------- */

static uint64_t read_number(const char *path, const char *after, uint64_t missing)
{
    char text[4096], *at = text;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return missing;
    text[n] = 0;
    if (after && !(at = strstr(text, after)))
        return missing;
    unsigned long long value;
    return sscanf(at + (after ? strlen(after) : 0), "%llu", &value) == 1 ? value : missing;
}

/* What the process's control group (version 2) and those above it leave it; UINT64_MAX without one. */
static uint64_t group_room(void)
{
    char line[4096], path[8192];
    uint64_t room = UINT64_MAX;
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return room;
    line[n] = 0;
    char *group = strstr(line, "0::/");
    if (!group)
        return room;
    group += 3;
    group[strcspn(group, "\n")] = 0;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
        uint64_t most = read_number(path, NULL, UINT64_MAX);
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
        uint64_t now = read_number(path, NULL, 0);
        if (most != UINT64_MAX && (most > now ? most - now : 0) < room)
            room = most > now ? most - now : 0;
        char *slash = strrchr(group, '/');
        if (!slash || !*group)
            return room;
        *slash = 0;
    }
}

/* --- making it ------------------------------------------------------------------------------------------------------- */

/* Pages come from the memory nearest to the GPU where that is known; a preference, not a demand. */
static void prefer_node(unsigned char *at, uint64_t bytes)
{
    char id[32] = "", path[96];
    if (!HAS(cuDeviceGetPCIBusId) || REAL(cuDeviceGetPCIBusId)(id, sizeof id, arena.device))
        return;
    for (char *c = id; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    uint64_t node = read_number(path, NULL, UINT64_MAX);
    if (node >= 64)
        return;
    unsigned long mask = 1ul << node;
    syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, &mask, 64ul, 0u);
}

struct touch {
    unsigned char *at;
    uint64_t bytes;
    _Atomic uint64_t *next;
};

static void *touch_run(void *argument)
{
    struct touch *all = argument;
    for (;;) {
        uint64_t from = atomic_fetch_add(all->next, STEP_BYTES);
        if (from >= all->bytes)
            return NULL;
        uint64_t n = all->bytes - from < STEP_BYTES ? all->bytes - from : STEP_BYTES;
        if (madvise(all->at + from, n, MADV_POPULATE_WRITE))
            for (uint64_t i = 0; i < n; i += 4096)
                ((volatile unsigned char *)all->at)[from + i] = 0;
    }
}

static void touch(unsigned char *at, uint64_t bytes)
{
    _Atomic uint64_t next = 0;
    struct touch all = {at, bytes, &next};
    pthread_t threads[MAX_TOUCHERS];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = processors > MAX_TOUCHERS ? MAX_TOUCHERS : processors > 1 ? (unsigned)processors : 1, made = 0;
    while (made + 1 < count && pthread_create(&threads[made], NULL, touch_run, &all) == 0)
        made++;
    touch_run(&all);
    while (made)
        pthread_join(threads[--made], NULL);
}

static void pin(CUcontext context)
{
    for (unsigned i = 0; i < arena.piece_count; i++) {
        struct piece *p = &arena.pieces[i];
        if (!p->pinned_in &&
            !REAL(cuMemHostRegister_v2)(arena.base + p->from, p->to - p->from, CU_MEMHOSTREGISTER_PORTABLE))
            p->pinned_in = context;
    }
}

static const char *grow(uint64_t bytes, int granted)
{
    uint64_t more = bytes - arena.bytes;
    if (bytes > MOST_BYTES || arena.piece_count + more / ARENA_PIECE_BYTES + 2 > MAX_PIECES)
        return "cannot move out: more bytes than the arena can hold";
    if (!granted && more > read_number("/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024) * 1024)
        return "cannot move out: the host hasn't as much memory available";
    if (more > group_room())
        return "cannot move out: the process's control group hasn't as much memory left";
    if (arena.fd < 0) {
        arena.fd = (int)syscall(SYS_memfd_create, "salus-arena", 1u /* MFD_CLOEXEC */);
        if (arena.fd < 0)
            return "cannot move out: no memory file to be had";
    }
    if (!arena.base) {
        void *base = mmap(NULL, MOST_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            return "cannot move out: no addresses for the arena";
        arena.base = base;
    }
    if (ftruncate(arena.fd, (off_t)bytes))
        return "cannot move out: the memory file can't grow";
    unsigned char *at = arena.base + arena.bytes;
    if (mmap(at, more, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena.fd, (off_t)arena.bytes) == MAP_FAILED)
        return "cannot move out: the memory file can't be mapped";
    madvise(at, more, MADV_DONTFORK);
    madvise(at, more, MADV_DONTDUMP);
    madvise(at, more, MADV_HUGEPAGE);
    prefer_node(at, more);
    touch(at, more);
    while (arena.bytes < bytes) {
        uint64_t piece = bytes - arena.bytes < ARENA_PIECE_BYTES ? bytes - arena.bytes : ARENA_PIECE_BYTES;
        arena.pieces[arena.piece_count++] = (struct piece){arena.bytes, arena.bytes + piece, NULL};
        arena.bytes += piece;
    }
    return NULL;
}

const char *arena_fit(uint64_t bytes, CUcontext context, int granted)
{
    bytes = (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    REAL(cuCtxGetDevice)(&arena.device);
    if (bytes > arena.bytes) {
        const char *why = grow(bytes, granted);
        if (why)
            return why;
    }
    pin(context);
    return NULL;
}

void *arena_part(uint64_t at, uint64_t bytes, uint64_t *part)
{
    *part = bytes;
    for (unsigned i = 0; i < arena.piece_count; i++)
        if (at >= arena.pieces[i].from && at < arena.pieces[i].to && arena.pieces[i].to - at < bytes)
            *part = arena.pieces[i].to - at;
    return arena.base + at;
}

void arena_end_context(CUcontext context)
{
    for (unsigned i = 0; i < arena.piece_count; i++)
        if (arena.pieces[i].pinned_in == context)
            arena.pieces[i].pinned_in = NULL;
}

void arena_drop(void)
{
    for (unsigned i = 0; i < arena.piece_count; i++)
        if (arena.pieces[i].pinned_in && !REAL(cuCtxPushCurrent_v2)(arena.pieces[i].pinned_in)) {
            CUcontext mine;
            REAL(cuMemHostUnregister)(arena.base + arena.pieces[i].from);
            REAL(cuCtxPopCurrent_v2)(&mine);
        }
    if (arena.bytes) {
        mmap(arena.base, arena.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (ftruncate(arena.fd, 0))
            guard_say("cannot give %llu bytes of host memory back", (unsigned long long)arena.bytes);
    }
    arena.bytes = 0;
    arena.piece_count = 0;
}

/* The mapping isn't copied to a child, and the file is the parent's. */
void arena_after_fork(void)
{
    if (arena.fd >= 0)
        close(arena.fd);
    arena.fd = -1;
    arena.base = NULL;
    arena.bytes = 0;
    arena.piece_count = 0;
}
