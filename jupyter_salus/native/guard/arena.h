/* Host memory for what is moved out: one shared memory file, touched in parallel, pinned in pieces. */
#ifndef SALUS_ARENA_H
#define SALUS_ARENA_H

#include "guard.h"

enum { ARENA_PIECE_BYTES = 1 << 30 };

/* Makes the arena hold `bytes`, touched and, as far as the driver lets us, pinned through `context` (which is current).
 * `granted`: the backend counted these bytes already, so that only the limit of the process's own group is looked at.
 * NULL, or why not: then nothing was begun. */
const char *arena_fit(uint64_t bytes, CUcontext context, int granted);
/* The longest part of [at, at + bytes) that can be copied in one call, and where it is in memory. */
void *arena_part(uint64_t at, uint64_t bytes, uint64_t *part);
uint64_t arena_bytes(void);
uint64_t arena_pinned_bytes(void);
/* Gives all of it back to the host; only when nothing is out. */
void arena_drop(void);

#endif
