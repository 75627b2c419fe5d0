/* The gate: calls that touch the device wait here while the session has no turn.
 *
 * Rules
 * 1. A call publishes that it is in flight, fences, then reads the gate; the closer shuts the gate, fences, then reads
 *    who is in flight. So one of the two always sees the other.
 * 2. The fence on the caller's side costs more than all the rest together. Where the kernel offers an expedited
 *    membarrier the closer pays for both sides and a caller's fence is only one for the compiler.
 * 3. Each thread has a counter of its own: odd while one of its calls is in flight. No two threads write one line.
 * 4. A call that waits isn't in flight and holds no lock of ours. */
#ifndef SALUS_GATE_H
#define SALUS_GATE_H

#include <stdatomic.h>
#include <stdint.h>

struct flight {
    _Atomic uint64_t count; /* odd: in flight; half of it: gated calls made so far */
    unsigned depth;         /* calls inside calls (the driver calling itself through us) pass freely */
    _Atomic int taken;      /* 0 once its thread has ended; the next new thread takes it over */
    struct flight *next;
} __attribute__((aligned(64)));

extern _Atomic int gate_shut;
extern int gate_fenced; /* 1: callers fence for themselves */
extern __thread struct flight *gate_mine __attribute__((tls_model("initial-exec")));

struct flight *gate_join(void);
void gate_wait(struct flight *me);

static inline struct flight *gate_enter(void)
{
    struct flight *me = gate_mine;
    if (__builtin_expect(!me, 0))
        me = gate_join();
    if (__builtin_expect(me->depth++ != 0, 0))
        return me;
    uint64_t count = atomic_load_explicit(&me->count, memory_order_relaxed);
    atomic_store_explicit(&me->count, count + 1, memory_order_relaxed);
    if (__builtin_expect(gate_fenced, 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&gate_shut, memory_order_acquire), 0))
        gate_wait(me);
    return me;
}

static inline void gate_leave(struct flight *me)
{
    if (--me->depth == 0) {
        uint64_t count = atomic_load_explicit(&me->count, memory_order_relaxed);
        atomic_store_explicit(&me->count, count + 1, memory_order_release);
    }
}

/* Inside a gated call already: the driver reached one of its own entries through us. */
static inline int gate_nested(void) { return gate_mine && gate_mine->depth; }

/* Called once, before any other: `shut` is the gate's first state, `want` is called (with no lock held that a caller
 * could wait for) when a call finds the gate shut. */
void gate_begin(int shut, void (*want)(void));
/* The calling thread passes freely from now on: for the guard's own threads. */
void gate_exempt(void);
/* Shuts the gate and waits until nothing is in flight. 0 if that lasts beyond `deadline` (monotonic seconds); the gate
 * is shut in either case. */
int gate_close(double deadline);
void gate_open(void);
/* Lets that many waiting calls pass while the gate stays shut. */
void gate_pass(unsigned calls);
unsigned gate_waiting(void);
/* When the longest present wait began (monotonic seconds), or 0 if nobody waits. */
double gate_waiting_since(void);
uint64_t gate_calls(void);
void gate_before_fork(void);
void gate_after_fork(int child, int shut);

double clock_now(void);

#endif
