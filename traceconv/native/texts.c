/* Arrow's binary arrays (int32 offsets, data): some of their rows, and the integers in their texts. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

/* The number of bytes in the rows; -1 if one is outside of the data, or they exceed 2 GB. */
static int64_t size_of(const Rows *texts, const volatile int64_t *rows, Py_ssize_t count)
{
    int64_t size = 0;
    Text at, end;
    for (Py_ssize_t place = 0; place < count; place++) {
        if (!row_of(texts, rows[place], &at, &end))
            return -1;
        size += end - at;
    }
    return size > INT32_MAX ? -1 : size;
}

/* 0 if the size of the rows has changed. */
static int copy_rows(
    const Rows *texts, const volatile int64_t *rows, Py_ssize_t count, int32_t size, int32_t *ends, uint8_t *out)
{
    int32_t copied = 0;
    Text at, end;
    ends[0] = 0;
    for (Py_ssize_t place = 0; place < count; place++) {
        if (!row_of(texts, rows[place], &at, &end) || end - at > size - copied)
            return 0;
        if (end > at)
            memcpy(out + copied, at, (size_t)(end - at));
        copied += (int32_t)(end - at);
        ends[place + 1] = copied;
    }
    return copied == size;
}

PyObject *native_take(PyObject *module, PyObject *args)
{
    Py_buffer rows;
    Rows texts;
    PyObject *ends = NULL, *taken = NULL, *found = NULL;
    int64_t size;
    int is_same;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*:take", &texts.offsets, &texts.data, &rows))
        return NULL;
    Py_ssize_t count = rows.len / (Py_ssize_t)sizeof(int64_t);
    ends = count_rows(&texts) ? PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t)) : NULL;
    if (ends == NULL)
        goto done;
    Py_BEGIN_ALLOW_THREADS
    size = size_of(&texts, rows.buf, count);
    Py_END_ALLOW_THREADS
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "a row outside of the array, or more than 2 GB");
        goto done;
    }
    taken = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (taken == NULL)
        goto done;
    int32_t *ends_out = (int32_t *)PyBytes_AsString(ends);
    uint8_t *out = (uint8_t *)PyBytes_AsString(taken);
    Py_BEGIN_ALLOW_THREADS
    is_same = copy_rows(&texts, rows.buf, count, (int32_t)size, ends_out, out);
    Py_END_ALLOW_THREADS
    if (is_same)
        found = PyTuple_Pack(2, ends, taken);
    else
        PyErr_SetString(PyExc_ValueError, "the array changed while it was read");
done:
    Py_XDECREF(ends);
    Py_XDECREF(taken);
    release_rows(&texts);
    PyBuffer_Release(&rows);
    return found;
}

static int read_integers(const Rows *texts, int64_t *numbers)
{
    Text at, end;
    for (Py_ssize_t row = 0; row < texts->count; row++)
        if (!row_of(texts, row, &at, &end) || !parse_int64(at, end, &numbers[row]))
            return 0;
    return 1;
}

PyObject *native_integers(PyObject *module, PyObject *args)
{
    Rows texts;
    PyObject *numbers = NULL, *found = NULL;
    int taken;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*:integers", &texts.offsets, &texts.data))
        return NULL;
    if (count_rows(&texts))
        numbers = PyBytes_FromStringAndSize(NULL, texts.count * (Py_ssize_t)sizeof(int64_t));
    if (numbers == NULL)
        goto done;
    int64_t *out = (int64_t *)PyBytes_AsString(numbers);
    Py_BEGIN_ALLOW_THREADS
    taken = read_integers(&texts, out);
    Py_END_ALLOW_THREADS
    found = Py_NewRef(taken ? numbers : Py_None);
done:
    Py_XDECREF(numbers);
    release_rows(&texts);
    return found;
}
