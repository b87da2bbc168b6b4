/* The vertices of a dependency graph in order, the slices with some IDs, and the delays of the graph's edges. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "int64.h"
#include "module.h"

enum { MOST_SLICES = 1 << 28 };
/* As in dependency_graph.py: the kinds of dependencies on the line, the number of kinds, and of groups of vertices. */
enum { RUN, HOST, STREAM, IDLE, KINDS = 14, GROUPS = 8, CLASSES = KINDS * GROUPS };

/* A table of IDs: [slot] 1 + the place of the first slice with it. IDs of a window are close to one another. */

static inline size_t slot_of(int64_t id, int64_t least, int is_dense, size_t mask)
{
    uint64_t number = (uint64_t)id - (uint64_t)least;
    return (size_t)(is_dense ? number : (number * 0x9E3779B97F4A7C15u) >> 24) & mask;
}

static int find_slices(const int64_t *ids, size_t count, const int64_t *wanted, size_t wanted_count, int64_t *found)
{
    size_t size = 16;
    int64_t least = count ? ids[0] : 0, largest = least;
    while (size < 2 * count)
        size *= 2;
    for (size_t place = 1; place < count; place++) {
        least = ids[place] < least ? ids[place] : least;
        largest = ids[place] > largest ? ids[place] : largest;
    }
    uint64_t range = (uint64_t)largest - (uint64_t)least;
    int is_dense = range < 8 * (uint64_t)size;
    while (is_dense && size <= range)
        size *= 2;
    size_t mask = size - 1;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (size_t place = 0; place < count; place++) {
        size_t slot = slot_of(ids[place], least, is_dense, mask);
        while (slots[slot] && ids[slots[slot] - 1] != ids[place])
            slot = (slot + 1) & mask;
        if (!slots[slot])
            slots[slot] = (uint32_t)place + 1;
    }
    for (size_t place = 0; place < wanted_count; place++) {
        found[place] = -1;
        if (!count || wanted[place] < least || wanted[place] > largest)
            continue;
        size_t slot = slot_of(wanted[place], least, is_dense, mask);
        while (slots[slot] && ids[slots[slot] - 1] != wanted[place])
            slot = (slot + 1) & mask;
        found[place] = (int64_t)slots[slot] - 1;
    }
    free(slots);
    return 1;
}

PyObject *native_find(PyObject *module, PyObject *args)
{
    enum { IDS, WANTED, FOUND, ALL };
    PyObject *given[ALL];
    Py_buffer all[ALL];
    int is_done = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:find", &given[0], &given[1], &given[2]) || !get_buffers(given, all, FOUND, ALL))
        return NULL;
    int is_valid = items(&all[FOUND]) == items(&all[WANTED]) && items(&all[IDS]) < MOST_SLICES;
    if (is_valid) {
        Py_BEGIN_ALLOW_THREADS
        is_done = find_slices(all[IDS].buf, (size_t)items(&all[IDS]), all[WANTED].buf, (size_t)items(&all[WANTED]), all[FOUND].buf);
        Py_END_ALLOW_THREADS
    }
    release(all, ALL);
    if (!is_valid)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    return is_done ? Py_NewRef(Py_None) : is_valid ? PyErr_NoMemory() : NULL;
}

/* The vertices inside a window, in order. Starts are in order; the ends of open slices wait in a heap. */

typedef struct {
    const int64_t *starts, *ends, *lines, *parents;
    size_t hosts, count, line_count;
    int64_t low, high;
    /* Slices without a duration end after what starts then; before that, tasks end before host slices, later first. */
    Heap open;
    /* [line] the last vertex of a host slice, the innermost host slice after it, and the last end of a task; -1: none. */
    int64_t *last_host, *innermost, *last_end;
    size_t kept;
    int64_t *times, *slices, *place, *previous, *inside;
    int8_t *is_end, *kinds;
} Sweep;

/* Append a vertex, if it is in the window. A task that begins before it has no end in it either. */
static void add_vertex(Sweep *sweep, size_t slice, int is_end, int64_t time)
{
    int is_host = slice < sweep->hosts;
    if (time < sweep->low || time > sweep->high || (is_end && !is_host && sweep->starts[slice] < sweep->low))
        return;
    size_t line = (size_t)sweep->lines[slice], vertex = sweep->kept++;
    int64_t before, inside = -1;
    if (is_host) {
        before = sweep->last_host[line];
        inside = sweep->innermost[line];
        sweep->last_host[line] = (int64_t)vertex;
        /* Slices without a duration end after others start at the same time; no time is inside them. */
        if (sweep->starts[slice] < sweep->ends[slice])
            sweep->innermost[line] = is_end ? sweep->parents[slice] : (int64_t)slice;
    } else {
        before = is_end ? sweep->place[slice] : sweep->last_end[line];
        if (is_end)
            sweep->last_end[line] = (int64_t)vertex;
    }
    sweep->times[vertex] = time;
    sweep->slices[vertex] = (int64_t)slice;
    sweep->is_end[vertex] = (int8_t)is_end;
    sweep->previous[vertex] = before;
    sweep->inside[vertex] = inside;
    sweep->kinds[vertex] = is_host ? HOST : is_end ? RUN : STREAM;
    sweep->place[slice + (is_end ? sweep->count : 0)] = (int64_t)vertex;
}

static void add_ended(Sweep *sweep)
{
    Due ended = pop(&sweep->open);
    size_t slice = sweep->count - 1 - (size_t)(ended.rank & (MOST_SLICES - 1));
    add_vertex(sweep, slice, 1, ended.time);
}

/* 0 if a column is not in order, a slice ends before it starts, or a number is too large. */
static int order_all(Sweep *sweep)
{
    size_t host = 0, task = sweep->hosts;
    while (host < sweep->hosts || task < sweep->count) {
        int is_host = task == sweep->count || (host < sweep->hosts && sweep->starts[host] <= sweep->starts[task]);
        size_t slice = is_host ? host++ : task++;
        int64_t start = sweep->starts[slice], end = sweep->ends[slice], line = sweep->lines[slice];
        size_t first = is_host ? 0 : sweep->hosts;
        if (end < start || (slice > first && start < sweep->starts[slice - 1]) || line < 0 || (size_t)line >= sweep->line_count)
            return 0;
        if (is_host && (sweep->parents[slice] < -1 || sweep->parents[slice] >= (int64_t)sweep->count))
            return 0;
        while (sweep->open.count > 0 && is_before(sweep->open.items[0], (Due){start, MOST_SLICES}))
            add_ended(sweep);
        add_vertex(sweep, slice, 0, start);
        int64_t rank = (int64_t)(sweep->count - 1 - slice);
        push(&sweep->open, (Due){end, end == start ? rank + MOST_SLICES : rank});
    }
    while (sweep->open.count > 0)
        add_ended(sweep);
    return 1;
}

PyObject *native_order(PyObject *module, PyObject *args)
{
    enum { STARTS, ENDS, LINES, PARENTS, TIMES, SLICES, IS_END, PLACE, PREVIOUS, KIND, INSIDE, ALL };
    PyObject *given[ALL];
    Py_buffer all[ALL];
    Py_ssize_t lines;
    long long low, high;
    int is_ordered = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOnLLOOOOOOO:order", &given[STARTS], &given[ENDS], &given[LINES], &given[PARENTS], &lines, &low,
            &high, &given[TIMES], &given[SLICES], &given[IS_END], &given[PLACE], &given[PREVIOUS], &given[KIND], &given[INSIDE])
        || !get_buffers(given, all, TIMES, ALL))
        return NULL;
    Py_ssize_t count = items(&all[STARTS]), hosts = items(&all[PARENTS]);
    int is_valid = count < MOST_SLICES && items(&all[ENDS]) == count && items(&all[LINES]) == count && hosts <= count && lines >= 0
                   && all[IS_END].len == 2 * count && all[KIND].len == 2 * count;
    for (int column = TIMES; column < ALL; column++)
        is_valid &= column == IS_END || column == KIND || items(&all[column]) == 2 * count;
    Sweep sweep = {.starts = all[STARTS].buf, .ends = all[ENDS].buf, .lines = all[LINES].buf, .parents = all[PARENTS].buf,
        .hosts = (size_t)hosts, .count = (size_t)count, .line_count = (size_t)lines, .low = low, .high = high, .times = all[TIMES].buf,
        .slices = all[SLICES].buf, .is_end = all[IS_END].buf, .place = all[PLACE].buf, .previous = all[PREVIOUS].buf,
        .kinds = all[KIND].buf, .inside = all[INSIDE].buf};
    if (is_valid) {
        sweep.open.items = malloc(((size_t)count + 1) * sizeof *sweep.open.items);
        sweep.last_host = malloc(((size_t)lines + 1) * sizeof(int64_t));
        sweep.innermost = malloc(((size_t)lines + 1) * sizeof(int64_t));
        sweep.last_end = malloc(((size_t)lines + 1) * sizeof(int64_t));
    }
    int has_memory = sweep.open.items != NULL && sweep.last_host != NULL && sweep.innermost != NULL && sweep.last_end != NULL;
    if (is_valid && has_memory) {
        Py_BEGIN_ALLOW_THREADS
        memset(sweep.last_host, 0xFF, ((size_t)lines + 1) * sizeof(int64_t));
        memset(sweep.innermost, 0xFF, ((size_t)lines + 1) * sizeof(int64_t));
        memset(sweep.last_end, 0xFF, ((size_t)lines + 1) * sizeof(int64_t));
        memset(sweep.place, 0xFF, 2 * (size_t)count * sizeof(int64_t));
        is_ordered = order_all(&sweep);
        Py_END_ALLOW_THREADS
    }
    free(sweep.open.items);
    free(sweep.last_host);
    free(sweep.innermost);
    free(sweep.last_end);
    release(all, ALL);
    if (is_valid && !has_memory)
        return PyErr_NoMemory();
    if (!is_valid) {
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        return NULL;
    }
    return is_ordered ? PyLong_FromSize_t(sweep.kept) : Py_NewRef(Py_None);
}

/* The delay that nothing else adds to: a tenth of those measured are shorter. 0 if there are none. Orders the values. */

static int64_t usual(int64_t *values, size_t count)
{
    size_t rank = count / 10;
    uint64_t bits = 0;
    for (size_t place = 0; place < count; place++)
        bits |= (uint64_t)values[place];
    int shift = 0;
    while (shift < 56 && bits >> shift >> 8)
        shift += 8;
    for (; count > 1 && shift >= 0; shift -= 8) {
        size_t counts[256] = {0}, kept = 0;
        unsigned digit = 0;
        for (size_t place = 0; place < count; place++)
            counts[((uint64_t)values[place] >> shift) & 255]++;
        while (rank >= counts[digit])
            rank -= counts[digit++];
        if (counts[digit] == count)
            continue;
        for (size_t place = 0; place < count; place++)
            if ((((uint64_t)values[place] >> shift) & 255) == digit) {
                int64_t other = values[kept];
                values[kept++] = values[place];
                values[place] = other;
            }
        count = kept;
    }
    return count ? values[0] : 0;
}

typedef struct {
    size_t count, edges;
    const int64_t *times, *previous, *added_sources, *added_targets;
    const int8_t *groups, *added_kinds, *waits;
    int8_t *kinds, *edge_kinds;
    int64_t *offsets, *sources, *line_ns, *edge_ns;
    /* [edge] its target, its measured delay, its class, and whether it determined when its target came. */
    int32_t *targets;
    int64_t *edge_measured;
    uint8_t *edge_class, *is_cause;
    /* The vertices that wait on their line, whose delays there are usual ones. */
    int32_t *waiting;
    size_t waiting_count;
    /* [vertex or edge] values by class. */
    int64_t *values;
    /* Usual delays of edges, and whether they are of their own class. */
    int64_t of_class[CLASSES];
    uint8_t is_own[CLASSES];
} Fit;

/* Put the edges in the order of their targets; 0 if one doesn't point forwards. */
static int sort_edges(Fit *fit)
{
    memset(fit->offsets, 0, (fit->count + 1) * sizeof(int64_t));
    for (size_t edge = 0; edge < fit->edges; edge++) {
        int64_t source = fit->added_sources[edge], target = fit->added_targets[edge];
        if (source < 0 || source >= target || target >= (int64_t)fit->count || fit->added_kinds[edge] < 0
            || fit->added_kinds[edge] >= KINDS)
            return 0;
        fit->offsets[target]++;
    }
    int64_t sum = 0;
    for (size_t vertex = 0; vertex <= fit->count; vertex++) {
        int64_t own = vertex < fit->count ? fit->offsets[vertex] : 0;
        fit->offsets[vertex] = sum;
        sum += own;
    }
    for (size_t edge = 0; edge < fit->edges; edge++) {
        int64_t target = fit->added_targets[edge], place = fit->offsets[target]++;
        fit->sources[place] = fit->added_sources[edge];
        fit->edge_kinds[place] = fit->added_kinds[edge];
        if (fit->waits[fit->added_kinds[edge]] && fit->kinds[target] != STREAM)
            fit->kinds[target] = IDLE;
    }
    memmove(fit->offsets + 1, fit->offsets, fit->count * sizeof(int64_t));
    fit->offsets[0] = 0;
    return 1;
}

static inline int64_t measured(const Fit *fit, size_t vertex)
{
    return fit->previous[vertex] < 0 ? 0 : between(fit->times[fit->previous[vertex]], fit->times[vertex]);
}

/* Note what both passes need of each vertex and edge. At first sight, the cause of a vertex is its last predecessor. 0 if
   a column has an impossible value. */
static int measure(Fit *fit)
{
    for (size_t vertex = 0; vertex < fit->count; vertex++) {
        int64_t last = fit->previous[vertex], cause = -1;
        if (fit->groups[vertex] < 0 || fit->groups[vertex] >= GROUPS || last >= (int64_t)vertex)
            return 0;
        fit->line_ns[vertex] = measured(fit, vertex);
        if (fit->kinds[vertex] == STREAM || fit->kinds[vertex] == IDLE)
            fit->waiting[fit->waiting_count++] = (int32_t)vertex;
        for (int64_t edge = fit->offsets[vertex]; edge < fit->offsets[vertex + 1]; edge++) {
            fit->targets[edge] = (int32_t)vertex;
            fit->edge_measured[edge] = between(fit->times[fit->sources[edge]], fit->times[vertex]);
            fit->edge_class[edge] = (uint8_t)(fit->edge_kinds[edge] * GROUPS + fit->groups[vertex]);
            if (fit->sources[edge] > last) {
                last = fit->sources[edge];
                cause = edge;
            }
        }
        if (cause >= 0)
            fit->is_cause[cause] = 1;
    }
    return 1;
}

/* Then it is the one whose usual delay explains most of the measured one, as in replay.c. */
static void find_causes(Fit *fit)
{
    memset(fit->is_cause, 0, fit->edges);
    for (size_t edge = 0; edge < fit->edges;) {
        size_t vertex = (size_t)fit->targets[edge], cause = fit->edges;
        int64_t ns = measured(fit, vertex), least = INT64_MAX;
        if (fit->previous[vertex] >= 0)
            least = ns > fit->line_ns[vertex] ? ns - fit->line_ns[vertex] : 0;
        for (; edge < (size_t)fit->offsets[vertex + 1]; edge++) {
            ns = fit->edge_measured[edge];
            int64_t left = ns > fit->edge_ns[edge] ? ns - fit->edge_ns[edge] : 0;
            if (left < least) {
                least = left;
                cause = edge;
            }
        }
        if (cause < fit->edges)
            fit->is_cause[cause] = 1;
    }
}

/* Kinds of edges into groups of vertices have usual delays. If none was a cause, it is that of compute tasks, which are
   the first group, or of all groups. What was never waited for says nothing about its delay but that it isn't longer
   than any that is measured or known. */
static void fit_edges(Fit *fit, int is_first)
{
    size_t begins[CLASSES + 1] = {0}, at[CLASSES + 1], all[CLASSES] = {0};
    int64_t least[CLASSES], least_known = INT64_MAX;
    int is_known[CLASSES] = {0};
    for (size_t edge = 0; edge < fit->edges; edge++) {
        int class = fit->edge_class[edge];
        int64_t ns = fit->edge_measured[edge];
        least[class] = all[class]++ && least[class] < ns ? least[class] : ns;
        begins[class + 1] += fit->is_cause[edge];
    }
    for (int class = 1; class <= CLASSES; class++)
        begins[class] += begins[class - 1];
    memcpy(at, begins, sizeof at);
    for (size_t edge = 0; edge < fit->edges; edge++)
        if (fit->is_cause[edge])
            fit->values[at[fit->edge_class[edge]]++] = fit->edge_measured[edge];
    for (int kind = 0; kind < KINDS; kind++) {
        size_t first = begins[kind * GROUPS], stop = begins[(kind + 1) * GROUPS];
        for (int class = kind * GROUPS; class < (kind + 1) * GROUPS; class++)
            if (begins[class] < begins[class + 1]) {
                fit->of_class[class] = usual(fit->values + begins[class], begins[class + 1] - begins[class]);
                fit->is_own[class] = 1;
            }
        /* Now the values of a class may leave their places. */
        int64_t of_kind = fit->is_own[kind * GROUPS] ? fit->of_class[kind * GROUPS] : usual(fit->values + first, stop - first);
        for (int class = kind * GROUPS; class < (kind + 1) * GROUPS; class++) {
            is_known[class] = stop > first;
            if (is_known[class] && !fit->is_own[class])
                fit->of_class[class] = of_kind;
            if (all[class] && is_known[class] && fit->of_class[class] < least_known)
                least_known = fit->of_class[class];
        }
    }
    for (int class = 0; is_first && class < CLASSES; class++)
        if (!is_known[class] && all[class])
            fit->of_class[class] = least[class] < least_known ? least[class] : least_known;
    for (size_t edge = 0; edge < fit->edges; edge++)
        fit->edge_ns[edge] = fit->of_class[fit->edge_class[edge]];
}

/* The class of a waiting vertex: a stream's is 0, those of threads 1 + group. */
static inline int class_of(const Fit *fit, size_t vertex)
{
    return fit->kinds[vertex] == STREAM ? 0 : 1 + fit->groups[vertex];
}

/* Whether the vertex before it on the line comes when the other predecessors and their usual delays permit it already. */
static int by_line(const Fit *fit, size_t vertex)
{
    if (fit->previous[vertex] < 0)
        return 0;
    int64_t time = fit->times[fit->previous[vertex]];
    for (int64_t edge = fit->offsets[vertex]; edge < fit->offsets[vertex + 1]; edge++)
        if (between(fit->times[fit->sources[edge]], time) < fit->edge_ns[edge])
            return 0;
    return 1;
}

static void fit_lines(Fit *fit)
{
    size_t begins[GROUPS + 2] = {0}, at[GROUPS + 2];
    int64_t of_class[GROUPS + 1];
    const int32_t *stop = fit->waiting + fit->waiting_count;
    for (const int32_t *vertex = fit->waiting; vertex < stop; vertex++)
        begins[class_of(fit, (size_t)*vertex) + 1] += (size_t)by_line(fit, (size_t)*vertex);
    for (int class = 1; class <= GROUPS + 1; class++)
        begins[class] += begins[class - 1];
    memcpy(at, begins, sizeof at);
    for (const int32_t *vertex = fit->waiting; vertex < stop; vertex++)
        if (by_line(fit, (size_t)*vertex))
            fit->values[at[class_of(fit, (size_t)*vertex)]++] = measured(fit, (size_t)*vertex);
    for (int class = 0; class <= GROUPS; class++)
        of_class[class] = usual(fit->values + begins[class], begins[class + 1] - begins[class]);
    for (const int32_t *vertex = fit->waiting; vertex < stop; vertex++)
        fit->line_ns[*vertex] = of_class[class_of(fit, (size_t)*vertex)];
}

PyObject *native_delays(PyObject *module, PyObject *args)
{
    enum { TIMES, PREVIOUS, GROUP, ADDED_SOURCES, ADDED_TARGETS, ADDED_KINDS, WAITS, KIND, EDGE_KINDS, OFFSETS, SOURCES, LINE_NS,
        EDGE_NS, ALL };
    PyObject *given[ALL];
    Py_buffer all[ALL];
    int is_sound = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOO:delays", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6],
            &given[7], &given[8], &given[9], &given[10], &given[11], &given[12])
        || !get_buffers(given, all, KIND, ALL))
        return NULL;
    Py_ssize_t count = items(&all[TIMES]), edges = items(&all[ADDED_SOURCES]);
    int is_valid = items(&all[PREVIOUS]) == count && all[GROUP].len == count && items(&all[ADDED_TARGETS]) == edges
                   && all[ADDED_KINDS].len == edges && all[WAITS].len == KINDS && all[KIND].len == count && all[EDGE_KINDS].len == edges
                   && items(&all[OFFSETS]) == count + 1 && items(&all[SOURCES]) == edges && items(&all[LINE_NS]) == count
                   && items(&all[EDGE_NS]) == edges;
    Fit fit = {.count = (size_t)count, .edges = (size_t)edges, .times = all[TIMES].buf, .previous = all[PREVIOUS].buf,
        .added_sources = all[ADDED_SOURCES].buf, .added_targets = all[ADDED_TARGETS].buf, .groups = all[GROUP].buf,
        .added_kinds = all[ADDED_KINDS].buf, .waits = all[WAITS].buf, .kinds = all[KIND].buf, .edge_kinds = all[EDGE_KINDS].buf,
        .offsets = all[OFFSETS].buf, .sources = all[SOURCES].buf, .line_ns = all[LINE_NS].buf, .edge_ns = all[EDGE_NS].buf};
    is_valid &= count < 2 * (Py_ssize_t)MOST_SLICES;
    if (is_valid) {
        fit.targets = malloc(((size_t)edges + 1) * sizeof *fit.targets);
        fit.edge_measured = malloc(((size_t)edges + 1) * sizeof *fit.edge_measured);
        fit.edge_class = malloc((size_t)edges + 1);
        fit.is_cause = calloc((size_t)edges + 1, 1);
        fit.waiting = malloc(((size_t)count + 1) * sizeof *fit.waiting);
        fit.values = malloc(((size_t)(count > edges ? count : edges) + 1) * sizeof *fit.values);
    }
    int has_memory = fit.targets != NULL && fit.edge_measured != NULL && fit.edge_class != NULL && fit.is_cause != NULL
                     && fit.waiting != NULL && fit.values != NULL;
    if (is_valid && has_memory) {
        Py_BEGIN_ALLOW_THREADS
        is_sound = sort_edges(&fit) && measure(&fit);
        if (is_sound) {
            for (int pass = 0; pass < 2; pass++) {
                fit_edges(&fit, pass == 0);
                fit_lines(&fit);
                if (pass == 0)
                    find_causes(&fit);
            }
        }
        Py_END_ALLOW_THREADS
    }
    free(fit.targets);
    free(fit.edge_measured);
    free(fit.edge_class);
    free(fit.is_cause);
    free(fit.waiting);
    free(fit.values);
    release(all, ALL);
    if (is_valid && !has_memory)
        return PyErr_NoMemory();
    if (!is_sound)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return is_sound ? Py_NewRef(Py_None) : NULL;
}
