#define PY_SSIZE_T_CLEAN
#include "distinct.h"

#include <stdlib.h>

static uint64_t seed;

int seed_distinct(void)
{
    PyObject *salt = PyBytes_FromString("distinct stretches of a text");
    if (salt == NULL)
        return -1;
    seed = (uint64_t)PyObject_Hash(salt);
    Py_DECREF(salt);
    return 0;
}

static uint64_t hash_of(Text at, size_t size, Text end)
{
    uint64_t hash = seed ^ size;
    for (;;) {
        hash = (hash ^ word_of(at, size, end)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
        if (size <= WORD)
            break;
        at += WORD;
        size -= WORD;
    }
    hash *= 0xBF58476D1CE4E5B9u;
    return hash ^ hash >> 32;
}

static int more_slots(Distinct *known)
{
    size_t count = known->slot_count ? known->slot_count * 4 : 256;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (int32_t code = 0; code < known->count; code++) {
        size_t slot = known->hash[code] & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint32_t)code + 1;
    }
    free(known->slots);
    known->slots = slots;
    known->slot_count = count;
    return 1;
}

static int more_room(Distinct *known)
{
    int32_t room = known->room ? known->room * 2 : 128;
    int32_t *start = realloc(known->start, (size_t)room * sizeof *start);
    if (start != NULL)
        known->start = start;
    int32_t *size = realloc(known->size, (size_t)room * sizeof *size);
    if (size != NULL)
        known->size = size;
    uint64_t *hash = realloc(known->hash, (size_t)room * sizeof *hash);
    if (hash != NULL)
        known->hash = hash;
    if (start == NULL || size == NULL || hash == NULL)
        return 0;
    known->room = room;
    return 1;
}

int32_t code_of(Distinct *known, Text begin, Text end, Text at, size_t size)
{
    uint64_t hash = hash_of(at, size, end);
    if ((size_t)known->count * 2 >= known->slot_count && !more_slots(known))
        return -1;
    size_t slot = hash & (known->slot_count - 1);
    while (known->slots[slot]) {
        int32_t code = (int32_t)(known->slots[slot] - 1);
        /* Of one size up to a word, different stretches have different hashes. */
        if (known->hash[code] == hash && (size_t)known->size[code] == size
            && (size <= WORD || memcmp(begin + known->start[code], at, size) == 0))
            return code;
        slot = (slot + 1) & (known->slot_count - 1);
    }
    if (known->count == known->room && !more_room(known))
        return -1;
    known->start[known->count] = (int32_t)(at - begin);
    known->size[known->count] = (int32_t)size;
    known->hash[known->count] = hash;
    known->slots[slot] = (uint32_t)known->count + 1;
    return known->count++;
}

PyObject *distinct_list(const Distinct *known, Text begin)
{
    PyObject *list = PyList_New(known->count);
    for (int32_t code = 0; list != NULL && code < known->count; code++) {
        PyObject *one = PyBytes_FromStringAndSize((const char *)begin + known->start[code], known->size[code]);
        if (one == NULL || PyList_SetItem(list, code, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

void free_distinct(Distinct *known)
{
    free(known->slots);
    free(known->start);
    free(known->size);
    free(known->hash);
}
