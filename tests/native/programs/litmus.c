/* Do calls slip past a gate that was shut? Threads enter and leave; a closer shuts, looks, and opens, again and again.
 * Prints how many rounds were made, how often it shut, and how often something was found inside of a shut gate. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"

enum { THREADS = 2 };

static struct {
    _Atomic int inside;
    char padding[60];
} __attribute__((aligned(64))) seat[THREADS];
static _Atomic uint64_t rounds;
static _Atomic int over;
static uint64_t wanted;

static void want(void) {}

static void *enter(void *argument)
{
    long me = (long)argument;
    uint64_t mine = 0;
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        struct flight *flight = gate_enter();
        atomic_store_explicit(&seat[me].inside, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        atomic_store_explicit(&seat[me].inside, 0, memory_order_relaxed);
        gate_leave(flight);
        if ((++mine & 1023) == 0)
            atomic_fetch_add(&rounds, 1024);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    uint64_t shut = 0, slipped = 0;
    int no_membarrier = count > 2 && strcmp(arguments[2], "fence") == 0;
    wanted = strtoull(arguments[1], NULL, 10);
    gate_begin(0, want);
    if (no_membarrier)
        gate_fenced = 1;
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, enter, (void *)i))
            return 2;
    while (atomic_load(&rounds) < wanted) {
        if (!gate_close(clock_now() + 60))
            return 3;
        shut++;
        for (int look = 0; look < 200; look++)
            for (int i = 0; i < THREADS; i++)
                slipped += (uint64_t)atomic_load_explicit(&seat[i].inside, memory_order_relaxed);
        gate_open();
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu %llu %llu %d\n", (unsigned long long)atomic_load(&rounds), (unsigned long long)shut,
           (unsigned long long)slipped, gate_fenced);
    return 0;
}
