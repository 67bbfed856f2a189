/* Rows to columns: one buffer of data and one of validity for each, in Arrow's layout. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "scan.h"

/* q: int64; i: int32, negative is null. Capitals can be null; I is an int64 kept as int32, null
 * where it does not fit; r: the row of an event, as it stands after sorting. */
#define C(t, type, column, kind) {t, kind, #column, offsetof(type, column)}
static const struct {
    uint8_t table;
    char kind;
    const char *name;
    size_t offset;
} COLUMNS[] = {
    C(T_EVENT, event_row, ts, 'q'), C(T_EVENT, event_row, dur, 'q'),
    C(T_EVENT, event_row, name, 'i'), C(T_EVENT, event_row, category, 'i'),
    C(T_EVENT, event_row, thread, 'i'), C(T_EVENT, event_row, device, 'I'),
    C(T_EVENT, event_row, stream, 'i'), C(T_EVENT, event_row, correlation, 'Q'),
    C(T_EVENT, event_row, external, 'Q'), C(T_EVENT, event_row, bytes, 'Q'),
    C(T_EVENT, event_row, signature, 'i'), C(T_EVENT, event_row, sequence, 'Q'),
    C(T_EVENT, event_row, forward_thread, 'Q'),
    C(T_COMM, comm_row, row, 'r'), C(T_COMM, comm_row, operation, 'i'),
    C(T_COMM, comm_row, group, 'i'), C(T_COMM, comm_row, description, 'i'),
    C(T_COMM, comm_row, ranks, 'i'), C(T_COMM, comm_row, dtype, 'i'),
    C(T_COMM, comm_row, group_size, 'I'), C(T_COMM, comm_row, seq, 'Q'),
    C(T_COMM, comm_row, in_elems, 'Q'), C(T_COMM, comm_row, out_elems, 'Q'),
    C(T_COMM, comm_row, src, 'I'), C(T_COMM, comm_row, dst, 'I'),
    C(T_PYTHON, python_row, row, 'r'), C(T_PYTHON, python_row, id, 'Q'),
    C(T_PYTHON, python_row, parent, 'Q'), C(T_PYTHON, python_row, module, 'Q'),
    C(T_ARGS, args_row, row, 'r'), C(T_ARGS, args_row, start, 'q'), C(T_ARGS, args_row, end, 'q'),
    C(T_MEMORY, memory_row, ts, 'q'), C(T_MEMORY, memory_row, device_type, 'I'),
    C(T_MEMORY, memory_row, device, 'I'), C(T_MEMORY, memory_row, address, 'Q'),
    C(T_MEMORY, memory_row, bytes, 'Q'), C(T_MEMORY, memory_row, allocated, 'Q'),
    C(T_MEMORY, memory_row, reserved, 'Q'),
    C(T_FLOW, flow_row, ts, 'q'), C(T_FLOW, flow_row, id, 'q'), C(T_FLOW, flow_row, category, 'i'),
    C(T_FLOW, flow_row, thread, 'i'), C(T_FLOW, flow_row, is_start, 'i'),
    C(T_META, meta_row, what, 'i'), C(T_META, meta_row, thread, 'i'), C(T_META, meta_row, text, 'i'),
    C(T_DAMAGE, damage_row, offset, 'q'), C(T_DAMAGE, damage_row, count, 'q'),
    C(T_DAMAGE, damage_row, kind, 'i'),
};
#define N_COLUMNS (int)(sizeof COLUMNS / sizeof *COLUMNS)
_Static_assert(sizeof COLUMNS / sizeof *COLUMNS <= MAX_COLUMNS, "more columns than places");

/* Of column `i`: its table, its kind and its name; the kind is 0 behind the last one. */
EXPORT int tk_column_kind(int i) { return i < N_COLUMNS ? COLUMNS[i].kind : 0; }
EXPORT int tk_column_table(int i) { return COLUMNS[i].table; }
EXPORT const char *tk_column_name(int i) { return COLUMNS[i].name; }

static int follows(const event_row *a, const event_row *b)
{
    return a->thread != b->thread ? a->thread > b->thread : a->ts > b->ts;
}

/* Stable order by thread and time. Traces are nearly sorted, so runs that are in order are only
 * looked at. */
static int sort_events(scan *s, int64_t count)
{
    const event_row *rows = s->tables[T_EVENT].rows;
    free(s->order);
    free(s->inverse);
    s->order = malloc(((size_t)count + 1) * sizeof *s->order);
    s->inverse = malloc(((size_t)count + 1) * sizeof *s->inverse);
    if (!s->order || !s->inverse)
        return NO_MEMORY;
    int64_t *from = s->order, *to = s->inverse;
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
    s->inverse = to;
    for (int64_t i = 0; i < count; i++)
        s->inverse[s->order[i]] = i;
    return OK;
}

/* Columns of all rows since the last flush; tk_data gives them until the next. */
EXPORT int tk_flush(scan *s)
{
    if (sort_events(s, s->tables[T_EVENT].count) != OK)
        return NO_MEMORY;
    for (int i = 0; i < N_COLUMNS; i++) {
        const table *t = &s->tables[COLUMNS[i].table];
        char kind = COLUMNS[i].kind;
        int wide = kind == 'q' || kind == 'Q';
        free(s->out[i * 2]);
        free(s->out[i * 2 + 1]);
        int64_t *longs = s->out[i * 2] = malloc((size_t)t->count * (wide ? 8 : 4) + 8);
        uint8_t *valid = s->out[i * 2 + 1] = calloc(1, (size_t)t->count / 8 + 8);
        if (!longs || !valid)
            return NO_MEMORY;
        int32_t *ints = (int32_t *)longs;
        for (int64_t n = 0; n < t->count; n++) {
            int64_t row = COLUMNS[i].table == T_EVENT ? s->order[n] : n;
            const char *at = (const char *)t->rows + (size_t)row * t->size + COLUMNS[i].offset;
            int64_t value;
            if (kind == 'i') {
                int32_t narrow;
                memcpy(&narrow, at, 4);
                value = narrow < 0 ? MISSING : narrow;
            } else {
                memcpy(&value, at, 8);
                if (kind == 'r')
                    value = s->inverse[value];
                if (!wide && (value > INT32_MAX || value < INT32_MIN))
                    value = MISSING;
            }
            if (value == MISSING)
                value = 0;
            else
                valid[n >> 3] |= (uint8_t)(1 << (n & 7));
            if (wide)
                longs[n] = value;
            else
                ints[n] = (int32_t)value;
        }
    }
    return OK;
}

EXPORT const void *tk_data(const scan *s, int i) { return s->out[i * 2]; }
EXPORT const void *tk_validity(const scan *s, int i) { return s->out[i * 2 + 1]; }
EXPORT int64_t tk_rows(const scan *s, int t) { return s->tables[t].count; }
EXPORT const char *tk_args(const scan *s) { return s->args; }
EXPORT int64_t tk_args_size(const scan *s) { return s->args_used; }

/* Forget the rows that were flushed, and, where `pools`, the strings too: returns whether it did. */
EXPORT int tk_reset(scan *s, int pools)
{
    for (int i = 0; i < TABLES; i++)
        if (i != T_DAMAGE)
            s->tables[i].count = 0;
    s->args_used = 0;
    s->in_doubt = 0;
    if (!pools || s->open.count) /* an open slice holds the number of its name */
        return 0;
    static const int safe[] = {P_NAME, P_SIGNATURE, P_TEXT};
    for (size_t i = 0; i < sizeof safe / sizeof *safe; i++)
        pool_clear(&s->pools[safe[i]]);
    return 1;
}

EXPORT int64_t tk_pool_count(const scan *s, int which) { return s->pools[which].count; }
EXPORT const char *tk_pool_bytes(const scan *s, int which) { return s->pools[which].bytes; }
EXPORT const int64_t *tk_pool_starts(const scan *s, int which) { return s->pools[which].starts; }
EXPORT const uint8_t *tk_pool_flags(const scan *s, int which) { return s->pools[which].flags; }
EXPORT const int64_t *tk_arg_counts(const scan *s) { return s->arg_counts; }
EXPORT int64_t tk_arg_counted(const scan *s) { return s->arg_room; }
