/* One event: its members, and those of its args, as spans of the text. */
#include <string.h>

#include "scan.h"

#define K(field, text) [field] = {text, sizeof(text) - 1}
static const struct {
    const char *text;
    int32_t size;
} KEYS[FIELDS] = {
    K(F_PH, "ph"), K(F_CAT, "cat"), K(F_NAME, "name"), K(F_PID, "pid"), K(F_TID, "tid"),
    K(F_TS, "ts"), K(F_DUR, "dur"), K(F_ID, "id"), K(F_ARGS, "args"),
    K(F_CORRELATION, "correlation"), K(F_EXTERNAL, "External id"),
    K(F_EXTERNAL_OLD, "external id"), K(F_DEVICE, "device"), K(F_STREAM, "stream"),
    K(F_QUEUE, "sycl queue"), K(F_BYTES, "bytes"), K(F_ARG_NAME, "name"),
    K(F_INPUT_DIMS, "Input Dims"), K(F_INPUT_TYPES, "Input type"),
    K(F_CONCRETE, "Concrete Inputs"), K(F_SEQUENCE, "Sequence number"),
    K(F_FORWARD_THREAD, "Fwd thread id"), K(F_OPERATION, "Collective name"),
    K(F_GROUP, "Process Group Name"), K(F_GROUP_DESCRIPTION, "Process Group Description"),
    K(F_GROUP_RANKS, "Process Group Ranks"), K(F_GROUP_SIZE, "Group size"), K(F_SEQ, "Seq"),
    K(F_IN_ELEMS, "In msg nelems"), K(F_OUT_ELEMS, "Out msg nelems"), K(F_DTYPE, "dtype"),
    K(F_SRC, "Src Rank"), K(F_DST, "Dst Rank"), K(F_PYTHON_ID, "Python id"),
    K(F_PYTHON_PARENT, "Python parent id"), K(F_PYTHON_MODULE, "Python module id"),
    K(F_DEVICE_TYPE, "Device Type"), K(F_DEVICE_ID, "Device Id"), K(F_ADDRESS, "Addr"),
    K(F_MEMORY_BYTES, "Bytes"), K(F_ALLOCATED, "Total Allocated"), K(F_RESERVED, "Total Reserved"),
};

/* What a key was: a field, or one of args that no column holds and that has a small number, or another
 * one of the same object. The last two stand for the brace before the first key. */
enum { LEARNED = FIELDS, OTHER = LEARNED + LEARNED_KEYS, OTHER_ARG, FIRST, FIRST_ARG };
_Static_assert(FIRST_ARG < KEY_PLACES, "each key needs a place of its own");

static unsigned key_hash(const char *key, int32_t size)
{
    return ((unsigned)size * 11u + (unsigned char)key[0] * 3u + (unsigned char)key[size - 1] * 7u
            + (unsigned char)key[size / 2] * 5u) & 0xFF;
}

/* A key that is written with escapes, as far as it could be one of ours. */
static int unescape(span *key, char *out)
{
    const char *p = key->at, *end = p + key->size;
    int size = 0;
    for (; p < end && size < LONGEST_KEY; size++) {
        if (*p != '\\') {
            out[size] = *p++;
        } else if (end - p >= 6 && p[1] == 'u' && p[2] == '0' && p[3] == '0') {
            int high = hex_digit(p[4]), low = hex_digit(p[5]);
            if (high < 0 || low < 0 || high > 7)
                return 0;
            out[size] = (char)(high << 4 | low);
            p += 6;
        } else {
            return 0;
        }
    }
    key->at = out;
    key->size = size;
    return p == end;
}

static int field_of(const scan *s, const span *written, int of_args)
{
    char plain[LONGEST_KEY];
    span unescaped = *written;
    const span *key = written;
    if (written->flags == ESCAPED && unescape(&unescaped, plain))
        key = &unescaped;
    if (key->size == 0)
        return -1;
    const uint8_t *slots = of_args ? s->arg_keys : s->keys;
    for (unsigned at = key_hash(key->at, key->size); slots[at]; at = (at + 1) & 0xFF) {
        int field = slots[at] - 1;
        if (KEYS[field].size == key->size && memcmp(KEYS[field].text, key->at, (size_t)key->size) == 0)
            return field;
    }
    return -1;
}

static const char *key_text(const scan *s, int key, int64_t *size)
{
    if (key < FIELDS) {
        *size = KEYS[key].size;
        return KEYS[key].text;
    }
    const pool *args = &s->pools[P_ARG];
    *size = args->starts[key - LEARNED + 1] - args->starts[key - LEARNED];
    return args->bytes + args->starts[key - LEARNED];
}

static void set_head(scan *s, int key)
{
    int64_t size;
    const char *text = key_text(s, key, &size);
    unsigned char head[8] = {'"'}, mask[8] = {0};
    for (int i = 1; i < 8 && i <= size + 1; i++)
        head[i] = i <= size ? (unsigned char)text[i - 1] : '"';
    for (int i = 0; i < 8 && i < size + 2; i++)
        mask[i] = 0xFF;
    memcpy(&s->heads[key].bytes, head, 8);
    memcpy(&s->heads[key].mask, mask, 8);
}

void set_keys(scan *s)
{
    for (int field = 0; field < FIELDS; field++) {
        uint8_t *slots = field > F_ARGS ? s->arg_keys : s->keys;
        unsigned at = key_hash(KEYS[field].text, KEYS[field].size);
        while (slots[at])
            at = (at + 1) & 0xFF;
        slots[at] = (uint8_t)(field + 1);
        set_head(s, field);
    }
    memset(s->next_key, OTHER, sizeof s->next_key);
}

/* Writers keep an order: is the key at p the one that came after the same key last time? Its size with
 * the quotes, or 0. */
static int64_t expected_size(const scan *s, int expected, const char *p, const char *end)
{
    uint64_t word;
    if (expected >= OTHER || end - p < 8)
        return 0;
    memcpy(&word, p, 8);
    if ((word ^ s->heads[expected].bytes) & s->heads[expected].mask)
        return 0;
    int64_t size;
    const char *text = key_text(s, expected, &size);
    if (size <= 6)
        return size + 2;
    return end - p > size + 2 && p[size + 1] == '"' && memcmp(p + 8, text + 7, (size_t)size - 7) == 0
        ? size + 2 : 0;
}

int32_t other_args(scan *s)
{
    static const char others[] = "(other keys)";
    return pool_add(&s->pools[P_ARG], others, sizeof others - 1, 0);
}

/* The number of a key that no column holds. A file may hold any number of them. */
static int32_t arg_id(scan *s, const span *key)
{
    pool *args = &s->pools[P_ARG];
    if (args->count < MOST_ARG_KEYS && args->used + key->size < MOST_ARG_BYTES)
        return pool_add(args, key->at, key->size, key->flags);
    return other_args(s);
}

/* A key and the colon behind it. *key is what it is, and before that the key before it; *arg is its
 * number among the keys that no column holds. */
static int read_key(scan *s, cursor *c, int of_args, int *key, int32_t *arg)
{
    int before = *key, expected = s->next_key[before];
    if (c->p == c->end)
        return MORE;
    if (*c->p != '"')
        return BAD;
    int64_t size = expected_size(s, expected, c->p, c->end);
    if (size) {
        c->p += size;
        *key = expected;
        *arg = expected - LEARNED;
    } else {
        span found;
        int result = read_string(c, &found);
        if (result != OK)
            return result;
        *key = field_of(s, &found, of_args);
        if (*key < 0 && of_args) {
            if ((*arg = arg_id(s, &found)) < 0)
                return NO_MEMORY;
            *key = *arg < LEARNED_KEYS && !found.flags ? LEARNED + *arg : OTHER_ARG;
            if (*key != OTHER_ARG)
                set_head(s, *key);
        } else if (*key < 0) {
            *key = OTHER;
        }
        s->next_key[before] = (uint8_t)*key;
    }
    return skip_colon(c);
}

static int members(scan *s, cursor *c, event *out, int of_args)
{
    int key = of_args ? FIRST_ARG : FIRST;
    int32_t arg = 0;
    span found;
    int result = first_value(c, '}');
    for (; result == OK; result = next_value(c, '}')) {
        if ((result = read_key(s, c, of_args, &key, &arg)) != OK)
            return result;
        const char *start = c->p;
        if (key == F_ARGS && start < c->end && *start == '{') {
            result = members(s, c, out, 1);
            if (result == OK && c->p - start > INT32_MAX)
                result = BAD;
            found = (span){start, (int32_t)(c->p - start), CONTAINER, 0};
        } else {
            result = read_value(c, &found, of_args ? 2 : 1);
        }
        if (result != OK)
            return result;
        if (key >= FIELDS) {
            /* Which keys of args no column holds is counted when the event is taken. */
            if (of_args && out->unknown_count < UNKNOWN_KEYS)
                out->unknown[out->unknown_count++] = arg;
            else if (of_args)
                out->uncounted++;
        } else if (found.kind == LITERAL && found.at[0] == 'n' && found.at[1] == 'u') {
            out->has &= ~((uint64_t)1 << key); /* null */
        } else {
            out->has |= (uint64_t)1 << key;
            out->field[key] = found;
        }
    }
    return result == CLOSED ? OK : result;
}

int parse_args(scan *s, const char *text, int32_t size, event *out)
{
    cursor c = {text, text + size, 0};
    out->has = 0;
    out->unknown_count = out->uncounted = 0;
    int result = members(s, &c, out, 1);
    out->has |= (uint64_t)1 << F_ARGS;
    out->field[F_ARGS] = (span){text, size, CONTAINER, 0};
    return result;
}

int parse_event(scan *s, const char **at, const char *end, event *out)
{
    cursor c = {*at, end, 0};
    out->has = 0;
    out->unknown_count = out->uncounted = 0;
    int result = members(s, &c, out, 0);
    cursor inner = {*at + 1, end, 0};
    skip_space(&inner);
    out->is_empty = result == OK && inner.p + 1 == c.p;
    out->repaired = c.repaired;
    *at = c.p;
    return result;
}

int is_event_key(const scan *s, const char *p, const char *end)
{
    cursor c = {p, end, 0};
    span key;
    return end - p > 1 && *p == '"' && read_string(&c, &key) == OK && field_of(s, &key, 0) >= 0;
}
