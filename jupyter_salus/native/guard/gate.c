/* The gate's slow side: joining, waiting, shutting, counting. The fast side and the rules are in gate.h. */
#define _GNU_SOURCE
#include "gate.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Atomic int gate_shut;
int gate_fenced = 1;
__thread struct flight *gate_mine __attribute__((tls_model("initial-exec")));

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic(struct flight *) flights;
    pthread_key_t ended;
    int begun;
    void (*want)(void);
    unsigned waiting, passes;
    double waiting_since;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void thread_ended(void *flight)
{
    struct flight *me = flight;
    gate_mine = NULL;
    atomic_store_explicit(&me->taken, 0, memory_order_release);
}

void gate_begin(int shut, void (*want)(void))
{
    gate.want = want;
    gate.begun = pthread_key_create(&gate.ended, thread_ended) == 0;
    gate_fenced = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
    atomic_store(&gate_shut, shut);
}

struct flight *gate_join(void)
{
    for (struct flight *f = atomic_load(&gate.flights); f; f = f->next) {
        int none = 0;
        if (atomic_compare_exchange_strong(&f->taken, &none, 1)) {
            f->depth = 0; /* its last owner may have been a thread of ours, which passes freely */
            gate_mine = f;
            break;
        }
    }
    if (!gate_mine) {
        struct flight *f;
        /* Without this line of memory nothing can be said about the thread, and the process is at its end anyway. */
        if (posix_memalign((void **)&f, 64, sizeof *f))
            abort();
        *f = (struct flight){.taken = 1};
        f->next = atomic_load(&gate.flights);
        while (!atomic_compare_exchange_weak(&gate.flights, &f->next, f))
            ;
        gate_mine = f;
    }
    if (gate.begun)
        pthread_setspecific(gate.ended, gate_mine);
    return gate_mine;
}

void gate_exempt(void)
{
    struct flight *me = gate_mine ? gate_mine : gate_join();
    me->depth = 1;
}

void gate_wait(struct flight *me)
{
    for (;;) {
        uint64_t count = atomic_load_explicit(&me->count, memory_order_relaxed);
        atomic_store_explicit(&me->count, count + 1, memory_order_release);
        int passed = 0;
        pthread_mutex_lock(&gate.lock);
        if (gate.waiting++ == 0)
            gate.waiting_since = clock_now();
        while (atomic_load(&gate_shut) && !passed) {
            if (gate.passes) {
                gate.passes--;
                passed = 1;
                break;
            }
            pthread_mutex_unlock(&gate.lock);
            gate.want();
            pthread_mutex_lock(&gate.lock);
            if (atomic_load(&gate_shut) && !gate.passes)
                pthread_cond_wait(&gate.changed, &gate.lock);
        }
        gate.waiting--;
        /* In flight again before the lock goes: a closer that comes next must see a call that was let pass. */
        atomic_store_explicit(&me->count, count + 2, memory_order_relaxed);
        pthread_mutex_unlock(&gate.lock);
        atomic_thread_fence(memory_order_seq_cst);
        if (passed || !atomic_load(&gate_shut))
            return;
    }
}

static int nothing_in_flight(double deadline)
{
    for (struct flight *f = atomic_load(&gate.flights); f; f = f->next) {
        uint64_t seen = atomic_load_explicit(&f->count, memory_order_acquire);
        while ((seen & 1) && atomic_load_explicit(&f->count, memory_order_acquire) == seen) {
            if (clock_now() > deadline)
                return 0;
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
    }
    return 1;
}

int gate_close(double deadline)
{
    pthread_mutex_lock(&gate.lock);
    gate.passes = 0;
    atomic_store(&gate_shut, 1);
    pthread_mutex_unlock(&gate.lock);
    if (gate_fenced)
        atomic_thread_fence(memory_order_seq_cst);
    else
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    return nothing_in_flight(deadline);
}

void gate_open(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.passes = 0;
    atomic_store(&gate_shut, 0);
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

void gate_pass(unsigned calls)
{
    pthread_mutex_lock(&gate.lock);
    gate.passes = calls;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

unsigned gate_waiting(void)
{
    pthread_mutex_lock(&gate.lock);
    unsigned waiting = gate.waiting;
    pthread_mutex_unlock(&gate.lock);
    return waiting;
}

double gate_waiting_since(void)
{
    pthread_mutex_lock(&gate.lock);
    double since = gate.waiting ? gate.waiting_since : 0;
    pthread_mutex_unlock(&gate.lock);
    return since;
}

uint64_t gate_calls(void)
{
    uint64_t calls = 0;
    for (struct flight *f = atomic_load(&gate.flights); f; f = f->next)
        calls += atomic_load_explicit(&f->count, memory_order_relaxed) / 2;
    return calls;
}

void gate_before_fork(void) { pthread_mutex_lock(&gate.lock); }

/* In the child only the forking thread lives: the others' counters would stay odd for ever. */
void gate_after_fork(int child, int shut)
{
    if (!child) {
        pthread_mutex_unlock(&gate.lock);
        return;
    }
    pthread_mutex_init(&gate.lock, NULL);
    pthread_cond_init(&gate.changed, NULL);
    gate.waiting = gate.passes = 0;
    struct flight *mine = gate_mine;
    if (mine) {
        mine->next = NULL;
        mine->depth = 0;
        atomic_store(&mine->count, 0);
    }
    atomic_store(&gate.flights, mine);
    gate_fenced = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
    atomic_store(&gate_shut, shut);
}
