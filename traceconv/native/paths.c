/* The chain of names of each slice, and sums per chain, step and device, from slices in ranges of time.

   A slice's parent starts no later and ends no earlier than the slice starts, so that slices that are still open at the
   end of a range of time are all that later ones need. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#include "distinct.h"
#include "int64.h"
#include "module.h"
#include "room.h"

/* NULL in a column of integers. */
static const int64_t null = INT64_MIN;
enum { CALL = -1, OUTSIDE = -1, OTHER = 1, MOST_DEPTH = 1024, CLASS_BITS = 3, IS_HOST = 4, KIND_SHIFT = 3 };
enum { WAITING, VISITED, PLACED, LOST };
enum { COLUMNS = 9, LOOKED_UP = 2, ADDED = 4, MOST_SLICES = 1 << 30 };
/* The number of paths of a run that was full before the slices that are being placed. */
#define FULL (INT64_MAX / 2)

/* PATH_DTYPE and SUM_DTYPE. The kind of a run's root is the number of paths of the run. */
typedef struct {
    int64_t parent, name, run_id, depth, first_id, kind;
} Path;
typedef struct {
    int64_t path, device_id, step_id, range_count, ended_count, host_total_ns, host_self_ns, task_count, task_ns;
} Sum;

SIZE(Path, 48);
AT(Path, parent, 0); AT(Path, name, 8); AT(Path, run_id, 16); AT(Path, depth, 24); AT(Path, first_id, 32);
AT(Path, kind, 40);
SIZE(Sum, 72);
AT(Sum, path, 0); AT(Sum, device_id, 8); AT(Sum, step_id, 16); AT(Sum, range_count, 24); AT(Sum, ended_count, 32);
AT(Sum, host_total_ns, 40); AT(Sum, host_self_ns, 48); AT(Sum, task_count, 56); AT(Sum, task_ns, 64);

typedef struct {
    int64_t run_id, id, parent_id, name, kind, step_id, start_ns, end_ns, dur_ns, self_ns;
    uint32_t path;
    uint8_t state, class;
} Slice;

/* The place of a slice, to be sorted. */
typedef struct {
    int64_t start_ns, id;
    size_t place;
} Start;

/* A place in an array plus one, with bits of its key, so that few others are compared. */
typedef struct {
    uint32_t place, tag;
} Slot;

/* A hash table of places. */
typedef struct {
    Slot *slots;
    size_t size;
} Index;

typedef struct {
    PyObject_HEAD
    Slice *slices;
    Path *paths;
    Sum *sums;
    int64_t *missing;
    uint32_t *stack;
    size_t slice_count, placed_count, slice_room, path_count, path_room, sum_count, sum_room, missing_count, missing_room, stack_room;
    Index of_slices, of_paths, of_sums;
    int64_t most_paths;
    int is_filling; /* whether a run has had new names after most_paths for the first time */
    int64_t root, root_run_id; /* of the run that was asked for last, if `has_root` */
    int has_root;
} Paths;

static inline size_t hash_of(int64_t one, int64_t other)
{
    return (size_t)hash_of_words((uint64_t)one, (uint64_t)other);
}

/* Slices with consecutive IDs are looked up together: those of eight are next to each other. */
static inline size_t hash_of_slice(int64_t run_id, int64_t id)
{
    return hash_of(run_id, id >> 3) << 3 | ((size_t)id & 7);
}

static inline size_t hash_of_sum(const Sum *sum)
{
    return hash_of(sum->path ^ (int64_t)hash_of(sum->device_id, 0), sum->step_id);
}

/* An empty index with room for twice this number; 0 if out of memory. */
static int empty_index(Index *index, size_t count)
{
    size_t size = 256;
    while (size < count * 2)
        size *= 2;
    Slot *slots = calloc(size, sizeof *slots);
    if (slots == NULL)
        return 0;
    free(index->slots);
    index->slots = slots;
    index->size = size;
    return 1;
}

static inline uint32_t tag_of(size_t hash)
{
    return (uint32_t)((uint64_t)hash >> 32);
}

static void put(Index *index, size_t hash, uint32_t tag, size_t place)
{
    size_t slot = hash & (index->size - 1);
    while (index->slots[slot].place)
        slot = (slot + 1) & (index->size - 1);
    index->slots[slot] = (Slot){(uint32_t)place + 1, tag};
}

/* The next slot from this one on with this tag, or an empty one. */
static inline size_t next_slot(const Index *index, size_t slot, uint32_t tag)
{
    slot &= index->size - 1;
    while (index->slots[slot].place && index->slots[slot].tag != tag)
        slot = (slot + 1) & (index->size - 1);
    return slot;
}

static Slice *slice_of(const Paths *paths, int64_t run_id, int64_t id)
{
    const Index *index = &paths->of_slices;
    if (index->size == 0 || id == null)
        return NULL;
    for (size_t slot = hash_of_slice(run_id, id);; slot++) {
        slot = next_slot(index, slot, (uint32_t)id);
        if (!index->slots[slot].place)
            return NULL;
        Slice *slice = &paths->slices[index->slots[slot].place - 1];
        if (slice->id == id && slice->run_id == run_id)
            return slice;
    }
}

static int64_t path_of(Paths *paths, int64_t parent, int64_t name, int64_t run_id);

static int64_t root_of(Paths *paths, int64_t run_id)
{
    if (!paths->has_root || paths->root_run_id != run_id) {
        paths->root = path_of(paths, -1, run_id, run_id);
        paths->root_run_id = run_id;
        paths->has_root = paths->root >= 0;
    }
    return paths->root;
}

/* The place of a path, which is added if it is new; -1 if out of memory. The root of a run has the parent -1.
   A run that has most_paths gets no new names: all others in the same chain are OTHER. So is all inside MOST_DEPTH names. */
static int64_t path_of(Paths *paths, int64_t parent, int64_t name, int64_t run_id)
{
    Index *index = &paths->of_paths;
    int64_t depth = parent < 0 ? -1 : paths->paths[parent].depth + 1;
    if (depth > MOST_DEPTH)
        return parent;
    if (depth == MOST_DEPTH)
        name = OTHER;
    if (paths->path_count * 2 >= index->size) {
        if (!empty_index(index, paths->path_count * 2))
            return -1;
        for (size_t place = 0; place < paths->path_count; place++) {
            size_t hash = hash_of(paths->paths[place].parent, paths->paths[place].name);
            put(index, hash, tag_of(hash), place);
        }
    }
    size_t hash = hash_of(parent, name), slot = hash;
    for (; index->slots[slot = next_slot(index, slot, tag_of(hash))].place; slot++) {
        const Path *path = &paths->paths[index->slots[slot].place - 1];
        if (path->parent == parent && path->name == name)
            return (int64_t)index->slots[slot].place - 1;
    }
    if (parent >= 0) {
        Path *root = &paths->paths[root_of(paths, run_id)];
        if (name != OTHER && root->kind >= paths->most_paths) {
            paths->is_filling |= root->kind < FULL;
            return path_of(paths, parent, OTHER, run_id);
        }
        root->kind++;
    }
    if (!room_for_one(&paths->paths, paths->path_count, &paths->path_room, sizeof *paths->paths, 256))
        return -1;
    paths->paths[paths->path_count] = (Path){parent, name, run_id, depth, null, parent < 0 ? 0 : null};
    put(index, hash, tag_of(hash), paths->path_count);
    return (int64_t)paths->path_count++;
}

static inline int adds(int64_t *sum, int64_t value)
{
    return !__builtin_add_overflow(*sum, value, sum);
}

/* Add to the sums of a path, device and step. If one would exceed 64 bits, a new row begins. */
static int add(Paths *paths, const Sum *part)
{
    Index *index = &paths->of_sums;
    if (paths->sum_count * 2 >= index->size) {
        if (!empty_index(index, paths->sum_count * 2))
            return 0;
        for (size_t place = 0; place < paths->sum_count; place++) {
            size_t hash = hash_of_sum(&paths->sums[place]);
            put(index, hash, tag_of(hash), place);
        }
    }
    size_t hash = hash_of_sum(part), slot = hash;
    for (; index->slots[slot = next_slot(index, slot, tag_of(hash))].place; slot++) {
        Sum *sum = &paths->sums[index->slots[slot].place - 1], more = *sum;
        if (sum->path != part->path || sum->device_id != part->device_id || sum->step_id != part->step_id)
            continue;
        if (!adds(&more.host_total_ns, part->host_total_ns) || !adds(&more.host_self_ns, part->host_self_ns)
            || !adds(&more.task_ns, part->task_ns))
            continue;
        more.range_count += part->range_count;
        more.ended_count += part->ended_count;
        more.task_count += part->task_count;
        *sum = more;
        return 1;
    }
    if (!room_for_one(&paths->sums, paths->sum_count, &paths->sum_room, sizeof *paths->sums, 1024))
        return 0;
    paths->sums[paths->sum_count++] = *part;
    index->slots[slot] = (Slot){(uint32_t)paths->sum_count, tag_of(hash)};
    return 1;
}

/* Forget the placed slices that ended before this time. */
static void forget(Paths *paths, int64_t before_ns)
{
    size_t kept = 0, placed = 0;
    for (size_t place = 0; place < paths->slice_count; place++) {
        int is_placed = place < paths->placed_count;
        if (is_placed && paths->slices[place].end_ns < before_ns)
            continue;
        placed += (size_t)is_placed;
        paths->slices[kept++] = paths->slices[place];
    }
    paths->slice_count = kept;
    paths->placed_count = placed;
}

static int note_missing(Paths *paths, int64_t run_id, int64_t id)
{
    if (!room_for_one(&paths->missing, paths->missing_count + 1, &paths->missing_room, sizeof *paths->missing, 256))
        return 0;
    paths->missing[paths->missing_count++] = run_id;
    paths->missing[paths->missing_count++] = id;
    return 1;
}

/* Place a slice whose parent is placed or lost, or which has none. */
static int place(Paths *paths, Slice *slice, const Slice *parent)
{
    if (slice->parent_id != null && (parent == NULL || parent->state != PLACED)) {
        slice->state = LOST;
        return parent != NULL || note_missing(paths, slice->run_id, slice->parent_id);
    }
    int64_t path = parent == NULL ? root_of(paths, slice->run_id) : (int64_t)parent->path;
    slice->class = parent == NULL ? 0 : parent->class;
    if (path >= 0 && slice->kind != CALL) {
        path = path_of(paths, path, slice->name, slice->run_id);
        slice->class |= slice->kind & CLASS_BITS;
        if (path >= 0 && slice->kind & IS_HOST) {
            Path *of = &paths->paths[path];
            int64_t kind = slice->kind >> KIND_SHIFT;
            if (of->first_id == null || slice->id < of->first_id)
                of->first_id = slice->id;
            if (kind > 0 && (of->kind == null || kind < of->kind))
                of->kind = kind;
        }
    }
    slice->path = (uint32_t)path;
    slice->state = PLACED;
    return path >= 0;
}

/* Place a slice after those around it. */
static int place_all_around(Paths *paths, size_t first)
{
    size_t depth = 0;
    if (!room_for_one(&paths->stack, depth, &paths->stack_room, sizeof *paths->stack, 256))
        return 0;
    paths->stack[depth++] = (uint32_t)first;
    while (depth > 0) {
        Slice *slice = &paths->slices[paths->stack[depth - 1]];
        Slice *parent = slice_of(paths, slice->run_id, slice->parent_id);
        if (parent != NULL && parent->state == WAITING && slice->state == WAITING && parent != slice) {
            slice->state = VISITED;
            if (!room_for_one(&paths->stack, depth, &paths->stack_room, sizeof *paths->stack, 256))
                return 0;
            paths->stack[depth++] = (uint32_t)(parent - paths->slices);
            continue;
        }
        if (!place(paths, slice, parent))
            return 0;
        depth--;
    }
    return 1;
}

static int take_slices(Paths *paths, const Py_buffer *columns, size_t count)
{
    for (size_t row = 0; row < count; row++) {
        int64_t start = item(&columns[6], row), dur = item(&columns[7], row), end;
        if (start == null || dur == null || __builtin_add_overflow(start, dur, &end))
            end = INT64_MAX;
        if (!room_for_one(&paths->slices, paths->slice_count, &paths->slice_room, sizeof *paths->slices, 4096))
            return 0;
        paths->slices[paths->slice_count++] = (Slice){item(&columns[0], row), item(&columns[1], row), item(&columns[2], row),
            item(&columns[3], row), item(&columns[4], row), item(&columns[5], row), start, end, dur,
            item(&columns[8], row), 0, WAITING, 0};
    }
    return 1;
}

/* Place the slices from this one on, in the order in which they were taken or (`order`) in another one. */
static int place_from(Paths *paths, size_t first, const Start *order)
{
    for (size_t row = first; row < paths->slice_count; row++) {
        size_t at = order == NULL ? row : order[row - first].place;
        if (paths->slices[at].state == WAITING && !place_all_around(paths, at))
            return 0;
    }
    return 1;
}

/* Undo the placing of the slices from this one on, by which the number of paths rose from `path_count`. What they
   changed in the paths before stays: they will be in the same ones. */
static void unplace_from(Paths *paths, size_t first, size_t path_count)
{
    for (size_t row = first; row < paths->slice_count; row++)
        paths->slices[row].state = WAITING;
    while (paths->path_count > path_count) {
        const Path *path = &paths->paths[--paths->path_count];
        if (path->parent >= 0)
            paths->paths[root_of(paths, path->run_id)].kind--;
    }
    free(paths->of_paths.slots);
    paths->of_paths = (Index){NULL, 0};
    paths->has_root = 0;
}

static int compare_starts(const void *one, const void *other)
{
    const Start *a = one, *b = other;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* The slices from this one on in the order of their starts; NULL if out of memory. */
static Start *by_start(const Paths *paths, size_t first)
{
    size_t count = paths->slice_count - first;
    Start *order = malloc((count + 1) * sizeof *order);
    if (order == NULL)
        return NULL;
    for (size_t row = 0; row < count; row++) {
        const Slice *slice = &paths->slices[first + row];
        order[row] = (Start){slice->start_ns, slice->id, first + row};
    }
    qsort(order, count, sizeof *order, compare_starts);
    return order;
}

/* Place the slices from this one on. If a run gets full, which names become OTHER depends on the order of starts. */
static int place_all(Paths *paths, size_t first)
{
    size_t path_count = paths->path_count, missing_count = paths->missing_count;
    if (!place_from(paths, first, NULL))
        return 0;
    if (!paths->is_filling)
        return 1;
    unplace_from(paths, first, path_count);
    paths->missing_count = missing_count;
    Start *order = by_start(paths, first);
    int is_sound = order != NULL && place_from(paths, first, order);
    free(order);
    for (size_t place = 0; place < paths->path_count; place++)
        if (paths->paths[place].parent < 0 && paths->paths[place].kind >= paths->most_paths)
            paths->paths[place].kind = FULL;
    paths->is_filling = 0;
    return is_sound;
}

/* Forget the slices that ended before this time; place those that were taken since, and add them to the sums. */
static int place_new(Paths *paths, int64_t start_ns)
{
    forget(paths, start_ns);
    if (!empty_index(&paths->of_slices, paths->slice_count))
        return 0;
    for (size_t row = 0; row < paths->slice_count; row++)
        put(&paths->of_slices, hash_of_slice(paths->slices[row].run_id, paths->slices[row].id), (uint32_t)paths->slices[row].id, row);
    if (!place_all(paths, paths->placed_count))
        return 0;
    for (; paths->placed_count < paths->slice_count; paths->placed_count++) {
        const Slice *slice = &paths->slices[paths->placed_count];
        if (slice->state != PLACED || slice->kind == CALL || !(slice->kind & IS_HOST))
            continue;
        Sum part = {slice->path, null, slice->step_id, 1, slice->dur_ns != null, slice->dur_ns == null ? 0 : slice->dur_ns,
            slice->self_ns == null ? 0 : slice->self_ns, 0, 0};
        if (!add(paths, &part))
            return 0;
    }
    return 1;
}

static int look_up(Paths *paths, const Py_buffer *columns, size_t count, int64_t *found)
{
    for (size_t row = 0; row < count; row++) {
        int64_t run_id = item(&columns[0], row), id = item(&columns[1], row);
        const Slice *slice = slice_of(paths, run_id, id);
        int64_t root = root_of(paths, run_id);
        if (root < 0 || (slice == NULL && id != null && !note_missing(paths, run_id, id)))
            return 0;
        int is_placed = slice != NULL && slice->state == PLACED;
        found[row] = is_placed ? (int64_t)slice->path : root;
        found[count + row] = found[row] == root ? OUTSIDE : slice->class;
    }
    return 1;
}

static int add_tasks(Paths *paths, const Py_buffer *columns, size_t count)
{
    for (size_t row = 0; row < count; row++) {
        int64_t dur = item(&columns[3], row);
        Sum part = {item(&columns[0], row), item(&columns[1], row), item(&columns[2], row), 0, 0, 0, 0, 1, dur == null ? 0 : dur};
        if (!add(paths, &part))
            return 0;
    }
    return 1;
}

/* Get columns of equal length; the number of rows, or -1 with an exception set. */
static Py_ssize_t get_columns(PyObject *const *given, Py_buffer *columns, int count)
{
    if (!get_buffers(given, columns, count, count))
        return -1;
    Py_ssize_t rows = items(&columns[0]);
    for (int place = 1; place < count; place++)
        if (columns[place].len != columns[0].len)
            rows = -1;
    if (rows >= 0 && rows < MOST_SLICES)
        return rows;
    release(columns, count);
    PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    return -1;
}

/* Release the columns; return what was found, or NULL with an exception set if out of memory. */
static PyObject *done(Py_buffer *columns, int count, int is_sound, PyObject *found)
{
    release(columns, count);
    if (is_sound)
        return found;
    Py_XDECREF(found);
    return PyErr_NoMemory();
}

static PyObject *paths_feed(PyObject *self, PyObject *args)
{
    Paths *paths = (Paths *)self;
    Py_buffer columns[COLUMNS];
    PyObject *given[COLUMNS];
    int is_sound;
    if (!PyArg_ParseTuple(args, "OOOOOOOOO:feed", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6],
            &given[7], &given[8]))
        return NULL;
    Py_ssize_t count = get_columns(given, columns, COLUMNS);
    if (count < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = (size_t)count + paths->slice_count < MOST_SLICES && take_slices(paths, columns, (size_t)count);
    Py_END_ALLOW_THREADS
    return done(columns, COLUMNS, is_sound, Py_NewRef(Py_None));
}

static PyObject *paths_limit(PyObject *self, PyObject *given)
{
    long long most = PyLong_AsLongLong(given);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    ((Paths *)self)->most_paths = most;
    return Py_NewRef(Py_None);
}

static PyObject *paths_place(PyObject *self, PyObject *given)
{
    long long start_ns = PyLong_AsLongLong(given);
    int is_sound;
    if (start_ns == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = place_new((Paths *)self, start_ns);
    Py_END_ALLOW_THREADS
    return done(NULL, 0, is_sound, Py_NewRef(Py_None));
}

static PyObject *paths_look_up(PyObject *self, PyObject *args)
{
    Paths *paths = (Paths *)self;
    Py_buffer columns[LOOKED_UP];
    PyObject *given[LOOKED_UP];
    int is_sound;
    if (!PyArg_ParseTuple(args, "OO:look_up", &given[0], &given[1]))
        return NULL;
    Py_ssize_t count = get_columns(given, columns, LOOKED_UP);
    if (count < 0)
        return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, count * 2 * (Py_ssize_t)sizeof(int64_t));
    if (found == NULL)
        return done(columns, LOOKED_UP, 0, NULL);
    int64_t *out = (int64_t *)(void *)PyBytes_AsString(found);
    Py_BEGIN_ALLOW_THREADS
    is_sound = look_up(paths, columns, (size_t)count, out);
    Py_END_ALLOW_THREADS
    return done(columns, LOOKED_UP, is_sound, found);
}

static PyObject *paths_add(PyObject *self, PyObject *args)
{
    Paths *paths = (Paths *)self;
    Py_buffer columns[ADDED];
    PyObject *given[ADDED];
    int is_sound;
    if (!PyArg_ParseTuple(args, "OOOO:add", &given[0], &given[1], &given[2], &given[3]))
        return NULL;
    Py_ssize_t count = get_columns(given, columns, ADDED);
    if (count < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = add_tasks(paths, columns, (size_t)count);
    Py_END_ALLOW_THREADS
    return done(columns, ADDED, is_sound, Py_NewRef(Py_None));
}

static PyObject *bytes_of(const void *items, size_t size)
{
    return PyBytes_FromStringAndSize(items, (Py_ssize_t)size);
}

static PyObject *paths_sums(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    Paths *paths = (Paths *)self;
    PyObject *found = bytes_of(paths->sums, paths->sum_count * sizeof *paths->sums);
    paths->sum_count = 0;
    if (paths->of_sums.size)
        memset(paths->of_sums.slots, 0, paths->of_sums.size * sizeof *paths->of_sums.slots);
    return found;
}

static PyObject *paths_paths(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return bytes_of(((Paths *)self)->paths, ((Paths *)self)->path_count * sizeof(Path));
}

static PyObject *paths_missing(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return bytes_of(((Paths *)self)->missing, ((Paths *)self)->missing_count * sizeof(int64_t));
}

static PyObject *paths_counts(PyObject *self, void *nothing)
{
    (void)nothing;
    const Paths *paths = (const Paths *)self;
    return Py_BuildValue("(nnnn)", (Py_ssize_t)paths->slice_count, (Py_ssize_t)paths->path_count,
        (Py_ssize_t)paths->sum_count, (Py_ssize_t)paths->missing_count / 2);
}

static void paths_free(PyObject *self)
{
    Paths *paths = (Paths *)self;
    free(paths->slices);
    free(paths->paths);
    free(paths->sums);
    free(paths->missing);
    free(paths->stack);
    free(paths->of_slices.slots);
    free(paths->of_paths.slots);
    free(paths->of_sums.slots);
    free_object(self);
}

static PyMethodDef methods[] = {
    {"limit", paths_limit, METH_O, "limit(count): from this number of paths of a run on, new names inside the same path are one path, named OTHER."},
    {"feed", paths_feed, METH_VARARGS,
        "feed(run_ids, ids, parent_ids, names, kinds, step_ids, starts, durs, selfs): take slices."},
    {"place", paths_place, METH_O,
        "place(start_ns): place the slices that were taken, which start then or later, and add them to the sums."},
    {"look_up", paths_look_up, METH_VARARGS, "look_up(run_ids, ids): paths of slices, or the roots of their runs, and their classes, as bytes."},
    {"add", paths_add, METH_VARARGS, "add(paths, device_ids, step_ids, durs): add tasks to the sums."},
    {"sums", paths_sums, METH_NOARGS, "sums(): the sums as bytes; they are forgotten."},
    {"paths", paths_paths, METH_NOARGS, "paths(): the paths as bytes."},
    {"missing", paths_missing, METH_NOARGS, "missing(): run and ID of each slice that was not found, as bytes."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef values[] = {
    {"counts", paths_counts, NULL, "Numbers of slices, paths, sums and missing slices.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, paths_free},
    {Py_tp_methods, methods},
    {Py_tp_getset, values},
    {Py_tp_doc, "Chains of names of slices, range of time by range of time."},
    {0, NULL},
};
PyType_Spec native_paths = {"traceconv.native._native.Paths", sizeof(Paths), 0, Py_TPFLAGS_DEFAULT, slots};
