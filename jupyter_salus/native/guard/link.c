/* The connection to the backend, on a thread of its own: frames of four bytes of length (big endian) and one JSON object.
 *
 * Nothing here runs before the first call of the process that touches the device. The state needed after a loss of the
 * connection is told by the next hello, so whatever is said while nobody listens is dropped. A closed connection is no
 * silence: it is made again at once. Silence is a time in which nothing was answered at the address: no welcome, or no
 * word after a ping. After `patience` of it the gate opens and waits for room end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "guard.h"
#include "json.h"

enum { MOST_FRAME = 64 << 10, MOST_OUT = 256 << 10, PROTOCOL = 1 };
#define PING_S 3.0
#define REFUSED_S 30.0
#define REPORT_S 0.25

pthread_mutex_t link_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    /* with the lock */
    int running, welcomed, wake;
    char *out;
    size_t out_used;
    int overflown;
    int asked;
    uint64_t ticket;
    double unanswered_since; /* 0: all is answered */
    double patience;
    _Atomic int changed;
    /* of the thread alone */
    int fd;
    unsigned char *in;
    size_t in_used;
    double next_try, pause, reported, pinged;
    uint64_t last_epoch;
    int opened; /* that it fails open is ordered already */
} l = {.fd = -1, .wake = -1};

static const char *address(void)
{
    const char *path = getenv("JUPYTER_SALUS_SOCKET");
    return path ? path : "";
}

static void wake(void)
{
    uint64_t one = 1;
    if (l.wake >= 0 && write(l.wake, &one, sizeof one) < 0 && errno != EAGAIN)
        l.overflown = 1;
}

/* With the lock held. */
static void append(const char *text, size_t length)
{
    if (!length || l.out_used + length + 4 > MOST_OUT) {
        l.overflown = 1; /* a peer that doesn't read: the connection is given up, the next hello tells the state */
        return;
    }
    unsigned char head[4] = {(unsigned char)(length >> 24), (unsigned char)(length >> 16), (unsigned char)(length >> 8),
                             (unsigned char)length};
    memcpy(l.out + l.out_used, head, 4);
    memcpy(l.out + l.out_used + 4, text, length);
    l.out_used += length + 4;
}

void link_send(const char *text, size_t length)
{
    pthread_mutex_lock(&link_lock);
    if (l.welcomed) {
        append(text, length);
        wake();
    }
    pthread_mutex_unlock(&link_lock);
}

void guard_say(const char *format, ...)
{
    char message[400], text[900];
    va_list list;
    struct json_writer w;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    json_begin(&w, text, sizeof text, "note");
    json_add_text(&w, "message", message);
    link_send(text, json_end(&w));
    const char *path = getenv("JUPYTER_SALUS_GUARD_LOG");
    int fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        dprintf(fd, "%d %s\n", (int)getpid(), message);
        close(fd);
    }
}

struct start {
    void *(*run)(void *);
    void *argument;
};

static void *thread_begin(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    gate_exempt();
    return start.run(start.argument);
}

int thread_start(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before;
    struct start *start = malloc(sizeof *start);
    if (!start)
        return ENOMEM;
    *start = (struct start){run, argument};
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, &detached, thread_begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (result)
        free(start);
    return result;
}

/* --- what the other parts ask ---------------------------------------------------------------------------------- */

static void *link_run(void *);

/* With the lock held. */
static void start(void)
{
    if (l.running)
        return;
    const char *patience = getenv("JUPYTER_SALUS_PATIENCE_S");
    l.patience = patience && atof(patience) > 0 ? atof(patience) : 10;
    l.out = malloc(MOST_OUT);
    l.in = malloc(MOST_FRAME + 4);
    l.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l.unanswered_since = clock_now();
    l.running = l.out && l.in && l.wake >= 0 && thread_start(link_run, NULL) == 0;
}

void link_start(void)
{
    pthread_mutex_lock(&link_lock);
    start();
    pthread_mutex_unlock(&link_lock);
}

static void say_touched(void)
{
    char text[96];
    struct json_writer w;
    json_begin(&w, text, sizeof text, "touched");
    json_add_whole(&w, "ticket", l.ticket);
    append(text, json_end(&w));
}

void link_want_turn(void)
{
    pthread_mutex_lock(&link_lock);
    start();
    if (!l.asked) {
        l.asked = 1;
        l.ticket++;
        if (l.welcomed)
            say_touched();
        wake();
    }
    pthread_mutex_unlock(&link_lock);
}

void link_turn_came(void)
{
    pthread_mutex_lock(&link_lock);
    l.asked = 0;
    pthread_mutex_unlock(&link_lock);
}

void link_holdings_changed(void)
{
    if (!atomic_exchange(&l.changed, 1)) {
        pthread_mutex_lock(&link_lock);
        if (l.welcomed)
            wake();
        pthread_mutex_unlock(&link_lock);
    }
}

int link_silent(void)
{
    pthread_mutex_lock(&link_lock);
    int silent = l.running && l.unanswered_since > 0 && clock_now() - l.unanswered_since > l.patience;
    pthread_mutex_unlock(&link_lock);
    return silent;
}

int link_usable(void) { return !link_silent(); }

int link_return_lock(void)
{
    char path[256];
    const char *socket = address(), *slash = strrchr(socket, '/');
    int n = snprintf(path, sizeof path, "%.*s/return.lock", slash ? (int)(slash - socket) : 1, slash ? socket : ".");
    int fd = n > 0 && n < (int)sizeof path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR)
        ;
    return fd;
}

void link_return_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

void link_add_holdings(struct json_writer *w)
{
    struct holdings held;
    blocks_holdings(&held);
    pools_holdings(&held);
    json_add_whole(w, "persistent_bytes", held.persistent_bytes);
    json_add_whole(w, "evicted_bytes", held.evicted_bytes);
    json_add_whole(w, "fixed_bytes", held.fixed_bytes);
    json_add_text(w, "reason", contexts_fixed());
}

static void say_hello(void)
{
    char text[2048];
    struct json_writer w;
    int shut = atomic_load(&gate_shut);
    json_begin(&w, text, sizeof text, "hello");
    json_add_text(&w, "role", "guard");
    json_add_range(&w, "protocol", PROTOCOL, PROTOCOL);
    json_add_text(&w, "version", SALUS_VERSION);
    json_add_whole(&w, "pid", (uint64_t)getpid());
    json_add_text(&w, "session", getenv("JUPYTER_SALUS_SESSION"));
    json_add_text(&w, "gate", shut ? "shut" : "open");
    json_add_whole(&w, "epoch", shut ? orders_drained_epoch() : orders_epoch());
    link_add_holdings(&w);
    pthread_mutex_lock(&link_lock);
    l.out_used = 0;
    l.overflown = 0;
    append(text, json_end(&w));
    pthread_mutex_unlock(&link_lock);
}

static void say_memory(void)
{
    char text[1024];
    struct json_writer w;
    atomic_store(&l.changed, 0);
    json_begin(&w, text, sizeof text, "memory");
    link_add_holdings(&w);
    link_send(text, json_end(&w));
    l.reported = clock_now();
}

static void say_plain(const char *kind)
{
    char text[64];
    struct json_writer w;
    json_begin(&w, text, sizeof text, kind);
    link_send(text, json_end(&w));
}

static void say_error(const char *code, const char *about)
{
    char text[1024], message[600];
    struct json_writer w;
    snprintf(message, sizeof message, "cannot read a message: %s", about);
    json_begin(&w, text, sizeof text, "error");
    json_add_text(&w, "code", code);
    json_add_text(&w, "message", message);
    link_send(text, json_end(&w));
}

static int welcome(const struct json_object *message)
{
    if (json_whole(message, "protocol", 0) != PROTOCOL)
        return 0;
    pthread_mutex_lock(&link_lock);
    l.welcomed = 1;
    if (l.asked)
        say_touched();
    pthread_mutex_unlock(&link_lock);
    l.last_epoch = 0;
    l.opened = 0;
    room_repeat();
    say_memory();
    return 1;
}

static void take_figures(const struct json_object *message)
{
    if (json_find(message, "limit_bytes"))
        room_limit(json_whole(message, "limit_bytes", 0));
    if (json_find(message, "granted_bytes"))
        room_grant(json_whole(message, "granted_bytes", UINT64_MAX));
    if (json_find(message, "reclaimable_bytes"))
        room_reclaimable(json_whole(message, "reclaimable_bytes", 0));
}

static void add_order(enum order_kind kind, const struct json_object *message)
{
    struct order order = {
        .kind = kind,
        .epoch = json_whole(message, "epoch", 0),
        .move = json_whole(message, "move", 0),
        .bytes = json_whole(message, kind == ORDER_EVICT ? "host_bytes" : "bytes", 0),
        .calls = json_whole(message, "calls", 0),
        .drain_s = json_number(message, "drain_s", 0),
    };
    if (kind == ORDER_OPEN || kind == ORDER_CLOSE) {
        if (order.epoch < l.last_epoch)
            return; /* late: a newer epoch was spoken of already */
        l.last_epoch = order.epoch;
    }
    if (!orders_add(&order))
        say_error("too_many_orders", "too many orders wait to be carried out");
}

/* The backend there governs no device of ours: that is as good as nobody, and needs no patience to be sure. */
static void refused(void)
{
    pthread_mutex_lock(&link_lock);
    l.unanswered_since = clock_now() - l.patience - 1;
    pthread_mutex_unlock(&link_lock);
    l.pause = REFUSED_S;
}

/* One message of the backend. 0: it can't be talked with. */
static int hear(const struct json_object *message)
{
    static const struct {
        const char *kind;
        enum order_kind order;
    } ordered[] = {
        {"open_gate", ORDER_OPEN},          {"close_gate", ORDER_CLOSE},      {"evict_blocks", ORDER_EVICT},
        {"restore_blocks", ORDER_RESTORE},  {"prepare_arena", ORDER_ARENA},   {"drop_arena", ORDER_DROP_ARENA},
    };
    const char *kind = json_text(message, "kind", NULL);
    pthread_mutex_lock(&link_lock);
    int welcomed = l.welcomed;
    if (welcomed || (kind && strcmp(kind, "welcome") == 0))
        l.unanswered_since = 0;
    pthread_mutex_unlock(&link_lock);
    if (!kind) {
        say_error("bad_message", "it has no kind");
        return 1;
    }
    if (strcmp(kind, "welcome") == 0)
        return welcomed || welcome(message);
    if (!welcomed) {
        const char *code = strcmp(kind, "failed") == 0 ? json_text(message, "code", "") : "";
        if (strcmp(code, "not_possible") == 0)
            refused();
        return 0; /* refused, or not our protocol */
    }
    for (unsigned i = 0; i < sizeof ordered / sizeof *ordered; i++)
        if (strcmp(kind, ordered[i].kind) == 0) {
            take_figures(message);
            add_order(ordered[i].order, message);
            return 1;
        }
    if (strcmp(kind, "room_granted") == 0 || strcmp(kind, "room_refused") == 0) {
        take_figures(message);
        room_answer(json_whole(message, "ticket", 0), strcmp(kind, "room_granted") == 0);
    } else if (strcmp(kind, "device_memory") == 0)
        take_figures(message);
    else if (strcmp(kind, "interrupt") == 0)
        room_refuse_all();
    else if (strcmp(kind, "ping") == 0)
        say_plain("pong");
    else if (strcmp(kind, "pong") != 0 && strcmp(kind, "error") != 0 && strcmp(kind, "failed") != 0)
        say_error("unknown_kind", kind);
    return 1;
}

/* All whole frames that were read. 0: the connection can't be read on. */
static int hear_all(void)
{
    static struct json_object message;
    size_t at = 0;
    int sound = 1;
    while (sound && l.in_used - at >= 4) {
        const unsigned char *head = l.in + at;
        size_t length = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
        if (length > MOST_FRAME) {
            say_error("bad_frame", "it is longer than the limit");
            return 0;
        }
        if (l.in_used - at - 4 < length)
            break;
        const char *wrong = json_read((const char *)head + 4, length, &message);
        if (wrong)
            say_error("bad_frame", wrong);
        sound = !wrong && hear(&message);
        at += 4 + length;
    }
    memmove(l.in, l.in + at, l.in_used - at);
    l.in_used -= at;
    return sound;
}

/* --- the thread ------------------------------------------------------------------------------------------------------ */

static void write_out(void)
{
    pthread_mutex_lock(&link_lock);
    while (l.fd >= 0 && l.out_used) {
        ssize_t n = send(l.fd, l.out, l.out_used, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0) {
            l.overflown |= n < 0 && errno != EAGAIN && errno != EINTR;
            break;
        }
        memmove(l.out, l.out + n, l.out_used - (size_t)n);
        l.out_used -= (size_t)n;
    }
    pthread_mutex_unlock(&link_lock);
}

static void hang_up(void)
{
    write_out(); /* an error that was just said may still reach the peer */
    close(l.fd);
    l.fd = -1;
    l.in_used = 0;
    pthread_mutex_lock(&link_lock);
    if (!l.unanswered_since)
        l.unanswered_since = clock_now();
    l.welcomed = 0;
    pthread_mutex_unlock(&link_lock);
    /* Once at once; a peer that hangs up again and again is tried less and less often. */
    l.next_try = clock_now() + l.pause;
    l.pause = l.pause < 0.5 ? l.pause * 2 + 0.02 : l.pause < REFUSED_S ? 1 : REFUSED_S;
}

static void connect_now(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = strlen(address());
    l.next_try = clock_now() + l.pause;
    if (!length || length >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, address(), length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        l.pause = l.pause < 0.5 ? l.pause * 2 + 0.02 : 1; /* another backend may come soon, which governs it */
        return;
    }
    pthread_mutex_lock(&link_lock);
    l.fd = fd;
    pthread_mutex_unlock(&link_lock);
    say_hello();
}

static int read_in(void)
{
    for (;;) {
        if (l.in_used == MOST_FRAME + 4)
            return 0;
        ssize_t n = recv(l.fd, l.in + l.in_used, MOST_FRAME + 4 - l.in_used, MSG_DONTWAIT);
        if (n == 0)
            return 0;
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        l.in_used += (size_t)n;
        if (!hear_all())
            return 0;
    }
}

static void look_for_silence(void)
{
    int waiting = gate_waiting() || room_waiting();
    double now = clock_now();
    pthread_mutex_lock(&link_lock);
    int welcomed = l.welcomed;
    pthread_mutex_unlock(&link_lock);
    if (welcomed) {
        if (waiting && now - l.pinged > PING_S) {
            l.pinged = now;
            say_plain("ping");
            pthread_mutex_lock(&link_lock);
            if (!l.unanswered_since)
                l.unanswered_since = now;
            pthread_mutex_unlock(&link_lock);
        }
    }
    if (!link_silent())
        return;
    room_grant(UINT64_MAX);
    room_refuse_all();
    if (atomic_load(&gate_shut) && !l.opened) {
        l.opened = orders_add(&(struct order){.kind = ORDER_FAIL_OPEN});
        if (welcomed)
            hang_up(); /* it keeps the connection and says nothing */
    }
}

static void *link_run(void *unused)
{
    (void)unused;
    for (;;) {
        if (l.fd < 0 && clock_now() >= l.next_try)
            connect_now();
        if (l.fd >= 0 && atomic_load(&l.changed) && clock_now() - l.reported > REPORT_S) {
            pthread_mutex_lock(&link_lock);
            int welcomed = l.welcomed;
            pthread_mutex_unlock(&link_lock);
            if (welcomed)
                say_memory();
        }
        write_out();
        struct pollfd of[2] = {{.fd = l.wake, .events = POLLIN}, {.fd = l.fd, .events = POLLIN}};
        if (l.fd >= 0 && l.out_used)
            of[1].events |= POLLOUT;
        /* Nothing to wait for but words: a long rest. Something is due in time: a short one. */
        int due = (l.fd < 0 || atomic_load(&l.changed) || l.unanswered_since > 0) && l.pause < REFUSED_S;
        int rest = due ? 100 : gate_waiting() || room_waiting() ? 1000 : 5000;
        poll(of, l.fd >= 0 ? 2 : 1, rest);
        if (of[0].revents) {
            uint64_t count;
            while (read(l.wake, &count, sizeof count) > 0)
                ;
        }
        if (l.fd >= 0) {
            int sound = of[1].revents ? read_in() : 1;
            if (sound && l.welcomed)
                l.pause = 0;
            if (!sound || l.overflown)
                hang_up();
        }
        look_for_silence();
    }
    return NULL;
}

/* A forked child keeps no copy of the connection. Its own guard begins anew with its own first touch. */
void link_after_fork(void)
{
    if (l.fd >= 0)
        close(l.fd);
    if (l.wake >= 0)
        close(l.wake);
    memset(&l, 0, sizeof l);
    l.fd = l.wake = -1;
    pthread_mutex_init(&link_lock, NULL);
}
