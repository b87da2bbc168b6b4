/* Ranges of a model's modules, as a thread leaves and enters them during a run: their records without Python.

   A target is where a profile gets them: (records, begins, add, end, has_parents, step_id). `begins` has the records of
   begins by the paths that are entered together, except for what differs from run to run; `add` makes and keeps them. */

#define PY_SSIZE_T_CLEAN
#include "clock.h"
#include "range.h"

enum { RECORDS, BEGINS, ADD, ENDS, HAS_PARENTS, STEP_ID, TARGET };

/* The field of a target, which `check` has seen. */
static PyObject *field(PyObject *targets, Py_ssize_t target, Py_ssize_t place)
{
    return PyTuple_GetItem(PyTuple_GetItem(targets, target), place);
}

static int check(PyObject *const *args, Py_ssize_t count)
{
    if (count != 7 || !is_clock(args[0]) || !PyIter_Check(args[1]) || !PyByteArray_Check(args[2])
        || !PyTuple_Check(args[4]) || !PyTuple_Check(args[6]))
        return 0;
    for (Py_ssize_t target = 0; target < PyTuple_Size(args[4]); target++) {
        PyObject *fields = PyTuple_GetItem(args[4], target);
        if (!PyTuple_Check(fields) || PyTuple_Size(fields) != TARGET || !PyByteArray_Check(PyTuple_GetItem(fields, RECORDS))
            || !PyDict_Check(PyTuple_GetItem(fields, BEGINS)) || !PyBytes_Check(PyTuple_GetItem(fields, ENDS))
            || PyBytes_Size(PyTuple_GetItem(fields, ENDS)) != sizeof(Range))
            return 0;
    }
    return 1;
}

/* Copy one of the records for begins of `paths`; 0: error. */
static int copy_begin(PyObject *targets, Py_ssize_t target, PyObject *paths, Py_ssize_t place, Range *record)
{
    PyObject *found = PyDict_GetItemWithError(field(targets, target, BEGINS), paths);
    Py_XINCREF(found);
    if (found == NULL && !PyErr_Occurred())
        found = PyObject_CallFunctionObjArgs(field(targets, target, ADD), paths, NULL);
    int is_good = found != NULL && PyBytes_Check(found)
        && PyBytes_Size(found) == PyTuple_Size(paths) * (Py_ssize_t)sizeof *record;
    if (is_good)
        memcpy(record, PyBytes_AsString(found) + place * (Py_ssize_t)sizeof *record, sizeof *record);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "the records of begins are bytes, one per path");
    Py_XDECREF(found);
    return is_good;
}

static int leave(PyObject *const *args, PyObject *targets, PyObject *open)
{
    Py_ssize_t size = PyByteArray_Size(open) - (Py_ssize_t)sizeof(uint64_t);
    Range record;
    int64_t now;
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "no module to leave");
        return 0;
    }
    if (!clock_read(args[0], &now))
        return 0;
    for (Py_ssize_t target = 0; target < PyTuple_Size(targets); target++) {
        memcpy(&record, PyBytes_AsString(field(targets, target, ENDS)), sizeof record);
        record.host_ns = now;
        memcpy(&record.span_id, PyByteArray_AsString(open) + size, sizeof record.span_id);
        if (append_range(field(targets, target, RECORDS), &record) < 0)
            return 0;
    }
    return PyByteArray_Resize(open, size) == 0;
}

static int enter(PyObject *const *args, PyObject *targets, PyObject *open, PyObject *paths, Py_ssize_t place)
{
    Range record;
    int64_t now;
    PyObject *id = PyIter_Next(args[1]);
    uint64_t number = id == NULL ? 0 : PyLong_AsUnsignedLongLong(id), parent = PyLong_AsUnsignedLongLong(args[3]);
    Py_XDECREF(id);
    if (id == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_StopIteration, "no more numbers of ranges");
    if (PyErr_Occurred() || !clock_read(args[0], &now))
        return 0;
    Py_ssize_t size = PyByteArray_Size(open);
    if (size >= (Py_ssize_t)sizeof parent)
        memcpy(&parent, PyByteArray_AsString(open) + size - sizeof parent, sizeof parent);
    for (Py_ssize_t target = 0; target < PyTuple_Size(targets); target++) {
        if (!copy_begin(targets, target, paths, place, &record))
            return 0;
        record.host_ns = now;
        record.span_id = number;
        record.parent_span_id = PyObject_IsTrue(field(targets, target, HAS_PARENTS)) > 0 ? parent : 0;
        record.step_id = (uint32_t)PyLong_AsUnsignedLong(field(targets, target, STEP_ID));
        if (PyErr_Occurred() || append_range(field(targets, target, RECORDS), &record) < 0)
            return 0;
    }
    if (PyByteArray_Resize(open, size + (Py_ssize_t)sizeof number) < 0)
        return 0;
    memcpy(PyByteArray_AsString(open) + size, &number, sizeof number);
    return 1;
}

PyObject *native_change_modules(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (!check(args, count))
        return PyErr_Format(PyExc_TypeError, "change_modules(clock, ids, open, parent, targets, leave, paths)");
    PyObject *targets = args[4], *open = args[2], *paths = args[6];
    Py_ssize_t left = PyLong_AsSsize_t(args[5]);
    if (left == -1 && PyErr_Occurred())
        return NULL;
    for (; left > 0; left--)
        if (!leave(args, targets, open))
            return NULL;
    for (Py_ssize_t place = 0; place < PyTuple_Size(paths); place++)
        if (!enter(args, targets, open, paths, place))
            return NULL;
    Py_RETURN_NONE;
}
