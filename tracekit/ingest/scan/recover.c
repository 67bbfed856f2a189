/* After a damage: the next good event, or the end of the events.
 *
 * The scanner looks for the next place where an event can begin: a brace that is no value of a key, from
 * which a whole event with a phase can be read. So one bad byte costs one event in any layout, and no
 * newline or indent is relied on. */
#include <string.h>

#include "scan.h"

void doubt(scan *s, int64_t offset)
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
void drop_doubtful(scan *s)
{
    for (int i = 0; i < TABLES; i++)
        if (i != T_DAMAGE)
            s->tables[i].count = s->doubt_counts[i];
    s->foreign = 1;
    for (int64_t i = 0; i <= s->doubt_events; i++)
        add_damage(s, D_FOREIGN, s->doubt_offset);
}

/* Could an event begin at this brace? Not as the value of a key, and a key must follow. */
static int may_begin(const char *text, const char *p, const char *end)
{
    const char *before = p;
    while (before > text && after_space(before - 1, before) == before)
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
        while (before > start && after_space(before - 1, before) == before)
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
int step_over(scan *s, const char *text, int64_t size, int64_t base, const char **at,
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
