/* Events to rows of the tables. */
#include <stdlib.h>
#include <string.h>

#include "scan.h"

#define MOST_OPEN 1024 /* slices within each other that an E looks through */

static const event_row NO_ROW = {MISSING, 0, MISSING, MISSING, MISSING, MISSING, MISSING, MISSING,
                                 -1, -1, -1, -1, -1};

void *table_add(table *t)
{
    if (t->count == t->room) {
        int64_t room = t->room ? t->room * 2 : 256;
        void *rows = realloc(t->rows, (size_t)room * t->size);
        if (!rows)
            return NULL;
        t->rows = rows;
        t->room = room;
    }
    return (char *)t->rows + (size_t)t->count++ * t->size;
}

void add_damage(scan *s, int kind, int64_t offset)
{
    table *t = &s->tables[T_DAMAGE];
    if (s->damage_count[kind]++ >= NAMED_PLACES) {
        ((damage_row *)t->rows)[s->last_damage[kind]].count++;
        return;
    }
    damage_row *row = table_add(t);
    if (row)
        *row = (damage_row){offset, 1, kind};
    s->last_damage[kind] = t->count - 1;
}

/* Make room for `count` entries of `size` bytes, the new ones zero. */
static int widen(void *array, int32_t *room, int32_t count, size_t size)
{
    void **at = array;
    if (count <= *room)
        return OK;
    int32_t wider = count * 2 + 64;
    char *fresh = realloc(*at, (size_t)wider * size);
    if (!fresh)
        return NO_MEMORY;
    memset(fresh + (size_t)*room * size, 0, (size_t)(wider - *room) * size);
    *at = fresh;
    *room = wider;
    return OK;
}

static char *key_of(scan *s, int64_t size)
{
    if (size > s->key_room) {
        char *fresh = realloc(s->key, (size_t)size * 2);
        if (!fresh)
            return NULL;
        s->key = fresh;
        s->key_room = size * 2;
    }
    return s->key;
}

void forget_last(scan *s)
{
    memset(s->last_id, 0xFF, sizeof s->last_id);
    s->last_thread = s->last_thread_process = -1;
}

/* Is the text that of an entry of the pool? */
static int is_entry(const pool *p, int32_t id, const char *text, int32_t size)
{
    return p->starts[id + 1] - p->starts[id] == size
        && memcmp(p->bytes + p->starts[id], text, (size_t)size) == 0;
}

static int32_t text_id(scan *s, int which, const event *e, int field)
{
    const span *at = &e->field[field];
    return HAS(e, field) ? pool_add(&s->pools[which], at->at, at->size, at->flags) : -1;
}

/* The same for a field whose pool is always this one: events that follow each other have much in
 * common. */
static int32_t usual_id(scan *s, int which, const event *e, int field)
{
    const span *at = &e->field[field];
    int32_t *last = &s->last_id[field];
    if (!HAS(e, field))
        return -1;
    if (*last < 0 || !is_entry(&s->pools[which], *last, at->at, at->size))
        *last = pool_add(&s->pools[which], at->at, at->size, at->flags);
    return *last;
}

static int32_t process_of(scan *s, const event *e)
{
    if (HAS(e, F_PID))
        return usual_id(s, P_PROCESS, e, F_PID);
    return pool_add(&s->pools[P_PROCESS], "", 0, 0);
}

/* A thread is known by its process and its own name; both may be numbers or strings. */
static int32_t thread_of(scan *s, const event *e, int32_t process)
{
    const span *tid = &e->field[F_TID];
    int32_t size = HAS(e, F_TID) ? tid->size : 0;
    pool *threads = &s->pools[P_THREAD];
    if (s->last_thread >= 0 && s->last_thread_process == process && size) {
        int64_t start = threads->starts[s->last_thread] + 4;
        if (threads->starts[s->last_thread + 1] - start == size
            && memcmp(threads->bytes + start, tid->at, (size_t)size) == 0)
            return s->last_thread;
    }
    char *key = process < 0 ? NULL : key_of(s, size + 4);
    if (!key)
        return -1;
    memcpy(key, &process, 4);
    if (size)
        memcpy(key + 4, tid->at, (size_t)size);
    s->last_thread_process = process;
    return s->last_thread = pool_add(threads, key, size + 4, HAS(e, F_TID) ? tid->flags : 0);
}

static int32_t signature_of(scan *s, const event *e)
{
    static const int fields[] = {F_INPUT_DIMS, F_INPUT_TYPES, F_CONCRETE};
    int32_t sizes[3];
    int64_t total = sizeof sizes;
    for (int i = 0; i < 3; i++) {
        sizes[i] = HAS(e, fields[i]) ? e->field[fields[i]].size : -1;
        total += sizes[i] > 0 ? sizes[i] : 0;
    }
    if (total == sizeof sizes && sizes[0] < 0 && sizes[1] < 0 && sizes[2] < 0)
        return -1;
    char *key = total > INT32_MAX ? NULL : key_of(s, total);
    if (!key)
        return -1;
    memcpy(key, sizes, sizeof sizes);
    char *p = key + sizeof sizes;
    for (int i = 0; i < 3; i++) {
        if (sizes[i] > 0) {
            memcpy(p, e->field[fields[i]].at, (size_t)sizes[i]);
            p += sizes[i];
        }
    }
    return pool_add(&s->pools[P_SIGNATURE], key, (int32_t)total, 0);
}

static int64_t whole_of(const event *e, int field)
{
    return HAS(e, field) ? to_whole(&e->field[field]) : MISSING;
}

static int64_t identity_of(const event *e, int field)
{
    return HAS(e, field) ? to_identity(&e->field[field]) : MISSING;
}

static int64_t ns_of(const event *e, int field)
{
    return HAS(e, field) ? to_ns(&e->field[field]) : MISSING;
}

static int is(const event *e, int field, const char *text)
{
    return HAS(e, field) && (size_t)e->field[field].size == strlen(text)
        && memcmp(e->field[field].at, text, strlen(text)) == 0;
}

/* Does the process of the training program itself record such an event? */
static int is_of_host(const event *e)
{
    static const char *known[] = {"cpu_op", "operator", "user_annotation", "python_function",
                                  "cpu_instant_event", "cuda_driver", "runtime"};
    if (!HAS(e, F_CAT))
        return 0;
    const span *cat = &e->field[F_CAT];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is(e, F_CAT, known[i]))
            return 1;
    return cat->size > 8 && memcmp(cat->at + cat->size - 8, "_runtime", 8) == 0;
}

/* After a damage the file may go on with another one's events: those belong to no rank. */
static int check_process(scan *s, const event *e, int32_t process)
{
    if (!is_of_host(e))
        return OK;
    if (widen(&s->process_seen, &s->process_room, process + 1, 1) != OK)
        return NO_MEMORY;
    if (s->process_seen[process]) {
        s->in_doubt = 0;
        return OK;
    }
    if (s->in_doubt && s->processes_seen)
        return FOREIGN;
    s->process_seen[process] = 1;
    s->processes_seen++;
    return OK;
}

static int add_memory(scan *s, const event *e, int64_t ts)
{
    memory_row *row = table_add(&s->tables[T_MEMORY]);
    if (!row)
        return NO_MEMORY;
    *row = (memory_row){ts,
                        whole_of(e, F_DEVICE_TYPE),
                        whole_of(e, F_DEVICE_ID),
                        identity_of(e, F_ADDRESS),
                        whole_of(e, F_MEMORY_BYTES),
                        whole_of(e, F_ALLOCATED),
                        whole_of(e, F_RESERVED)};
    return OK;
}

static int add_comm(scan *s, const event *e, int64_t row)
{
    comm_row *comm = table_add(&s->tables[T_COMM]);
    if (!comm)
        return NO_MEMORY;
    *comm = (comm_row){row,
                       whole_of(e, F_GROUP_SIZE),
                       whole_of(e, F_SEQ),
                       whole_of(e, F_IN_ELEMS),
                       whole_of(e, F_OUT_ELEMS),
                       whole_of(e, F_SRC),
                       whole_of(e, F_DST),
                       text_id(s, P_TEXT, e, F_OPERATION),
                       text_id(s, P_TEXT, e, F_GROUP),
                       text_id(s, P_TEXT, e, F_GROUP_DESCRIPTION),
                       text_id(s, P_TEXT, e, F_GROUP_RANKS),
                       text_id(s, P_TEXT, e, F_DTYPE)};
    return OK;
}

static int add_args(scan *s, const event *e, int64_t row)
{
    const span *args = &e->field[F_ARGS];
    if (s->args_used + args->size > s->args_room) {
        int64_t room = (s->args_used + args->size) * 2;
        char *fresh = realloc(s->args, (size_t)room);
        if (!fresh)
            return NO_MEMORY;
        s->args = fresh;
        s->args_room = room;
    }
    args_row *kept = table_add(&s->tables[T_ARGS]);
    if (!kept)
        return NO_MEMORY;
    memcpy(s->args + s->args_used, args->at, (size_t)args->size);
    *kept = (args_row){row, s->args_used, s->args_used + args->size};
    s->args_used += args->size;
    return OK;
}

static int add_details(scan *s, const event *e, int64_t row)
{
    if ((HAS(e, F_OPERATION) || HAS(e, F_GROUP)) && add_comm(s, e, row) != OK)
        return NO_MEMORY;
    if (HAS(e, F_PYTHON_ID)) {
        python_row *call = table_add(&s->tables[T_PYTHON]);
        if (!call)
            return NO_MEMORY;
        *call = (python_row){row, whole_of(e, F_PYTHON_ID), whole_of(e, F_PYTHON_PARENT),
                             whole_of(e, F_PYTHON_MODULE)};
    }
    return s->keep_args && HAS(e, F_ARGS) && e->field[F_ARGS].kind == CONTAINER
        ? add_args(s, e, row) : OK;
}

static int open_slice(scan *s, const event_row *row, int64_t offset)
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
    *slice = (open_row){*row, offset, s->open_top[row->thread]};
    s->open_top[row->thread] = at;
    return OK;
}

/* The innermost slice of its thread leaves the stack. */
static void close_slice(scan *s, int32_t thread)
{
    int32_t at = s->open_top[thread];
    open_row *slice = (open_row *)s->open.rows + at;
    s->open_top[thread] = slice->below;
    slice->below = s->open_free;
    s->open_free = at;
}

/* An E ends the innermost slice of its name on its thread, or of any name where it has none. What
 * was begun within that slice and did not end before it never ended. */
static int end_slice(scan *s, const event *e, int32_t thread, int64_t ts, int64_t offset)
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
    close_slice(s, thread);
    return OK;
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

static int add_slice(scan *s, const event *e, char phase, int64_t offset)
{
    event_row found = NO_ROW;
    found.ts = ns_of(e, F_TS);
    if (found.ts == MISSING) {
        add_damage(s, D_NO_TIME, offset);
        return OK;
    }
    int32_t process = process_of(s, e);
    found.thread = thread_of(s, e, process);
    if (found.thread < 0)
        return NO_MEMORY;
    int result = check_process(s, e, process);
    if (result != OK)
        return result;
    if ((phase == 'i' || phase == 'I') && is(e, F_NAME, "[memory]"))
        return add_memory(s, e, found.ts);
    if (phase == 'E')
        return end_slice(s, e, found.thread, found.ts, offset);
    if (phase == 'X') {
        found.dur = ns_of(e, F_DUR);
        if (found.dur < 0) {
            add_damage(s, found.dur == MISSING ? D_NO_DURATION : D_NEGATIVE, offset);
            found.dur = 0;
        }
    }
    found.name = HAS(e, F_NAME) ? text_id(s, P_NAME, e, F_NAME) : pool_add(&s->pools[P_NAME], "", 0, 0);
    found.category = HAS(e, F_CAT) ? usual_id(s, P_CATEGORY, e, F_CAT)
                                   : pool_add(&s->pools[P_CATEGORY], "", 0, 0);
    if (found.name < 0 || found.category < 0)
        return NO_MEMORY;
    found.correlation = identity_of(e, F_CORRELATION);
    found.external = identity_of(e, HAS(e, F_EXTERNAL) ? F_EXTERNAL : F_EXTERNAL_OLD);
    found.device = whole_of(e, F_DEVICE);
    found.stream = usual_id(s, P_TEXT, e, HAS(e, F_STREAM) ? F_STREAM : F_QUEUE);
    found.bytes = whole_of(e, F_BYTES);
    found.signature = signature_of(s, e);
    found.sequence = whole_of(e, F_SEQUENCE);
    found.forward_thread = whole_of(e, F_FORWARD_THREAD);
    if (phase == 'B')
        return open_slice(s, &found, offset);
    event_row *row = table_add(&s->tables[T_EVENT]);
    if (!row)
        return NO_MEMORY;
    *row = found;
    return add_details(s, e, s->tables[T_EVENT].count - 1);
}

static int add_flow(scan *s, const event *e, char phase, int64_t offset)
{
    int64_t ts = ns_of(e, F_TS), id = identity_of(e, F_ID);
    if (ts == MISSING || id == MISSING) {
        add_damage(s, ts == MISSING ? D_NO_TIME : D_NO_FLOW_ID, offset);
        return OK;
    }
    flow_row *row = table_add(&s->tables[T_FLOW]);
    if (!row)
        return NO_MEMORY;
    *row = (flow_row){ts, id, usual_id(s, P_CATEGORY, e, F_CAT), thread_of(s, e, process_of(s, e)),
                      phase == 's'};
    return OK;
}

static int add_meta(scan *s, const event *e)
{
    if (!HAS(e, F_NAME) || !HAS(e, F_ARG_NAME))
        return OK;
    meta_row *row = table_add(&s->tables[T_META]);
    if (!row)
        return NO_MEMORY;
    *row = (meta_row){text_id(s, P_TEXT, e, F_NAME), thread_of(s, e, process_of(s, e)),
                      text_id(s, P_TEXT, e, F_ARG_NAME)};
    return OK;
}

int add_event(scan *s, const event *e, int64_t offset)
{
    if (!HAS(e, F_PH) || e->field[F_PH].kind != STRING) {
        add_damage(s, e->is_empty ? D_NOT_AN_EVENT : D_NO_PHASE, offset);
        return OK;
    }
    const span *ph = &e->field[F_PH];
    char phase = ph->size == 1 && (unsigned char)ph->at[0] < 128 ? ph->at[0] : '?';
    int result = OK;
    if (phase == 'X' || phase == 'i' || phase == 'I' || phase == 'B' || phase == 'E')
        result = add_slice(s, e, phase, offset);
    else if (phase == 's' || phase == 't' || phase == 'f')
        result = add_flow(s, e, phase, offset);
    else if (phase == 'M')
        result = add_meta(s, e);
    else
        add_damage(s, D_PHASE + phase, offset);
    if (result != OK)
        return result;
    if (e->repaired)
        add_damage(s, D_REPAIRED, offset);
    if (e->unknown_count
        && widen(&s->arg_counts, &s->arg_room, s->pools[P_ARG].count, sizeof *s->arg_counts) != OK)
        return NO_MEMORY;
    for (int32_t i = 0; i < e->unknown_count; i++)
        s->arg_counts[e->unknown[i]]++;
    return OK;
}
