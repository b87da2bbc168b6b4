/* Bounds of consecutive protobuf messages, their fields, and packed numbers, without the interpreter lock. The fields
   of one message as a list. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include <stdlib.h>

#include "protobuf.h"
#include "put.h"
#include "room.h"

typedef struct {
    void *items;
    size_t count, room;
} Items;

/* Room for one more item; NULL if out of memory. */
static void *one_more(Items *list, size_t size)
{
    if (!room_for_one(&list->items, list->count, &list->room, size, 1024))
        return NULL;
    return (char *)list->items + size * list->count++;
}

/* Consecutive messages, each a tag, its size, its bytes; returns where the last one ends, -1 if out of memory. */
static int64_t follow(const uint8_t *data, int64_t size, int64_t at, uint8_t tag, uint64_t most, Items *bounds)
{
    while (at < size && data[at] == tag) {
        uint64_t length;
        const uint8_t *start = past_varint(data + at + 1, data + size, &length);
        if (start == NULL || length > most || length > (uint64_t)(data + size - start))
            break;
        int64_t *both = one_more(bounds, 2 * sizeof *both);
        if (both == NULL)
            return -1;
        both[0] = start - data;
        at = both[1] = both[0] + (int64_t)length;
    }
    return at;
}

PyObject *native_messages(PyObject *module, PyObject *args)
{
    PyObject *data;
    Py_ssize_t at, end;
    unsigned char tag;
    unsigned long long most;
    Items bounds = {0};
    int64_t stop;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "SnnbK:messages", &data, &at, &end, &tag, &most))
        return NULL;
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data);
    if (end < 0 || end > size)
        end = size;
    Py_BEGIN_ALLOW_THREADS
    stop = follow(text, end, at < 0 ? end : at, tag, most, &bounds);
    Py_END_ALLOW_THREADS
    if (stop < 0)
        PyErr_NoMemory();
    else
        result = Py_BuildValue("y#L", bounds.items == NULL ? "" : bounds.items,
            (Py_ssize_t)(bounds.count * 2 * sizeof(int64_t)), (long long)stop);
    free(bounds.items);
    return result;
}

/* The fields of sound messages, and whether each message is sound; 0 if out of memory. */
static int find_fields(
    const uint8_t *data, int64_t size, const volatile int64_t *bounds, Py_ssize_t count, Items *found, char *sound)
{
    for (Py_ssize_t row = 0; row < count; row++) {
        int64_t start = bounds[2 * row], stop = bounds[2 * row + 1];
        size_t before = found->count;
        sound[row] = start >= 0 && start <= stop && stop <= size;
        const uint8_t *at = data + start, *end = data + stop;
        while (sound[row] && at < end) {
            Field field;
            at = past_field(at, end, &field);
            if (at == NULL) {
                sound[row] = 0;
                found->count = before;
                break;
            }
            Found *one = one_more(found, sizeof *one);
            if (one == NULL)
                return 0;
            *one = (Found){row, field.at - data, field.value, (int32_t)field.number, field.kind};
        }
    }
    return 1;
}

PyObject *native_walk(PyObject *module, PyObject *args)
{
    PyObject *data, *sound, *result = NULL;
    Py_buffer bounds;
    Items found = {0};
    int is_done;
    (void)module;
    if (!PyArg_ParseTuple(args, "Sy*:walk", &data, &bounds))
        return NULL;
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data), count = bounds.len / (Py_ssize_t)(2 * sizeof(int64_t));
    sound = PyBytes_FromStringAndSize(NULL, count);
    if (sound != NULL && (uintptr_t)bounds.buf % sizeof(int64_t) == 0) {
        char *is_sound = PyBytes_AsString(sound);
        Py_BEGIN_ALLOW_THREADS
        is_done = find_fields(text, size, bounds.buf, count, &found, is_sound);
        Py_END_ALLOW_THREADS
        if (is_done)
            result = Py_BuildValue("y#O", found.items == NULL ? "" : found.items,
                (Py_ssize_t)(found.count * sizeof(Found)), sound);
        else
            PyErr_NoMemory();
    } else if (sound != NULL) {
        PyErr_SetString(PyExc_ValueError, "bounds of no array");
    }
    free(found.items);
    Py_XDECREF(sound);
    PyBuffer_Release(&bounds);
    return result;
}

/* Number, kind, value and position of each field of a message; NULL with an exception set. None if it is malformed. */
static PyObject *list_fields(const uint8_t *data, const uint8_t *at, const uint8_t *end)
{
    PyObject *found = PyList_New(0);
    while (found != NULL && at < end) {
        Field field;
        if ((at = past_field(at, end, &field)) == NULL) {
            Py_DECREF(found);
            Py_RETURN_NONE;
        }
        PyObject *one = Py_BuildValue("IiKn", field.number, field.kind, (unsigned long long)field.value,
            (Py_ssize_t)(field.at - data));
        if (one == NULL || PyList_Append(found, one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

PyObject *native_fields(PyObject *module, PyObject *args)
{
    PyObject *data;
    Py_ssize_t start, end;
    (void)module;
    if (!PyArg_ParseTuple(args, "Snn:fields", &data, &start, &end))
        return NULL;
    if (start < 0 || start > end || end > PyBytes_Size(data))
        Py_RETURN_NONE;
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    return list_fields(text, text + start, text + end);
}

enum { MOST_VARINT = 10 };

/* The differences of numbers from the one before, as sint64; zeros at the end are omitted. Returns the size. */
static size_t put_differences(const uint8_t *numbers, size_t count, uint8_t *out)
{
    uint8_t *at = out, *end = out;
    uint64_t before = 0;
    for (size_t place = 0; place < count; place++) {
        uint64_t number, change;
        memcpy(&number, numbers + place * sizeof number, sizeof number);
        change = number - before;
        before = number;
        at = put_varint(at, change << 1 ^ -(change >> 63));
        end = change ? at : end;
    }
    return (size_t)(end - out);
}

PyObject *native_differences(PyObject *module, PyObject *args)
{
    Py_buffer numbers;
    PyObject *result;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*:differences", &numbers))
        return NULL;
    size_t count = (size_t)numbers.len / sizeof(int64_t), size;
    uint8_t *out = count > PY_SSIZE_T_MAX / MOST_VARINT ? NULL : malloc(count * MOST_VARINT + 1);
    if (out == NULL) {
        PyBuffer_Release(&numbers);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS
    size = put_differences(numbers.buf, count, out);
    Py_END_ALLOW_THREADS
    result = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)size);
    free(out);
    PyBuffer_Release(&numbers);
    return result;
}
