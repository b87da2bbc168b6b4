/* JSON objects → all of their members in order, without the interpreter lock.

   Accepts sound objects of up to 64 members with distinct keys without escapes; for anything else it returns None, and
   Python reads them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "distinct.h"
#include "module.h"
#include "room.h"
#include "rows.h"

enum { MOST_MEMBERS = 64 };

typedef struct {
    int64_t integer; /* the value if it is an integer, otherwise 0 */
    int32_t object, key, is_integer, start, stop;
} Member;

typedef struct {
    Rows objects;
    Text data, end;
    Member *members;
    size_t count, room;
    int64_t other_count, other_bytes; /* of the values that are not plain integers */
    Distinct keys;
    /* The current object: its number, its first member; the key read last. */
    int32_t object;
    size_t first;
    Text key, last;
} Series;

static inline Text past_quotes(void *self, Text at, Text end)
{
    Series *series = self;
    if (at >= end || *at != '"' || series->count - series->first == MOST_MEMBERS)
        return NULL;
    series->key = at + 1;
    series->last = past_plain(at + 1, end);
    return series->last < end && *series->last == '"' ? past_colon(series->last + 1, end, 0) : NULL;
}

static inline Outcome take_member(void *self, Text value, Text stop)
{
    Series *series = self;
    if (!room_for_one(&series->members, series->count, &series->room, sizeof *series->members, 4096))
        return NO_MEMORY;
    int32_t code = code_of(&series->keys, series->data, series->end, series->key, (size_t)(series->last - series->key));
    if (code < 0)
        return NO_MEMORY;
    for (size_t before = series->first; before < series->count; before++)
        if (series->members[before].key == code)
            return FALLBACK;
    Member *member = &series->members[series->count++];
    *member = (Member){0, series->object, code, 0, (int32_t)(value - series->data), (int32_t)(stop - series->data)};
    member->is_integer = parse_int64(value, stop, &member->integer);
    if (!member->is_integer) {
        series->other_count++;
        series->other_bytes += stop - value;
    }
    return OK;
}

static Outcome take_objects(Series *series)
{
    Outcome outcome = OK;
    for (Py_ssize_t object = 0; outcome == OK && object < series->objects.count; object++) {
        series->object = (int32_t)object;
        series->first = series->count;
        outcome = walk_row(&series->objects, object, past_quotes, take_member, series);
    }
    /* If offsets change meanwhile, rows may overlap and have more bytes than offsets can count. */
    return outcome == OK && series->other_bytes > INT32_MAX ? FALLBACK : outcome;
}

/* A field of all members. */
static inline PyObject *column_of(const Series *series, size_t field, size_t size)
{
    PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(series->count * size));
    char *out = column == NULL ? NULL : PyBytes_AsString(column);
    for (size_t place = 0; out != NULL && place < series->count; place++)
        memcpy(out + place * size, (const char *)&series->members[place] + field, size);
    return column;
}

/* Offsets and data of the values that are not plain integers. */
static void copy_others(const Series *series, int32_t *ends, char *out)
{
    *ends = 0;
    for (size_t place = 0; place < series->count; place++) {
        const Member *member = &series->members[place];
        if (member->is_integer)
            continue;
        memcpy(out + *ends, series->data + member->start, (size_t)(member->stop - member->start));
        ends[1] = *ends + member->stop - member->start;
        ends++;
    }
}

static PyObject *columns_of(const Series *series)
{
    PyObject *ends = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((series->other_count + 1) * sizeof(int32_t)));
    PyObject *others = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)series->other_bytes);
    if (ends != NULL && others != NULL)
        copy_others(series, (int32_t *)PyBytes_AsString(ends), PyBytes_AsString(others));
    return Py_BuildValue(
        "(NNNNNNN)", column_of(series, offsetof(Member, object), sizeof(int32_t)),
        column_of(series, offsetof(Member, key), sizeof(int32_t)), distinct_list(&series->keys, series->data),
        column_of(series, offsetof(Member, is_integer), sizeof(int32_t)),
        column_of(series, offsetof(Member, integer), sizeof(int64_t)), ends, others);
}

PyObject *native_series(PyObject *module, PyObject *args)
{
    PyObject *found = NULL;
    Outcome outcome;
    Series series = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*:series", &series.objects.offsets, &series.objects.data))
        return NULL;
    if (!count_rows(&series.objects))
        goto done;
    series.data = series.objects.data.buf;
    series.end = series.data + series.objects.data.len;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_objects(&series);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else
        found = outcome == OK ? columns_of(&series) : Py_NewRef(Py_None);
done:
    free(series.members);
    free_distinct(&series.keys);
    release_rows(&series.objects);
    return found;
}
