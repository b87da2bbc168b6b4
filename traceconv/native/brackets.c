/* The end of an object or array in JSON text that may be damaged or truncated. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "json.h"
#include "module.h"

/* The first byte after the object or array that begins at `at`; NULL if it doesn't end. Only quotes, backslashes in
   strings and brackets are looked at. */
static Text end_of_bracketed(Text at, Text end)
{
    Py_ssize_t depth = 0;
    for (; at < end; at++) {
        if (*at == '"') {
            for (at = past_plain(at + 1, end); at < end && *at != '"'; at = past_plain(at, end))
                at += *at == '\\' && end - at > 1 ? 2 : 1;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if ((*at == '}' || *at == ']') && --depth <= 0) {
            return at + 1;
        }
    }
    return NULL;
}

PyObject *native_end_of_bracketed(PyObject *module, PyObject *args)
{
    PyObject *given;
    Py_ssize_t at, stop, size;
    char *text;
    Text end;
    (void)module;
    if (!PyArg_ParseTuple(args, "Snn:end_of_bracketed", &given, &at, &stop)
        || PyBytes_AsStringAndSize(given, &text, &size) < 0)
        return NULL;
    if (at < 0 || at > stop || stop > size) {
        PyErr_SetString(PyExc_ValueError, "a range outside of the text");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    end = end_of_bracketed((Text)text + at, (Text)text + stop);
    Py_END_ALLOW_THREADS
    if (end == NULL)
        Py_RETURN_NONE;
    return PyLong_FromSsize_t(end - (Text)text);
}
