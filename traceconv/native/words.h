/* Buffers of events, and their machine words. */

#ifndef TRACECONV_WORDS_H
#define TRACECONV_WORDS_H

#include <Python.h>

#include <stdint.h>
#include <string.h>

/* Bytes of events that wait for a delivery: from `start` to `size`. */
typedef struct {
    PyObject_HEAD
    char *bytes;
    size_t start, size, room;
} Buffer;

int is_buffer(PyObject *object);
/* Make room for more bytes; 0: error. */
int grow_buffer(Buffer *buffer, size_t size);

/* Append bytes, or none and return -1. */
static inline int append_bytes(PyObject *object, const void *bytes, size_t size)
{
    Buffer *buffer = (Buffer *)object;
    if (size > buffer->room - buffer->size && !grow_buffer(buffer, size))
        return -1;
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return 0;
}

static inline int append_words(PyObject *buffer, const int64_t *words, size_t count)
{
    return append_bytes(buffer, words, count * sizeof *words);
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
