/* A heap of what is due, the earliest first. */

#ifndef TRACECONV_HEAP_H
#define TRACECONV_HEAP_H

#include <Python.h>

#include <stdint.h>

typedef struct {
    int64_t time, rank;
} Due;

typedef struct {
    Due *items;
    Py_ssize_t count;
} Heap;

static inline int is_before(Due one, Due other)
{
    return one.time < other.time || (one.time == other.time && one.rank < other.rank);
}

static inline void push(Heap *heap, Due added)
{
    Py_ssize_t place = heap->count++;
    while (place > 0 && is_before(added, heap->items[(place - 1) / 2])) {
        heap->items[place] = heap->items[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap->items[place] = added;
}

static inline Due pop(Heap *heap)
{
    Due *items = heap->items, top = items[0], last = items[--heap->count];
    Py_ssize_t place = 0, child;
    while ((child = 2 * place + 1) < heap->count) {
        child += child + 1 < heap->count && is_before(items[child + 1], items[child]);
        if (!is_before(items[child], last))
            break;
        items[place] = items[child];
        place = child;
    }
    items[place] = last;
    return top;
}

#endif
