/* What stands beside an event: shapes, collectives, Python calls, memory, and args as they are. */
#include <stdlib.h>
#include <string.h>

#include "rows.h"

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

int add_memory(scan *s, const event *e, int64_t ts)
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

#define BIT(f) ((uint64_t)1 << (f))
#define OF_CALL (BIT(F_BYTES) | BIT(F_SEQUENCE) | BIT(F_FORWARD_THREAD) | BIT(F_INPUT_DIMS) \
                 | BIT(F_INPUT_TYPES) | BIT(F_CONCRETE))
#define OF_COMM (BIT(F_OPERATION) | BIT(F_GROUP))

int has_details(const scan *s, const event *e)
{
    return (e->has & (OF_CALL | OF_COMM | BIT(F_PYTHON_ID))) || s->keep_args;
}

static int add_call(scan *s, const event *e, int64_t row)
{
    detail_row found = {row, whole_of(e, F_BYTES), whole_of(e, F_SEQUENCE),
                        whole_of(e, F_FORWARD_THREAD), signature_of(s, e)};
    if (found.bytes == MISSING && found.sequence == MISSING && found.forward_thread == MISSING
        && found.signature < 0)
        return OK;
    detail_row *detail = table_add(&s->tables[T_DETAIL]);
    if (!detail)
        return NO_MEMORY;
    *detail = found;
    return OK;
}

int add_details(scan *s, const event *e, int64_t row)
{
    if ((e->has & OF_CALL) && add_call(s, e, row) != OK)
        return NO_MEMORY;
    if ((e->has & OF_COMM) && add_comm(s, e, row) != OK)
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
