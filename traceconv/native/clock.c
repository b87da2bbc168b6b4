/* Monotonic time minus the time that the clock was stopped. The interpreter lock is held from reading the one to
   subtracting the other, so no stop begins or ends between. */

#define PY_SSIZE_T_CLEAN
#include "clock.h"

#include <structmember.h>
#include <time.h>

typedef struct {
    PyObject_HEAD
    PyObject *source;
    long long stopped_ns;
    char is_stopped;
} Clock;

/* Whether Python's monotonic time is the system's. */
#if defined(__linux__)
static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
enum { IS_SYSTEMS = 1 };
#else
static int64_t monotonic_ns(void) { return 0; }
enum { IS_SYSTEMS = 0 };
#endif

static PyObject *clock_type;

int is_clock(PyObject *object) { return PyObject_IsInstance(object, clock_type) > 0; }

int clock_now(PyObject *self, int64_t *ns)
{
    Clock *clock = (Clock *)self;
    if (!IS_SYSTEMS || clock->is_stopped || (clock->source != NULL && clock->source != Py_None))
        return 0;
    *ns = monotonic_ns() - clock->stopped_ns;
    return 1;
}

int clock_read(PyObject *self, int64_t *ns)
{
    Clock *clock = (Clock *)self;
    while (!clock_now(self, ns)) {
        long long stopped_ns = clock->stopped_ns;
        int waits = clock->is_stopped;
        PyObject *read = waits      ? PyObject_CallMethod(self, "wait", NULL)
            : clock->source != NULL ? PyObject_CallNoArgs(clock->source)
                                    : PyErr_Format(PyExc_RuntimeError, "a clock without a source");
        if (read == NULL)
            return 0;
        int is_number = PyLong_Check(read);
        *ns = is_number ? PyLong_AsLongLong(read) : 0;
        Py_DECREF(read);
        if (*ns == -1 && PyErr_Occurred())
            return 0;
        if (waits && is_number)
            break;
        if (is_number && !clock->is_stopped && clock->stopped_ns == stopped_ns) {
            *ns -= stopped_ns;
            break;
        }
    }
    return 1;
}

static PyObject *now(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    int64_t ns;
    return clock_read(self, &ns) ? PyLong_FromLongLong(ns) : NULL;
}

static void clock_free(PyObject *self)
{
    Py_CLEAR(((Clock *)self)->source);
    free_object(self);
}

static PyMethodDef methods[] = {
    {"now", now, METH_NOARGS, "now(): the clock in ns. While it is stopped, wait() is called until it runs, or returns a time."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef members[] = {
    {"source", T_OBJECT, offsetof(Clock, source), 0, "Returns monotonic ns; None: the system's."},
    {"stopped_ns", T_LONGLONG, offsetof(Clock, stopped_ns), 0, "The sum of all stops that have ended."},
    {"is_stopped", T_BOOL, offsetof(Clock, is_stopped), 0, "Whether it is stopped."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, clock_free},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "Monotonic time minus the time that it was stopped."},
    {0, NULL},
};
static PyType_Spec spec = {
    "traceconv.native._native.Clock", sizeof(Clock), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int add_clock(PyObject *module)
{
    if (clock_type == NULL)
        clock_type = PyType_FromSpec(&spec);
    return clock_type == NULL ? -1 : PyModule_AddObjectRef(module, "Clock", clock_type);
}
