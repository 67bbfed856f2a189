/* The array of events: one after another, and after a damage the next good one.
 *
 * After an error the scanner looks for the next place where an event can begin: a brace that is no
 * value of a key, from which a whole event with a phase can be read. So one bad byte costs one event in
 * any layout, and no newline or indent is relied on. */
#include <stdlib.h>
#include <string.h>

#include "scan.h"

enum { TK_MORE, TK_END, TK_FULL, TK_NO_MEMORY, TK_GO_ON };
enum { GOES_ON, ENDS, GIVE_UP }; /* what follows the text: more, nothing, or more than we wait for */

static int is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void doubt(scan *s, int64_t offset)
{
    if (s->in_doubt || !s->processes_seen)
        return;
    s->in_doubt = 1;
    s->doubt_offset = offset;
    s->doubt_events = 0;
    for (int i = 0; i < TABLES; i++)
        s->doubt_counts[i] = s->tables[i].count;
}

/* All since the damage, and all that follows, is of another process: counted, and left out. */
static void drop_doubtful(scan *s)
{
    for (int i = 0; i < TABLES; i++)
        if (i != T_DAMAGE)
            s->tables[i].count = s->doubt_counts[i];
    s->foreign = 1;
    for (int64_t i = 0; i <= s->doubt_events; i++)
        add_damage(s, D_FOREIGN, s->doubt_offset);
}

static int64_t largest_table(const scan *s)
{
    int64_t largest = 0;
    for (int i = 0; i < T_DAMAGE; i++)
        if (s->tables[i].count > largest)
            largest = s->tables[i].count;
    return largest;
}

/* Could an event begin at this brace? Not as the value of a key, and a key must follow. */
static int may_begin(const char *text, const char *p, const char *end)
{
    const char *before = p;
    while (before > text && is_space(before[-1]))
        before--;
    if (before > text && before[-1] == ':')
        return 0;
    p = after_space(p + 1, end);
    return p == end || *p == '"';
}

/* The next good event after the damaged one at `start`; NULL where there is none in this text. */
static const char *next_good(scan *s, const char *start, const char *end, int what_follows, int *wait)
{
    event e;
    int64_t budget = (end - start) * 8 + (1 << 16); /* nested lies must not cost the square */
    *wait = 0;
    for (const char *p = start + 1; p < end && budget > 0; p++) {
        p = memchr(p, '{', (size_t)(end - p));
        if (!p)
            break;
        if (!may_begin(start, p, end))
            continue;
        const char *q = p;
        int result = parse_event(s, &q, end, &e);
        budget -= q - p;
        if (result == OK && HAS(&e, F_PH) && e.field[F_PH].size == 1)
            return p;
        if (result == MORE && what_follows == GOES_ON) {
            *wait = 1;
            return NULL;
        }
    }
    return NULL;
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

/* The end of the events behind a damage that no good event follows, where the rest of the file is
 * whole; NULL where there is none. */
static const char *last_bracket(const scan *s, const char *start, const char *end)
{
    int64_t budget = (end - start) * 8 + (1 << 16);
    for (const char *p = start; p < end && budget > 0; p++) {
        p = memchr(p, ']', (size_t)(end - p));
        if (!p)
            break;
        const char *before = p, *rest = p + 1;
        while (before > start && is_space(before[-1]))
            before--;
        if (before == start || before[-1] != '}')
            continue; /* of the args of an event */
        int whole = s->list_root || skip_members(&rest, end) == OK;
        budget -= rest - p;
        if (whole && after_space(rest, end) == end)
            return p;
    }
    return NULL;
}

/* Count the events that a damaged stretch holds, each where it seems to begin. The last one is of
 * the given kind. */
static void add_bad(scan *s, const char *text, int64_t base, const char *start, const char *upto,
                    int last_kind)
{
    const char *last = s->lost ? NULL : start;
    for (const char *p = start + 1; p < upto; p++) {
        p = memchr(p, '{', (size_t)(upto - p));
        if (!p)
            break;
        if (!may_begin(start, p, upto) || !is_event_key(s, after_space(p + 1, upto), upto))
            continue;
        if (last)
            add_damage(s, D_BAD_EVENT, base + (last - text));
        last = p;
    }
    if (!last && last_kind == D_TRUNCATED)
        last = upto;
    if (last)
        add_damage(s, last_kind, base + (last - text));
}

/* Step over a damage that begins at *at: to the next good event, the end of the events, or as far as
 * the text can be settled. An event that is cut has no end in the text. */
static int step_over(scan *s, const char *text, int64_t size, int64_t base, const char **at,
                     int what_follows, int is_cut)
{
    const char *start = *at, *end = text + size;
    int wait;
    const char *good = next_good(s, start, end, what_follows, &wait), *bracket = NULL;
    if (!good && what_follows == GOES_ON && (wait || !s->lost))
        return TK_MORE; /* the damage is met again with more text */
    if (!good && what_follows == ENDS && !is_cut)
        bracket = last_bracket(s, start, end);
    const char *upto = good ? good : bracket;
    if (!upto) {
        /* A brace near the end may begin an event that the next text completes. */
        upto = what_follows == ENDS ? end : end - 1024;
        if (upto < start)
            upto = start;
    }
    int cut = !good && !bracket && what_follows == ENDS;
    add_bad(s, text, base, start, upto, cut ? D_TRUNCATED : D_BAD_EVENT);
    doubt(s, base + (start - text));
    s->lost = !good;
    s->after_event = 0;
    *at = upto;
    if (bracket) {
        s->closed = 1;
        ++*at;
    }
    return good ? TK_GO_ON : what_follows == ENDS ? TK_END : TK_MORE;
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
        if (largest_table(s) >= (s->in_doubt ? s->limit * 4 : s->limit))
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
    static const size_t sizes[TABLES] = {sizeof(event_row), sizeof(comm_row), sizeof(python_row),
                                         sizeof(args_row), sizeof(memory_row), sizeof(flow_row),
                                         sizeof(meta_row), sizeof(damage_row)};
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
