/* Stretches of a text, each distinct one numbered once, in the order in which they come. */

#ifndef TRACECONV_DISTINCT_H
#define TRACECONV_DISTINCT_H

#include <Python.h>

#include "json.h"

typedef struct {
    uint64_t hash;
    int32_t start, size;
} Stretch;

/* The distinct stretches, and a hash table of their numbers plus one. All zeros: none yet. */
typedef struct {
    uint32_t *slots;
    Stretch *stretches;
    size_t slot_count, count, room;
} Distinct;

/* Python's own secret, so that nobody can choose stretches that meet in one slot. */
int seed_distinct(void);

/* The number of a stretch that begins at `at` in the text from `begin` to `end`; -1 without memory. */
int32_t code_of(Distinct *known, Text begin, Text end, Text at, size_t size);

/* The stretches as a list of bytes; NULL with an exception set. */
PyObject *distinct_list(const Distinct *known, Text begin);

void free_distinct(Distinct *known);

#endif
