/* Rows to columns: one buffer of data and one of validity for each, in Arrow's layout. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "scan.h"

/* q: int64; i: int32, negative is null. Capitals can be null; I is an int64 kept as int32, null
 * where it does not fit; r: the number of an event within the batch, e: that of this event itself. */
#define C(t, type, column, kind) {t, kind, #column, offsetof(type, column)}
static const struct {
    uint8_t table;
    char kind;
    const char *name;
    size_t offset;
} COLUMNS[] = {
    {T_EVENT, 'e', "id", 0}, C(T_EVENT, event_row, ts, 'q'),
    C(T_EVENT, event_row, dur, 'q'),
    C(T_EVENT, event_row, name, 'i'), C(T_EVENT, event_row, track, 'i'),
    C(T_EVENT, event_row, correlation, 'Q'), C(T_EVENT, event_row, external, 'Q'),
    C(T_DETAIL, detail_row, row, 'r'), C(T_DETAIL, detail_row, bytes, 'Q'),
    C(T_DETAIL, detail_row, signature, 'i'), C(T_DETAIL, detail_row, sequence, 'Q'),
    C(T_DETAIL, detail_row, forward_thread, 'Q'),
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
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define N_COLUMNS (int)COUNT(COLUMNS)
_Static_assert(COUNT(COLUMNS) <= MAX_COLUMNS, "more columns than places");

EXPORT int tk_columns(void) { return N_COLUMNS; }
EXPORT int tk_column_bits(int i) { return COLUMNS[i].kind == 'q' || COLUMNS[i].kind == 'Q' ? 64 : 32; }
EXPORT int tk_column_table(int i) { return COLUMNS[i].table; }
EXPORT const char *tk_column_name(int i) { return COLUMNS[i].name; }

static int64_t value_of(const scan *s, int column, int64_t n)
{
    const table *t = &s->tables[COLUMNS[column].table];
    int64_t row = COLUMNS[column].table == T_EVENT ? s->order[n] : n, wide;
    int32_t narrow;
    const char *at = (const char *)t->rows + (size_t)row * t->size + COLUMNS[column].offset;
    switch (COLUMNS[column].kind) {
    case 'e':
        return s->numbers[row];
    case 'i':
        memcpy(&narrow, at, 4);
        return narrow < 0 ? MISSING : narrow;
    case 'r':
        memcpy(&wide, at, 8);
        return s->numbers[wide];
    case 'I':
        memcpy(&wide, at, 8);
        return wide > INT32_MAX || wide < INT32_MIN ? MISSING : wide;
    default:
        memcpy(&wide, at, 8);
        return wide;
    }
}

/* A column as small as its values allow: int32 where they fit. */
static int flush_column(scan *s, int column)
{
    int64_t count = s->tables[COLUMNS[column].table].count, nulls = 0, least = 0, most = 0;
    column_out *out = &s->out[column];
    free(out->data);
    free(out->valid);
    int64_t *longs = out->data = malloc((size_t)count * 8 + 8);
    uint8_t *valid = out->valid = calloc(1, (size_t)count / 8 + 8);
    if (!longs || !valid)
        return NO_MEMORY;
    for (int64_t n = 0; n < count; n++) {
        int64_t value = value_of(s, column, n);
        if (value == MISSING) {
            value = 0;
            nulls++;
        } else {
            valid[n >> 3] |= (uint8_t)(1 << (n & 7));
        }
        longs[n] = value;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    out->has_values = nulls < count;
    out->has_nulls = nulls > 0;
    out->is_wide = most > INT32_MAX || least < INT32_MIN;
    int32_t *ints = out->data;
    for (int64_t n = 0; n < count && !out->is_wide; n++) {
        int32_t narrow = (int32_t)longs[n];
        memcpy(&ints[n], &narrow, 4);
    }
    return OK;
}

/* Columns of all rows since the last flush; tk_data gives them until the next. */
EXPORT int tk_flush(scan *s)
{
    if (order_events(s) != OK)
        return NO_MEMORY;
    for (int i = 0; i < N_COLUMNS; i++)
        if (flush_column(s, i) != OK)
            return NO_MEMORY;
    return OK;
}

/* Of a column since the last flush: its values, or NULL where all are null; a bit for each that is none,
 * or NULL where none is null; the bytes of a value. */
EXPORT const void *tk_data(const scan *s, int i) { return s->out[i].has_values ? s->out[i].data : NULL; }
EXPORT const void *tk_validity(const scan *s, int i) { return s->out[i].has_nulls ? s->out[i].valid : NULL; }
EXPORT int tk_width(const scan *s, int i) { return s->out[i].is_wide ? 8 : 4; }
EXPORT int64_t tk_rows(const scan *s, int t) { return s->tables[t].count; }
EXPORT const char *tk_args(const scan *s) { return s->args; }
EXPORT int64_t tk_args_size(const scan *s) { return s->args_used; }

static const int CLEARED[] = {P_NAME, P_SIGNATURE, P_TEXT, P_TRACK};

int64_t string_bytes(const scan *s)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < COUNT(CLEARED); i++)
        bytes += s->pools[CLEARED[i]].used;
    return bytes;
}

/* Forget the rows that were flushed, and, where `pools`, the strings too: returns whether it did. */
EXPORT int tk_reset(scan *s, int pools)
{
    for (int i = 0; i < TABLES; i++)
        if (i != T_DAMAGE)
            s->tables[i].count = 0;
    s->args_used = 0;
    s->in_doubt = 0;
    s->sent_bytes = string_bytes(s);
    if (!pools || s->open_slices) /* an open slice holds the numbers of its name and track */
        return 0;
    for (size_t i = 0; i < COUNT(CLEARED); i++)
        pool_clear(&s->pools[CLEARED[i]]);
    forget_last(s);
    s->sent_bytes = 0;
    return 1;
}

EXPORT int64_t tk_pool_count(const scan *s, int which) { return s->pools[which].count; }
EXPORT const char *tk_pool_bytes(const scan *s, int which) { return s->pools[which].bytes; }
EXPORT const int64_t *tk_pool_starts(const scan *s, int which) { return s->pools[which].starts; }
EXPORT const uint8_t *tk_pool_flags(const scan *s, int which) { return s->pools[which].flags; }
EXPORT const int64_t *tk_arg_counts(const scan *s) { return s->arg_counts; }
EXPORT int64_t tk_arg_counted(const scan *s) { return s->arg_room; }
