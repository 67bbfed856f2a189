/* The scanner of trace files: JSON text in, columns out.
 *
 * Kineto traces reach gigabytes, so the bytes are parsed once, straight into the rows that the
 * store keeps. The scanner knows JSON and which keys of an event are kept; what the events mean is
 * decided in SQL. Input is hostile: every read is bounded by the end of the text, nesting and
 * retries have limits, and numbers that do not fit become missing.
 *
 *   pool.c    strings, each once
 *   number.c  times to the nanosecond, whole numbers
 *   json.c    values of JSON
 *   event.c   one event: its known keys as spans of the text
 *   fields.c  what the fields of an event hold
 *   rows.c    events to rows of the tables
 *   slices.c  pairs of a B and an E
 *   details.c what stands beside an event
 *   scan.c    the array of events
 *   recover.c after a damage: the next good event
 *   order.c   where the rows of events lie, and their numbers
 *   flush.c   rows to columns
 */
#ifndef TRACEKIT_SCAN_H
#define TRACEKIT_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEPTH 64      /* nested values in one event */
#define NAMED_PLACES 20   /* damages of a kind that keep their own place */
#define UNKNOWN_KEYS 64    /* keys of one event that no column holds */
#define LEARNED_KEYS 64    /* keys that no column holds and that are expected in their place */
#define KEY_PLACES 128     /* fields, learned keys and a few more */
#define MOST_ARG_KEYS (1 << 16) /* different keys that no column holds, and their bytes */
#define MOST_ARG_BYTES (1 << 20)
#define LONGEST_KEY 32
#define BATCH_BYTES (16 << 20) /* of strings and args, beyond which a batch is full */
/* Beyond any clock: a time, its base (less than 3 * 2^60, see header.py) and a duration have a sum. */
#define LARGEST_TIME_NS (((int64_t)1 << 62) - 1)
#define LARGEST_DURATION_NS ((int64_t)1 << 60)
#define MISSING INT64_MIN /* no value */

#define MAX_COLUMNS 64

enum { OK, MORE, BAD, NO_MEMORY, FOREIGN, CLOSED };

/* Keys of an event, then keys of its args. */
enum field {
    F_PH, F_CAT, F_NAME, F_PID, F_TID, F_TS, F_DUR, F_ID, F_ARGS,
    F_CORRELATION, F_EXTERNAL, F_EXTERNAL_OLD, F_DEVICE, F_STREAM, F_QUEUE, F_BYTES, F_ARG_NAME,
    F_INPUT_DIMS, F_INPUT_TYPES, F_CONCRETE, F_SEQUENCE, F_FORWARD_THREAD,
    F_OPERATION, F_GROUP, F_GROUP_DESCRIPTION, F_GROUP_RANKS, F_GROUP_SIZE, F_SEQ, F_IN_ELEMS,
    F_OUT_ELEMS, F_DTYPE, F_SRC, F_DST,
    F_PYTHON_ID, F_PYTHON_PARENT, F_PYTHON_MODULE,
    F_DEVICE_TYPE, F_DEVICE_ID, F_ADDRESS, F_MEMORY_BYTES, F_ALLOCATED, F_RESERVED,
    FIELDS
};

enum kind { STRING = 1, NUMBER, LITERAL, CONTAINER };
enum { ESCAPED = 1, DAMAGED = 2 }; /* flags of a string */

/* A value as it stands in the text; a string without its quotes. */
typedef struct {
    const char *at;
    int32_t size;
    uint8_t kind, flags;
} span;

/* One event of the text: the spans of the keys that it has. */
typedef struct {
    uint64_t has;
    span field[FIELDS];
    int32_t unknown[UNKNOWN_KEYS], unknown_count, uncounted;
    int is_empty; /* {} */
    int repaired; /* it holds bytes that JSON forbids */
} event;

#define HAS(e, f) (((e)->has >> (f)) & 1)

/* Strings by number, in the order of their first appearance. */
typedef struct {
    char *bytes;
    int64_t used, room;
    int64_t *starts; /* count + 1 of them */
    uint32_t *hashes;
    uint8_t *flags;
    int32_t *slots;
    int32_t count, capacity;
    uint32_t mask;
} pool;

enum { P_NAME, P_CATEGORY, P_PROCESS, P_THREAD, P_SIGNATURE, P_TEXT, P_TRACK, P_ARG, POOLS };

int32_t pool_add(pool *p, const char *text, int32_t size, uint8_t flags); /* -1: no memory */
void pool_clear(pool *p);
void pool_free(pool *p);

int64_t to_ns(const span *s, int64_t largest); /* microseconds to ns, or MISSING */
int64_t to_whole(const span *s);               /* a whole number, or MISSING */
int64_t to_identity(const span *s);            /* the same, where 64 bits stand for an identity */

/* The first 8 bytes of a key with its quotes, where it has as many; `mask` says which count. */
typedef struct { uint64_t bytes, mask; } key_head;

static inline int hex_digit(char c)
{
    int low = c | 32;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

typedef struct scan scan;

/* Where in the text we are; `repaired`: something was read that JSON forbids. */
typedef struct {
    const char *p, *end;
    int repaired;
} cursor;

/* OK, MORE (the text ends within it) or BAD; the cursor is behind it on OK. */
int read_string(cursor *c, span *out); /* its opening quote at c->p */
int read_value(cursor *c, span *out, int depth);

static inline const char *after_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

static inline void skip_space(cursor *c) { c->p = after_space(c->p, c->end); }

static inline int skip_colon(cursor *c)
{
    skip_space(c);
    if (c->p == c->end)
        return MORE;
    if (*c->p++ != ':')
        return BAD;
    skip_space(c);
    return OK;
}

/* From a value, or from what opens its container, to the next value; CLOSED behind the container. */
static inline int next_value(cursor *c, char close)
{
    skip_space(c);
    if (c->p == c->end)
        return MORE;
    if (*c->p == close) {
        c->p++;
        return CLOSED;
    }
    if (*c->p++ != ',')
        return BAD;
    skip_space(c);
    return OK;
}

static inline int first_value(cursor *c, char close)
{
    c->p++;
    skip_space(c);
    if (c->p == c->end)
        return MORE;
    if (*c->p != close)
        return OK;
    c->p++;
    return CLOSED;
}

/* Parse the event that begins at *at (a brace); on OK *at is behind it, on BAD where it fails. */
int parse_event(scan *s, const char **at, const char *end, event *out);

/* The args alone, whose text was read before. */
int parse_args(scan *s, const char *text, int32_t size, event *out);

/* Any value: *at is behind it on OK. */
int skip_value(const char **at, const char *end);

/* The members of an object behind its first one, up to its brace: *at is behind it on OK. */
int skip_members(const char **at, const char *end);

/* Does this key, its opening quote at p, belong to an event and not to its args? */
int is_event_key(const scan *s, const char *p, const char *end);

/* A growing array of rows. */
typedef struct {
    void *rows;
    int64_t count, room;
    size_t size;
} table;

void *table_add(table *t); /* a new row, or NULL: no memory */

typedef struct {
    int64_t ts, dur, correlation, external;
    int32_t name, track, thread;
} event_row;

/* What events of one kind, thread and stream have in common; -1, or NO_DEVICE: none. */
typedef struct { int32_t category, thread, stream, device; } track_key;
#define NO_DEVICE INT32_MIN

typedef struct { int64_t row, bytes, sequence, forward_thread; int32_t signature; } detail_row;

typedef struct {
    int64_t row, group_size, seq, in_elems, out_elems, src, dst;
    int32_t operation, group, description, ranks, dtype;
} comm_row;

typedef struct { int64_t row, id, parent, module; } python_row;
typedef struct { int64_t row, start, end; } args_row;
typedef struct { int64_t ts, device_type, device, address, bytes, allocated, reserved; } memory_row;
typedef struct { int64_t ts, id; int32_t category, thread, is_start; } flow_row;
typedef struct { int32_t what, thread, text; } meta_row;
typedef struct { int64_t offset, count; int32_t kind; } damage_row;
/* A B without its E; its args where they say more than the row. */
typedef struct { event_row row; int64_t offset; char *args; int32_t args_size, below; } open_row;

enum { T_EVENT, T_DETAIL, T_COMM, T_PYTHON, T_ARGS, T_MEMORY, T_FLOW, T_META, T_DAMAGE, TABLES };

enum damage {
    D_BAD_EVENT, D_REPAIRED, D_TRUNCATED, D_FOREIGN, D_NOT_AN_EVENT, D_NO_PHASE, D_NO_TIME,
    D_NEGATIVE, D_NO_DURATION, D_UNMATCHED_B, D_UNMATCHED_E, D_NO_FLOW_ID, D_SEPARATOR,
    D_PHASE, /* plus the letter of the phase */
    DAMAGES = D_PHASE + 128
};

/* A column of the last flush. */
typedef struct {
    void *data;
    uint8_t *valid;
    int has_values, has_nulls, is_wide;
} column_out;

struct scan {
    pool pools[POOLS];
    table tables[TABLES];
    table open;            /* of open_row; places are used again */
    int32_t open_free;     /* the first unused place of open, or -1 */
    int32_t open_slices;
    int32_t *open_top;     /* per thread: its innermost open slice, or -1 */
    int32_t open_threads;
    char *args;            /* texts of args_row */
    int64_t args_used, args_room;
    char *key;             /* of a signature or a thread, while it is looked up */
    int64_t key_room;
    int64_t *arg_counts;   /* per P_ARG: uses of a key that no column holds */
    int32_t arg_room;
    int64_t damage_count[DAMAGES], last_damage[DAMAGES];
    uint8_t *process_seen; /* per P_PROCESS: events of the host are its */
    int32_t process_room, processes_seen;
    uint8_t keys[256], arg_keys[256]; /* hash of a key to its field + 1 */
    key_head heads[KEY_PLACES];       /* how a key begins */
    uint8_t next_key[KEY_PLACES];     /* what came after a key last time */
    int32_t last_id[FIELDS], last_thread, last_thread_process; /* of the event before, or -1 */
    track_key last_track_key;
    int32_t last_track;
    int keep_args, list_root;
    int after_event;       /* a separator is due */
    int foreign;           /* what is left of the file is of another process */
    int closed;            /* the end of the array was seen */
    int lost;              /* within a damaged stretch that was reported */
    int in_doubt;          /* after a damage, before an event shows whose file this still is */
    int64_t doubt_offset, doubt_events, doubt_counts[TABLES];
    int64_t limit;         /* rows of a batch */
    int64_t sent_bytes;    /* of strings that the batches before held */
    int64_t *order, *numbers; /* of the events of a flush: where each lies, its number by time */
    column_out out[MAX_COLUMNS];
};

/* What tk_events returns. */
enum { TK_MORE, TK_END, TK_FULL, TK_NO_MEMORY, TK_GO_ON };
/* What follows the text: more, nothing, or more than we wait for. */
enum { GOES_ON, ENDS, GIVE_UP };

int add_event(scan *s, const event *e, int64_t offset);  /* OK, NO_MEMORY or FOREIGN */
void add_damage(scan *s, int kind, int64_t offset);
void close_open(scan *s);                                /* count what was never ended */
int32_t other_args(scan *s);                             /* the number that stands for all others */
void doubt(scan *s, int64_t offset);
void drop_doubtful(scan *s);
int step_over(scan *s, const char *text, int64_t size, int64_t base, const char **at,
              int what_follows, int is_cut);
int64_t string_bytes(const scan *s);                     /* of the pools that are sent and cleared */
int order_events(scan *s);                               /* OK or NO_MEMORY */
void set_keys(scan *s);
void forget_last(scan *s);                               /* the pools begin anew */

#endif
