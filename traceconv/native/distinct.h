/* Numbers the distinct ranges of a text in the order of their first use. */

#ifndef TRACECONV_DISTINCT_H
#define TRACECONV_DISTINCT_H

#include <Python.h>

#include "json.h"

typedef struct {
    uint64_t hash;
    int32_t start, size;
} Stretch;

/* The distinct ranges, a hash table of their numbers plus one, and the number that was found last. All zeros: empty. */
typedef struct {
    uint32_t *slots;
    Stretch *stretches;
    size_t slot_count, count, room;
    int32_t last;
} Distinct;

/* Python's hash secret, so that nobody can choose ranges that collide. */
int seed_distinct(void);

/* A hash of two numbers with that secret. */
uint64_t hash_of_words(uint64_t one, uint64_t other);

/* The number of the range at `at` in the text from `begin` to `end`; -1 if out of memory. */
int32_t code_of(Distinct *known, Text begin, Text end, Text at, size_t size);

/* The ranges as a list of bytes; NULL with an exception set. */
PyObject *distinct_list(const Distinct *known, Text begin);

void free_distinct(Distinct *known);

#endif
