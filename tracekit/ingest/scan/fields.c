/* What the fields of an event hold: texts by their number, and numbers. */
#include <stdlib.h>
#include <string.h>

#include "rows.h"

void *table_add(table *t)
{
    if (t->count == t->room) {
        int64_t room = t->room ? t->room * 2 : 256;
        void *rows = realloc(t->rows, (size_t)room * t->size);
        if (!rows)
            return NULL;
        t->rows = rows;
        t->room = room;
    }
    return (char *)t->rows + (size_t)t->count++ * t->size;
}

/* Make room for `count` entries of `size` bytes, the new ones zero. */
int widen(void *array, int32_t *room, int32_t count, size_t size)
{
    void **at = array;
    if (count <= *room)
        return OK;
    int32_t wider = count * 2 + 64;
    char *fresh = realloc(*at, (size_t)wider * size);
    if (!fresh)
        return NO_MEMORY;
    memset(fresh + (size_t)*room * size, 0, (size_t)(wider - *room) * size);
    *at = fresh;
    *room = wider;
    return OK;
}

char *key_of(scan *s, int64_t size)
{
    if (size > s->key_room) {
        char *fresh = realloc(s->key, (size_t)size * 2);
        if (!fresh)
            return NULL;
        s->key = fresh;
        s->key_room = size * 2;
    }
    return s->key;
}

void forget_last(scan *s)
{
    memset(s->last_id, 0xFF, sizeof s->last_id);
    s->last_thread = s->last_thread_process = s->last_track = -1;
}

/* Is the text that of an entry of the pool? */
static int is_entry(const pool *p, int32_t id, const char *text, int32_t size)
{
    return p->starts[id + 1] - p->starts[id] == size
        && memcmp(p->bytes + p->starts[id], text, (size_t)size) == 0;
}

int32_t text_id(scan *s, int which, const event *e, int field)
{
    const span *at = &e->field[field];
    return HAS(e, field) ? pool_add(&s->pools[which], at->at, at->size, at->flags) : -1;
}

/* The same for a field whose pool is always this one: events that follow each other have much in
 * common. */
int32_t usual_id(scan *s, int which, const event *e, int field)
{
    const span *at = &e->field[field];
    int32_t *last = &s->last_id[field];
    if (!HAS(e, field))
        return -1;
    if (*last < 0 || !is_entry(&s->pools[which], *last, at->at, at->size))
        *last = pool_add(&s->pools[which], at->at, at->size, at->flags);
    return *last;
}

int32_t process_of(scan *s, const event *e)
{
    if (HAS(e, F_PID))
        return usual_id(s, P_PROCESS, e, F_PID);
    return pool_add(&s->pools[P_PROCESS], "", 0, 0);
}

/* A thread is known by its process and its own name; both may be numbers or strings. */
int32_t thread_of(scan *s, const event *e, int32_t process)
{
    const span *tid = &e->field[F_TID];
    int32_t size = HAS(e, F_TID) ? tid->size : 0;
    pool *threads = &s->pools[P_THREAD];
    if (s->last_thread >= 0 && s->last_thread_process == process && size) {
        int64_t start = threads->starts[s->last_thread] + 4;
        if (threads->starts[s->last_thread + 1] - start == size
            && memcmp(threads->bytes + start, tid->at, (size_t)size) == 0)
            return s->last_thread;
    }
    char *key = process < 0 ? NULL : key_of(s, size + 4);
    if (!key)
        return -1;
    memcpy(key, &process, 4);
    if (size)
        memcpy(key + 4, tid->at, (size_t)size);
    s->last_thread_process = process;
    return s->last_thread = pool_add(threads, key, size + 4, HAS(e, F_TID) ? tid->flags : 0);
}

int32_t track_of(scan *s, const event *e, int32_t thread)
{
    int64_t device = whole_of(e, F_DEVICE);
    int fits = device > INT32_MIN && device <= INT32_MAX;
    int32_t category = HAS(e, F_CAT) ? usual_id(s, P_CATEGORY, e, F_CAT)
                                     : pool_add(&s->pools[P_CATEGORY], "", 0, 0);
    if (category < 0)
        return -1;
    track_key key = {category, thread, usual_id(s, P_TEXT, e, HAS(e, F_STREAM) ? F_STREAM : F_QUEUE),
                     fits ? (int32_t)device : NO_DEVICE};
    if (s->last_track < 0 || memcmp(&key, &s->last_track_key, sizeof key) != 0) {
        s->last_track = pool_add(&s->pools[P_TRACK], (const char *)&key, sizeof key, 0);
        s->last_track_key = key;
    }
    return s->last_track;
}

int64_t whole_of(const event *e, int field)
{
    return HAS(e, field) ? to_whole(&e->field[field]) : MISSING;
}

int64_t identity_of(const event *e, int field)
{
    return HAS(e, field) ? to_identity(&e->field[field]) : MISSING;
}

int64_t ns_of(const event *e, int field)
{
    int64_t largest = field == F_DUR ? LARGEST_DURATION_NS : LARGEST_TIME_NS;
    return HAS(e, field) ? to_ns(&e->field[field], largest) : MISSING;
}

int is_text(const event *e, int field, const char *text)
{
    return HAS(e, field) && (size_t)e->field[field].size == strlen(text)
        && memcmp(e->field[field].at, text, strlen(text)) == 0;
}
