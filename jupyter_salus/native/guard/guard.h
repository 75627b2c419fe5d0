/* What the parts of the guard ask of one another.
 *
 *   doors     every way by which a program reaches the driver; the table of its symbols
 *   gate      where calls wait for a turn (gate.h)
 *   contexts  which contexts live, on which device, who may reach whom; draining
 *   captures  which streams are being captured
 *   blocks    device memory as private virtual-memory handles
 *   pointers  questions about that memory, answered from the table
 *   pools     memory that stays with the driver: small requests and stream-ordered pools
 *   room      a request for memory that waits until the backend made room
 *   arena     host memory for what is moved out
 *   moves     out and back
 *   orders    the backend's orders, carried out one after the other by a thread of their own
 *   link      the connection to the backend, on a thread of its own
 *   face      what the guest may ask in the process
 *
 * Locks, in the order in which they may be taken: orders, gate, room, blocks, pools, contexts, captures, link. */
#ifndef SALUS_GUARD_H
#define SALUS_GUARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "../driver.h"
#include "gate.h"

#define SALUS_VERSION "0.1.0"
#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)

/* doors */
enum symbol {
#define GATED(name, n) SYMBOL_##name,
#define ANSWERED(name) SYMBOL_##name,
#define ROOM(name, n) SYMBOL_##name,
#define FIXES(name, n, why) SYMBOL_##name,
#define HARMLESS(name) SYMBOL_##name,
#include "symbols.def"
#undef GATED
#undef ANSWERED
#undef ROOM
#undef FIXES
#undef HARMLESS
    SYMBOLS
};

extern void *door_slot[SYMBOLS];
extern int guard_on; /* a backend's address is set, and the driver was met */
void *door_find(enum symbol symbol);

/* The driver's own entry. Calling one that this driver lacks is an error of ours: ask `HAS` first where it may. */
#define REAL(name) ((name##_fn)(door_slot[SYMBOL_##name] ? door_slot[SYMBOL_##name] : door_find(SYMBOL_##name)))
#define HAS(name) (REAL(name) != NULL)
/* An answered call that isn't ours to answer: the guard is off, or the driver calls itself. */
#define PASSES() (!guard_on || gate_nested())

/* contexts */
enum { MAX_CONTEXTS = 64, MAX_DEVICES = 64 };
CUresult contexts_current(CUcontext *context, CUdevice *device); /* INVALID_CONTEXT if there is none */
void contexts_note(CUcontext context, CUdevice device, int primary);
CUcontext contexts_on(CUdevice device); /* any living one, or NULL */
int contexts_alive(CUcontext context);
CUstream contexts_stream(CUcontext context); /* a stream of our own; the context must be current. NULL: none to be had */
unsigned contexts_count(void);
unsigned contexts_accessors(CUdevice owner, CUmemAccessDesc *list, unsigned size); /* who may reach memory of a device */
/* 1 when all their work is done, 0 if it isn't in time, -1 if the driver ended it with an error. */
int contexts_drain(double deadline, char *why, size_t size);
unsigned contexts_draining(void); /* 1 while one is waited for */
void contexts_fix(const char *why); /* from now on nothing of this process can be moved */
const char *contexts_fixed(void);
void contexts_after_fork(void);
extern pthread_mutex_t contexts_lock;

/* captures */
unsigned captures_running(void);
int captures_wait(double deadline); /* until none runs; 0 when the time is over */
void captures_after_fork(void);
extern pthread_mutex_t captures_lock;

/* blocks: see blocks.h */
void blocks_end_context(CUcontext context);
void blocks_set_peer(CUdevice owner, CUdevice accessor, int flags);
void blocks_run_limbo(void);
void blocks_after_fork(void);
extern pthread_mutex_t blocks_lock;
struct holdings {
    uint64_t persistent_bytes; /* all of it, wherever it is */
    uint64_t evicted_bytes;    /* of it: in host memory */
    uint64_t fixed_bytes;      /* of it: stays on the device */
    uint64_t blocks;
};
void blocks_holdings(struct holdings *held);

/* pools */
void pools_holdings(struct holdings *held); /* adds to what is there */
void pools_after_fork(void);
extern pthread_mutex_t pools_lock;
CUresult pools_small_alloc(CUdeviceptr *address, size_t bytes);
CUresult pools_small_free(CUdeviceptr address);

/* room */
enum { ROOM_ANY_BYTES = 64 << 20 };
/* Waits for the backend's answer; not to be called in flight. 1: try again; 0: refused. `tries` counts for one request. */
int room_ask(uint64_t bytes, const char *what, unsigned *tries);
int room_allows(uint64_t bytes); /* within the limit that the backend set for this process, if any */
void room_limit(uint64_t bytes); /* 0: no limit */
void room_grant(uint64_t bytes); /* what the process may hold on the device before it has to ask for more */
void room_reclaimable(uint64_t bytes); /* what idle sessions could give up for this one */
void room_shape(size_t *free_bytes, size_t *total_bytes); /* the device's figures, as this session may see them */
void room_answer(uint64_t ticket, int granted);
void room_refuse_all(void); /* an interrupt, or nobody answers */
void room_repeat(void);     /* tells a backend just met what is waited for */
unsigned room_waiting(void);
void room_after_fork(void);
extern pthread_mutex_t room_lock;

/* arena: see arena.h */
void arena_end_context(CUcontext context); /* what was pinned in it no longer is */
void arena_after_fork(void);

/* orders */
enum order_kind { ORDER_OPEN, ORDER_CLOSE, ORDER_EVICT, ORDER_RESTORE, ORDER_ARENA, ORDER_DROP_ARENA, ORDER_FAIL_OPEN };
struct order {
    enum order_kind kind;
    uint64_t epoch, move, bytes, calls;
    double drain_s;
};
int orders_add(const struct order *order); /* 0: too many wait */
uint64_t orders_epoch(void);               /* the last epoch whose gate was opened */
uint64_t orders_drained_epoch(void);       /* the closing that the device is drained for, or 0 */
int orders_failed_open(void);
void orders_after_fork(void);
extern pthread_mutex_t orders_lock;

/* link */
void link_want_turn(void); /* a call waits at the gate: connects if need be, asks for a turn once */
void link_start(void);
void link_turn_came(void); /* the gate opened: the next wait asks again */
void link_holdings_changed(void);
int link_usable(void); /* 0 when it was given up that anybody answers */
int link_silent(void); /* 1 while there is no backend that answered lately */
int link_return_lock(void); /* one process of the host at a time brings its memory back unasked */
void link_return_unlock(int lock);
/* Sends one message made with json.h; dropped while nobody listens: the next hello tells the state. */
void link_send(const char *text, size_t length);
struct json_writer;
void link_add_holdings(struct json_writer *w); /* what the process holds now, as `memory` says it */
void link_after_fork(void);
extern pthread_mutex_t link_lock;
/* Starts a detached thread with all signals blocked that passes the gate freely. 0 on success. */
int thread_start(void *(*run)(void *), void *argument);

/* moves: see moves.h */

void guard_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
