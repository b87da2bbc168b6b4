/* Bounds of consecutive protobuf messages, without the interpreter lock. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include "protobuf.h"
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
