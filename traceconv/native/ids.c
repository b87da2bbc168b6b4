/* Texts of IDs → a number for each: an integer's own, else Python's hash of the text, which no source can choose. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

/* 0 with an exception set if a row is outside of the data or not UTF-8. */
static int number_of(const Rows *texts, Py_ssize_t row, int64_t *number)
{
    Text at, end;
    if (!row_of(texts, row, &at, &end)) {
        PyErr_SetString(PyExc_ValueError, "offsets beyond the data");
        return 0;
    }
    if (parse_int64(at, end, number))
        return 1;
    PyObject *text = PyUnicode_FromStringAndSize((const char *)at, end - at);
    if (text == NULL)
        return 0;
    *number = (int64_t)PyObject_Hash(text);
    Py_DECREF(text);
    return 1;
}

PyObject *native_id_numbers(PyObject *module, PyObject *args)
{
    Rows texts;
    PyObject *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*:id_numbers", &texts.offsets, &texts.data))
        return NULL;
    if (count_rows(&texts))
        found = PyBytes_FromStringAndSize(NULL, texts.count * (Py_ssize_t)sizeof(int64_t));
    int64_t *numbers = found == NULL ? NULL : (int64_t *)PyBytes_AsString(found);
    for (Py_ssize_t row = 0; numbers != NULL && row < texts.count; row++)
        if (!number_of(&texts, row, &numbers[row])) {
            Py_CLEAR(found);
            break;
        }
    release_rows(&texts);
    return found;
}
