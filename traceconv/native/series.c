/* Objects in JSON → all of their members, one after another, outside of the interpreter's lock.

   What it takes are sound objects of up to 64 members, whose keys are different and written without escapes; of
   anything else among them it says None, and they are read by slower ways. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "distinct.h"
#include "json.h"
#include "module.h"

enum { MOST_MEMBERS = 64 };

/* Five numbers a member: the object, the number of the key, whether the value is a plain whole number, and where the
   value starts and ends. */
enum { OBJECT, KEY, IS_WHOLE, START, STOP, NUMBERS };

typedef struct {
    Text data;
    int32_t size;
    int32_t (*members)[NUMBERS];
    int64_t *wholes; /* the values that are plain whole numbers; 0 for others */
    size_t count, room;
    int64_t other_bytes; /* of the values that are none */
    Distinct keys;
} Series;

static int more_room(Series *series)
{
    size_t room = series->room ? series->room * 2 : 4096;
    void *members = realloc(series->members, room * sizeof *series->members);
    if (members != NULL)
        series->members = members;
    void *wholes = realloc(series->wholes, room * sizeof *series->wholes);
    if (wholes != NULL)
        series->wholes = wholes;
    if (members == NULL || wholes == NULL)
        return 0;
    series->room = room;
    return 1;
}

static Outcome take_member(Series *series, int32_t object, Text key, Text last, Text value, Text stop, size_t first)
{
    if (series->count == series->room && !more_room(series))
        return NO_MEMORY;
    int32_t code = code_of(&series->keys, series->data, series->data + series->size, key, (size_t)(last - key));
    if (code < 0)
        return NO_MEMORY;
    for (size_t before = first; before < series->count; before++)
        if (series->members[before][KEY] == code)
            return NOT_TAKEN;
    int32_t *member = series->members[series->count];
    int64_t *whole = &series->wholes[series->count++];
    *whole = 0;
    member[OBJECT] = object;
    member[KEY] = code;
    member[IS_WHOLE] = whole_number(value, stop, whole);
    member[START] = (int32_t)(value - series->data);
    member[STOP] = (int32_t)(stop - series->data);
    if (!member[IS_WHOLE])
        series->other_bytes += stop - value;
    return TAKEN;
}

static Outcome take_object(Series *series, int32_t object, Text at, Text end)
{
    size_t first = series->count;
    at = past_blanks(at, end, 0);
    if (at == end)
        return TAKEN;
    if (*at != '{')
        return NOT_TAKEN;
    at = past_blanks(at + 1, end, 0);
    if (at < end && *at == '}')
        return past_blanks(at + 1, end, 0) == end ? TAKEN : NOT_TAKEN;
    for (;;) {
        if (at >= end || *at != '"' || series->count - first == MOST_MEMBERS)
            return NOT_TAKEN;
        Text key = at + 1, last = past_plain(key, end);
        if (last >= end || *last != '"')
            return NOT_TAKEN;
        at = past_blanks(last + 1, end, 0);
        if (at >= end || *at != ':')
            return NOT_TAKEN;
        at = past_blanks(at + 1, end, 0);
        Text stop = past_value(at, end, 0);
        if (stop == NULL)
            return NOT_TAKEN;
        Outcome outcome = take_member(series, object, key, last, at, stop, first);
        if (outcome != TAKEN)
            return outcome;
        at = past_blanks(stop, end, 0);
        if (at >= end)
            return NOT_TAKEN;
        if (*at == '}')
            return past_blanks(at + 1, end, 0) == end ? TAKEN : NOT_TAKEN;
        if (*at != ',')
            return NOT_TAKEN;
        at = past_blanks(at + 1, end, 0);
    }
}

static Outcome take_objects(Series *series, const int32_t *offsets, Py_ssize_t count)
{
    for (Py_ssize_t object = 0; object < count; object++) {
        int32_t start = offsets[object], end = offsets[object + 1];
        if (start < 0 || end < start || end > series->size)
            return NOT_TAKEN;
        Outcome outcome = take_object(series, (int32_t)object, series->data + start, series->data + end);
        if (outcome != TAKEN)
            return outcome;
    }
    return TAKEN;
}

/* One of the numbers of all members. */
static PyObject *column_of(const Series *series, int number)
{
    PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(series->count * sizeof(int32_t)));
    char *out = column == NULL ? NULL : PyBytes_AsString(column);
    for (size_t place = 0; out != NULL && place < series->count; place++)
        memcpy(out + place * sizeof(int32_t), &series->members[place][number], sizeof(int32_t));
    return column;
}

static PyObject *columns_of(const Series *series)
{
    PyObject *objects = column_of(series, OBJECT), *codes = column_of(series, KEY);
    PyObject *are_whole = column_of(series, IS_WHOLE), *keys = distinct_list(&series->keys, series->data);
    PyObject *wholes = PyBytes_FromStringAndSize(
        (const char *)series->wholes, (Py_ssize_t)(series->count * sizeof *series->wholes));
    PyObject *others = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)series->other_bytes), *columns = NULL;
    size_t other_count = 0;
    for (size_t place = 0; place < series->count; place++)
        other_count += !series->members[place][IS_WHOLE];
    PyObject *ends = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((other_count + 1) * sizeof(int32_t)));
    if (others != NULL && ends != NULL) {
        char *out = PyBytes_AsString(others), *end_out = PyBytes_AsString(ends);
        int32_t size = 0;
        memcpy(end_out, &size, sizeof size);
        for (size_t place = 0; place < series->count; place++) {
            const int32_t *member = series->members[place];
            if (member[IS_WHOLE])
                continue;
            memcpy(out + size, series->data + member[START], (size_t)(member[STOP] - member[START]));
            size += member[STOP] - member[START];
            memcpy(end_out += sizeof size, &size, sizeof size);
        }
    }
    if (objects != NULL && codes != NULL && keys != NULL && are_whole != NULL && wholes != NULL && others != NULL
        && ends != NULL)
        columns = PyTuple_Pack(7, objects, codes, keys, are_whole, wholes, ends, others);
    Py_XDECREF(objects);
    Py_XDECREF(codes);
    Py_XDECREF(keys);
    Py_XDECREF(are_whole);
    Py_XDECREF(wholes);
    Py_XDECREF(ends);
    Py_XDECREF(others);
    return columns;
}

PyObject *native_series(PyObject *module, PyObject *args)
{
    Py_buffer offsets, data;
    PyObject *found = NULL;
    Outcome outcome;
    Series series = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*:series", &offsets, &data))
        return NULL;
    Py_ssize_t count = offsets.len / (Py_ssize_t)sizeof(int32_t) - 1;
    if (count < 0 || count > INT32_MAX || data.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "offsets of no array, or data beyond 2 GB");
        goto done;
    }
    series.data = data.buf;
    series.size = (int32_t)data.len;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_objects(&series, offsets.buf, count);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else
        found = outcome == TAKEN ? columns_of(&series) : Py_NewRef(Py_None);
done:
    free(series.members);
    free(series.wholes);
    free_distinct(&series.keys);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return found;
}
