/* Strings, each once: a hash table over one growing text. */
#include <stdlib.h>
#include <string.h>

#include "scan.h"

static uint32_t hash_of(const char *text, int32_t size)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ (uint64_t)size, word;
    while (size >= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
        text += 8;
        size -= 8;
    }
    word = 0;
    memcpy(&word, text, (size_t)size);
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h ^ (h >> 32));
}

static int grow_slots(pool *p)
{
    uint32_t slots = p->mask ? (p->mask + 1) * 2 : 256;
    int32_t *fresh = malloc(slots * sizeof *fresh);
    if (!fresh)
        return NO_MEMORY;
    memset(fresh, 0xFF, slots * sizeof *fresh);
    for (int32_t i = 0; i < p->count; i++) {
        uint32_t at = p->hashes[i] & (slots - 1);
        while (fresh[at] >= 0)
            at = (at + 1) & (slots - 1);
        fresh[at] = i;
    }
    free(p->slots);
    p->slots = fresh;
    p->mask = slots - 1;
    return OK;
}

static int grow_entries(pool *p)
{
    int32_t capacity = p->capacity ? p->capacity * 2 : 128;
    int64_t *starts = realloc(p->starts, ((size_t)capacity + 1) * sizeof *starts);
    if (!starts)
        return NO_MEMORY;
    p->starts = starts;
    uint32_t *hashes = realloc(p->hashes, (size_t)capacity * sizeof *hashes);
    if (!hashes)
        return NO_MEMORY;
    p->hashes = hashes;
    uint8_t *flags = realloc(p->flags, (size_t)capacity);
    if (!flags)
        return NO_MEMORY;
    p->flags = flags;
    p->starts[0] = 0;
    p->capacity = capacity;
    return OK;
}

int32_t pool_add(pool *p, const char *text, int32_t size, uint8_t flags)
{
    if (((uint32_t)p->count + 1) * 2 > p->mask && grow_slots(p) != OK)
        return -1;
    uint32_t hash = hash_of(text, size), at = hash & p->mask;
    for (; p->slots[at] >= 0; at = (at + 1) & p->mask) {
        int32_t i = p->slots[at];
        if (p->hashes[i] == hash && p->starts[i + 1] - p->starts[i] == size
            && memcmp(p->bytes + p->starts[i], text, (size_t)size) == 0)
            return i;
    }
    if (p->count == p->capacity && grow_entries(p) != OK)
        return -1;
    if (p->used + size >= p->room) { /* also for the first string, if it is empty */
        int64_t room = (p->used + size) * 2 + 4096;
        char *bytes = realloc(p->bytes, (size_t)room);
        if (!bytes)
            return -1;
        p->bytes = bytes;
        p->room = room;
    }
    memcpy(p->bytes + p->used, text, (size_t)size);
    p->used += size;
    p->hashes[p->count] = hash;
    p->flags[p->count] = flags;
    p->starts[p->count + 1] = p->used;
    p->slots[at] = p->count;
    return p->count++;
}

void pool_clear(pool *p)
{
    p->count = 0;
    p->used = 0;
    if (p->slots)
        memset(p->slots, 0xFF, ((size_t)p->mask + 1) * sizeof *p->slots);
}

void pool_free(pool *p)
{
    free(p->bytes);
    free(p->starts);
    free(p->hashes);
    free(p->flags);
    free(p->slots);
    memset(p, 0, sizeof *p);
}
