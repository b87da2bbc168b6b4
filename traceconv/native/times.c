/* Texts of numbers → integer nanoseconds, exactly, without rounding.

   It supports plain numbers, quoted or not, that are not finer than a nanosecond. If there is anything else among
   them, it returns None, and the texts are parsed in Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

enum { MOST_PLACES = 18 };

/* Append a digit; 0 if the number would exceed 63 bits. */
static inline int append(int64_t *value, int digit)
{
    if (*value > (INT64_MAX - 9) / 10 && *value > (INT64_MAX - digit) / 10)
        return 0;
    *value = *value * 10 + digit;
    return 1;
}

/* Read [-]digits[.digits], in units of 10^places; 0 if it is something else, too fine, or beyond 63 bits. */
static int read_number(Text at, Text end, int places, int64_t *number)
{
    int negative = 0, left = places;
    int64_t value = 0;
    if (end - at >= 2 && *at == '"' && end[-1] == '"') {
        at++;
        end--;
    }
    if (at < end && *at == '-') {
        negative = 1;
        at++;
    }
    Text digits = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (!append(&value, *at - '0'))
            return 0;
    if (at == digits)
        return 0;
    if (at < end && *at == '.') {
        digits = ++at;
        for (; at < end && *at >= '0' && *at <= '9'; at++) {
            if (left == 0) {
                if (*at != '0')
                    return 0;
                continue;
            }
            if (!append(&value, *at - '0'))
                return 0;
            left--;
        }
        if (at == digits)
            return 0;
    }
    if (at != end)
        return 0;
    for (; left > 0; left--)
        if (!append(&value, 0))
            return 0;
    *number = negative ? -value : value;
    return 1;
}

/* 0 if one is not accepted. Empty values are absent: 0. */
static int read_numbers(const Rows *texts, int places, int64_t *ns, uint8_t *absent)
{
    Text at, end;
    for (Py_ssize_t row = 0; row < texts->count; row++) {
        if (!row_of(texts, row, &at, &end))
            return 0;
        absent[row] = end == at;
        ns[row] = 0;
        if (end > at && !read_number(at, end, places, &ns[row]))
            return 0;
    }
    return 1;
}

PyObject *native_times(PyObject *module, PyObject *args)
{
    Rows texts;
    int places, taken;
    PyObject *ns = NULL, *absent = NULL, *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*i:times", &texts.offsets, &texts.data, &places))
        return NULL;
    if (!count_rows(&texts))
        goto done;
    if (places < 0 || places > MOST_PLACES) {
        PyErr_SetString(PyExc_ValueError, "places beyond 18");
        goto done;
    }
    ns = PyBytes_FromStringAndSize(NULL, texts.count * (Py_ssize_t)sizeof(int64_t));
    absent = PyBytes_FromStringAndSize(NULL, texts.count);
    if (ns == NULL || absent == NULL)
        goto done;
    int64_t *ns_out = (int64_t *)PyBytes_AsString(ns);
    uint8_t *absent_out = (uint8_t *)PyBytes_AsString(absent);
    Py_BEGIN_ALLOW_THREADS
    taken = read_numbers(&texts, places, ns_out, absent_out);
    Py_END_ALLOW_THREADS
    found = taken ? PyTuple_Pack(2, ns, absent) : Py_NewRef(Py_None);
done:
    Py_XDECREF(ns);
    Py_XDECREF(absent);
    release_rows(&texts);
    return found;
}
