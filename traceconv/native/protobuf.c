/* Protobuf messages → columns of their fields, without the interpreter lock. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include "protobuf.h"
#include "room.h"

/* As in wire/protobuf.py. */
typedef struct {
    int64_t row, at;
    uint64_t value;
    int32_t number, kind;
} Found;
SIZE(Found, 32);
AT(Found, row, 0); AT(Found, at, 8); AT(Found, value, 16); AT(Found, number, 24); AT(Found, kind, 28);

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

/* 0 if out of memory. Another thread may write to the bounds: each is read once. */
static int walk(
    const uint8_t *data, int64_t size, const volatile int64_t *bounds, Py_ssize_t count, Items *fields, char *sound)
{
    for (Py_ssize_t row = 0; row < count; row++) {
        int64_t start = bounds[2 * row], stop = bounds[2 * row + 1];
        sound[row] = start >= 0 && stop <= size;
        const uint8_t *at = sound[row] && start < stop ? data + start : NULL;
        while (at != NULL && at < data + stop) {
            Field field;
            at = past_field(at, data + stop, &field);
            if (at == NULL) {
                sound[row] = 0;
                break;
            }
            Found *found = one_more(fields, sizeof *found);
            if (found == NULL)
                return 0;
            *found = (Found){row, field.at - data, field.value, (int32_t)field.number, field.kind};
        }
    }
    return 1;
}

PyObject *native_fields(PyObject *module, PyObject *args)
{
    PyObject *data;
    Py_buffer bounds;
    Items fields = {0};
    PyObject *result = NULL;
    int is_done;
    (void)module;
    if (!PyArg_ParseTuple(args, "Sy*:fields", &data, &bounds))
        return NULL;
    Py_ssize_t count = bounds.len / (Py_ssize_t)(2 * sizeof(int64_t));
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data);
    PyObject *sound = PyBytes_FromStringAndSize(NULL, count);
    if (sound != NULL) {
        char *out = PyBytes_AsString(sound);
        Py_BEGIN_ALLOW_THREADS
        is_done = walk(text, size, bounds.buf, count, &fields, out);
        Py_END_ALLOW_THREADS
        if (is_done)
            result = Py_BuildValue("y#O", fields.items == NULL ? "" : fields.items,
                (Py_ssize_t)(fields.count * sizeof(Found)), sound);
        else
            PyErr_NoMemory();
    }
    free(fields.items);
    Py_XDECREF(sound);
    PyBuffer_Release(&bounds);
    return result;
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
    Py_ssize_t at;
    unsigned char tag;
    unsigned long long most;
    Items bounds = {0};
    int64_t stop;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "SnbK:messages", &data, &at, &tag, &most))
        return NULL;
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    Py_ssize_t size = PyBytes_Size(data);
    Py_BEGIN_ALLOW_THREADS
    stop = follow(text, size, at < 0 ? size : at, tag, most, &bounds);
    Py_END_ALLOW_THREADS
    if (stop < 0)
        PyErr_NoMemory();
    else
        result = Py_BuildValue("y#L", bounds.items == NULL ? "" : bounds.items,
            (Py_ssize_t)(bounds.count * 2 * sizeof(int64_t)), (long long)stop);
    free(bounds.items);
    return result;
}
