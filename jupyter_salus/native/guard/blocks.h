/* The table of device memory.
 *
 *   chunk    physical memory behind one driver handle: the unit that moves
 *   mapping  a range of addresses at which a chunk is seen, and who may access it
 *   block    what one cuMemAlloc answered: a range of addresses with one or several chunks of at most 64 MiB
 *
 * A program that maps memory by itself has chunks and mappings without a block; its handles are numbers of ours, so
 * that they stay while the driver's are given back and made again.
 *
 * States of a chunk: RESIDENT (on the device), MOVING (the thread of the moves works on it), OUT (in host memory).
 * A free never waits: on what is OUT it is bookkeeping, on what is MOVING it is left to the mover, during a capture it
 * is left in limbo until the last capture ends (freeing synchronises, and a synchronisation breaks a capture). */
#ifndef SALUS_BLOCKS_H
#define SALUS_BLOCKS_H

#include "guard.h"

enum {
    GRANULE = 2 << 20,
    CHUNK_BYTES = 64 << 20,  /* the most that one living tensor can hold back */
    SMALL_BYTES = 1 << 20,   /* below it the driver's own allocator answers */
    MAX_PLACES = 8,          /* devices, and the host, that may access one mapping */
};

enum chunk_state { RESIDENT, MOVING, OUT };

struct mapping {
    uint64_t address, bytes;
    struct chunk *chunk;
    struct block *block; /* NULL: made by the program itself */
    struct mapping *next_of_chunk;
    CUmemAccessDesc places[MAX_PLACES];
    unsigned place_count;
    int gone;     /* the program is done with it; `chunk_settle` completes that */
    int unmapped; /* by the program's own call: the driver knows already */
};

struct chunk {
    uint64_t bytes;
    CUmemAllocationProp properties;
    CUmemGenericAllocationHandle real; /* valid unless OUT */
    uint64_t handle;                   /* the program's name for it, 0 inside a block */
    unsigned references;               /* of the program, to the handle */
    struct mapping *mappings;
    enum chunk_state state;
    int fixed;          /* known outside of this process: never moved */
    int empty;          /* marked as holding nothing, in this closing of the gate */
    int hollow;         /* OUT, and nothing was copied */
    uint64_t arena_at;  /* OUT: where its bytes are */
    CUcontext context;  /* that it was made in */
    struct chunk *next, *previous;
};

struct block {
    uint64_t address, reserved_bytes, asked_bytes, id;
    CUcontext context;
    CUdevice device;
    struct mapping *mappings; /* an array, as long as the block lives; `chunk` is NULL in those that are settled */
    unsigned mapping_count;
    unsigned unsettled; /* mappings not yet settled, and whoever is freeing it: at 0 the addresses go */
    struct block *next_in_limbo;
};

struct block *blocks_find(uint64_t address);       /* the one that holds the address; with the lock held */
struct mapping *mappings_find(uint64_t address);   /* likewise */
struct chunk *chunks_by_handle(uint64_t handle);   /* likewise */
struct chunk *chunks_first(void);                  /* likewise: the list of all */
int chunk_wanted(const struct chunk *chunk);       /* 0: nothing refers to it any more */
/* The driver's part of unmapping and forgetting, with the lock held. `chunk` may be freed by it. */
void chunk_settle(struct chunk *chunk);
void blocks_settle_addresses(void);
CUresult chunk_map_all(struct chunk *chunk);       /* after `real` was made again; on an error none is mapped */
void chunk_unmap_all(struct chunk *chunk);
void chunk_link(struct chunk *chunk);
void mapping_set_access(struct mapping *m, const CUmemAccessDesc *desc);
struct ranges *mappings_all(void);
void handles_forget(uint64_t handle);
void handles_forget_all(void);
unsigned blocks_mark_empty(uint64_t address, uint64_t bytes); /* chunks that lie wholly inside */
void blocks_clear_marks(void);

#endif
