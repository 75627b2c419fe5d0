/* The doors by which a program reaches the driver: our exported symbols, dlsym, and cuGetProcAddress.
 *
 * Nothing happens before a name of the driver is asked for and found in a loaded libcuda: a process without a GPU runs
 * through one comparison of two characters per dlsym. The driver is never loaded by us.
 *
 * dlsym passes every other name on by a jump, written in assembler so that no compiler makes a call of it: the next
 * dlsym then sees its real caller, which RTLD_NEXT and namespaces depend on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"

/* Runs before a sanitizer's own start, and on paths that must not be instrumented. */
#define EARLY __attribute__((no_sanitize_address, no_sanitize_undefined))

void *door_slot[SYMBOLS];
int guard_on;

typedef void *(*dlsym_fn)(void *, const char *);
__attribute__((visibility("hidden"))) dlsym_fn salus_next_dlsym;

struct answer {
    void *value;
    uint64_t decided; /* 0: jump to the next dlsym */
};
__attribute__((visibility("hidden"))) struct answer salus_dlsym_answer(void *handle, const char *name);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym,@function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "  endbr64\n"
        "  push %rdi\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  push %rsi\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  sub $8, %rsp\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  call salus_dlsym_answer\n"
        "  add $8, %rsp\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  pop %rsi\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  pop %rdi\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  test %rdx, %rdx\n"
        "  je 1f\n"
        "  ret\n"
        "1:\n"
        "  jmp *salus_next_dlsym(%rip)\n"
        ".cfi_endproc\n"
        ".size dlsym,.-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym,%function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "  hint 34\n"
        "  stp x29, x30, [sp, -32]!\n"
        "  .cfi_adjust_cfa_offset 32\n"
        "  .cfi_rel_offset x29, 0\n"
        "  .cfi_rel_offset x30, 8\n"
        "  stp x0, x1, [sp, 16]\n"
        "  mov x29, sp\n"
        "  bl salus_dlsym_answer\n"
        "  mov x16, x0\n"
        "  mov x17, x1\n"
        "  ldp x0, x1, [sp, 16]\n"
        "  ldp x29, x30, [sp], 32\n"
        "  .cfi_adjust_cfa_offset -32\n"
        "  .cfi_restore x29\n"
        "  .cfi_restore x30\n"
        "  cbz x17, 1f\n"
        "  mov x0, x16\n"
        "  ret\n"
        "1:\n"
        "  adrp x16, salus_next_dlsym\n"
        "  ldr x16, [x16, :lo12:salus_next_dlsym]\n"
        "  br x16\n"
        ".cfi_endproc\n"
        ".size dlsym,.-dlsym\n");
#else
#error "the guard is written for x86-64 and aarch64"
#endif

/* --- the table -------------------------------------------------------------------------------------------------------- */

enum class { CLASS_GATED, CLASS_ANSWERED, CLASS_ROOM, CLASS_FIXES, CLASS_HARMLESS };

static const struct {
    const char *name;
    enum class class;
} table[SYMBOLS] = {
#define GATED(name, n) {#name, CLASS_GATED},
#define ANSWERED(name) {#name, CLASS_ANSWERED},
#define ROOM(name, n) {#name, CLASS_ROOM},
#define FIXES(name, n, why) {#name, CLASS_FIXES},
#define HARMLESS(name) {#name, CLASS_HARMLESS},
#include "symbols.def"
#undef GATED
#undef ANSWERED
#undef ROOM
#undef FIXES
#undef HARMLESS
};

enum { PLACES = 2048 };
static uint16_t by_name[PLACES]; /* index + 1, open addressing; filled once under the lock */
static _Atomic int indexed;
static pthread_mutex_t doors_lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t driver_base;
static void *driver_handle;

static unsigned name_place(const char *name)
{
    unsigned hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash % PLACES;
}

static int symbol_find(const char *name)
{
    if (!atomic_load(&indexed)) {
        pthread_mutex_lock(&doors_lock);
        for (unsigned i = 0; i < SYMBOLS && !atomic_load(&indexed); i++) {
            unsigned place = name_place(table[i].name);
            while (by_name[place])
                place = (place + 1) % PLACES;
            by_name[place] = (uint16_t)(i + 1);
        }
        atomic_store(&indexed, 1);
        pthread_mutex_unlock(&doors_lock);
    }
    for (unsigned place = name_place(name); by_name[place]; place = (place + 1) % PLACES)
        if (strcmp(table[by_name[place] - 1].name, name) == 0)
            return by_name[place] - 1;
    return -1;
}

/* --- wrappers --------------------------------------------------------------------------------------------------------- */

typedef uint64_t word;
#define P1 word a
#define P2 P1, word b
#define P3 P2, word c
#define P4 P3, word d
#define P5 P4, word e
#define P6 P5, word f
#define P7 P6, word g
#define P8 P7, word h
#define P9 P8, word i
#define P10 P9, word j
#define P11 P10, word k
#define A1 a
#define A2 A1, b
#define A3 A2, c
#define A4 A3, d
#define A5 A4, e
#define A6 A5, f
#define A7 A6, g
#define A8 A7, h
#define A9 A8, i
#define A10 A9, j
#define A11 A10, k

/* The driver itself had no room for what a call needs: once the backend was asked for some, once it is tried again. */
static int driver_room(void)
{
    unsigned tries = 0;
    return guard_on && !gate_nested() && room_ask(ROOM_ANY_BYTES, "driver", &tries);
}

#define CALL(name, n) ((CUresult(*)(P##n))real)(A##n)
#define FIND(name) \
    void *real = door_slot[SYMBOL_##name]; \
    if (!LIKELY(real) && !(real = door_find(SYMBOL_##name))) \
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND

#define GATED(name, n) \
    CUresult name(P##n); \
    EXPORT CUresult name(P##n) \
    { \
        FIND(name); \
        struct flight *me = gate_enter(); \
        CUresult result = CALL(name, n); \
        gate_leave(me); \
        if (!LIKELY(result != CUDA_ERROR_OUT_OF_MEMORY) && driver_room()) { \
            me = gate_enter(); \
            result = CALL(name, n); \
            gate_leave(me); \
        } \
        return result; \
    }
#define FIXES(name, n, why) \
    CUresult name(P##n); \
    EXPORT CUresult name(P##n) \
    { \
        FIND(name); \
        struct flight *me = gate_enter(); \
        CUresult result = CALL(name, n); \
        gate_leave(me); \
        if (!result && guard_on) \
            contexts_fix(why); \
        return result; \
    }
#define ROOM(name, n) \
    CUresult name(P##n); \
    EXPORT CUresult name(P##n) \
    { \
        FIND(name); \
        CUresult result = CALL(name, n); \
        return result == CUDA_ERROR_OUT_OF_MEMORY && driver_room() ? CALL(name, n) : result; \
    }
#define ANSWERED(name)
#define HARMLESS(name)
#include "symbols.def"
#undef GATED
#undef FIXES
#undef ROOM
#undef ANSWERED
#undef HARMLESS

/* Where the program is sent for each symbol of ours; declared without types, which the parts that answer know. */
#define GATED(name, n)
#define ROOM(name, n)
#define FIXES(name, n, why)
#define HARMLESS(name)
#define ANSWERED(name) extern const char salus_at_##name[] __asm__(#name) __attribute__((visibility("default")));
#include "symbols.def"
#undef ANSWERED
#undef GATED
#undef ROOM
#undef FIXES
#undef HARMLESS

static const void *wrapper_of(int symbol)
{
    switch (symbol) {
#define GATED(name, n) \
    case SYMBOL_##name: \
        return (const void *)name;
#define ROOM(name, n) GATED(name, n)
#define FIXES(name, n, why) GATED(name, n)
#define ANSWERED(name) \
    case SYMBOL_##name: \
        return salus_at_##name;
#define HARMLESS(name)
#include "symbols.def"
#undef GATED
#undef ANSWERED
#undef ROOM
#undef FIXES
#undef HARMLESS
    default:
        return NULL;
    }
}

/* --- meeting the driver ------------------------------------------------------------------------------------------------ */

EARLY static void find_next_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (unsigned i = 0; i < 3 && !salus_next_dlsym; i++)
        salus_next_dlsym = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!salus_next_dlsym)
        abort(); /* no C library that this was built for has none of them */
}

/* Where the driver's file was loaded, if the address is in it; else 0. */
static uintptr_t driver_at(const void *address, const char **file)
{
    Dl_info info = {0};
    if (!dladdr(address, &info) || !info.dli_fname)
        return 0;
    const char *slash = strrchr(info.dli_fname, '/');
    *file = info.dli_fname;
    return strncmp(slash ? slash + 1 : info.dli_fname, "libcuda.so", 10) == 0 ? (uintptr_t)info.dli_fbase : 0;
}

static int useless_in_child;

static void before_fork(void)
{
    useless_in_child = contexts_count() > 0;
    pthread_mutex_lock(&doors_lock);
    pthread_mutex_lock(&orders_lock);
    gate_before_fork();
    pthread_mutex_lock(&room_lock);
    pthread_mutex_lock(&blocks_lock);
    pthread_mutex_lock(&pools_lock);
    pthread_mutex_lock(&contexts_lock);
    pthread_mutex_lock(&captures_lock);
    pthread_mutex_lock(&link_lock);
}

static void after_fork_here(void)
{
    pthread_mutex_unlock(&link_lock);
    pthread_mutex_unlock(&captures_lock);
    pthread_mutex_unlock(&contexts_lock);
    pthread_mutex_unlock(&pools_lock);
    pthread_mutex_unlock(&blocks_lock);
    pthread_mutex_unlock(&room_lock);
    gate_after_fork(0, 0);
    pthread_mutex_unlock(&orders_lock);
    pthread_mutex_unlock(&doors_lock);
}

/* A child's guard is new. After a fork the driver is of use only if the parent had no context yet; else every call fails
 * there anyway, and the child's gate stays open so that it fails at once. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&doors_lock, NULL);
    int useless = useless_in_child;
    link_after_fork();
    orders_after_fork();
    gate_after_fork(1, guard_on && !useless);
    room_after_fork();
    blocks_after_fork();
    pools_after_fork();
    arena_after_fork();
    contexts_after_fork();
    captures_after_fork();
    guard_on = guard_on && !useless;
}

/* A driver without virtual memory (before CUDA 10.2) is left alone: the session is plain. */
static int moves_memory(void)
{
    return door_slot[SYMBOL_cuMemCreate] && door_slot[SYMBOL_cuMemSetAccess] && door_slot[SYMBOL_cuMemAlloc_v2] &&
           door_slot[SYMBOL_cuMemHostRegister_v2] && door_slot[SYMBOL_cuDevicePrimaryCtxGetState];
}

/* Fills the slots; with the lock held. */
static void meet(const char *file)
{
    const char *socket = getenv("JUPYTER_SALUS_SOCKET");
    driver_handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (!driver_handle)
        return;
    for (unsigned i = 0; i < SYMBOLS; i++) {
        void *real = salus_next_dlsym(driver_handle, table[i].name);
        door_slot[i] = real != wrapper_of((int)i) ? real : NULL;
    }
    if (socket && *socket && moves_memory()) {
        gate_begin(1, link_want_turn);
        pthread_atfork(before_fork, after_fork_here, after_fork_in_child);
        guard_on = 1;
    }
}

/* 1 if the address is the driver's, which was met by then. */
static int meet_once(const void *address)
{
    const char *file;
    uintptr_t base = driver_at(address, &file);
    if (!base || base == driver_base)
        return base != 0;
    pthread_mutex_lock(&doors_lock);
    if (!driver_base) {
        meet(file);
        driver_base = base;
    }
    pthread_mutex_unlock(&doors_lock);
    return base == driver_base;
}

/* For a program that is linked to the driver: its first call comes in by our exported symbol. */
void *door_find(enum symbol symbol)
{
    if (!salus_next_dlsym)
        find_next_dlsym();
    if (!driver_base) {
        void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        void *init = handle ? salus_next_dlsym(handle, "cuInit") : NULL;
        if (init)
            meet_once(init);
    }
    return door_slot[symbol];
}

static int wanted(void)
{
    const char *socket = getenv("JUPYTER_SALUS_SOCKET");
    return socket && *socket;
}

static void unknown(const char *name)
{
    static _Atomic unsigned said;
    if (guard_on && atomic_fetch_add(&said, 1) < 64) {
        guard_say("the driver's entry %s isn't in our table", name);
        contexts_fix("an entry of the driver that this version doesn't know");
    }
}

static struct answer answer_driver_name(void *handle, const char *name)
{
    const struct answer pass = {NULL, 0};
    int symbol = symbol_find(name);
    const void *wrapper = symbol >= 0 ? wrapper_of(symbol) : NULL;
    void *found = salus_next_dlsym(handle, name);
    if (!found)
        return pass; /* once more by the jump, so that dlerror speaks of its caller */
    if (found == wrapper) {
        /* By a handle whose scope we are in: to such a program the symbol exists only where a driver is loaded. */
        void *real = door_find((enum symbol)symbol);
        return (struct answer){real ? found : salus_next_dlsym(RTLD_NEXT, name), 1};
    }
    if (!meet_once(found))
        return pass;
    if (symbol < 0) {
        if (name[2] >= 'A' && name[2] <= 'Z')
            unknown(name);
        return pass;
    }
    return (struct answer){guard_on && wrapper ? (void *)(uintptr_t)wrapper : found, 1};
}

EARLY struct answer salus_dlsym_answer(void *handle, const char *name)
{
    if (!salus_next_dlsym)
        find_next_dlsym();
    if (handle == RTLD_NEXT || !name || name[0] != 'c' || name[1] != 'u' || !wanted())
        return (struct answer){NULL, 0};
    return answer_driver_name(handle, name);
}

/* --- cuGetProcAddress ----------------------------------------------------------------------------------------------------- */

/* The symbol that the driver meant by its answer: the one at that address, or, for an entry that has no exported name,
 * none. Several names may share an address (old ones kept for old programs): a wrapped one is preferred. */
static int symbol_at(const void *address)
{
    int found = -1;
    for (int i = 0; i < SYMBOLS; i++)
        if (door_slot[i] == address && (found < 0 || wrapper_of(i)))
            found = i;
    return found;
}

static void answer_address(const char *name, void **address, int version, uint64_t flags)
{
    if (!guard_on || !address || !*address || !name)
        return;
    int symbol = symbol_at(*address);
    if (symbol >= 0) {
        const void *wrapper = wrapper_of(symbol);
        if (wrapper)
            *address = (void *)(uintptr_t)wrapper;
        return;
    }
    /* Harmless names may be answered by entries that have no exported name of their own. */
    symbol = symbol_find(name);
    if (symbol < 0 || table[symbol].class != CLASS_HARMLESS) {
        guard_say("no exported name for %s of version %d with flags %llu", name, version, (unsigned long long)flags);
        unknown(name);
    }
}

EXPORT CUresult cuGetProcAddress(const char *name, void **address, int version, uint64_t flags)
{
    CUresult result = REAL(cuGetProcAddress)(name, address, version, flags);
    if (!result)
        answer_address(name, address, version, flags);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status)
{
    CUresult result = REAL(cuGetProcAddress_v2)(name, address, version, flags, status);
    if (!result)
        answer_address(name, address, version, flags);
    return result;
}

CUresult cuGetProcAddress_v2_ptsz(const char *name, void **address, int version, uint64_t flags, int *status);
EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *name, void **address, int version, uint64_t flags, int *status)
{
    void *real = door_slot[SYMBOL_cuGetProcAddress_v2_ptsz];
    if (!real && !(real = door_find(SYMBOL_cuGetProcAddress_v2_ptsz)))
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    CUresult result = ((cuGetProcAddress_v2_fn)real)(name, address, version, flags, status);
    if (!result)
        answer_address(name, address, version, flags);
    return result;
}
