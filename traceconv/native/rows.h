/* Rows of an Arrow binary array: int32 offsets, and data.

   Another thread may write to both while they are read, so each number is read once, and checked then. A loop that
   reads an array a second time must not write more than the first one counted. */

#ifndef TRACECONV_ROWS_H
#define TRACECONV_ROWS_H

#include <Python.h>

#include "json.h"

typedef struct {
    Py_buffer offsets, data;
    Py_ssize_t count;
} Rows;

/* To be called with both buffers: 0 with an exception set if they are not an array. */
static inline int count_rows(Rows *rows)
{
    rows->count = rows->offsets.len / (Py_ssize_t)sizeof(int32_t) - 1;
    if (rows->count >= 0 && rows->count <= INT32_MAX && (uintptr_t)rows->offsets.buf % sizeof(int32_t) == 0)
        return 1;
    PyErr_SetString(PyExc_ValueError, "offsets of no array");
    return 0;
}

static inline void release_rows(Rows *rows)
{
    PyBuffer_Release(&rows->offsets);
    PyBuffer_Release(&rows->data);
}

/* The bytes of a row; 0 if it is outside of the data. */
static inline int row_of(const Rows *rows, int64_t row, Text *at, Text *end)
{
    if (row < 0 || row >= rows->count)
        return 0;
    const volatile int32_t *offsets = rows->offsets.buf;
    int32_t first = offsets[row], last = offsets[row + 1];
    if (first < 0 || last < first || last > rows->data.len)
        return 0;
    *at = (Text)rows->data.buf + first;
    *end = (Text)rows->data.buf + last;
    return 1;
}

/* Walk the members of the object in a row, as walk_object does; a blank row has none. */
INLINE Outcome walk_row(const Rows *rows, int64_t row, Text (*past)(void *self, Text at, Text end),
    Outcome (*take)(void *self, Text value, Text stop), void *self)
{
    Text at, end;
    if (!row_of(rows, row, &at, &end))
        return FALLBACK;
    at = past_blanks(at, end, 0);
    Outcome outcome = at == end ? OK : walk_object(&at, end, 0, past, take, self);
    return outcome == OK && past_blanks(at, end, 0) != end ? FALLBACK : outcome;
}

#endif
