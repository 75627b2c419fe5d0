/* The face of the guard to the guest; see face.h. */
#define _GNU_SOURCE
#include "face.h"

#include "arena.h"
#include "blocks.h"
#include "json.h"

EXPORT const char *salus_guard_version(void) { return SALUS_VERSION; }

EXPORT int salus_guard_active(void) { return guard_on; }

EXPORT uint64_t salus_guard_calls(void) { return gate_calls(); }

EXPORT uint64_t salus_guard_drained(void) { return orders_drained_epoch(); }

EXPORT unsigned salus_guard_mark_empty(uint64_t epoch, uint64_t address, uint64_t bytes)
{
    if (!epoch || epoch != orders_drained_epoch())
        return 0;
    unsigned marked = blocks_mark_empty(address, bytes);
    /* The gate may have opened while we marked, and what was empty may hold something now. */
    if (epoch != orders_drained_epoch()) {
        blocks_clear_marks();
        return 0;
    }
    return marked;
}

EXPORT size_t salus_guard_state(char *out, size_t size)
{
    struct json_writer w;
    struct holdings held;
    double since = gate_waiting_since();
    blocks_holdings(&held);
    uint64_t blocks = held.blocks;
    pools_holdings(&held);
    json_begin(&w, out, size, "guard_state");
    json_add_text(&w, "version", SALUS_VERSION);
    json_add_whole(&w, "active", (uint64_t)guard_on);
    json_add_text(&w, "gate", atomic_load(&gate_shut) ? "shut" : "open");
    json_add_whole(&w, "epoch", orders_epoch());
    json_add_whole(&w, "drained_epoch", orders_drained_epoch());
    json_add_whole(&w, "draining", contexts_draining());
    json_add_whole(&w, "failed_open", (uint64_t)orders_failed_open());
    json_add_whole(&w, "waiting", gate_waiting());
    json_add_seconds(&w, "waiting_s", since > 0 ? clock_now() - since : 0);
    json_add_whole(&w, "waiting_for_room", room_waiting());
    json_add_whole(&w, "captures", captures_running());
    json_add_whole(&w, "calls", gate_calls());
    json_add_whole(&w, "blocks", blocks);
    json_add_whole(&w, "persistent_bytes", held.persistent_bytes);
    json_add_whole(&w, "evicted_bytes", held.evicted_bytes);
    json_add_whole(&w, "fixed_bytes", held.fixed_bytes);
    json_add_whole(&w, "arena_bytes", arena_bytes());
    json_add_whole(&w, "arena_pinned_bytes", arena_pinned_bytes());
    json_add_text(&w, "reason", contexts_fixed());
    size_t used = json_end(&w);
    if (!used || used >= size)
        return 0;
    out[used] = 0;
    return used;
}
