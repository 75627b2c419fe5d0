/* Ranges of addresses that don't overlap, sorted: a table for anything that begins with an address and a length. */
#ifndef SALUS_RANGES_H
#define SALUS_RANGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uint64_t address, bytes;
};

struct ranges {
    void **at;
    size_t count, capacity;
};

/* Index of the first range that begins at or after `address`. */
static inline size_t ranges_from(const struct ranges *table, uint64_t address)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (((const struct range *)table->at[middle])->address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The range that holds `address`, or NULL. */
static inline void *ranges_find(const struct ranges *table, uint64_t address)
{
    size_t i = ranges_from(table, address);
    if (i < table->count && ((const struct range *)table->at[i])->address == address)
        return table->at[i];
    if (i == 0)
        return NULL;
    const struct range *before = table->at[i - 1];
    return address - before->address < before->bytes ? table->at[i - 1] : NULL;
}

/* Makes sure that `more` can be added. 0 if there is no memory for them. */
static inline int ranges_room(struct ranges *table, size_t more)
{
    if (table->count + more <= table->capacity)
        return 1;
    size_t capacity = table->capacity ? table->capacity : 64;
    while (capacity < table->count + more)
        capacity *= 2;
    void **at = realloc(table->at, capacity * sizeof *at);
    if (!at)
        return 0;
    table->at = at;
    table->capacity = capacity;
    return 1;
}

static inline void ranges_add(struct ranges *table, void *range)
{
    size_t i = ranges_from(table, ((struct range *)range)->address);
    memmove(table->at + i + 1, table->at + i, (table->count - i) * sizeof *table->at);
    table->at[i] = range;
    table->count++;
}

static inline void ranges_remove(struct ranges *table, uint64_t address)
{
    size_t i = ranges_from(table, address);
    if (i == table->count || ((struct range *)table->at[i])->address != address)
        return;
    table->count--;
    memmove(table->at + i, table->at + i + 1, (table->count - i) * sizeof *table->at);
}

#endif
