/* Ranges of a model's modules, as a thread leaves and enters them during a run: their records without Python.

   A target is where a profile gets them: (records, begins, add, end, has_parents, step_id). `begins` has the records of
   begins by the paths that are entered together, except for what differs from run to run; `add` makes and keeps them. */

#define PY_SSIZE_T_CLEAN
#include "clock.h"
#include "range.h"

enum { RECORDS, BEGINS, ADD, ENDS, HAS_PARENTS, STEP_ID, TARGET };
/* More nested modules are left or entered in several steps. */
enum { MOST = 64 };

/* The begins (or ends) of modules that are entered (or left) one after another: the same for all targets. */
typedef struct {
    int64_t host_ns[MOST];
    uint64_t span_ids[MOST], parents[MOST];
    Py_ssize_t count;
} Halves;

static int check(PyObject *const *args, Py_ssize_t count)
{
    if (count != 7 || !is_clock(args[0]) || !PyIter_Check(args[1]) || !is_buffer(args[2])
        || !PyTuple_Check(args[4]) || !PyTuple_Check(args[6]))
        return 0;
    for (Py_ssize_t target = 0; target < PyTuple_Size(args[4]); target++) {
        PyObject *fields = PyTuple_GetItem(args[4], target);
        if (!PyTuple_Check(fields) || PyTuple_Size(fields) != TARGET || !is_buffer(PyTuple_GetItem(fields, RECORDS))
            || !PyDict_Check(PyTuple_GetItem(fields, BEGINS)) || !PyBytes_Check(PyTuple_GetItem(fields, ENDS))
            || PyBytes_Size(PyTuple_GetItem(fields, ENDS)) != sizeof(Range))
            return 0;
    }
    return 1;
}

static int log_ends(PyObject *target, const Halves *halves)
{
    Range record;
    memcpy(&record, PyBytes_AsString(PyTuple_GetItem(target, ENDS)), sizeof record);
    for (Py_ssize_t place = 0; place < halves->count; place++) {
        record.host_ns = halves->host_ns[place];
        record.span_id = halves->span_ids[place];
        if (append_bytes(PyTuple_GetItem(target, RECORDS), &record, sizeof record) < 0)
            return 0;
    }
    return 1;
}

/* `begins`: the records of the paths that are entered. */
static int log_begins(PyObject *target, const Halves *halves, const char *begins)
{
    int has_parents = PyObject_IsTrue(PyTuple_GetItem(target, HAS_PARENTS)) > 0;
    uint32_t step_id = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(target, STEP_ID));
    if (PyErr_Occurred())
        return 0;
    for (Py_ssize_t place = 0; place < halves->count; place++, begins += sizeof(Range)) {
        Range record;
        memcpy(&record, begins, sizeof record);
        record.host_ns = halves->host_ns[place];
        record.span_id = halves->span_ids[place];
        record.parent_span_id = has_parents ? halves->parents[place] : 0;
        record.step_id = step_id;
        if (append_bytes(PyTuple_GetItem(target, RECORDS), &record, sizeof record) < 0)
            return 0;
    }
    return 1;
}

/* Return the records of begins of `paths`, which a target has or adds; NULL: error. */
static PyObject *begins_of(PyObject *target, PyObject *paths)
{
    PyObject *found = PyDict_GetItemWithError(PyTuple_GetItem(target, BEGINS), paths);
    Py_XINCREF(found);
    if (found == NULL && !PyErr_Occurred())
        found = PyObject_CallFunctionObjArgs(PyTuple_GetItem(target, ADD), paths, NULL);
    if (found != NULL
        && (!PyBytes_Check(found) || PyBytes_Size(found) != PyTuple_Size(paths) * (Py_ssize_t)sizeof(Range))) {
        PyErr_SetString(PyExc_TypeError, "the records of begins are bytes, one per path");
        Py_CLEAR(found);
    }
    return found;
}

/* Leave the innermost `count` modules, at most MOST. 0: error. */
static int leave(PyObject *const *args, Buffer *open, Py_ssize_t count)
{
    Halves halves;
    size_t size = (size_t)count * sizeof(uint64_t);
    halves.count = count;
    if (size > open->size) {
        PyErr_SetString(PyExc_ValueError, "no module to leave");
        return 0;
    }
    const char *id = open->bytes + open->size - size;
    for (Py_ssize_t place = count - 1; place >= 0; place--, id += sizeof(uint64_t))
        memcpy(&halves.span_ids[place], id, sizeof(uint64_t));
    for (Py_ssize_t place = 0; place < count; place++)
        if (!clock_read(args[0], &halves.host_ns[place]))
            return 0;
    for (Py_ssize_t target = 0; target < PyTuple_Size(args[4]); target++)
        if (!log_ends(PyTuple_GetItem(args[4], target), &halves))
            return 0;
    open->size -= size;
    return 1;
}

/* Enter `count` modules, at most MOST, with the paths from `first` on. 0: error. */
static int enter(PyObject *const *args, Buffer *open, Py_ssize_t first, Py_ssize_t count)
{
    Halves halves;
    uint64_t parent = PyLong_AsUnsignedLongLong(args[3]);
    halves.count = count;
    if (open->size >= sizeof parent)
        memcpy(&parent, open->bytes + open->size - sizeof parent, sizeof parent);
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *id = PyIter_Next(args[1]);
        if (id == NULL && !PyErr_Occurred())
            PyErr_SetString(PyExc_StopIteration, "no more numbers of ranges");
        halves.parents[place] = parent;
        halves.span_ids[place] = parent = id == NULL ? 0 : PyLong_AsUnsignedLongLong(id);
        Py_XDECREF(id);
        if (PyErr_Occurred() || !clock_read(args[0], &halves.host_ns[place]))
            return 0;
    }
    for (Py_ssize_t target = 0; target < PyTuple_Size(args[4]); target++) {
        PyObject *fields = PyTuple_GetItem(args[4], target), *begins = begins_of(fields, args[6]);
        int is_logged = begins != NULL && log_begins(fields, &halves, PyBytes_AsString(begins) + first * (Py_ssize_t)sizeof(Range));
        Py_XDECREF(begins);
        if (!is_logged)
            return 0;
    }
    return append_bytes(args[2], halves.span_ids, (size_t)count * sizeof(uint64_t)) == 0;
}

PyObject *native_change_modules(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (!check(args, count))
        return PyErr_Format(PyExc_TypeError, "change_modules(clock, ids, open, parent, targets, leave, paths)");
    Buffer *open = (Buffer *)args[2];
    Py_ssize_t left = PyLong_AsSsize_t(args[5]), entered = PyTuple_Size(args[6]);
    if (left == -1 && PyErr_Occurred())
        return NULL;
    for (; left > 0; left -= MOST)
        if (!leave(args, open, left < MOST ? left : MOST))
            return NULL;
    for (Py_ssize_t first = 0; first < entered; first += MOST)
        if (!enter(args, open, first, entered - first < MOST ? entered - first : MOST))
            return NULL;
    Py_RETURN_NONE;
}
