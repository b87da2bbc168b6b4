/* Texts of IDs → a number for each: an integer's own, else Python's hash of the text, which no source can choose. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

enum { MOST_INT64_DIGITS = 19 };

/* Read an integer of 64 bits as it is usually written; 0 if the text is anything else, such as 07 or -0. */
static int own_number(Text at, Text end, int64_t *number)
{
    int negative = at < end && *at == '-';
    at += negative;
    if (at == end || end - at > MOST_INT64_DIGITS || (*at == '0' && (negative || end - at > 1)))
        return 0;
    uint64_t value = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        value = value * 10 + (*at - '0');
    }
    if (value > (uint64_t)INT64_MAX + negative)
        return 0;
    *number = (int64_t)(negative ? 0 - value : value);
    return 1;
}

/* 0 with an exception set if a row is outside of the data or not UTF-8. */
static int number_of(const Rows *texts, Py_ssize_t row, int64_t *number)
{
    Text at, end;
    if (!row_of(texts, row, &at, &end)) {
        PyErr_SetString(PyExc_ValueError, "offsets beyond the data");
        return 0;
    }
    if (own_number(at, end, number))
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
