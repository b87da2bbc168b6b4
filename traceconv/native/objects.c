/* Columns of integers and texts → JSON objects, one per row, without the interpreter lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

enum { MOST_KEYS = 128, DIGITS = 20 };

/* A key: `,"key":` and the value in each row. Of texts: the texts with their keys, and the number of the row's text. */
typedef struct {
    Text lead;
    Py_ssize_t lead_size;
    Py_buffer values, nulls;
    Rows texts;
    int has_nulls, has_texts;
} Key;

typedef struct {
    Key keys[MOST_KEYS];
    int count;
    Py_ssize_t row_count;
    int32_t *ends;
    uint8_t *out;
    size_t size, room;
} Objects;

static int is_null(const Key *key, Py_ssize_t row)
{
    return key->has_nulls && ((const volatile uint8_t *)key->nulls.buf)[row];
}

/* Room for more bytes; 0 if out of memory. */
static int make_room(Objects *objects, size_t more)
{
    if (objects->size + more <= objects->room)
        return 1;
    size_t room = 2 * objects->room + more + (1 << 16);
    uint8_t *grown = realloc(objects->out, room);
    if (grown == NULL)
        return 0;
    objects->out = grown;
    objects->room = room;
    return 1;
}

static void put(Objects *objects, const void *from, size_t size)
{
    if (size)
        memcpy(objects->out + objects->size, from, size);
    objects->size += size;
}

static void put_number(Objects *objects, int64_t value)
{
    uint8_t digits[DIGITS];
    uint8_t *at = digits + DIGITS;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        *--at = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        *--at = '-';
    put(objects, at, (size_t)(digits + DIGITS - at));
}

static Outcome put_objects(Objects *objects)
{
    objects->ends[0] = 0;
    for (Py_ssize_t row = 0; row < objects->row_count; row++) {
        size_t start = objects->size;
        for (int number = 0; number < objects->count; number++) {
            const Key *key = &objects->keys[number];
            if (is_null(key, row))
                continue;
            int64_t value = ((const volatile int64_t *)key->values.buf)[row];
            if (key->has_texts) {
                Text at, end;
                if (!row_of(&key->texts, value, &at, &end))
                    return FALLBACK;
                if (!make_room(objects, (size_t)(end - at)))
                    return NO_MEMORY;
                put(objects, at, (size_t)(end - at));
            } else {
                if (!make_room(objects, (size_t)key->lead_size + DIGITS))
                    return NO_MEMORY;
                put(objects, key->lead, (size_t)key->lead_size);
                put_number(objects, value);
            }
        }
        if (!make_room(objects, 2))
            return NO_MEMORY;
        /* The comma of the first key becomes the bracket. */
        if (objects->size == start)
            objects->size++;
        objects->out[start] = '{';
        objects->out[objects->size++] = '}';
        if (objects->size > INT32_MAX)
            return FALLBACK;
        objects->ends[row + 1] = (int32_t)objects->size;
    }
    return OK;
}

/* Take a key; 0 with an exception set. */
static int take_key(Objects *objects, PyObject *given)
{
    Key *key = &objects->keys[objects->count];
    PyObject *nulls, *offsets, *data;
    const char *lead;
    if (!PyArg_ParseTuple(given, "y#y*OOO", &lead, &key->lead_size, &key->values, &nulls, &offsets, &data))
        return 0;
    objects->count++;
    key->lead = (Text)lead;
    if (nulls != Py_None) {
        if (PyObject_GetBuffer(nulls, &key->nulls, PyBUF_SIMPLE) < 0)
            return 0;
        key->has_nulls = 1;
    }
    if (offsets != Py_None) {
        if (PyObject_GetBuffer(offsets, &key->texts.offsets, PyBUF_SIMPLE) < 0
            || PyObject_GetBuffer(data, &key->texts.data, PyBUF_SIMPLE) < 0 || !count_rows(&key->texts))
            return 0;
        key->has_texts = 1;
    }
    if (key->values.len / (Py_ssize_t)sizeof(int64_t) >= objects->row_count
        && (uintptr_t)key->values.buf % sizeof(int64_t) == 0
        && (!key->has_nulls || key->nulls.len >= objects->row_count) && key->lead_size > 0)
        return 1;
    PyErr_SetString(PyExc_ValueError, "a column of another length");
    return 0;
}

PyObject *native_objects(PyObject *module, PyObject *args)
{
    PyObject *keys, *ends = NULL, *found = NULL;
    Outcome outcome;
    Objects *objects = calloc(1, sizeof *objects);
    (void)module;
    if (objects == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "O!n:objects", &PyTuple_Type, &keys, &objects->row_count))
        goto done;
    Py_ssize_t count = PyTuple_Size(keys);
    if (count > MOST_KEYS || objects->row_count < 0 || objects->row_count > 1 << 24) {
        PyErr_SetString(PyExc_ValueError, "too many keys or rows");
        goto done;
    }
    for (Py_ssize_t place = 0; place < count; place++)
        if (!take_key(objects, PyTuple_GetItem(keys, place)))
            goto done;
    ends = PyBytes_FromStringAndSize(NULL, (objects->row_count + 1) * (Py_ssize_t)sizeof(int32_t));
    if (ends == NULL)
        goto done;
    objects->ends = (int32_t *)PyBytes_AsString(ends);
    Py_BEGIN_ALLOW_THREADS
    outcome = put_objects(objects);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else if (outcome == FALLBACK)
        PyErr_SetString(PyExc_ValueError, "a text outside of the array, or more than 2 GB");
    else
        found = Py_BuildValue("(Oy#)", ends, (const char *)objects->out, (Py_ssize_t)objects->size);
done:
    for (int number = 0; number < objects->count; number++) {
        PyBuffer_Release(&objects->keys[number].values);
        PyBuffer_Release(&objects->keys[number].nulls);
        release_rows(&objects->keys[number].texts);
    }
    Py_XDECREF(ends);
    free(objects->out);
    free(objects);
    return found;
}
