#define PY_SSIZE_T_CLEAN
#include "distinct.h"

#include "room.h"

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

uint64_t hash_of_words(uint64_t one, uint64_t other)
{
    uint64_t hash = (seed ^ one) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 29 ^ other) * 0xBF58476D1CE4E5B9u;
    return hash ^ hash >> 32;
}

static int more_slots(Distinct *known)
{
    size_t count = known->slot_count ? known->slot_count * 4 : 256;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (size_t code = 0; code < known->count; code++) {
        size_t slot = known->stretches[code].hash & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint32_t)code + 1;
    }
    free(known->slots);
    known->slots = slots;
    known->slot_count = count;
    return 1;
}

static inline int is_same(const Stretch *stretch, Text begin, Text end, Text at, size_t size)
{
    Text other = begin + stretch->start;
    if ((size_t)stretch->size != size)
        return 0;
    return size <= WORD ? word_of(other, size, end) == word_of(at, size, end) : memcmp(other, at, size) == 0;
}

int32_t code_of(Distinct *known, Text begin, Text end, Text at, size_t size)
{
    /* Most labels are those of the event before. */
    if (known->count && is_same(&known->stretches[known->last], begin, end, at, size))
        return known->last;
    uint64_t hash = hash_of(at, size, end);
    if (known->count * 2 >= known->slot_count && !more_slots(known))
        return -1;
    size_t slot = hash & (known->slot_count - 1);
    while (known->slots[slot]) {
        const Stretch *stretch = &known->stretches[known->slots[slot] - 1];
        /* Different ranges of one size, up to a word, have different hashes. */
        if (stretch->hash == hash && (size_t)stretch->size == size
            && (size <= WORD || memcmp(begin + stretch->start, at, size) == 0))
            return known->last = (int32_t)(known->slots[slot] - 1);
        slot = (slot + 1) & (known->slot_count - 1);
    }
    if (!room_for_one(&known->stretches, known->count, &known->room, sizeof *known->stretches, 128))
        return -1;
    known->stretches[known->count] = (Stretch){hash, (int32_t)(at - begin), (int32_t)size};
    known->slots[slot] = (uint32_t)++known->count;
    return known->last = (int32_t)known->count - 1;
}

PyObject *distinct_list(const Distinct *known, Text begin)
{
    PyObject *list = PyList_New((Py_ssize_t)known->count);
    for (size_t code = 0; list != NULL && code < known->count; code++) {
        const Stretch *stretch = &known->stretches[code];
        PyObject *one = PyBytes_FromStringAndSize((const char *)begin + stretch->start, stretch->size);
        if (one == NULL || PyList_SetItem(list, (Py_ssize_t)code, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

void free_distinct(Distinct *known)
{
    free(known->slots);
    free(known->stretches);
}
