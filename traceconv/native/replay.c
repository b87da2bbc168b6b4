/* Times of the vertices of a dependency graph, and the chain of causes of one of them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "int64.h"
#include "module.h"

/* Columns of a graph's vertices and edges. */
enum { PREVIOUS, DELAYS, OFFSETS, SOURCES, EDGE_DELAYS, TIMES, CAUSES, ALL };

typedef struct {
    Py_ssize_t count, edges;
    const int64_t *previous, *offsets, *sources;
    int64_t *delays, *edge_ns, *times, *causes;
} Graph;

/* Take the columns; 0 if their lengths don't fit. `count`: how many there are, since only some functions need causes. */
static int take_columns(Graph *graph, const Py_buffer *all, int count)
{
    *graph = (Graph){.count = items(&all[TIMES]), .edges = items(&all[SOURCES]), .previous = all[PREVIOUS].buf,
        .offsets = all[OFFSETS].buf, .sources = all[SOURCES].buf, .delays = all[DELAYS].buf, .edge_ns = all[EDGE_DELAYS].buf,
        .times = all[TIMES].buf, .causes = count > CAUSES ? all[CAUSES].buf : NULL};
    return items(&all[PREVIOUS]) == graph->count && items(&all[DELAYS]) == graph->count
           && items(&all[OFFSETS]) == graph->count + 1 && items(&all[EDGE_DELAYS]) == graph->edges
           && (count <= CAUSES || items(&all[CAUSES]) == graph->count) && (graph->count == 0 || graph->offsets[0] >= 0);
}

/* Whether a vertex's predecessor on its line, or none, and its edges exist. Those before it do. */
static int is_sound(const Graph *graph, Py_ssize_t place)
{
    int64_t stop = graph->offsets[place + 1];
    return graph->previous[place] < place && stop >= graph->offsets[place] && stop <= graph->edges;
}

/* Set each vertex's time to the latest of its predecessors' times plus delays; 0 if the graph is malformed. */
static int set_times(const Graph *graph)
{
    for (Py_ssize_t place = 0; place < graph->count; place++) {
        int64_t before = graph->previous[place], first = graph->offsets[place], stop = graph->offsets[place + 1];
        if (!is_sound(graph, place))
            return 0;
        int64_t time = before >= 0 ? later(graph->times[before], graph->delays[place]) : INT64_MIN;
        for (int64_t edge = first; edge < stop; edge++) {
            int64_t source = graph->sources[edge];
            if (source < 0 || source >= place)
                return 0;
            int64_t found = later(graph->times[source], graph->edge_ns[edge]);
            time = found > time ? found : time;
        }
        if (before >= 0 || first < stop)
            graph->times[place] = time;
    }
    return 1;
}

/* Make the delays those that give the measured times; 0 if the graph is malformed. */
static int fit(const Graph *graph)
{
    int64_t *line = graph->delays, *edge_ns = graph->edge_ns;
    for (Py_ssize_t place = 0; place < graph->count; place++) {
        int64_t before = graph->previous[place], stop = graph->offsets[place + 1], time = graph->times[place];
        int64_t found = -2, left = INT64_MAX, measured = 0;
        if (!is_sound(graph, place))
            return 0;
        if (before >= 0) {
            measured = time - graph->times[before];
            left = line[place] < measured ? measured - line[place] : 0;
            found = -1;
        }
        for (int64_t edge = graph->offsets[place]; edge < stop; edge++) {
            int64_t source = graph->sources[edge];
            if (source < 0 || source >= place)
                return 0;
            int64_t of_edge = time - graph->times[source];
            edge_ns[edge] = edge_ns[edge] < of_edge ? edge_ns[edge] : of_edge;
            if (of_edge - edge_ns[edge] < left) {
                left = of_edge - edge_ns[edge];
                found = edge;
            }
        }
        graph->causes[place] = found;
        line[place] = found == -1 || line[place] > measured ? measured : line[place];
        if (found >= 0)
            edge_ns[found] = time - graph->times[graph->sources[found]];
    }
    return 1;
}

/* Compute for a graph, and release its columns; NULL with an exception set if it is malformed. */
static PyObject *of_graph(Py_buffer *all, int count, int (*compute)(const Graph *))
{
    Graph graph;
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = take_columns(&graph, all, count) && compute(&graph);
    Py_END_ALLOW_THREADS
    release(all, count);
    if (!is_done)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return is_done ? Py_NewRef(Py_None) : NULL;
}

PyObject *native_replay(PyObject *module, PyObject *args)
{
    Py_buffer all[CAUSES];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*:replay", &all[0], &all[1], &all[2], &all[3], &all[4], &all[5]))
        return NULL;
    return of_graph(all, CAUSES, set_times);
}

PyObject *native_fit(PyObject *module, PyObject *args)
{
    Py_buffer all[ALL];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*y*y*w*y*w*:fit", &all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6]))
        return NULL;
    return of_graph(all, ALL, fit);
}

PyObject *native_causes(PyObject *module, PyObject *args)
{
    Py_buffer causes, out;
    Py_ssize_t first, last, count = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnw*:causes", &causes, &first, &last, &out))
        return NULL;
    int64_t place = last;
    int failed = first < 0 || last >= items(&causes);
    while (!failed && place >= first) {
        failed = count >= items(&out);
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
