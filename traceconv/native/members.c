/* Objects in JSON → columns of some of their members, for all rows at once, outside of the interpreter's lock.

   What it takes are sound objects whose keys are written without escapes; of anything else among the rows it says
   None, and they are read by slower ways. Of a key that an object has twice, the last value counts. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "distinct.h"
#include "json.h"
#include "module.h"

enum { MOST_WANTED = 64, MOST_MEMBERS = 64 };
/* How a row says a number. */
enum { ABSENT, WHOLE, OTHER };

typedef struct {
    Text key;
    size_t size;
    int is_number;
    /* Of numbers: */
    int64_t *numbers;
    uint8_t *said;
    /* Of others, and of numbers that are no plain ones: the number of the text, -1 where there is none. */
    int32_t *codes;
    Distinct texts;
    PyObject *numbers_bytes, *said_bytes, *codes_bytes;
} Wanted;

/* The key that stood in a place of the row before: its text, and what is wanted of it, if anything. */
typedef struct {
    Text at;
    size_t size;
    Wanted *wanted;
} Key;

typedef struct {
    Text data;
    int32_t size;
    Wanted wanted[MOST_WANTED];
    int count;
    Key before[MOST_MEMBERS];
} Members;

/* Behind the last quote of the key whose first one stands at `at`; NULL when it is not sound, or has escapes. */
static Text past_quotes(Members *members, Text at, Text end, int member, Wanted **wanted)
{
    Key *before = &members->before[member < MOST_MEMBERS ? member : MOST_MEMBERS - 1];
    if (at >= end || *at++ != '"')
        return NULL;
    size_t size = before->size;
    if (before->at != NULL && (size_t)(end - at) > size && at[size] == '"' && memcmp(at, before->at, size) == 0) {
        *wanted = before->wanted;
        return at + size + 1;
    }
    Text last = past_plain(at, end);
    if (last >= end || *last != '"')
        return NULL;
    size = (size_t)(last - at);
    *wanted = NULL;
    for (int number = 0; number < members->count && *wanted == NULL; number++)
        if (members->wanted[number].size == size && memcmp(members->wanted[number].key, at, size) == 0)
            *wanted = &members->wanted[number];
    *before = (Key){at, size, *wanted};
    return last + 1;
}

static Outcome take_member(Members *members, Wanted *wanted, Py_ssize_t row, Text value, Text stop)
{
    int is_null = stop - value == 4 && memcmp(value, "null", 4) == 0;
    wanted->codes[row] = -1;
    if (wanted->is_number) {
        wanted->said[row] = ABSENT;
        if (is_null)
            return TAKEN;
        if (whole_number(value, stop, &wanted->numbers[row])) {
            wanted->said[row] = WHOLE;
            return TAKEN;
        }
        wanted->said[row] = OTHER;
    }
    if (!is_null) {
        Text end = members->data + members->size;
        wanted->codes[row] = code_of(&wanted->texts, members->data, end, value, (size_t)(stop - value));
        if (wanted->codes[row] < 0)
            return NO_MEMORY;
    }
    return TAKEN;
}

static Outcome take_object(Members *members, Py_ssize_t row, Text at, Text end)
{
    Text stop;
    Wanted *wanted;
    at = past_blanks(at, end, 0);
    if (at == end)
        return TAKEN;
    if (*at != '{')
        return NOT_TAKEN;
    at = past_blanks(at + 1, end, 0);
    if (at < end && *at == '}')
        return past_blanks(at + 1, end, 0) == end ? TAKEN : NOT_TAKEN;
    for (int member = 0;; member++) {
        at = past_quotes(members, at, end, member, &wanted);
        at = at == NULL ? NULL : past_blanks(at, end, 0);
        if (at == NULL || at >= end || *at != ':')
            return NOT_TAKEN;
        at = past_blanks(at + 1, end, 0);
        stop = past_value(at, end, 0);
        if (stop == NULL)
            return NOT_TAKEN;
        if (wanted != NULL) {
            Outcome outcome = take_member(members, wanted, row, at, stop);
            if (outcome != TAKEN)
                return outcome;
        }
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

static Outcome take_objects(Members *members, const int32_t *offsets, Py_ssize_t all, const int64_t *rows, Py_ssize_t count)
{
    for (Py_ssize_t place = 0; place < count; place++) {
        int64_t row = rows == NULL ? place : rows[place];
        if (row < 0 || row >= all)
            return NOT_TAKEN;
        int32_t start = offsets[row], end = offsets[row + 1];
        if (start < 0 || end < start || end > members->size)
            return NOT_TAKEN;
        Outcome outcome = take_object(members, place, members->data + start, members->data + end);
        if (outcome != TAKEN)
            return outcome;
    }
    return TAKEN;
}

/* Room for the columns of a member; 0 with an exception set. */
static int make_columns(Wanted *wanted, Py_ssize_t count)
{
    wanted->codes_bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int32_t));
    if (wanted->codes_bytes == NULL)
        return 0;
    wanted->codes = (int32_t *)PyBytes_AsString(wanted->codes_bytes);
    memset(wanted->codes, 0xFF, (size_t)count * sizeof(int32_t));
    if (!wanted->is_number)
        return 1;
    wanted->numbers_bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    wanted->said_bytes = PyBytes_FromStringAndSize(NULL, count);
    if (wanted->numbers_bytes == NULL || wanted->said_bytes == NULL)
        return 0;
    wanted->numbers = (int64_t *)PyBytes_AsString(wanted->numbers_bytes);
    wanted->said = (uint8_t *)PyBytes_AsString(wanted->said_bytes);
    memset(wanted->numbers, 0, (size_t)count * sizeof(int64_t));
    memset(wanted->said, ABSENT, (size_t)count);
    return 1;
}

static PyObject *columns_of(Members *members)
{
    PyObject *columns = PyList_New(members->count);
    for (int number = 0; columns != NULL && number < members->count; number++) {
        Wanted *wanted = &members->wanted[number];
        PyObject *texts = distinct_list(&wanted->texts, members->data);
        PyObject *column = texts == NULL ? NULL
            : wanted->is_number
                ? Py_BuildValue("(OOON)", wanted->numbers_bytes, wanted->said_bytes, wanted->codes_bytes, texts)
                : Py_BuildValue("(OOON)", Py_None, Py_None, wanted->codes_bytes, texts);
        if (column == NULL || PyList_SetItem(columns, number, column) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

static int add_wanted(Members *members, PyObject *keys, Py_ssize_t count)
{
    Py_ssize_t key_count = PyTuple_Size(keys);
    if (key_count > MOST_WANTED) {
        PyErr_SetString(PyExc_ValueError, "at most 64 keys");
        return 0;
    }
    for (Py_ssize_t place = 0; place < key_count; place++) {
        Wanted *wanted = &members->wanted[members->count++];
        const char *key;
        Py_ssize_t size;
        if (!PyArg_ParseTuple(PyTuple_GetItem(keys, place), "y#p", &key, &size, &wanted->is_number))
            return 0;
        wanted->key = (Text)key;
        wanted->size = (size_t)size;
        if (!make_columns(wanted, count))
            return 0;
    }
    return 1;
}

PyObject *native_members(PyObject *module, PyObject *args)
{
    Py_buffer offsets, data, rows = {0};
    PyObject *keys, *given_rows, *found = NULL;
    Outcome outcome;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*OO!:members", &offsets, &data, &given_rows, &PyTuple_Type, &keys))
        return NULL;
    Members *members = calloc(1, sizeof *members);
    if (members == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (given_rows != Py_None && PyObject_GetBuffer(given_rows, &rows, PyBUF_SIMPLE) < 0)
        goto done;
    Py_ssize_t all = offsets.len / (Py_ssize_t)sizeof(int32_t) - 1;
    Py_ssize_t count = rows.obj == NULL ? all : rows.len / (Py_ssize_t)sizeof(int64_t);
    if (count < 0 || data.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "offsets of no array, or data beyond 2 GB");
        goto done;
    }
    if (!add_wanted(members, keys, count))
        goto done;
    members->data = data.buf;
    members->size = (int32_t)data.len;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_objects(members, offsets.buf, all, rows.buf, count);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else
        found = outcome == TAKEN ? columns_of(members) : Py_NewRef(Py_None);
done:
    for (int number = 0; members != NULL && number < members->count; number++) {
        Py_XDECREF(members->wanted[number].numbers_bytes);
        Py_XDECREF(members->wanted[number].said_bytes);
        Py_XDECREF(members->wanted[number].codes_bytes);
        free_distinct(&members->wanted[number].texts);
    }
    free(members);
    if (rows.obj != NULL)
        PyBuffer_Release(&rows);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return found;
}
