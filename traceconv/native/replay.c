/* Times of the vertices of a dependency graph, and the chain of causes of one of them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "int64.h"
#include "module.h"

/* Set each vertex's time to the latest of its predecessors' times plus delays; -1 if the graph is malformed. */
static int set_times(const Py_buffer *previous, const Py_buffer *delays, const Py_buffer *offsets,
    const Py_buffer *sources, const Py_buffer *edge_delays, const Py_buffer *times)
{
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t count = times->len / size, edges = sources->len / size;
    if (previous->len / size != count || delays->len / size != count || offsets->len / size != count + 1 ||
        edge_delays->len / size != edges)
        return -1;
    int64_t edge = count == 0 ? 0 : item(offsets, 0);
    if (edge < 0)
        return -1;
    for (Py_ssize_t place = 0; place < count; place++) {
        int64_t before = item(previous, place), stop = item(offsets, place + 1), time = INT64_MIN;
        if (before >= place || stop < edge || stop > edges)
            return -1;
        if (before >= 0)
            time = later(item(times, (Py_ssize_t)before), item(delays, place));
        else if (edge == stop)
            continue;
        for (; edge < stop; edge++) {
            int64_t source = item(sources, (Py_ssize_t)edge);
            if (source < 0 || source >= place)
                return -1;
            int64_t found = later(item(times, (Py_ssize_t)source), item(edge_delays, (Py_ssize_t)edge));
            time = found > time ? found : time;
        }
        memcpy((uint8_t *)times->buf + (size_t)place * sizeof time, &time, sizeof time);
    }
    return 0;
}

PyObject *native_replay(PyObject *module, PyObject *args)
{
    Py_buffer previous, delays, offsets, sources, edge_delays, times;
    int failed;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*y*y*y*y*w*:replay", &previous, &delays, &offsets, &sources, &edge_delays, &times))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = set_times(&previous, &delays, &offsets, &sources, &edge_delays, &times);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&previous);
    PyBuffer_Release(&delays);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&sources);
    PyBuffer_Release(&edge_delays);
    PyBuffer_Release(&times);
    if (failed)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Make the delays those that give the measured times; -1 if the graph is malformed. */
static int fit(const Py_buffer *previous, const Py_buffer *delays, const Py_buffer *offsets, const Py_buffer *sources,
    const Py_buffer *edge_delays, const Py_buffer *times, const Py_buffer *causes)
{
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t count = previous->len / size, edges = sources->len / size;
    if (delays->len / size != count || offsets->len / size != count + 1 || edge_delays->len / size != edges ||
        times->len / size != count || causes->len / size != count)
        return -1;
    int64_t *line = delays->buf, *edge_ns = edge_delays->buf, *cause = causes->buf;
    int64_t edge = count == 0 ? 0 : item(offsets, 0);
    if (edge < 0)
        return -1;
    for (Py_ssize_t place = 0; place < count; place++) {
        int64_t before = item(previous, place), stop = item(offsets, place + 1), time = item(times, place);
        int64_t found = -2, left = INT64_MAX, measured = 0;
        if (before >= place || stop < edge || stop > edges)
            return -1;
        if (before >= 0) {
            measured = time - item(times, (Py_ssize_t)before);
            left = line[place] < measured ? measured - line[place] : 0;
            found = -1;
        }
        for (; edge < stop; edge++) {
            int64_t source = item(sources, (Py_ssize_t)edge);
            if (source < 0 || source >= place)
                return -1;
            int64_t of_edge = time - item(times, (Py_ssize_t)source);
            edge_ns[edge] = edge_ns[edge] < of_edge ? edge_ns[edge] : of_edge;
            if (of_edge - edge_ns[edge] < left) {
                left = of_edge - edge_ns[edge];
                found = edge;
            }
        }
        cause[place] = found;
        line[place] = found == -1 || line[place] > measured ? measured : line[place];
        if (found >= 0)
            edge_ns[found] = time - item(times, (Py_ssize_t)item(sources, (Py_ssize_t)found));
    }
    return 0;
}

PyObject *native_fit(PyObject *module, PyObject *args)
{
    Py_buffer all[7];
    int failed;
    (void)module;
    /* previous, delays, offsets, sources, edge_delays, times, causes */
    if (!PyArg_ParseTuple(args, "y*w*y*y*w*y*w*:fit", &all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6]))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = fit(&all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6]);
    Py_END_ALLOW_THREADS
    for (size_t one = 0; one < sizeof all / sizeof *all; one++)
        PyBuffer_Release(&all[one]);
    if (failed)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return failed ? NULL : Py_NewRef(Py_None);
}

PyObject *native_causes(PyObject *module, PyObject *args)
{
    Py_buffer causes, out;
    Py_ssize_t first, last, count = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnw*:causes", &causes, &first, &last, &out))
        return NULL;
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    int64_t place = last;
    int failed = first < 0 || last >= causes.len / size;
    while (!failed && place >= first) {
        failed = count >= out.len / size;
        if (failed)
            break;
        memcpy((uint8_t *)out.buf + (size_t)count++ * sizeof place, &place, sizeof place);
        int64_t before = item(&causes, (Py_ssize_t)place);
        failed = before >= place;
        place = before;
    }
    PyBuffer_Release(&causes);
    PyBuffer_Release(&out);
    if (failed)
        PyErr_SetString(PyExc_ValueError, "a cause is not before its vertex");
    return failed ? NULL : PyLong_FromSsize_t(count);
}
