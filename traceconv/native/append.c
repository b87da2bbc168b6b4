/* Events of the runtime as machine words: one call per event instead of one to pack it and one to append it. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include <stdint.h>
#include <string.h>

enum { MOST_WORDS = 16 };

PyObject *native_append(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    int64_t words[MOST_WORDS];
    if (count < 1 || count > 1 + MOST_WORDS || !PyByteArray_Check(args[0])) {
        PyErr_Format(PyExc_TypeError, "append() takes a bytearray and at most %d words", (int)MOST_WORDS);
        return NULL;
    }
    /* Converting may run Python code, which may append too: the size is read after that. */
    for (Py_ssize_t place = 1; place < count; place++) {
        words[place - 1] = PyLong_AsLongLong(args[place]);
        if (words[place - 1] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_ssize_t before = PyByteArray_Size(args[0]), size = 8 * (count - 1);
    if (before > PY_SSIZE_T_MAX - size)
        return PyErr_NoMemory();
    if (PyByteArray_Resize(args[0], before + size) < 0)
        return NULL;
    memcpy(PyByteArray_AsString(args[0]) + before, words, (size_t)size);
    Py_RETURN_NONE;
}
