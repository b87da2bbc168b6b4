/* Columns of integers and texts → JSON objects, one per row, without the interpreter lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "put.h"
#include "rows.h"

enum { MOST_KEYS = 128, DIGITS = 20 };

/* A key: `,"key":` and the value in each row. Of texts: the texts with their keys, and the number of the row's text.

   member: `,"key":` and the last value, which many rows share, with room for a number and STRIDE bytes more. */
typedef struct {
    Text lead;
    Py_ssize_t lead_size;
    Py_buffer values, nulls;
    Rows texts;
    int has_nulls, has_texts;
    uint8_t *member;
    Py_ssize_t member_size;
    int64_t last;
} Key;

typedef struct {
    Key keys[MOST_KEYS];
    int count;
    Py_ssize_t row_count;
    /* The size of each object before their ends are known. */
    int32_t *ends;
} Objects;

static int is_null(const Key *key, Py_ssize_t row)
{
    return key->has_nulls && ((const volatile uint8_t *)key->nulls.buf)[row];
}

static int64_t value_of(const Key *key, Py_ssize_t row)
{
    return ((const volatile int64_t *)key->values.buf)[row];
}

/* The size of a number. */
INLINE int64_t size_of(int64_t value)
{
    return (value < 0) + digit_count(value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* Add the sizes of the members of a key; 0 if a text is outside of the array, or `total` exceeds 2 GB. */
static int add_sizes(const Objects *objects, const Key *key, int64_t *total)
{
    int64_t added = 0;
    for (Py_ssize_t row = 0; row < objects->row_count; row++) {
        if (is_null(key, row))
            continue;
        int64_t value = value_of(key, row), size;
        if (key->has_texts) {
            Text at, end;
            if (!row_of(&key->texts, value, &at, &end))
                return 0;
            size = end - at;
        } else {
            size = key->lead_size + size_of(value);
        }
        added += size;
        if (*total + added > INT32_MAX)
            return 0;
        objects->ends[row + 1] += (int32_t)size;
    }
    *total += added;
    return 1;
}

/* Find the ends of all objects. */
static Outcome find_ends(Objects *objects)
{
    int64_t total = 2 * objects->row_count;
    memset(objects->ends, 0, (size_t)(objects->row_count + 1) * sizeof(int32_t));
    for (int number = 0; number < objects->count; number++)
        if (!add_sizes(objects, &objects->keys[number], &total))
            return FALLBACK;
    for (Py_ssize_t row = 0; row < objects->row_count; row++) {
        /* The comma of the first member becomes the bracket. */
        int32_t members = objects->ends[row + 1];
        objects->ends[row + 1] = objects->ends[row] + (members ? members + 1 : 2);
    }
    return OK;
}

/* Write one member, which ends before `limit`; NULL if it is larger than before. STRIDE bytes follow `limit`. */
INLINE uint8_t *put_member(Key *key, Py_ssize_t row, uint8_t *out, const uint8_t *limit)
{
    int64_t value = value_of(key, row);
    if (key->has_texts) {
        Text at, end;
        if (!row_of(&key->texts, value, &at, &end) || end - at > limit - out)
            return NULL;
        return put_text(out, at, end, (Text)key->texts.data.buf + key->texts.data.len);
    }
    if (value != key->last) {
        key->last = value;
        key->member_size = put_signed(key->member + key->lead_size, value) - key->member;
    }
    return key->member_size > limit - out ? NULL : put_padded(out, key->member, key->member_size);
}

static Outcome put_objects(Objects *objects, uint8_t *data)
{
    for (Py_ssize_t row = 0; row < objects->row_count; row++) {
        uint8_t *start = data + objects->ends[row], *out = start, *last = data + objects->ends[row + 1] - 1;
        for (int number = 0; number < objects->count; number++)
            if (!is_null(&objects->keys[number], row)
                && (out = put_member(&objects->keys[number], row, out, last)) == NULL)
                return FALLBACK;
        out += out == start;
        if (out != last)
            return FALLBACK;
        *start = '{';
        *last = '}';
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
    key->member = calloc(1, (size_t)key->lead_size + DIGITS + STRIDE);
    if (key->member == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    put(key->member, key->lead, (size_t)key->lead_size);
    key->member_size = put_signed(key->member + key->lead_size, key->last) - key->member;
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
    PyObject *keys, *ends = NULL, *data = NULL, *found = NULL;
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
    outcome = find_ends(objects);
    Py_END_ALLOW_THREADS
    if (outcome == OK) {
        Py_ssize_t size = objects->ends[objects->row_count];
        data = PyBytes_FromStringAndSize(NULL, size + STRIDE);
        if (data == NULL)
            goto done;
        uint8_t *out = (uint8_t *)PyBytes_AsString(data);
        memset(out + size, 0, STRIDE);
        Py_BEGIN_ALLOW_THREADS
        outcome = put_objects(objects, out);
        Py_END_ALLOW_THREADS
    }
    if (outcome == OK)
        found = Py_BuildValue("(OO)", ends, data);
    else
        PyErr_SetString(PyExc_ValueError, "a text outside of the array, or more than 2 GB");
done:
    for (int number = 0; number < objects->count; number++) {
        PyBuffer_Release(&objects->keys[number].values);
        PyBuffer_Release(&objects->keys[number].nulls);
        release_rows(&objects->keys[number].texts);
        free(objects->keys[number].member);
    }
    Py_XDECREF(ends);
    Py_XDECREF(data);
    free(objects);
    return found;
}
