/* Do calls slip past a gate that was shut? Threads enter and leave; a closer shuts, looks, and opens, again and again.
 * Prints how many rounds were made, how often it shut, and how often something was found inside of a shut gate. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"

enum { THREADS = 2 };

/* Set by the closer while nothing may be inside; each thread looks at it all the time that it is inside. */
static _Atomic int nobody __attribute__((aligned(64)));
static _Atomic uint64_t slipped;
static _Atomic uint64_t rounds;
static _Atomic int over;
static uint64_t wanted;

static void want(void) {}

static void *enter(void *argument)
{
    uint64_t mine = 0;
    (void)argument;
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        struct flight *flight = gate_enter();
        int found = 0;
        for (int look = 0; look < 40; look++)
            found |= atomic_load_explicit(&nobody, memory_order_relaxed);
        gate_leave(flight);
        if (found)
            atomic_fetch_add(&slipped, 1);
        if ((++mine & 1023) == 0)
            atomic_fetch_add(&rounds, 1024);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    uint64_t shut = 0;
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
        atomic_store(&nobody, 1);
        for (int pause = 0; pause < 300; pause++)
            atomic_signal_fence(memory_order_seq_cst);
        atomic_store(&nobody, 0);
        gate_open();
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu %llu %llu %d\n", (unsigned long long)atomic_load(&rounds), (unsigned long long)shut,
           (unsigned long long)atomic_load(&slipped), gate_fenced);
    return 0;
}
