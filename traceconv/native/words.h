/* Machine words of events, for the parts that append them. */

#ifndef TRACECONV_WORDS_H
#define TRACECONV_WORDS_H

#include <Python.h>

#include <stdint.h>
#include <string.h>

/* Append all words, or none and return -1. */
static inline int append_words(PyObject *buffer, const int64_t *words, size_t count)
{
    Py_ssize_t before = PyByteArray_Size(buffer), size = (Py_ssize_t)(count * sizeof *words);
    if (before > PY_SSIZE_T_MAX - size) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyByteArray_Resize(buffer, before + size) < 0)
        return -1;
    memcpy(PyByteArray_AsString(buffer) + before, words, (size_t)size);
    return 0;
}

/* An argument as a word; 0: error. Times have several digits, which PyLong_AsLongLong takes three times as long for. */
static inline int word_of(PyObject *number, int64_t *word)
{
    int overflow;
    *word = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow)
        PyErr_SetString(PyExc_OverflowError, "a word has 64 bits");
    return !(*word == -1 && PyErr_Occurred());
}

#endif
