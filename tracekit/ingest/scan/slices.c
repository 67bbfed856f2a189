/* Pairs of a B and an E: what is open on each thread. */
#include <stdlib.h>
#include <string.h>

#include "rows.h"

#define MOST_OPEN 1024 /* slices within each other that an E looks through */

/* The text of the args of a B that has details: rows of those need the number of the event. */
static int keep_text(const scan *s, const event *e, open_row *slice)
{
    const span *args = &e->field[F_ARGS];
    if (!HAS(e, F_ARGS) || args->kind != CONTAINER || !has_details(s, e))
        return OK;
    if (!(slice->args = malloc((size_t)args->size)))
        return NO_MEMORY;
    memcpy(slice->args, args->at, (size_t)args->size);
    slice->args_size = args->size;
    return OK;
}

int open_slice(scan *s, const event *e, const event_row *row, int64_t offset)
{
    int32_t threads = s->open_threads;
    if (widen(&s->open_top, &s->open_threads, row->thread + 1, sizeof *s->open_top) != OK)
        return NO_MEMORY;
    for (; threads < s->open_threads; threads++)
        s->open_top[threads] = -1;
    int32_t at = s->open_free;
    open_row *slice;
    if (at >= 0) {
        slice = (open_row *)s->open.rows + at;
        s->open_free = slice->below;
    } else {
        slice = s->open.count < INT32_MAX ? table_add(&s->open) : NULL;
        if (!slice)
            return NO_MEMORY;
        at = (int32_t)(s->open.count - 1);
    }
    *slice = (open_row){*row, offset, NULL, 0, s->open_top[row->thread]};
    s->open_top[row->thread] = at;
    s->open_slices++;
    return keep_text(s, e, slice);
}

/* The innermost slice of its thread leaves the stack. */
static void close_slice(scan *s, int32_t thread)
{
    int32_t at = s->open_top[thread];
    open_row *slice = (open_row *)s->open.rows + at;
    s->open_top[thread] = slice->below;
    slice->below = s->open_free;
    s->open_free = at;
    s->open_slices--;
    free(slice->args);
    slice->args = NULL;
}

static int add_kept(scan *s, const open_row *slice, int64_t row)
{
    event e;
    if (!slice->args)
        return OK;
    if (parse_args(s, slice->args, slice->args_size, &e) == NO_MEMORY)
        return NO_MEMORY;
    return add_details(s, &e, row);
}

/* An E ends the innermost slice of its name on its thread, or of any name where it has none. What
 * was begun within that slice and did not end before it never ended. */
int end_slice(scan *s, const event *e, int32_t thread, int64_t ts, int64_t offset)
{
    const open_row *open = s->open.rows;
    int32_t top = thread < s->open_threads ? s->open_top[thread] : -1, at = top;
    if (HAS(e, F_NAME) && e->field[F_NAME].size) {
        int32_t name = text_id(s, P_NAME, e, F_NAME);
        if (name < 0)
            return NO_MEMORY;
        for (int depth = 0; at >= 0 && open[at].row.name != name; depth++)
            at = depth < MOST_OPEN ? open[at].below : -1;
    }
    if (at < 0 || ts < open[at].row.ts) {
        add_damage(s, D_UNMATCHED_E, offset);
        return OK;
    }
    for (; top != at; top = s->open_top[thread]) {
        add_damage(s, D_UNMATCHED_B, open[top].offset);
        close_slice(s, thread);
    }
    event_row *row = table_add(&s->tables[T_EVENT]);
    if (!row)
        return NO_MEMORY;
    *row = open[at].row;
    row->dur = ts - row->ts;
    int result = add_kept(s, &open[at], s->tables[T_EVENT].count - 1);
    close_slice(s, thread);
    return result;
}

void close_open(scan *s)
{
    for (int32_t thread = 0; thread < s->open_threads; thread++) {
        for (int32_t at = s->open_top[thread]; at >= 0;) {
            open_row *slice = (open_row *)s->open.rows + at;
            add_damage(s, D_UNMATCHED_B, slice->offset);
            at = slice->below;
        }
        s->open_top[thread] = -1;
    }
}
