/* The array of events, one after another. */
#include <stdlib.h>
#include <string.h>

#include "scan.h"

static int64_t largest_table(const scan *s)
{
    int64_t largest = 0;
    for (int i = 0; i < T_DAMAGE; i++)
        if (s->tables[i].count > largest)
            largest = s->tables[i].count;
    return largest;
}

/* A batch is bounded in rows and in bytes. */
static int is_full(const scan *s)
{
    int64_t bytes = string_bytes(s) - s->sent_bytes + s->args_used, times = s->in_doubt ? 4 : 1;
    return largest_table(s) >= s->limit * times || bytes >= BATCH_BYTES * times;
}

/* Is this bracket the end of the events? What follows must be what can follow them. */
static int closes(const scan *s, const char *p, const char *end, int what_follows)
{
    const char *next = after_space(p + 1, end);
    if (next == end)
        return what_follows == GOES_ON ? -1 : 1;
    if (s->list_root)
        return 0;
    if (*next == '}')
        return 1;
    if (*next != ',')
        return 0;
    next = after_space(next + 1, end);
    return next == end ? (what_follows == GOES_ON ? -1 : 1) : *next == '"';
}

/* Take an event that was read; FOREIGN never: such events are counted here. */
static int take(scan *s, const event *e, int64_t offset)
{
    if (s->foreign) {
        add_damage(s, D_FOREIGN, offset);
        return OK;
    }
    int result = add_event(s, e, offset);
    if (result == FOREIGN) {
        drop_doubtful(s);
        return OK;
    }
    s->doubt_events += s->in_doubt;
    return result;
}

/* Parse what there is of the array of events in text[0..size), which begins `base` bytes into the
 * file. *used says how much of it is settled. */
EXPORT int tk_events(scan *s, const char *text, int64_t size, int64_t base, int what_follows,
                     int64_t *used)
{
    const char *p = text, *end = text + size;
    event e;
    for (;;) {
        *used = p - text;
        if (is_full(s))
            return TK_FULL;
        p = after_space(p, end);
        if (p == end) {
            *used = size;
            if (what_follows != ENDS)
                return TK_MORE;
            add_damage(s, D_TRUNCATED, base + size);
            return TK_END;
        }
        const char *start = p;
        int result = BAD, separator = s->after_event;
        if (s->lost) {
            /* look on */
        } else if (separator && *p == ',') {
            s->after_event = 0;
            p++;
            continue;
        } else if (*p == ']') {
            int found = closes(s, p, end, what_follows);
            if (found < 0)
                return TK_MORE;
            if (found) {
                s->closed = 1;
                *used = p + 1 - text;
                return TK_END;
            }
        } else if (*p == '{') {
            result = parse_event(s, &p, end, &e);
            if (result == OK && separator) { /* a comma is missing */
                add_damage(s, D_SEPARATOR, base + (start - text));
                doubt(s, base + (start - text));
            }
            if (result == OK)
                result = take(s, &e, base + (start - text));
        } else if (!separator) { /* any other value is no event, and costs none */
            result = skip_value(&p, end);
            const char *next = after_space(p, end);
            if (result == OK && next == end)
                result = MORE;
            if (result == OK && *next != ',' && *next != ']')
                result = BAD;
            if (result == OK)
                add_damage(s, D_NOT_AN_EVENT, base + (start - text));
        }
        if (result == MORE && what_follows == GOES_ON)
            return TK_MORE;
        if (result == NO_MEMORY)
            return TK_NO_MEMORY;
        s->after_event = result == OK;
        if (result != OK) {
            s->after_event = separator; /* the same again with more text */
            p = start;
            int found = step_over(s, text, size, base, &p, what_follows, result == MORE);
            if (found != TK_GO_ON) {
                *used = p - text;
                return found;
            }
        }
    }
}

/* Where the events begin: 0 more text is needed, 1 found, 2 found and the root is a list, -1 none.
 * *at is behind the opening bracket. */
EXPORT int tk_find_events(const char *text, int64_t size, int64_t *at)
{
    const char *p = text, *end = text + size;
    if (size >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        p += 3;
    p = after_space(p, end);
    if (p == end)
        return 0;
    if (*p == '[') {
        *at = p + 1 - text;
        return 2;
    }
    if (*p != '{')
        return -1;
    int depth = 0, is_key = 0;
    for (; p < end; p++) {
        if (*p == '{' || *p == '[') {
            depth++;
            is_key = depth == 1;
        } else if (*p == '}' || *p == ']') {
            if (--depth == 0)
                return -1;
        } else if (*p == ',') {
            is_key = depth == 1;
        } else if (*p == '"') {
            const char *start = p + 1;
            for (p++; p < end && *p != '"'; p++)
                if (*p == '\\')
                    p++;
            if (p >= end)
                return 0;
            if (is_key && p - start == 11 && memcmp(start, "traceEvents", 11) == 0) {
                p = after_space(p + 1, end);
                if (p == end)
                    return 0;
                p = *p == ':' ? after_space(p + 1, end) : p;
                if (p == end)
                    return 0;
                if (*p != '[')
                    return -1;
                *at = p + 1 - text;
                return 1;
            }
            is_key = 0;
        }
    }
    return 0;
}

EXPORT scan *tk_new(int keep_args, int list_root, int64_t limit)
{
    static const size_t sizes[TABLES] = {
        sizeof(event_row), sizeof(detail_row), sizeof(comm_row), sizeof(python_row), sizeof(args_row),
        sizeof(memory_row), sizeof(flow_row), sizeof(meta_row), sizeof(damage_row)};
    scan *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    for (int i = 0; i < TABLES; i++)
        s->tables[i].size = sizes[i];
    s->open.size = sizeof(open_row);
    s->open_free = -1;
    s->keep_args = keep_args;
    s->list_root = list_root;
    s->limit = limit;
    set_keys(s);
    forget_last(s);
    return s;
}

EXPORT void tk_free(scan *s)
{
    if (!s)
        return;
    for (int i = 0; i < POOLS; i++)
        pool_free(&s->pools[i]);
    for (int i = 0; i < TABLES; i++)
        free(s->tables[i].rows);
    for (int i = 0; i < MAX_COLUMNS; i++) {
        free(s->out[i].data);
        free(s->out[i].valid);
    }
    for (int64_t i = 0; i < s->open.count; i++)
        free(((open_row *)s->open.rows)[i].args);
    free(s->open.rows);
    free(s->open_top);
    free(s->args);
    free(s->key);
    free(s->arg_counts);
    free(s->process_seen);
    free(s->order);
    free(s->numbers);
    free(s);
}

EXPORT void tk_close(scan *s) { close_open(s); }

/* Was the end of the array seen? */
EXPORT int tk_closed(const scan *s) { return s->closed; }

/* Did the file go on with the events of another process? */
EXPORT int tk_foreign(const scan *s) { return s->foreign; }
