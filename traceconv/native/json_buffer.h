/* JSON texts in a growing buffer. */

#ifndef TRACECONV_JSON_BUFFER_H
#define TRACECONV_JSON_BUFFER_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

/* Of a 64-bit integer, with its sign. */
enum { INTEGER_BYTES = 20 };

/* LEFT: Python does it. FAILED: with an exception set. */
typedef enum { DONE, LEFT, FAILED } Result;

typedef struct {
    uint8_t *data;
    size_t size, room;
} Buffer;

/* Room for `more` bytes; NULL with an exception set. */
static uint8_t *room_for(Buffer *buffer, size_t more)
{
    if (buffer->room - buffer->size < more) {
        size_t room = buffer->room * 2 + more + 256;
        uint8_t *data = realloc(buffer->data, room);
        if (data == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    return buffer->data + buffer->size;
}

static int put(Buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return 1;
    uint8_t *room = room_for(buffer, size);
    if (room == NULL)
        return 0;
    memcpy(room, data, size);
    buffer->size += size;
    return 1;
}

/* UTF-8 as a JSON string. */
static int put_quoted(Buffer *buffer, const uint8_t *at, size_t size)
{
    static const char short_ones[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    const uint8_t *end = at + size, *plain = at;
    /* Most texts need no escapes: the room for one without. */
    if (room_for(buffer, size + 2) == NULL || !put(buffer, "\"", 1))
        return 0;
    for (; at < end; at++) {
        if (*at >= 0x20 && *at != '"' && *at != '\\')
            continue;
        char text[8] = {'\\', (char)*at};
        size_t length = 2;
        if (*at < 0x20) {
            text[1] = short_ones[*at];
            if (!text[1])
                length = (size_t)snprintf(text, sizeof text, "\\u%04x", *at);
        }
        if (!put(buffer, plain, (size_t)(at - plain)) || !put(buffer, text, length))
            return 0;
        plain = at + 1;
    }
    return put(buffer, plain, (size_t)(end - plain)) && put(buffer, "\"", 1);
}

/* A double as its shortest exact text; NaN and infinities are left. */
static Result put_double(Buffer *buffer, uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    if (!isfinite(number))
        return LEFT;
    char *text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    int is_put = text != NULL && put(buffer, text, strlen(text));
    PyMem_Free(text);
    return is_put ? DONE : FAILED;
}

static Result put_unsigned(Buffer *buffer, uint64_t value)
{
    uint8_t *room = room_for(buffer, INTEGER_BYTES);
    if (room == NULL)
        return FAILED;
    buffer->size += (size_t)(put_decimal(room, value) - room);
    return DONE;
}

static Result put_integer(Buffer *buffer, int64_t value)
{
    uint8_t *room = room_for(buffer, INTEGER_BYTES);
    if (room == NULL)
        return FAILED;
    buffer->size += (size_t)(put_signed(room, value) - room);
    return DONE;
}

static int is_utf8(const uint8_t *at, size_t size)
{
    uint8_t all = 0;
    for (size_t byte = 0; byte < size; byte++)
        all |= at[byte];
    if (all < 0x80)
        return 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
    if (text == NULL)
        PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* Bytes of the trace as text; invalid UTF-8 is left. */
static Result put_text(Buffer *buffer, const uint8_t *at, size_t size)
{
    if (!is_utf8(at, size))
        return LEFT;
    return put_quoted(buffer, at, size) ? DONE : FAILED;
}

#endif
