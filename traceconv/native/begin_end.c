/* Begin and end events of threads → nested slices, with one stack per thread.

   The rules are those of normalize/npulog/nesting.py. An end mostly closes the top of its thread's stack. For other ends
   the first begins of a stack are searched, and begins above them are also in a hash table: many open begins must not
   make each end slow. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#include "distinct.h"
#include "int64.h"
#include "module.h"
#include "room.h"

enum { SHALLOW = 16, NO_PARENT = -1 };
enum { IS_BEGIN, IS_END, IS_END_APART };
/* Rows of the result, each with room for all events. */
enum { BEGIN, END, DUR, SELF, DEPTH, PARENT, UNFINISHED, STILL_OPEN, ROWS };
static const int64_t none = -1, still_open = -2;

/* The begins of a thread that are open, the outermost first, which is their order in the log; the last `noted` ones are
   in the table. */
typedef struct {
    int64_t *places;
    size_t depth, room, noted;
    uint32_t thread;
} Stack;

/* A thread and key, and the place of the latest open begin of these above the first ones, -1: none. */
typedef struct {
    uint64_t key;
    int64_t place;
    uint32_t thread, used;
} Slot;

typedef struct {
    const uint32_t *threads;
    const uint64_t *keys;
    const uint8_t *halves;
    const int64_t *ns, *ids;
    int64_t *child_ns, *out;
    size_t count;
    Stack *stacks;
    size_t stack_count, stack_room;
    uint32_t *stack_slots; /* number of a thread's stack plus one */
    size_t stack_slot_count;
    Slot *slots;
    size_t slot_count, slots_used;
    int64_t *older; /* place of a begin in the table → the one with its thread and key before it, or -1 */
    long long unmatched, negative, too_long;
} Work;

static int64_t *row(Work *work, int number)
{
    return work->out + (size_t)number * work->count;
}

static int more_stack_slots(Work *work)
{
    size_t count = work->stack_slot_count ? work->stack_slot_count * 4 : 64;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (size_t number = 0; number < work->stack_count; number++) {
        size_t at = (size_t)hash_of_words(work->stacks[number].thread, 0) & (count - 1);
        while (slots[at])
            at = (at + 1) & (count - 1);
        slots[at] = (uint32_t)number + 1;
    }
    free(work->stack_slots);
    work->stack_slots = slots;
    work->stack_slot_count = count;
    return 1;
}

/* The stack of a thread, which is new at its first event. */
static Stack *stack_of(Work *work, uint32_t thread)
{
    if (work->stack_count * 2 >= work->stack_slot_count && !more_stack_slots(work))
        return NULL;
    size_t at = (size_t)hash_of_words(thread, 0) & (work->stack_slot_count - 1);
    for (; work->stack_slots[at]; at = (at + 1) & (work->stack_slot_count - 1))
        if (work->stacks[work->stack_slots[at] - 1].thread == thread)
            return &work->stacks[work->stack_slots[at] - 1];
    if (!room_for_one(&work->stacks, work->stack_count, &work->stack_room, sizeof *work->stacks, 16))
        return NULL;
    work->stacks[work->stack_count] = (Stack){.thread = thread};
    work->stack_slots[at] = (uint32_t)++work->stack_count;
    return &work->stacks[work->stack_count - 1];
}

static Slot *slot_in(Slot *slots, size_t count, uint32_t thread, uint64_t key)
{
    size_t at = (size_t)hash_of_words(key, thread) & (count - 1);
    while (slots[at].used && (slots[at].key != key || slots[at].thread != thread))
        at = (at + 1) & (count - 1);
    return &slots[at];
}

/* Add a begin to the table. */
static int note_deep(Work *work, int64_t place)
{
    if (work->slots_used * 2 >= work->slot_count) {
        size_t count = work->slot_count ? work->slot_count * 4 : 256;
        Slot *slots = calloc(count, sizeof *slots);
        if (slots == NULL)
            return 0;
        work->slots_used = 0;
        for (size_t at = 0; at < work->slot_count; at++)
            if (work->slots[at].used && work->slots[at].place != none) {
                *slot_in(slots, count, work->slots[at].thread, work->slots[at].key) = work->slots[at];
                work->slots_used++;
            }
        free(work->slots);
        work->slots = slots;
        work->slot_count = count;
    }
    if (work->older == NULL && (work->older = malloc(work->count * sizeof *work->older)) == NULL)
        return 0;
    uint32_t thread = work->threads[place];
    Slot *slot = slot_in(work->slots, work->slot_count, thread, work->keys[place]);
    work->slots_used += !slot->used;
    work->older[place] = slot->used ? slot->place : none;
    *slot = (Slot){work->keys[place], place, thread, 1};
    return 1;
}

/* Remove a begin, which is the latest of its thread and key, from the table if it is there. */
static void forget_deep(Work *work, Stack *stack, int64_t place)
{
    if (stack->noted == 0)
        return;
    Slot *slot = slot_in(work->slots, work->slot_count, work->threads[place], work->keys[place]);
    if (slot->used && slot->place == place) {
        slot->place = work->older[place];
        stack->noted--;
    }
}

/* Where in a stack the latest begin with a key is; its depth if there is none. */
static size_t find(Work *work, const Stack *stack, uint64_t key)
{
    if (stack->noted > 0) {
        const Slot *slot = slot_in(work->slots, work->slot_count, stack->thread, key);
        if (slot->used && slot->place != none) {
            size_t low = 0, high = stack->depth; /* the last place not above it */
            while (high - low > 1) {
                size_t middle = low + (high - low) / 2;
                if (stack->places[middle] <= slot->place)
                    low = middle;
                else
                    high = middle;
            }
            return low;
        }
    }
    for (size_t at = stack->depth < SHALLOW ? stack->depth : SHALLOW; at > 0; at--)
        if (work->keys[stack->places[at - 1]] == key)
            return at - 1;
    return stack->depth;
}

/* The row of a begin: at its own place, so that rows are in the order of the log. */
static void close_slice(Work *work, const Stack *stack, size_t at, int64_t end, int64_t dur, int unknown)
{
    int64_t place = stack->places[at];
    row(work, END)[place] = end;
    row(work, DUR)[place] = unknown ? 0 : dur;
    row(work, SELF)[place] = unknown ? 0 : dur - work->child_ns[place];
    row(work, DEPTH)[place] = (int64_t)at;
    row(work, PARENT)[place] = at > 0 ? work->ids[stack->places[at - 1]] : NO_PARENT;
    row(work, UNFINISHED)[place] = unknown;
}

static void take_end(Work *work, Stack *stack, int64_t place)
{
    size_t at = stack->depth;
    uint64_t key = work->keys[place];
    if (at > 0 && work->keys[stack->places[at - 1]] == key)
        at--;
    else if ((at = find(work, stack, key)) == stack->depth) {
        work->unmatched++;
        return;
    }
    int apart = work->halves[place] == IS_END_APART;
    int64_t begin = stack->places[at];
    for (size_t above = stack->depth - 1; !apart && above > at; above--) {
        close_slice(work, stack, above, none, 0, 1);
        forget_deep(work, stack, stack->places[above]);
    }
    int64_t start = work->ns[begin], stop = work->ns[place];
    int negative = stop < start, beyond = !negative && start < 0 && stop > INT64_MAX + start;
    int64_t dur = negative || beyond ? 0 : stop - start;
    work->negative += negative;
    work->too_long += beyond;
    if (at > 0) {
        int64_t *child_ns = &work->child_ns[stack->places[at - 1]];
        *child_ns = *child_ns > INT64_MAX - dur ? INT64_MAX : *child_ns + dur;
    }
    close_slice(work, stack, at, place, dur, beyond || negative);
    forget_deep(work, stack, begin);
    if (apart)
        memmove(stack->places + at, stack->places + at + 1, (stack->depth - at - 1) * sizeof *stack->places);
    stack->depth = apart ? stack->depth - 1 : at;
}

static int take_events(Work *work)
{
    Stack *stack = NULL;
    for (size_t place = 0; place < work->count; place++) {
        row(work, END)[place] = still_open;
        if (stack == NULL || stack->thread != work->threads[place])
            if ((stack = stack_of(work, work->threads[place])) == NULL)
                return 0;
        if (work->halves[place] != IS_BEGIN) {
            take_end(work, stack, (int64_t)place);
            continue;
        }
        int is_deep = stack->depth >= SHALLOW || stack->noted > 0;
        if (!room_for_one(&stack->places, stack->depth, &stack->room, sizeof *stack->places, 8)
            || (is_deep && !note_deep(work, (int64_t)place)))
            return 0;
        stack->noted += (size_t)is_deep;
        stack->places[stack->depth++] = (int64_t)place;
    }
    return 1;
}

static int by_thread(const void *one, const void *other)
{
    uint32_t left = ((const Stack *)one)->thread, right = ((const Stack *)other)->thread;
    return (left > right) - (left < right);
}

/* Move the rows of begins that are closed to the front, and list those that are open. */
static void gather_rows(Work *work, size_t *closed, size_t *open)
{
    size_t kept = 0;
    for (size_t place = 0; place < work->count; place++) {
        if (row(work, END)[place] == still_open)
            continue;
        row(work, BEGIN)[kept] = (int64_t)place;
        for (int number = END; number <= UNFINISHED; number++)
            row(work, number)[kept] = row(work, number)[place];
        kept++;
    }
    *closed = kept;
    if (work->stack_count > 0)
        qsort(work->stacks, work->stack_count, sizeof *work->stacks, by_thread);
    for (size_t number = 0; number < work->stack_count; number++)
        for (size_t at = 0; at < work->stacks[number].depth; at++)
            row(work, STILL_OPEN)[(*open)++] = work->stacks[number].places[at];
}

PyObject *native_nest(PyObject *module, PyObject *args)
{
    static const char *const names = "threads, keys, halves, ns, ids, child_ns or rows of no array of one length";
    enum { INPUTS = 7 };
    PyObject *given[INPUTS], *found = NULL;
    Py_buffer buffers[INPUTS];
    const size_t sizes[INPUTS] = {4, 8, 1, 8, 8, 8, 8 * ROWS};
    size_t count, closed = 0, open = 0;
    int sound = 1, done = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOO:nest", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6])
        || !get_buffers(given, buffers, 5, INPUTS))
        return NULL;
    count = (size_t)buffers[0].len / sizes[0];
    for (int input = 0; input < INPUTS; input++) {
        size_t align = sizes[input] < 8 ? sizes[input] : 8;
        sound &= (size_t)buffers[input].len == count * sizes[input] && (uintptr_t)buffers[input].buf % align == 0;
    }
    if (!sound)
        PyErr_SetString(PyExc_ValueError, names);
    else {
        Work work = {
            .threads = buffers[0].buf, .keys = buffers[1].buf, .halves = buffers[2].buf, .ns = buffers[3].buf,
            .ids = buffers[4].buf, .child_ns = buffers[5].buf, .out = buffers[6].buf, .count = count,
        };
        Py_BEGIN_ALLOW_THREADS
        done = take_events(&work);
        if (done)
            gather_rows(&work, &closed, &open);
        for (size_t number = 0; number < work.stack_count; number++)
            free(work.stacks[number].places);
        free(work.stacks);
        free(work.stack_slots);
        free(work.slots);
        free(work.older);
        Py_END_ALLOW_THREADS
        found = !done ? PyErr_NoMemory()
                      : Py_BuildValue("nnLLL", (Py_ssize_t)closed, (Py_ssize_t)open, work.unmatched, work.negative,
                            work.too_long);
    }
    release(buffers, INPUTS);
    return found;
}
