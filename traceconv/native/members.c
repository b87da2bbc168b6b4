/* JSON objects → columns of some of their members, for all rows at once, without the interpreter lock.

   Accepts sound objects with keys without escapes; for anything else it returns None, and Python reads them. Of a
   duplicate key, the last value counts. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "distinct.h"
#include "module.h"
#include "rows.h"

enum { MOST_WANTED = 64, MOST_MEMBERS = 64 };
/* The form of a number in a row. */
enum { ABSENT, INTEGER, OTHER };

typedef struct {
    Text key;
    size_t size;
    int is_number;
    /* For numbers: */
    int64_t *numbers;
    uint8_t *forms;
    /* For others, and numbers in other forms: the number of the text, -1 for none. */
    int32_t *codes;
    Distinct texts;
    PyObject *numbers_bytes, *forms_bytes, *codes_bytes;
} Wanted;

/* The key at the same position of the row before: its text, and the wanted member, if any. */
typedef struct {
    Text at;
    size_t size;
    Wanted *wanted;
} Key;

typedef struct {
    Rows objects;
    Text data, end;
    Wanted wanted[MOST_WANTED];
    int count;
    Key before[MOST_MEMBERS];
} Members;

/* The current object: its row, the position of its next member, and the wanted member read last. */
typedef struct {
    Members *members;
    Py_ssize_t place;
    int member;
    Wanted *wanted;
} Object;

/* From a key to its value; NULL if it is malformed, or has escapes. */
INLINE Text past_name(void *self, Text at, Text end)
{
    Object *object = self;
    Members *members = object->members;
    Key *before = &members->before[object->member < MOST_MEMBERS - 1 ? object->member++ : MOST_MEMBERS - 1];
    if (at >= end || *at++ != '"')
        return NULL;
    size_t size = before->size;
    if (before->at == NULL || (size_t)(end - at) <= size || at[size] != '"' || memcmp(at, before->at, size) != 0) {
        Text quote = past_plain(at, end);
        if (quote >= end || *quote != '"')
            return NULL;
        size = (size_t)(quote - at);
        *before = (Key){at, size, NULL};
        for (int number = 0; number < members->count && before->wanted == NULL; number++)
            if (members->wanted[number].size == size && memcmp(members->wanted[number].key, at, size) == 0)
                before->wanted = &members->wanted[number];
    }
    object->wanted = before->wanted;
    return past_colon(at + size + 1, end, 0);
}

INLINE Outcome take_value(void *self, Text value, Text stop)
{
    const Object *object = self;
    Members *members = object->members;
    Wanted *wanted = object->wanted;
    Py_ssize_t place = object->place;
    if (wanted == NULL)
        return OK;
    int is_null = stop - value == 4 && memcmp(value, "null", 4) == 0;
    wanted->codes[place] = -1;
    if (wanted->is_number) {
        wanted->forms[place] = is_null ? ABSENT : parse_int64(value, stop, &wanted->numbers[place]) ? INTEGER : OTHER;
        if (wanted->forms[place] != OTHER)
            return OK;
    }
    if (!is_null)
        wanted->codes[place] = code_of(&wanted->texts, members->data, members->end, value, (size_t)(stop - value));
    return is_null || wanted->codes[place] >= 0 ? OK : NO_MEMORY;
}

static Outcome take_objects(Members *members, const volatile int64_t *rows, Py_ssize_t count)
{
    Outcome outcome = OK;
    for (Py_ssize_t place = 0; outcome == OK && place < count; place++) {
        Object object = {members, place, 0, NULL};
        outcome = walk_row(&members->objects, rows == NULL ? place : rows[place], past_name, take_value, &object);
    }
    return outcome;
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
    wanted->forms_bytes = PyBytes_FromStringAndSize(NULL, count);
    if (wanted->numbers_bytes == NULL || wanted->forms_bytes == NULL)
        return 0;
    wanted->numbers = (int64_t *)PyBytes_AsString(wanted->numbers_bytes);
    wanted->forms = (uint8_t *)PyBytes_AsString(wanted->forms_bytes);
    memset(wanted->numbers, 0, (size_t)count * sizeof(int64_t));
    memset(wanted->forms, ABSENT, (size_t)count);
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
                ? Py_BuildValue("(OOON)", wanted->numbers_bytes, wanted->forms_bytes, wanted->codes_bytes, texts)
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
        PyObject *item;
        char *key;
        Py_ssize_t size;
        if (!PyArg_ParseTuple(PyTuple_GetItem(keys, place), "Sp", &item, &wanted->is_number)
            || PyBytes_AsStringAndSize(item, &key, &size) < 0 || !make_columns(wanted, count))
            return 0;
        wanted->key = (Text)key;
        wanted->size = (size_t)size;
    }
    return 1;
}

PyObject *native_members(PyObject *module, PyObject *args)
{
    Py_buffer rows = {0};
    PyObject *keys, *given_rows, *found = NULL;
    Outcome outcome;
    Members *members = calloc(1, sizeof *members);
    (void)module;
    if (members == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "y*y*OO!:members", &members->objects.offsets, &members->objects.data, &given_rows,
            &PyTuple_Type, &keys)) {
        free(members);
        return NULL;
    }
    if (!count_rows(&members->objects)
        || (given_rows != Py_None && PyObject_GetBuffer(given_rows, &rows, PyBUF_SIMPLE) < 0))
        goto done;
    Py_ssize_t count = rows.obj == NULL ? members->objects.count : rows.len / (Py_ssize_t)sizeof(int64_t);
    if (!add_wanted(members, keys, count))
        goto done;
    members->data = members->objects.data.buf;
    members->end = members->data + members->objects.data.len;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_objects(members, rows.buf, count);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else
        found = outcome == OK ? columns_of(members) : Py_NewRef(Py_None);
done:
    for (int number = 0; number < members->count; number++) {
        Py_XDECREF(members->wanted[number].numbers_bytes);
        Py_XDECREF(members->wanted[number].forms_bytes);
        Py_XDECREF(members->wanted[number].codes_bytes);
        free_distinct(&members->wanted[number].texts);
    }
    PyBuffer_Release(&rows);
    release_rows(&members->objects);
    free(members);
    return found;
}
