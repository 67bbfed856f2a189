/* One event: strict JSON, except for what writers of traces get wrong without losing an event:
 * control characters, bytes that are no UTF-8, and NaN or Infinity for a number. */
#include <string.h>

#include "scan.h"

typedef struct {
    const char *p, *end;
    int repaired;
} cursor;

#define K(text, field) {text, sizeof(text) - 1, field}
static const struct {
    const char *key;
    int32_t size;
    uint8_t field;
} TOP[] = {
    K("ph", F_PH), K("cat", F_CAT), K("name", F_NAME), K("pid", F_PID), K("tid", F_TID),
    K("ts", F_TS), K("dur", F_DUR), K("id", F_ID), K("args", F_ARGS),
}, ARGS[] = {
    K("correlation", F_CORRELATION), K("External id", F_EXTERNAL), K("external id", F_EXTERNAL_OLD),
    K("device", F_DEVICE), K("stream", F_STREAM), K("sycl queue", F_QUEUE), K("bytes", F_BYTES),
    K("name", F_ARG_NAME), K("Input Dims", F_INPUT_DIMS), K("Input type", F_INPUT_TYPES),
    K("Concrete Inputs", F_CONCRETE), K("Sequence number", F_SEQUENCE),
    K("Fwd thread id", F_FORWARD_THREAD), K("Collective name", F_OPERATION),
    K("Process Group Name", F_GROUP), K("Process Group Description", F_GROUP_DESCRIPTION),
    K("Process Group Ranks", F_GROUP_RANKS), K("Group size", F_GROUP_SIZE), K("Seq", F_SEQ),
    K("In msg nelems", F_IN_ELEMS), K("Out msg nelems", F_OUT_ELEMS), K("dtype", F_DTYPE),
    K("Src Rank", F_SRC), K("Dst Rank", F_DST), K("Python id", F_PYTHON_ID),
    K("Python parent id", F_PYTHON_PARENT), K("Python module id", F_PYTHON_MODULE),
    K("Device Type", F_DEVICE_TYPE), K("Device Id", F_DEVICE_ID), K("Addr", F_ADDRESS),
    K("Bytes", F_MEMORY_BYTES), K("Total Allocated", F_ALLOCATED), K("Total Reserved", F_RESERVED),
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static unsigned key_hash(const char *key, int32_t size)
{
    return ((unsigned)size * 11u + (unsigned char)key[0] * 3u + (unsigned char)key[size - 1] * 7u
            + (unsigned char)key[size / 2] * 5u) & 0xFF;
}

static void set_key(uint8_t *slots, const char *key, size_t index)
{
    unsigned at = key_hash(key, (int32_t)strlen(key));
    while (slots[at])
        at = (at + 1) & 0xFF;
    slots[at] = (uint8_t)(index + 1);
}

void set_keys(scan *s)
{
    for (size_t i = 0; i < COUNT(TOP); i++)
        set_key(s->keys, TOP[i].key, i);
    for (size_t i = 0; i < COUNT(ARGS); i++)
        set_key(s->arg_keys, ARGS[i].key, i);
}

static int field_of(const scan *s, const span *key, int of_args)
{
    if (key->size == 0)
        return -1;
    const uint8_t *slots = of_args ? s->arg_keys : s->keys;
    for (unsigned at = key_hash(key->at, key->size); slots[at]; at = (at + 1) & 0xFF) {
        int i = slots[at] - 1;
        const char *known = of_args ? ARGS[i].key : TOP[i].key;
        int32_t size = of_args ? ARGS[i].size : TOP[i].size;
        if (size == key->size && memcmp(known, key->at, (size_t)size) == 0)
            return of_args ? ARGS[i].field : TOP[i].field;
    }
    return -1;
}

static inline void skip_space(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
}

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

/* A string, its opening quote at c->p. */
static int string(cursor *c, span *out)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    const char *p = ++c->p, *end = c->end;
    out->at = p;
    out->kind = STRING;
    out->flags = 0;
    for (;;) {
        while (end - p >= 8) { /* eight bytes that hold nothing special */
            uint64_t word;
            memcpy(&word, p, 8);
            uint64_t quote = word ^ (ones * '"'), escape = word ^ (ones * '\\');
            if ((((quote - ones) & ~quote) | ((escape - ones) & ~escape) | (word - ones * 0x20) | word)
                & tops)
                break;
            p += 8;
        }
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

static int is_digit(const cursor *c) { return c->p < c->end && *c->p >= '0' && *c->p <= '9'; }

static int number(cursor *c, span *out)
{
    out->at = c->p;
    out->kind = NUMBER;
    out->flags = 0;
    if (*c->p == '-')
        c->p++;
    if (c->p == c->end)
        return MORE;
    if (!is_digit(c))
        return BAD;
    if (*c->p == '0')
        c->p++;
    else
        while (is_digit(c))
            c->p++;
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (c->p < c->end && !is_digit(c))
            return BAD;
        while (is_digit(c))
            c->p++;
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        c->p++;
        if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
            c->p++;
        if (c->p < c->end && !is_digit(c))
            return BAD;
        while (is_digit(c))
            c->p++;
    }
    if (c->p == c->end) /* more digits may follow */
        return MORE;
    if (c->p - out->at > INT32_MAX)
        return BAD;
    out->size = (int32_t)(c->p - out->at);
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

static int value(cursor *c, span *out, int depth);

/* An object or an array of no interest, as one span. */
static int container(cursor *c, span *out, int depth)
{
    char close = *c->p == '{' ? '}' : ']';
    const char *start = c->p++;
    span ignored;
    if (depth >= MAX_DEPTH)
        return BAD;
    skip_space(c);
    for (int first = 1;; first = 0) {
        if (c->p == c->end)
            return MORE;
        if (first && *c->p == close)
            break;
        int found;
        if (close == '}') {
            if (*c->p != '"')
                return BAD;
            if ((found = string(c, &ignored)) != OK)
                return found;
            skip_space(c);
            if (c->p == c->end)
                return MORE;
            if (*c->p++ != ':')
                return BAD;
            skip_space(c);
        }
        if ((found = value(c, &ignored, depth + 1)) != OK)
            return found;
        skip_space(c);
        if (c->p == c->end)
            return MORE;
        if (*c->p == close)
            break;
        if (*c->p++ != ',')
            return BAD;
        skip_space(c);
    }
    c->p++;
    if (c->p - start > INT32_MAX)
        return BAD;
    *out = (span){start, (int32_t)(c->p - start), CONTAINER, 0};
    return OK;
}

static int value(cursor *c, span *out, int depth)
{
    if (c->p == c->end)
        return MORE;
    char first = *c->p;
    if (first == '"')
        return string(c, out);
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

/* Which keys of args no column holds is counted when the event is taken. */
static int note_unknown(scan *s, const span *key, event *out)
{
    if (out->unknown_count == UNKNOWN_KEYS)
        return OK;
    int32_t id = pool_add(&s->pools[P_ARG], key->at, key->size, key->flags);
    if (id < 0)
        return NO_MEMORY;
    out->unknown[out->unknown_count++] = id;
    return OK;
}

/* The members of an event, or of its args. */
static int members(scan *s, cursor *c, event *out, int of_args)
{
    span key, found;
    c->p++;
    skip_space(c);
    for (int first = 1;; first = 0) {
        if (c->p == c->end)
            return MORE;
        if (first && *c->p == '}')
            break;
        if (*c->p != '"')
            return BAD;
        int result = string(c, &key);
        if (result != OK)
            return result;
        skip_space(c);
        if (c->p == c->end)
            return MORE;
        if (*c->p++ != ':')
            return BAD;
        skip_space(c);
        int field = field_of(s, &key, of_args);
        if (field == F_ARGS && c->p < c->end && *c->p == '{') {
            const char *start = c->p;
            result = members(s, c, out, 1);
            if (result == OK && c->p - start > INT32_MAX)
                result = BAD;
            found = (span){start, (int32_t)(c->p - start), CONTAINER, 0};
        } else {
            result = value(c, &found, of_args ? 2 : 1);
            if (result == OK && of_args && field < 0)
                result = note_unknown(s, &key, out);
        }
        if (result != OK)
            return result;
        int null = found.kind == LITERAL && found.at[0] == 'n' && found.at[1] == 'u';
        if (field >= 0 && null)
            out->has &= ~((uint64_t)1 << field);
        else if (field >= 0) {
            out->has |= (uint64_t)1 << field;
            out->field[field] = found;
        }
        skip_space(c);
        if (c->p == c->end)
            return MORE;
        if (*c->p == '}')
            break;
        if (*c->p++ != ',')
            return BAD;
        skip_space(c);
    }
    c->p++;
    return OK;
}

int parse_event(scan *s, const char **at, const char *end, event *out)
{
    cursor c = {*at, end, 0};
    out->has = 0;
    out->unknown_count = 0;
    int result = members(s, &c, out, 0);
    cursor inner = {*at + 1, end, 0};
    skip_space(&inner);
    out->is_empty = result == OK && inner.p + 1 == c.p;
    out->repaired = c.repaired;
    *at = c.p;
    return result;
}

int skip_value(const char **at, const char *end)
{
    cursor c = {*at, end, 0};
    span ignored;
    int result = value(&c, &ignored, 1);
    *at = c.p;
    return result;
}

int skip_members(const char **at, const char *end)
{
    cursor c = {*at, end, 0};
    span ignored;
    int result = OK;
    for (;;) {
        skip_space(&c);
        *at = c.p;
        if (c.p == end)
            return MORE;
        if (*c.p == '}') {
            ++*at;
            return OK;
        }
        if (*c.p++ != ',')
            return BAD;
        skip_space(&c);
        if (c.p == end)
            return MORE;
        if (*c.p != '"')
            return BAD;
        if ((result = string(&c, &ignored)) != OK)
            return result;
        skip_space(&c);
        if (c.p == end)
            return MORE;
        if (*c.p++ != ':')
            return BAD;
        skip_space(&c);
        if ((result = value(&c, &ignored, 1)) != OK)
            return result;
    }
}

int is_event_key(const scan *s, const char *p, const char *end)
{
    cursor c = {p, end, 0};
    span key;
    return end - p > 1 && *p == '"' && string(&c, &key) == OK && field_of(s, &key, 0) >= 0;
}
