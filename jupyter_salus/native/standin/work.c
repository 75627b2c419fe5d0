/* What the device does: copies, fills, a few kernels. A touch of memory that isn't mapped breaks the context for good. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

enum kernel { KERNEL_FILL32, KERNEL_ADD32, KERNEL_MIX64, KERNEL_SPIN };

static const struct {
    const char *name;
    unsigned arguments;
    unsigned char sizes[MOST_ARGUMENTS];
} kernels[] = {
    [KERNEL_FILL32] = {"fill32", 3, {8, 8, 4}}, /* pointer, count, value */
    [KERNEL_ADD32] = {"add32", 3, {8, 8, 8}},   /* to, from, count: to[i] += from[i] */
    [KERNEL_MIX64] = {"mix64", 3, {8, 8, 4}},   /* pointer, count, rounds */
    [KERNEL_SPIN] = {"spin", 1, {8}},           /* nanoseconds */
};

int kernel_find(const char *name, unsigned *arguments, const unsigned char **sizes)
{
    for (int i = 0; i < (int)(sizeof kernels / sizeof *kernels); i++)
        if (strcmp(kernels[i].name, name) == 0) {
            *arguments = kernels[i].arguments;
            *sizes = kernels[i].sizes;
            return i;
        }
    return -1;
}

static void broken(struct salus_ctx *context)
{
    pthread_mutex_lock(&standin_lock);
    context->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    pthread_mutex_unlock(&standin_lock);
}

/* Device memory or the host's: a stretch of at most `bytes` at an address. */
static struct stretch side(struct salus_ctx *context, uint64_t address, uint64_t bytes, int write)
{
    pthread_mutex_lock(&standin_lock);
    struct stretch s = memory_at(context, address, bytes, write);
    if (!s.bytes && !memory_is(address))
        s = (struct stretch){(unsigned char *)(uintptr_t)address, bytes, NULL};
    pthread_mutex_unlock(&standin_lock);
    return s;
}

static struct stretch device_side(struct salus_ctx *context, uint64_t address, uint64_t bytes, int write)
{
    pthread_mutex_lock(&standin_lock);
    struct stretch s = memory_at(context, address, bytes, write);
    pthread_mutex_unlock(&standin_lock);
    return s;
}

static void done_with(struct stretch *s)
{
    if (!s->physical)
        return;
    pthread_mutex_lock(&standin_lock);
    s->physical->pins--;
    physical_drop(s->physical);
    pthread_mutex_unlock(&standin_lock);
}

static int copy(struct salus_ctx *context, uint64_t to, uint64_t from, uint64_t bytes)
{
    while (bytes) {
        struct stretch source = side(context, from, bytes, 0);
        struct stretch target = source.bytes ? side(context, to, source.bytes, 1) : (struct stretch){0};
        if (target.bytes)
            memmove(target.memory, source.memory, target.bytes);
        uint64_t n = target.bytes;
        done_with(&source);
        done_with(&target);
        if (!n)
            return 0;
        to += n;
        from += n;
        bytes -= n;
    }
    return 1;
}

static void fill(unsigned char *at, uint64_t bytes, uint64_t value, unsigned element)
{
    for (uint64_t i = 0; i < bytes; i += element)
        memcpy(at + i, &value, element);
}

/* mix64 works on each element alone, so that the order of threads can't matter. */
static uint64_t mix(uint64_t x, uint64_t rounds)
{
    for (; rounds; rounds--) {
        x ^= x >> 29;
        x = x * 6364136223846793005ull + 1442695040888963407ull;
    }
    return x;
}

static int kernel_do(struct work *w)
{
    const uint64_t *a = w->arguments;
    if (w->kernel == KERNEL_SPIN) {
        nanosleep(&(struct timespec){.tv_sec = (time_t)(a[0] / 1000000000), .tv_nsec = (long)(a[0] % 1000000000)}, NULL);
        return 1;
    }
    uint64_t element = w->kernel == KERNEL_MIX64 ? 8 : 4;
    uint64_t count = w->kernel == KERNEL_ADD32 ? a[2] : a[1];
    if (w->kernel == KERNEL_ADD32) {
        uint64_t bytes = count * 4, to = a[0], from = a[1];
        while (bytes) {
            struct stretch source = device_side(w->context, from, bytes, 0);
            struct stretch target = source.bytes ? device_side(w->context, to, source.bytes, 1) : (struct stretch){0};
            for (uint64_t i = 0; i < target.bytes / 4; i++)
                ((uint32_t *)target.memory)[i] += ((uint32_t *)source.memory)[i];
            uint64_t n = target.bytes;
            done_with(&source);
            done_with(&target);
            if (!n)
                return 0;
            bytes -= n;
            to += n;
            from += n;
        }
        return 1;
    }
    for (uint64_t at = a[0], bytes = count * element; bytes;) {
        struct stretch s = device_side(w->context, at, bytes, 1);
        if (!s.bytes)
            return 0;
        if (w->kernel == KERNEL_FILL32)
            fill(s.memory, s.bytes, a[2], 4);
        else
            for (uint64_t i = 0; i < s.bytes / 8; i++)
                ((uint64_t *)s.memory)[i] = mix(((uint64_t *)s.memory)[i], a[2]);
        at += s.bytes;
        bytes -= s.bytes;
        done_with(&s);
    }
    return 1;
}

static int fill_do(struct work *w)
{
    for (uint64_t at = w->to, bytes = w->bytes; bytes;) {
        struct stretch s = device_side(w->context, at, bytes, 1);
        if (!s.bytes)
            return 0;
        fill(s.memory, s.bytes, w->value, w->element);
        at += s.bytes;
        bytes -= s.bytes;
        done_with(&s);
    }
    return 1;
}

static void dawdle(void)
{
    static __thread unsigned seed;
    const char *slow = getenv("SALUS_STANDIN_SLOW_US");
    long most = slow ? atol(slow) : 0;
    if (most <= 0)
        return;
    if (!seed)
        seed = (unsigned)(uintptr_t)&seed;
    nanosleep(&(struct timespec){.tv_nsec = (rand_r(&seed) % most) * 1000}, NULL);
}

void work_do(struct work *w)
{
    int sound = 1;
    dawdle();
    if (w->context->sticky)
        return;
    switch (w->kind) {
    case WORK_COPY: sound = copy(w->context, w->to, w->from, w->bytes); break;
    case WORK_FILL: sound = fill_do(w); break;
    case WORK_KERNEL: sound = kernel_do(w); break;
    case WORK_HOST: w->host(w->data); break;
    case WORK_FREE:
        pthread_mutex_lock(&standin_lock);
        sound = memory_native_free(w->to) == CUDA_SUCCESS;
        pthread_mutex_unlock(&standin_lock);
        break;
    case WORK_GRAPH:
        for (struct work *node = w->graph->first; node; node = node->next)
            work_do(node);
        break;
    case WORK_NOTHING:
    case WORK_EVENT: break;
    }
    if (!sound)
        broken(w->context);
}
