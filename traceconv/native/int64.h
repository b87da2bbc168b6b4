/* Numbers in buffers, and sums and differences that stay within 64 bits. */

#ifndef TRACECONV_INT64_H
#define TRACECONV_INT64_H

#include <Python.h>

#include <stdint.h>
#include <string.h>

/* Get contiguous buffers: `read` of them to read, then those to write; 0 with an exception set if one is missing. */
static inline int get_buffers(PyObject *const *given, Py_buffer *got, int read, int count)
{
    for (int place = 0; place < count; place++)
        if (PyObject_GetBuffer(given[place], &got[place], place < read ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0) {
            while (place > 0)
                PyBuffer_Release(&got[--place]);
            return 0;
        }
    return 1;
}

static inline void release(Py_buffer *got, int count)
{
    while (count > 0)
        PyBuffer_Release(&got[--count]);
}

static inline Py_ssize_t items(const Py_buffer *numbers)
{
    return numbers->len / (Py_ssize_t)sizeof(int64_t);
}

static inline int64_t item(const Py_buffer *numbers, Py_ssize_t place)
{
    int64_t number;
    memcpy(&number, (const uint8_t *)numbers->buf + (size_t)place * sizeof number, sizeof number);
    return number;
}

static inline int64_t later(int64_t time, int64_t delay)
{
    int64_t sum;
    if (__builtin_add_overflow(time, delay, &sum))
        return delay < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

/* The time from one to another that is not earlier. */
static inline int64_t between(int64_t from, int64_t to)
{
    int64_t difference;
    return __builtin_sub_overflow(to, from, &difference) ? INT64_MAX : difference;
}

#endif
