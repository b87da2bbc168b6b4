#define PY_SSIZE_T_CLEAN
#include "module.h"

#include "clock.h"
#include "distinct.h"

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))native_append, METH_FASTCALL,
        "append(buffer, *words): append up to 16 words of 64 bits to a buffer in one step."},
    {"apart", native_apart, METH_VARARGS,
        "apart(lines, starts, ends, order, last): whether each slice starts after the last one of its line ended."},
    {"append_memory", (PyCFunction)(void (*)(void))native_append_memory, METH_FASTCALL,
        "append_memory(buffer, heads, *fields): append the words of a change of memory."},
    {"append_tasks", native_append_tasks, METH_VARARGS,
        "append_tasks(buffer, waits, tasks, heads): append the words of tasks, and of the waits among them."},
    {"causes", native_causes, METH_VARARGS, "causes(causes, first, last, out): the causes of a vertex from `first` on, backwards; their number."},
    {"delays", native_delays, METH_VARARGS,
        "delays(times, previous, groups, added_sources, added_targets, added_kinds, waits, kinds, edge_kinds, offsets, sources, "
        "line_ns, edge_ns): sort a graph's edges, and set the usual delays."},
    {"change_modules", (PyCFunction)(void (*)(void))native_change_modules, METH_FASTCALL,
        "change_modules(clock, ids, open, parent, targets, leave, paths): leave and enter modules of a model."},
    {"differences", native_differences, METH_VARARGS, "differences(numbers): each minus the one before, as packed sint64."},
    {"end_of_bracketed", native_end_of_bracketed, METH_VARARGS,
        "end_of_bracketed(text, at, stop): the end of an object or array, or None."},
    {"events", native_events, METH_VARARGS, "events(text, lines, labels, raws, partly): events as columns, or None."},
    {"expand", native_expand, METH_VARARGS,
        "expand(words, width, codes, links, templates, plan, out, size): write the records of events; their number."},
    {"fields", native_fields, METH_VARARGS,
        "fields(data, start, end): number, kind, value and position of a message's fields, or None if it is malformed."},
    {"find", native_find, METH_VARARGS, "find(ids, wanted, found): the first place of each wanted ID, or -1."},
    {"fit", native_fit, METH_VARARGS,
        "fit(previous, delays, offsets, sources, edge_delays, times, causes): delays that give the times, and causes."},
    {"id_numbers", native_id_numbers, METH_VARARGS, "id_numbers(offsets, data): integers, and hashes of other texts."},
    {"members", native_members, METH_VARARGS, "members(offsets, data, rows, keys): members of objects, or None."},
    {"merge", native_merge, METH_VARARGS, "merge(offsets, data, other_offsets, other_data): objects with the members of both, or None."},
    {"messages", native_messages, METH_VARARGS, "messages(data, at, end, tag, most): bounds of messages, and where they end."},
    {"nest", native_nest, METH_VARARGS,
        "nest(threads, keys, halves, ns, ids, child_ns, rows): slices of begin and end events, and what was not paired."},
    {"objects", native_objects, METH_VARARGS, "objects(keys, rows): columns as JSON objects."},
    {"order", native_order, METH_VARARGS,
        "order(starts, ends, lines, parents, line_count, low, high, times, slices, is_end, place, previous, kinds, inside): "
        "the starts and ends of slices in order; their number, or None."},
    {"packets", native_packets, METH_VARARGS,
        "packets(data, bounds, kinds): columns of Perfetto's packets, their other fields, and which are sound."},
    {"pair", native_pair, METH_O, "pair(points): slices of begins and the ends that close them, and the places of other points, or None."},
    {"patch", native_patch, METH_VARARGS, "patch(text, deepest): non-standard JSON repaired, or None."},
    {"records", native_records, METH_VARARGS,
        "records(parts, columns, order, first, out): rows as JSON or protobuf; the next row, and the size."},
    {"replay", native_replay, METH_VARARGS,
        "replay(previous, delays, offsets, sources, edge_delays, times): the times of a dependency graph's vertices."},
    {"series", native_series, METH_VARARGS, "series(offsets, data): all members of objects, or None."},
    {"sqlite_rows", native_sqlite_rows, METH_VARARGS,
        "sqlite_rows(pages, page_bytes, usable_bytes, wanted, columns, rowids, first, most, after): rows of a table, or None."},
    {"simulate", native_simulate, METH_VARARGS,
        "simulate(previous, offsets, sources, tasks, devices, replays): the times of a graph whose tasks share "
        "devices, for each replay [delays, edge_delays, work, demands, times]."},
    {"times", native_times, METH_VARARGS, "times(offsets, data, places): numbers as nanoseconds, their status, and how many were rounded."},
    {"track_events", native_track_events, METH_VARARGS,
        "track_events(data, packets, at, state, codes, out, most_args): rows of Perfetto's track events."},
    {"typed_fields", native_typed_fields, METH_VARARGS,
        "typed_fields(data, start, end, fields, locations, depth): a protobuf message as a JSON object, or None."},
    {"walk", native_walk, METH_VARARGS, "walk(data, bounds): the fields of messages, and which messages are sound."},
    {"work", native_work, METH_VARARGS,
        "work(tasks, times, devices, busy_ns, demands, work, rounds, exact): what tasks that shared "
        "devices would take alone, and their demands for bandwidth."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "The C part of traceconv.", -1, methods, NULL, NULL, NULL, NULL,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, name, type) < 0 ? -1 : 0;
    Py_XDECREF(type);
    return failed;
}

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = seed_distinct() < 0 ? NULL : PyModule_Create(&definition);
    if (module != NULL
        && (add_buffer(module) < 0 || add_clock(module) < 0 || add_call() < 0 || add_type(module, "CallLog", &native_call_log) < 0
            || add_type(module, "Nester", &native_nester) < 0
            || add_type(module, "Paths", &native_paths) < 0 || add_type(module, "Span", &native_span) < 0
            || add_type(module, "SpanLog", &native_span_log) < 0))
        Py_CLEAR(module);
    return module;
}
