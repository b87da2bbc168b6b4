/* Protobuf's wire format, read in place, field by field. Nothing is read beyond the end, nothing is allocated. */

#ifndef TRACECONV_PROTOBUF_H
#define TRACECONV_PROTOBUF_H

#include <stdint.h>
#include <string.h>

#include "module.h"

enum { VARINT = 0, FIXED64 = 1, LEN = 2, FIXED32 = 5 };

/* One field. `value`: the number; for LEN the size of the data at `at`. */
typedef struct {
    uint32_t number;
    int kind;
    uint64_t value;
    const uint8_t *at;
} Field;

/* A field of one of many messages, as in wire/protobuf.py. */
typedef struct {
    int64_t row, at;
    uint64_t value;
    int32_t number, kind;
} Found;
SIZE(Found, 32);
AT(Found, row, 0); AT(Found, at, 8); AT(Found, value, 16); AT(Found, number, 24); AT(Found, kind, 28);

/* Parse the varint at `at`; return its end, or NULL if it is truncated or has more than ten bytes. */
static inline const uint8_t *past_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    if (at < end && *at < 0x80) { /* as most are */
        *value = *at;
        return at + 1;
    }
    *value = 0;
    for (int shift = 0; at < end && shift < 70; shift += 7) {
        uint8_t byte = *at++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return at;
    }
    return NULL;
}

/* Read the field at `at`; returns where it ends, NULL if it is malformed or truncated. */
static inline const uint8_t *past_field(const uint8_t *at, const uint8_t *end, Field *field)
{
    uint64_t tag;
    at = past_varint(at, end, &tag);
    if (at == NULL || tag >> 3 == 0 || tag >> 3 > (1 << 29) - 1)
        return NULL;
    field->number = (uint32_t)(tag >> 3);
    field->kind = (int)(tag & 7);
    field->at = at;
    size_t size = field->kind == FIXED64 ? 8 : 4;
    switch (field->kind) {
    case VARINT:
        return past_varint(at, end, &field->value);
    case LEN:
        at = past_varint(at, end, &field->value);
        if (at == NULL || field->value > (uint64_t)(end - at))
            return NULL;
        field->at = at;
        return at + field->value;
    case FIXED64:
    case FIXED32:
        if ((size_t)(end - at) < size)
            return NULL;
        field->value = 0;
        for (size_t byte = 0; byte < size; byte++)
            field->value |= (uint64_t)at[byte] << 8 * byte;
        return at + size;
    default:
        return NULL;
    }
}

#endif
