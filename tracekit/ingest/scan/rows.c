/* Events to rows of the tables. */
#include <string.h>

#include "rows.h"

static const event_row NO_ROW = {MISSING, 0, MISSING, MISSING, -1, -1, -1};

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

/* Does the process of the training program itself record such an event? */
static int is_of_host(const event *e)
{
    static const char *known[] = {"cpu_op", "operator", "user_annotation", "python_function",
                                  "cpu_instant_event", "cuda_driver", "runtime"};
    if (!HAS(e, F_CAT))
        return 0;
    const span *cat = &e->field[F_CAT];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_text(e, F_CAT, known[i]))
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
    if ((phase == 'i' || phase == 'I') && is_text(e, F_NAME, "[memory]"))
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
    found.track = track_of(s, e, found.thread);
    if (found.name < 0 || found.track < 0)
        return NO_MEMORY;
    found.correlation = identity_of(e, F_CORRELATION);
    found.external = identity_of(e, HAS(e, F_EXTERNAL) ? F_EXTERNAL : F_EXTERNAL_OLD);
    if (phase == 'B')
        return open_slice(s, e, &found, offset);
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
    if (e->uncounted) {
        int32_t others = other_args(s);
        if (others < 0 || widen(&s->arg_counts, &s->arg_room, others + 1, sizeof *s->arg_counts) != OK)
            return NO_MEMORY;
        s->arg_counts[others] += e->uncounted;
    }
    return OK;
}
