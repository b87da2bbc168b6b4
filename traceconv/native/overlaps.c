/* Whether slices overlap others on their line, a track and depth. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "int64.h"
#include "module.h"

enum { LINES, STARTS, STOPS, ORDER, LAST, ALL };

/* 1 if every slice starts after the previous one of its line has ended, 0 if not, -1 if a row or line doesn't exist. */
static int are_apart(const Py_buffer *got)
{
    Py_ssize_t rows = items(&got[LINES]), count = items(&got[ORDER]), line_count = items(&got[LAST]);
    int64_t *last = got[LAST].buf;
    if (items(&got[STARTS]) != rows || items(&got[STOPS]) != rows)
        return -1;
    for (Py_ssize_t place = 0; place < count; place++) {
        int64_t row = item(&got[ORDER], place), line;
        if (row < 0 || row >= rows || (line = item(&got[LINES], (Py_ssize_t)row)) < 0 || line >= line_count)
            return -1;
        if (item(&got[STARTS], (Py_ssize_t)row) < last[line])
            return 0;
        last[line] = item(&got[STOPS], (Py_ssize_t)row);
    }
    return 1;
}

PyObject *native_apart(PyObject *module, PyObject *args)
{
    Py_buffer got[ALL];
    int found;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*:apart", &got[LINES], &got[STARTS], &got[STOPS], &got[ORDER], &got[LAST]))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = are_apart(got);
    Py_END_ALLOW_THREADS
    release(got, ALL);
    if (found < 0)
        PyErr_SetString(PyExc_ValueError, "a row or line outside of the array");
    return found < 0 ? NULL : PyBool_FromLong(found);
}
