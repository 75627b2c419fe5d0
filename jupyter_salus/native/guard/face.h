/* What the guest may ask of the guard in its own process, by ctypes. All calls return at once and never wait for Python. */
#ifndef SALUS_FACE_H
#define SALUS_FACE_H

#include <stddef.h>
#include <stdint.h>

/* "0.1.0" */
const char *salus_guard_version(void);
/* 1 once the process met the driver with a backend's address set. */
int salus_guard_active(void);
/* Gated calls so far, in all threads: two equal answers mean that nobody touched the device in between. */
uint64_t salus_guard_calls(void);
/* Writes the state as JSON into `out`; returns its length, or 0 if `size` is too small. */
size_t salus_guard_state(char *out, size_t size);
/* The epoch of the closing that the device is drained for, or 0: only then marks count. */
uint64_t salus_guard_drained(void);
/* Says that [address, address + bytes) holds nothing that is needed, in that closing; returns how many chunks of memory
 * are thus dropped at an eviction instead of copied. 0 if the closing is another one by now. */
unsigned salus_guard_mark_empty(uint64_t epoch, uint64_t address, uint64_t bytes);

#endif
