/* Numbers in buffers, and sums that stay within 64 bits. */

#ifndef TRACECONV_INT64_H
#define TRACECONV_INT64_H

#include <Python.h>

#include <stdint.h>
#include <string.h>

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

#endif
