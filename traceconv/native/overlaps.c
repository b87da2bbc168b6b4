/* Whether slices overlap others on their line, a track and depth. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "int64.h"
#include "module.h"

/* 1 if every slice starts after the previous one of its line has ended, 0 if not, -1 if a row or line doesn't exist. */
static int are_apart(const Py_buffer *lines, const Py_buffer *starts, const Py_buffer *stops, const Py_buffer *order,
    const Py_buffer *ends)
{
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t rows = lines->len / size, count = order->len / size, line_count = ends->len / size;
    if (starts->len / size != rows || stops->len / size != rows)
        return -1;
    for (Py_ssize_t place = 0; place < count; place++) {
        int64_t row = item(order, place), line;
        if (row < 0 || row >= rows || (line = item(lines, (Py_ssize_t)row)) < 0 || line >= line_count)
            return -1;
        if (item(starts, (Py_ssize_t)row) < item(ends, (Py_ssize_t)line))
            return 0;
        int64_t stop = item(stops, (Py_ssize_t)row);
        memcpy((uint8_t *)ends->buf + (size_t)line * sizeof stop, &stop, sizeof stop);
    }
    return 1;
}

PyObject *native_apart(PyObject *module, PyObject *args)
{
    Py_buffer lines, starts, stops, order, ends;
    int found;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*:apart", &lines, &starts, &stops, &order, &ends))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = are_apart(&lines, &starts, &stops, &order, &ends);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&lines);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&stops);
    PyBuffer_Release(&order);
    PyBuffer_Release(&ends);
    if (found < 0)
        PyErr_SetString(PyExc_ValueError, "a row or line outside of the array");
    return found < 0 ? NULL : PyBool_FromLong(found);
}
