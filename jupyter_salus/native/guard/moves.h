/* Out and back. Called by the thread of the orders alone, with the gate shut and the device drained. */
#ifndef SALUS_MOVES_H
#define SALUS_MOVES_H

#include "guard.h"

struct move_result {
    uint64_t bytes;   /* that changed their place */
    uint64_t dropped; /* of them: known to hold nothing, not copied */
    double seconds;
    const char *code; /* NULL: all of it; else a stable word */
    char message[192];
};

/* Moves out all that can be moved. `host_bytes`: what the backend granted of the host's memory, 0 if it didn't say.
 * What couldn't be moved stays where it is, whole, and a second call goes on from there. */
void moves_out(uint64_t host_bytes, struct move_result *result);
/* Brings back all that is out. `tries`: how often a chunk without room is tried, 50 ms apart. */
void moves_back(unsigned tries, struct move_result *result);
/* Touches and pins host memory for the next eviction. */
void moves_prepare(uint64_t bytes, struct move_result *result);
int moves_anything_out(void);

#endif
