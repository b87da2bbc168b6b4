/* Fields of protobuf messages as JSON, by descriptors. */

#ifndef TRACECONV_TYPED_FIELDS_H
#define TRACECONV_TYPED_FIELDS_H

#include "json_buffer.h"
#include "module.h"

/* Descriptors of a message, and what its fields may refer to (interned source locations by number). */
typedef struct {
    PyObject *fields, *locations;
} Typed;

/* The dictionary value for a number, borrowed; NULL: none, or with an exception set. */
PyObject *numbered(PyObject *known, uint64_t number);

/* A message as a JSON object. `in_order`: its members in the order of their numbers, not of the message. `depth`: the
   number of messages around it. */
Result put_message(
    Buffer *buffer, const Typed *typed, const uint8_t *at, const uint8_t *end, int in_order, int depth);

#endif
