/* A CUDA driver in host memory, for the guard's tests alone.
 *
 * It is as strict as the real one where the guard's rules come from: 2 MiB granularity, out of memory at capacity, work
 * in stream order on threads of its own, the rules of captures, contexts that end with all that is theirs, use of
 * unmapped memory fatal to the context, errors on misuse, total = free + used. What it doesn't have, it doesn't export.
 *
 * Device addresses are reserved but not accessible: a program that reads one as host memory dies, as it should.
 *
 * Environment: SALUS_STANDIN_FILE (what all its processes share: who uses how much), SALUS_STANDIN_CAPACITY (bytes a
 * device), SALUS_STANDIN_DEVICES, SALUS_STANDIN_SLOW_US (each piece of work first sleeps up to that long, at random). */
#ifndef SALUS_STANDIN_H
#define SALUS_STANDIN_H

#include <pthread.h>
#include <stdint.h>

#include "../driver.h"
#include "shared.h"

#define ENTRY __attribute__((visibility("default")))

enum {
    PAGE_GRANULE = 2 << 20,
    CONTEXT_COST = 8 << 20,
    MOST_STREAMS = 256,
    MOST_ARGUMENTS = 4,
};

/* --- device.c: what the processes share, and physical memory -------------------------------------------------------- */
extern int standin_ready; /* cuInit was called in this process */
int device_count(void);
uint64_t device_capacity(void);
uint64_t device_used(int device);
int device_charge(int device, int64_t bytes); /* 0 if it would go beyond the capacity */

struct physical {
    unsigned char *memory;
    uint64_t bytes;
    int device, handles, mappings, pins;
    CUmemAllocationProp properties;
};
struct physical *physical_make(int device, uint64_t bytes, uint64_t charged);
void physical_drop(struct physical *p); /* frees it if nothing refers to it any more; with the lock held */

/* --- one lock for all tables ------------------------------------------------------------------------------------------ */
extern pthread_mutex_t standin_lock;
extern pthread_cond_t standin_progress; /* some piece of work was done */

/* --- contexts.c -------------------------------------------------------------------------------------------------------- */
struct salus_ctx {
    int device, alive, retained, primary;
    CUresult sticky;
    int peers[DEVICES];
    struct salus_stream *null_stream, *per_thread;
    struct salus_ctx *next;
};
/* The current context, checked. Sets `*error` and returns NULL if there is none, it ended, or it is broken. */
struct salus_ctx *current(CUresult *error);
int context_alive(const struct salus_ctx *context);

/* --- memory.c ---------------------------------------------------------------------------------------------------------- */
/* A stretch of device memory as the work sees it. */
struct stretch {
    unsigned char *memory;
    uint64_t bytes;
    struct physical *physical;
};
/* The longest accessible stretch at an address for a context's device, pinned; 0 bytes: none. With the lock held. */
struct stretch memory_at(struct salus_ctx *context, uint64_t address, uint64_t bytes, int write);
int memory_is(uint64_t address); /* 1 if it is an address of a device; with the lock held */
void memory_end_context(struct salus_ctx *context);
CUresult memory_native(struct salus_ctx *context, uint64_t bytes, int pooled, CUdeviceptr *address);
CUresult memory_native_free(uint64_t address); /* with the lock held */

/* --- streams.c ----------------------------------------------------------------------------------------------------------- */
enum work_kind { WORK_NOTHING, WORK_COPY, WORK_FILL, WORK_KERNEL, WORK_EVENT, WORK_GRAPH, WORK_HOST, WORK_FREE };

struct work {
    enum work_kind kind;
    struct salus_ctx *context;
    uint64_t to, from, bytes, value; /* copies and fills; addresses of the device or the host */
    unsigned element;                /* of a fill, bytes */
    int kernel;
    uint64_t arguments[MOST_ARGUMENTS];
    struct salus_event *event;
    struct salus_graph *graph;
    void (*host)(void *);
    void *data;
    struct {
        struct salus_stream *stream;
        uint64_t count;
    } after[MOST_STREAMS];
    unsigned after_count;
    struct work *next;
};

struct salus_graph {
    struct work *first, *last;
    int references;
};

/* Queues it (or adds it to the stream's capture). `*number` (may be NULL) is what to wait for; 0 in a capture. */
CUresult submit(struct salus_ctx *context, CUstream stream, struct work *work, uint64_t *number, struct salus_stream **on);
void wait_for(struct salus_stream *stream, uint64_t number);
/* May this thread make a call that is unsafe during captures? If not, the captures in question are broken. */
CUresult unsafe_call(struct salus_ctx *context);
void streams_end_context(struct salus_ctx *context);
void streams_wait_all(struct salus_ctx *context);
int streams_capturing(struct salus_ctx *context);

/* --- work.c ----------------------------------------------------------------------------------------------------------------- */
void work_do(struct work *work);
int kernel_find(const char *name, unsigned *arguments, const unsigned char **sizes);

#endif
