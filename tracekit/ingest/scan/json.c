/* Values of JSON, strictly, except for what writers of traces get wrong without losing an event:
 * control characters, bytes that are no UTF-8, and NaN or Infinity for a number. */
#include <string.h>

#include "scan.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The length of the UTF-8 character at p: 0 where it is none, -1 where the text ends within it. */
static int character(const unsigned char *p, const unsigned char *end)
{
    int size = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    for (int i = 1; i < size; i++) {
        if (p + i == end)
            return -1;
        unsigned low = i > 1 ? 0x80 : p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
        unsigned high = i > 1 ? 0xBF : p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
        if (p[i] < low || p[i] > high)
            return 0;
    }
    return size;
}

/* How many of the next 8 bytes stand before one that ends a string or has a meaning within it, or is
 * no ASCII; 8 where there is none. (The lowest flag is exact, and it is the one that counts.) */
static int plain_bytes(const char *p)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t word;
    memcpy(&word, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    uint64_t quote = word ^ (ones * '"'), escape = word ^ (ones * '\\');
    uint64_t found = (((quote - ones) & ~quote) | ((escape - ones) & ~escape)
                      | ((word - ones * 0x20) & ~word) | word) & tops;
    return found ? __builtin_ctzll(found) >> 3 : 8;
}

int read_string(cursor *c, span *out)
{
    const char *p = ++c->p, *end = c->end;
    out->at = p;
    out->kind = STRING;
    out->flags = 0;
    for (;;) {
        int plain = 8;
        while (end - p >= 8 && plain == 8)
            p += plain = plain_bytes(p);
        if (p >= end)
            return MORE;
        unsigned char byte = (unsigned char)*p;
        if (byte == '"')
            break;
        if (byte == '\\') {
            if (end - p < 2)
                return MORE;
            out->flags |= ESCAPED;
            if (!strchr("\"\\/bfnrtu", p[1]) || !p[1]) {
                out->flags |= DAMAGED;
                p++;
            } else {
                p += 2;
            }
        } else if (byte < 0x20) {
            out->flags |= DAMAGED;
            p++;
        } else if (byte < 0x80) {
            p++;
        } else {
            int size = character((const unsigned char *)p, (const unsigned char *)end);
            if (size < 0)
                return MORE;
            if (size == 0)
                out->flags |= DAMAGED;
            p += size ? size : 1;
        }
    }
    if (p - out->at > INT32_MAX)
        return BAD;
    out->size = (int32_t)(p - out->at);
    c->repaired |= out->flags & DAMAGED;
    c->p = p + 1;
    return OK;
}

static const char *after_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Digits from p on, of which there must be one: behind them on OK. */
static int digits(const char **p, const char *end)
{
    const char *from = *p;
    *p = after_digits(from, end);
    return from == end ? MORE : *p == from ? BAD : OK;
}

static int number(cursor *c, span *out)
{
    const char *p = c->p, *end = c->end;
    int found;
    *out = (span){p, 0, NUMBER, 0};
    p += *p == '-';
    if (p < end && *p == '0')
        p++;
    else if ((found = digits(&p, end)) != OK)
        return found;
    if (p < end && *p == '.') {
        p++;
        if ((found = digits(&p, end)) != OK)
            return found;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        if ((found = digits(&p, end)) != OK)
            return found;
    }
    if (p == end) /* more digits may follow */
        return MORE;
    if (p - out->at > INT32_MAX)
        return BAD;
    out->size = (int32_t)(p - out->at);
    c->p = p;
    return OK;
}

static int literal(cursor *c, span *out)
{
    /* Only the first three are JSON. */
    static const char *words[] = {"true",     "false", "null", "NaN",  "nan", "Infinity", "-Infinity",
                                  "infinity", "inf",   "-inf", "-nan", "Inf", "-Inf", "-NaN"};
    size_t left = (size_t)(c->end - c->p), best = 0;
    for (size_t i = 0; i < COUNT(words); i++) {
        size_t size = strlen(words[i]);
        if (memcmp(words[i], c->p, size < left ? size : left) != 0)
            continue;
        if (size > left)
            return MORE;
        if (size > best) { /* "inf" begins "infinity" */
            best = size;
            *out = (span){c->p, (int32_t)size, LITERAL, i > 2 ? DAMAGED : 0};
        }
    }
    if (!best)
        return BAD;
    c->repaired |= out->flags;
    c->p += best;
    return OK;
}

static int skip_key(cursor *c)
{
    span ignored;
    if (c->p == c->end)
        return MORE;
    if (*c->p != '"')
        return BAD;
    int found = read_string(c, &ignored);
    return found == OK ? skip_colon(c) : found;
}

/* An object or an array of no interest, as one span. */
static int container(cursor *c, span *out, int depth)
{
    char close = *c->p == '{' ? '}' : ']';
    const char *start = c->p;
    span ignored;
    int repaired = c->repaired;
    if (depth >= MAX_DEPTH)
        return BAD;
    c->repaired = 0;
    int found = first_value(c, close);
    while (found == OK) {
        if (close == '}' && (found = skip_key(c)) != OK)
            break;
        if ((found = read_value(c, &ignored, depth + 1)) == OK)
            found = next_value(c, close);
    }
    if (found != CLOSED)
        return found; /* and the event with it */
    if (c->p - start > INT32_MAX)
        return BAD;
    *out = (span){start, (int32_t)(c->p - start), CONTAINER, c->repaired ? DAMAGED : 0};
    c->repaired |= repaired;
    return OK;
}

int read_value(cursor *c, span *out, int depth)
{
    if (c->p == c->end)
        return MORE;
    char first = *c->p;
    if (first == '"')
        return read_string(c, out);
    if (first == '{' || first == '[')
        return container(c, out, depth);
    if (first >= '0' && first <= '9')
        return number(c, out);
    if (first == '-') {
        if (c->end - c->p < 2)
            return MORE;
        return c->p[1] >= '0' && c->p[1] <= '9' ? number(c, out) : literal(c, out);
    }
    return literal(c, out);
}

int skip_value(const char **at, const char *end)
{
    cursor c = {*at, end, 0};
    span ignored;
    int result = read_value(&c, &ignored, 1);
    *at = c.p;
    return result;
}

int skip_members(const char **at, const char *end)
{
    cursor c = {*at, end, 0};
    span ignored;
    int found;
    while ((found = next_value(&c, '}')) == OK) {
        if ((found = skip_key(&c)) != OK || (found = read_value(&c, &ignored, 1)) != OK)
            break;
    }
    *at = c.p;
    return found == CLOSED ? OK : found;
}
