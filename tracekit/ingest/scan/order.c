/* The events of a batch: their numbers by time, and where their rows lie. */
#include <stdlib.h>
#include <string.h>

#include "scan.h"

static int follows(const event_row *a, const event_row *b)
{
    return a->thread != b->thread ? a->thread > b->thread : a->ts > b->ts;
}

/* Events are numbered in the order of thread and time. Traces are nearly sorted, so runs that are in
 * order are only looked at. */
static int sort_events(scan *s, int64_t count)
{
    const event_row *rows = s->tables[T_EVENT].rows;
    free(s->order);
    free(s->numbers);
    s->order = malloc(((size_t)count + 1) * sizeof *s->order);
    s->numbers = malloc(((size_t)count + 1) * sizeof *s->numbers);
    if (!s->order || !s->numbers)
        return NO_MEMORY;
    int64_t *from = s->order, *to = s->numbers;
    for (int64_t i = 0; i < count; i++)
        from[i] = i;
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t low = 0; low < count; low += 2 * width) {
            int64_t middle = low + width < count ? low + width : count;
            int64_t high = middle + width < count ? middle + width : count;
            int64_t a = low, b = middle, at = low;
            if (middle == high || !follows(&rows[from[middle - 1]], &rows[from[middle]])) {
                memcpy(to + low, from + low, (size_t)(high - low) * sizeof *to);
                continue;
            }
            while (a < middle && b < high)
                to[at++] = follows(&rows[from[a]], &rows[from[b]]) ? from[b++] : from[a++];
            while (a < middle)
                to[at++] = from[a++];
            while (b < high)
                to[at++] = from[b++];
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    s->order = from;
    s->numbers = to;
    for (int64_t i = 0; i < count; i++)
        s->numbers[s->order[i]] = i;
    return OK;
}

/* The rows of each track beside each other: numbers and times of one kind rise together, and are packed
 * best. */
static int arrange_events(scan *s, int64_t count)
{
    const event_row *rows = s->tables[T_EVENT].rows;
    int64_t tracks = s->pools[P_TRACK].count;
    int64_t *arranged = malloc(((size_t)count + 1) * sizeof *arranged);
    int64_t *places = calloc((size_t)tracks + 1, sizeof *places);
    if (!arranged || !places) {
        free(arranged);
        free(places);
        return NO_MEMORY;
    }
    for (int64_t n = 0; n < count; n++)
        places[rows[n].track + 1]++;
    for (int64_t track = 1; track < tracks; track++)
        places[track] += places[track - 1];
    for (int64_t n = 0; n < count; n++)
        arranged[places[rows[s->order[n]].track]++] = s->order[n];
    free(places);
    free(s->order);
    s->order = arranged;
    return OK;
}

int order_events(scan *s)
{
    int64_t count = s->tables[T_EVENT].count;
    return sort_events(s, count) == OK ? arrange_events(s, count) : NO_MEMORY;
}
