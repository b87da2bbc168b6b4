/* Arrow's binary arrays (int32 offsets, data): some of their rows, and the whole numbers that they spell. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "json.h"
#include "module.h"

typedef struct {
    const int32_t *offsets;
    Text data;
    Py_ssize_t count, size;
} Texts;

/* The bytes of a row; 0 when it lies outside of the data. */
static int stretch_of(const Texts *texts, int64_t row, Text *at, Text *end)
{
    if (row < 0 || row >= texts->count)
        return 0;
    int32_t first = texts->offsets[row], last = texts->offsets[row + 1];
    if (first < 0 || last < first || last > texts->size)
        return 0;
    *at = texts->data + first;
    *end = texts->data + last;
    return 1;
}

/* The bytes that the rows have in all; -1 when one lies outside of the data, or they are more than 2 GB. */
static int64_t size_of(const Texts *texts, const int64_t *rows, Py_ssize_t count)
{
    int64_t size = 0;
    Text at, end;
    for (Py_ssize_t place = 0; place < count; place++) {
        if (!stretch_of(texts, rows[place], &at, &end))
            return -1;
        size += end - at;
    }
    return size > INT32_MAX ? -1 : size;
}

static void copy_rows(const Texts *texts, const int64_t *rows, Py_ssize_t count, int32_t *ends, uint8_t *out)
{
    int32_t size = 0;
    Text at = NULL, end = NULL;
    ends[0] = 0;
    for (Py_ssize_t place = 0; place < count; place++) {
        stretch_of(texts, rows[place], &at, &end);
        if (end > at)
            memcpy(out + size, at, (size_t)(end - at));
        size += (int32_t)(end - at);
        ends[place + 1] = size;
    }
}

static int get_texts(Texts *texts, const Py_buffer *offsets, const Py_buffer *data)
{
    texts->offsets = offsets->buf;
    texts->count = offsets->len / (Py_ssize_t)sizeof(int32_t) - 1;
    texts->data = data->buf;
    texts->size = data->len;
    if (texts->count >= 0)
        return 1;
    PyErr_SetString(PyExc_ValueError, "offsets of no array");
    return 0;
}

PyObject *native_take(PyObject *module, PyObject *args)
{
    Py_buffer offsets, data, rows;
    Texts texts;
    PyObject *ends = NULL, *taken = NULL, *found = NULL;
    int64_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*:take", &offsets, &data, &rows))
        return NULL;
    Py_ssize_t count = rows.len / (Py_ssize_t)sizeof(int64_t);
    if (!get_texts(&texts, &offsets, &data))
        goto done;
    Py_BEGIN_ALLOW_THREADS
    size = size_of(&texts, rows.buf, count);
    Py_END_ALLOW_THREADS
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "a row outside of the array, or more than 2 GB");
        goto done;
    }
    ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    taken = ends == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (taken == NULL)
        goto done;
    int32_t *ends_out = (int32_t *)PyBytes_AsString(ends);
    uint8_t *out = (uint8_t *)PyBytes_AsString(taken);
    Py_BEGIN_ALLOW_THREADS
    copy_rows(&texts, rows.buf, count, ends_out, out);
    Py_END_ALLOW_THREADS
    found = PyTuple_Pack(2, ends, taken);
done:
    Py_XDECREF(ends);
    Py_XDECREF(taken);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&rows);
    return found;
}

static int read_wholes(const Texts *texts, int64_t *numbers)
{
    Text at, end;
    for (Py_ssize_t row = 0; row < texts->count; row++)
        if (!stretch_of(texts, row, &at, &end) || !whole_number(at, end, &numbers[row]))
            return 0;
    return 1;
}

PyObject *native_whole_numbers(PyObject *module, PyObject *args)
{
    Py_buffer offsets, data;
    Texts texts;
    PyObject *numbers = NULL, *found = NULL;
    int taken;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*:whole_numbers", &offsets, &data))
        return NULL;
    if (!get_texts(&texts, &offsets, &data))
        goto done;
    numbers = PyBytes_FromStringAndSize(NULL, texts.count * (Py_ssize_t)sizeof(int64_t));
    if (numbers == NULL)
        goto done;
    int64_t *out = (int64_t *)PyBytes_AsString(numbers);
    Py_BEGIN_ALLOW_THREADS
    taken = read_wholes(&texts, out);
    Py_END_ALLOW_THREADS
    found = Py_NewRef(taken ? numbers : Py_None);
done:
    Py_XDECREF(numbers);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return found;
}
