/* A request for memory that the driver refused, or that is over the backend's limit, waits here for the answer.
 *
 * It isn't in flight and holds no lock, so others of the process may be stopped, moved out and back meanwhile. An
 * interrupt, a refusal and the end of patience with a silent backend all end in the framework's own out-of-memory. */
#define _GNU_SOURCE
#include "guard.h"

#include "json.h"

enum { MOST_TRIES = 32 }; /* grants in a row that the driver still refused */

pthread_mutex_t room_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    pthread_cond_t answered;
    struct request {
        uint64_t ticket, bytes;
        const char *what;
        int answer; /* 0: none yet, 1: granted, -1: refused */
        struct request *next;
    } *first;
    uint64_t last_ticket;
    _Atomic uint64_t limit_bytes, granted_bytes, reclaimable_bytes;
} room = {.answered = PTHREAD_COND_INITIALIZER, .granted_bytes = UINT64_MAX};

/* `holdings`: say what the process holds, too; not with the lock held. */
static void tell(const char *kind, const struct request *request, int holdings)
{
    char text[1024];
    struct json_writer w;
    json_begin(&w, text, sizeof text, kind);
    json_add_whole(&w, "ticket", request->ticket);
    if (request->bytes) {
        json_add_whole(&w, "bytes", request->bytes);
        json_add_text(&w, "what", request->what);
        if (holdings)
            link_add_holdings(&w);
    }
    link_send(text, json_end(&w));
}

int room_ask(uint64_t bytes, const char *what, unsigned *tries)
{
    if (!link_usable() || ++*tries > MOST_TRIES)
        return 0;
    struct request mine = {.bytes = bytes, .what = what};
    link_start();
    pthread_mutex_lock(&room_lock);
    mine.ticket = ++room.last_ticket;
    mine.next = room.first;
    room.first = &mine;
    pthread_mutex_unlock(&room_lock);
    tell("room_wanted", &mine, 1);
    pthread_mutex_lock(&room_lock);
    while (!mine.answer)
        pthread_cond_wait(&room.answered, &room_lock);
    struct request **link = &room.first;
    while (*link != &mine)
        link = &(*link)->next;
    *link = mine.next;
    pthread_mutex_unlock(&room_lock);
    return mine.answer > 0;
}

int room_allows(uint64_t bytes)
{
    uint64_t limit = atomic_load(&room.limit_bytes), granted = atomic_load(&room.granted_bytes);
    uint64_t most = limit && limit < granted ? limit : granted;
    if (most == UINT64_MAX)
        return 1;
    struct holdings held;
    blocks_holdings(&held);
    uint64_t here = held.persistent_bytes - held.evicted_bytes;
    return here <= most && bytes <= most - here;
}

void room_limit(uint64_t bytes) { atomic_store(&room.limit_bytes, bytes); }
void room_grant(uint64_t bytes) { atomic_store(&room.granted_bytes, bytes); }
void room_reclaimable(uint64_t bytes) { atomic_store(&room.reclaimable_bytes, bytes); }

void room_shape(size_t *free_bytes, size_t *total_bytes)
{
    uint64_t limit = atomic_load(&room.limit_bytes);
    *free_bytes += atomic_load(&room.reclaimable_bytes);
    if (limit && limit < *total_bytes)
        *total_bytes = limit;
    if (*free_bytes > *total_bytes)
        *free_bytes = *total_bytes;
}

void room_answer(uint64_t ticket, int granted)
{
    pthread_mutex_lock(&room_lock);
    for (struct request *r = room.first; r; r = r->next)
        if (r->ticket == ticket && !r->answer)
            r->answer = granted ? 1 : -1;
    pthread_cond_broadcast(&room.answered);
    pthread_mutex_unlock(&room_lock);
}

void room_refuse_all(void)
{
    pthread_mutex_lock(&room_lock);
    for (struct request *r = room.first; r; r = r->next)
        if (!r->answer) {
            r->answer = -1;
            tell("room_withdrawn", &(struct request){.ticket = r->ticket}, 0);
        }
    pthread_cond_broadcast(&room.answered);
    pthread_mutex_unlock(&room_lock);
}

void room_repeat(void)
{
    pthread_mutex_lock(&room_lock);
    for (struct request *r = room.first; r; r = r->next)
        if (!r->answer)
            tell("room_wanted", r, 0); /* the hello said it */
    pthread_mutex_unlock(&room_lock);
}

unsigned room_waiting(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&room_lock);
    for (struct request *r = room.first; r; r = r->next)
        count += !r->answer;
    pthread_mutex_unlock(&room_lock);
    return count;
}

void room_after_fork(void)
{
    pthread_mutex_init(&room_lock, NULL);
    pthread_cond_init(&room.answered, NULL);
    room.first = NULL;
    atomic_store(&room.granted_bytes, UINT64_MAX); /* what the parent was granted isn't the child's */
}
