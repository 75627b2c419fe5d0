/* The backend's orders, carried out one after the other by a thread of their own, so that the link can go on listening.
 *
 * The state of the turn lives here: the epoch whose gate is open, and the closing for which the device is drained. Only
 * within such a closing is anything moved, and only when all is back does the gate open. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arena.h"
#include "blocks.h"
#include "json.h"
#include "moves.h"

enum { MOST_ORDERS = 64 };

pthread_mutex_t orders_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    pthread_cond_t added;
    struct order queue[MOST_ORDERS];
    unsigned first, count;
    int running;
    _Atomic uint64_t epoch, drained;
    _Atomic int failed_open;
} orders = {.added = PTHREAD_COND_INITIALIZER};

uint64_t orders_epoch(void) { return atomic_load(&orders.epoch); }
uint64_t orders_drained_epoch(void) { return atomic_load(&orders.drained); }
int orders_failed_open(void) { return atomic_load(&orders.failed_open); }

static void say_failed(const struct order *order, const char *code, const char *message)
{
    char text[512];
    struct json_writer w;
    json_begin(&w, text, sizeof text, "move_failed");
    json_add_whole(&w, "epoch", order->epoch);
    json_add_whole(&w, "move", order->move);
    json_add_text(&w, "code", code);
    json_add_text(&w, "message", message);
    link_send(text, json_end(&w));
}

static void say_moved(const struct order *order, const char *kind, const struct move_result *moved)
{
    char text[512];
    struct json_writer w;
    json_begin(&w, text, sizeof text, kind);
    json_add_whole(&w, "epoch", order->epoch);
    json_add_whole(&w, "move", order->move);
    json_add_whole(&w, "bytes", moved->bytes);
    json_add_whole(&w, "dropped_bytes", moved->dropped);
    json_add_seconds(&w, "seconds", moved->seconds);
    link_send(text, json_end(&w));
}

static void let_in(uint64_t epoch)
{
    blocks_clear_marks();
    atomic_store(&orders.drained, 0);
    atomic_store(&orders.epoch, epoch);
    gate_open();
    link_turn_came();
}

static void carry_open(const struct order *order)
{
    if (moves_anything_out()) {
        say_failed(order, "blocks_out", "cannot open the gate: memory of this process is out");
        return;
    }
    atomic_store(&orders.failed_open, 0);
    if (order->calls) {
        /* The gate stays shut, but what is let pass may start work: the device isn't drained any longer. */
        atomic_store(&orders.drained, 0);
        link_turn_came();
        gate_pass((unsigned)order->calls);
    } else
        let_in(order->epoch);
}

static int shut(double deadline, char *why, size_t size)
{
    do {
        if (!captures_wait(deadline)) {
            snprintf(why, size, "cannot shut the gate: a graph is being captured");
            return 0;
        }
        if (!gate_close(deadline)) {
            snprintf(why, size, "cannot shut the gate: a call is still on its way into the driver");
            return 0;
        }
        if (!captures_running())
            return 1;
        gate_open(); /* one began between the look and the closing */
    } while (clock_now() < deadline);
    snprintf(why, size, "cannot shut the gate: one graph after the other is captured");
    return 0;
}

static void carry_close(const struct order *order)
{
    char why[160], text[1024];
    struct json_writer w;
    double deadline = clock_now() + (order->drain_s > 0 ? order->drain_s : 5);
    atomic_store(&orders.failed_open, 0);
    int drained = shut(deadline, why, sizeof why) ? contexts_drain(deadline, why, sizeof why) : 0;
    if (drained <= 0) {
        if (!moves_anything_out())
            let_in(orders_epoch());
        say_failed(order, drained ? "device_error" : "drain", why);
        return;
    }
    atomic_store(&orders.drained, order->epoch);
    json_begin(&w, text, sizeof text, "turn_drained");
    json_add_whole(&w, "epoch", order->epoch);
    link_add_holdings(&w);
    link_send(text, json_end(&w));
}

static void carry_evict(const struct order *order)
{
    struct move_result moved;
    if (!atomic_load(&gate_shut)) {
        say_failed(order, "gate_open", "cannot move out: the session has its turn");
        return;
    }
    /* Its gate was never opened, or single calls were let pass: they may be under way still. */
    if (!orders_drained_epoch()) {
        char why[160];
        double deadline = clock_now() + (order->drain_s > 0 ? order->drain_s : 5);
        int drained = shut(deadline, why, sizeof why) ? contexts_drain(deadline, why, sizeof why) : 0;
        if (drained <= 0) {
            say_failed(order, drained ? "device_error" : "drain", why);
            return;
        }
    }
    moves_out(order->bytes, &moved);
    if (moved.code)
        say_failed(order, moved.code, moved.message);
    else
        say_moved(order, "blocks_out", &moved);
}

static void carry_restore(const struct order *order)
{
    struct move_result moved;
    moves_back(4, &moved);
    if (moved.code)
        say_failed(order, moved.code, moved.message);
    else
        say_moved(order, "blocks_back", &moved);
}

static void carry_arena(const struct order *order)
{
    struct move_result moved;
    moves_prepare(order->bytes, &moved);
    if (moved.code)
        say_failed(order, moved.code, moved.message);
    else
        say_moved(order, "arena_ready", &moved);
}

static void carry_drop_arena(const struct order *order)
{
    if (moves_anything_out())
        say_failed(order, "blocks_out", "cannot give the host memory back: it holds what was moved out");
    else
        arena_drop();
}

/* Nobody answers any more. What is out comes back chunk by chunk as memory allows, one process of the host at a time,
 * for as long as it takes; then the gate opens. A backend that comes back meanwhile takes over with its next order. */
static void carry_fail_open(void)
{
    double pause = 0.1;
    int lock = link_return_lock();
    while (moves_anything_out() && link_silent()) {
        struct move_result moved;
        moves_back(1, &moved);
        if (!moved.code)
            break;
        nanosleep(&(struct timespec){.tv_sec = (time_t)pause, .tv_nsec = (long)((pause - (int)pause) * 1e9)}, NULL);
        pause = pause < 2 ? pause * 2 : 2;
    }
    link_return_unlock(lock);
    if (moves_anything_out() || !link_silent())
        return;
    guard_say("nobody answers at the backend's address: this process goes on without turns");
    atomic_store(&orders.failed_open, 1);
    let_in(orders_epoch());
}

static void *orders_run(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&orders_lock);
        while (!orders.count)
            pthread_cond_wait(&orders.added, &orders_lock);
        struct order order = orders.queue[orders.first];
        orders.first = (orders.first + 1) % MOST_ORDERS;
        orders.count--;
        pthread_mutex_unlock(&orders_lock);
        switch (order.kind) {
        case ORDER_OPEN: carry_open(&order); break;
        case ORDER_CLOSE: carry_close(&order); break;
        case ORDER_EVICT: carry_evict(&order); break;
        case ORDER_RESTORE: carry_restore(&order); break;
        case ORDER_ARENA: carry_arena(&order); break;
        case ORDER_DROP_ARENA: carry_drop_arena(&order); break;
        case ORDER_FAIL_OPEN: carry_fail_open(); break;
        }
    }
    return NULL;
}

int orders_add(const struct order *order)
{
    pthread_mutex_lock(&orders_lock);
    int fits = orders.count < MOST_ORDERS && (orders.running || thread_start(orders_run, NULL) == 0);
    if (fits) {
        orders.running = 1;
        orders.queue[(orders.first + orders.count++) % MOST_ORDERS] = *order;
        pthread_cond_signal(&orders.added);
    }
    pthread_mutex_unlock(&orders_lock);
    return fits;
}

void orders_after_fork(void)
{
    pthread_mutex_init(&orders_lock, NULL);
    pthread_cond_init(&orders.added, NULL);
    orders.first = orders.count = 0;
    orders.running = 0;
    atomic_store(&orders.epoch, 0);
    atomic_store(&orders.drained, 0);
    atomic_store(&orders.failed_open, 0);
}
