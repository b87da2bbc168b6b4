/* The functions for Python; module.c has their signatures. */

#ifndef TRACECONV_MODULE_H
#define TRACECONV_MODULE_H

#include <Python.h>

#include <stddef.h>

/* A struct has the layout of its numpy dtype; a test compares these numbers with the dtype. */
#define SIZE(type, size) _Static_assert(sizeof(type) == size, #type " is not its dtype")
#define AT(type, field, place) _Static_assert(offsetof(type, field) == place, #type " is not its dtype")

/* Release an object of one of our types, whose own parts are free. */
static inline void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject *native_append(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_append_memory(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_append_tasks(PyObject *module, PyObject *args);
PyObject *native_apart(PyObject *module, PyObject *args);
PyObject *native_causes(PyObject *module, PyObject *args);
PyObject *native_delays(PyObject *module, PyObject *args);
PyObject *native_change_modules(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_differences(PyObject *module, PyObject *args);
PyObject *native_end_of_bracketed(PyObject *module, PyObject *args);
PyObject *native_events(PyObject *module, PyObject *args);
PyObject *native_expand(PyObject *module, PyObject *args);
PyObject *native_fit(PyObject *module, PyObject *args);
PyObject *native_find(PyObject *module, PyObject *args);
PyObject *native_id_numbers(PyObject *module, PyObject *args);
PyObject *native_members(PyObject *module, PyObject *args);
PyObject *native_merge(PyObject *module, PyObject *args);
PyObject *native_fields(PyObject *module, PyObject *args);
PyObject *native_messages(PyObject *module, PyObject *args);
PyObject *native_nest(PyObject *module, PyObject *args);
PyObject *native_objects(PyObject *module, PyObject *args);
PyObject *native_order(PyObject *module, PyObject *args);
PyObject *native_packets(PyObject *module, PyObject *args);
PyObject *native_pair(PyObject *module, PyObject *given);
PyObject *native_patch(PyObject *module, PyObject *args);
PyObject *native_records(PyObject *module, PyObject *args);
PyObject *native_replay(PyObject *module, PyObject *args);
PyObject *native_series(PyObject *module, PyObject *args);
PyObject *native_sqlite_rows(PyObject *module, PyObject *args);
PyObject *native_simulate(PyObject *module, PyObject *args);
PyObject *native_times(PyObject *module, PyObject *args);
PyObject *native_track_events(PyObject *module, PyObject *args);
PyObject *native_typed_fields(PyObject *module, PyObject *args);
PyObject *native_walk(PyObject *module, PyObject *args);
PyObject *native_work(PyObject *module, PyObject *args);

int add_buffer(PyObject *module);
int add_call(void);
extern PyType_Spec native_call_log, native_nester, native_paths, native_span, native_span_log;

#endif
