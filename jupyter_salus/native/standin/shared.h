/* What all processes on the stand-in's devices share: the devices, and who uses how much of them.
 *
 * `libcuda.so.1` writes it, `libnvidia-ml.so.1` reads it from whatever process asks. A process that dies frees what it
 * held: entries of dead processes don't count. */
#ifndef SALUS_STANDIN_SHARED_H
#define SALUS_STANDIN_SHARED_H

#include <stdint.h>

enum { DEVICES = 4, MOST_PROCESSES = 256 };

struct shared {
    uint64_t mark, capacity, devices;
    struct {
        uint64_t pid, born, used[DEVICES];
    } at[MOST_PROCESSES];
    uint64_t lost[DEVICES]; /* set by a test: the device has fallen off the bus, and NVML says so */
};

/* The file's contents, made if there is none yet; a table of this process alone without SALUS_STANDIN_FILE. */
struct shared *shared_table(void);
void shared_lock(int how); /* as of flock */
/* Whether an entry stands for a process that lives. */
int shared_lives(const struct shared *shared, int entry);
uint64_t shared_used(const struct shared *shared, int device); /* with the lock held */
int shared_devices(const struct shared *shared);
/* When a process began, in the kernel's ticks, so that a number used again isn't taken for the old process; 0: gone. */
uint64_t process_born(uint64_t pid);

/* The last of the 16 bytes of a device's UUID is its number. */
extern const unsigned char device_uuid[16];

#endif
