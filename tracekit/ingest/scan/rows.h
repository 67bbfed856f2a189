/* What the parts that make rows of events share. */
#ifndef TRACEKIT_ROWS_H
#define TRACEKIT_ROWS_H

#include "scan.h"

/* fields.c: numbers of texts are -1 for none, and for no memory. */
int widen(void *array, int32_t *room, int32_t count, size_t size); /* new entries are zero */
char *key_of(scan *s, int64_t size);                               /* room for a key, or NULL */
int32_t text_id(scan *s, int which, const event *e, int field);
int32_t usual_id(scan *s, int which, const event *e, int field);
int32_t process_of(scan *s, const event *e);
int32_t thread_of(scan *s, const event *e, int32_t process);
int32_t track_of(scan *s, const event *e, int32_t thread);
int64_t whole_of(const event *e, int field);
int64_t identity_of(const event *e, int field);
int64_t ns_of(const event *e, int field);
int is_text(const event *e, int field, const char *text);

/* slices.c */
int open_slice(scan *s, const event *e, const event_row *row, int64_t offset);
int end_slice(scan *s, const event *e, int32_t thread, int64_t ts, int64_t offset);

/* details.c */
int add_memory(scan *s, const event *e, int64_t ts);
int add_details(scan *s, const event *e, int64_t row);
int has_details(const scan *s, const event *e);

#endif
