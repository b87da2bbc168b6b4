/* Bytes that are written one after another. Each function returns where the next are to be written. */

#ifndef TRACECONV_PUT_H
#define TRACECONV_PUT_H

#include "digits.h"
#include "json.h"

/* Bytes that are copied at once, which is faster than the exact number. */
enum { STRIDE = 16 };

static inline uint8_t *put(uint8_t *out, Text text, size_t size)
{
    if (size)
        memcpy(out, text, size);
    return out + size;
}

/* The same for bytes that STRIDE - 1 bytes follow, which are copied too. */
static inline uint8_t *put_padded(uint8_t *out, Text text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at += STRIDE)
        memcpy(out + at, text + at, STRIDE);
    return out + size;
}

/* The same for bytes of a text; nothing after `last` is read. */
static inline uint8_t *put_text(uint8_t *out, Text at, Text end, Text last)
{
    return last - end >= STRIDE ? put_padded(out, at, end - at) : put(out, at, (size_t)(end - at));
}

static inline uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

#endif
