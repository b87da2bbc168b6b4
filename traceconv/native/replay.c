/* Times of the vertices of a dependency graph, and the chain of causes of one of them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "module.h"

static inline int64_t item(const Py_buffer *numbers, Py_ssize_t place)
{
    int64_t number;
    memcpy(&number, (const uint8_t *)numbers->buf + (size_t)place * sizeof number, sizeof number);
    return number;
}

static inline int64_t later(int64_t time, int64_t delay)
{
    int64_t sum;
    if (__builtin_add_overflow(time, delay, &sum))
        return delay < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

/* The time from one to another that is not earlier. */
static inline int64_t elapsed(int64_t from, int64_t to)
{
    int64_t difference;
    return __builtin_sub_overflow(to, from, &difference) ? INT64_MAX : difference;
}

/* The work done in a time at a speed that is not negative. */
static inline int64_t done_in(int64_t time, int64_t speed)
{
    int64_t product;
    return __builtin_mul_overflow(time, speed, &product) ? INT64_MAX : product;
}

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

/* Tasks that compete for a device: each runs at the smallest share that it gets of any resource for which more is asked
 * than exists, as long as another task asks for that resource, too. Speeds are multiples of 1 / FULL; what remains of a
 * task is in ns times FULL. */

#define FULL ((int64_t)1 << 20)
/* Demands are multiples of 1 / CAPACITY of a resource. */
#define CAPACITY ((int64_t)1 << 20)

typedef struct {
    int64_t task, vertex, left, speed, device;
    /* [resource] */
    const int64_t *demands;
} running_task;

typedef struct {
    running_task *tasks;
    Py_ssize_t count, most;
    int64_t now;
    /* [task, resource] */
    const Py_buffer *demands;
    /* [task] */
    const Py_buffer *devices;
    Py_ssize_t resources;
} running_set;

/* Set the speeds of the tasks of a device, after one of them has started or ended. */
static void share(running_set *set, int64_t device)
{
    running_task *stop = set->tasks + set->count;
    for (running_task *one = set->tasks; one < stop; one++)
        if (one->device == device)
            one->speed = FULL;
    for (Py_ssize_t resource = 0; resource < set->resources; resource++) {
        int64_t asked = 0, askers = 0;
        for (running_task *one = set->tasks; one < stop; one++)
            if (one->device == device) {
                asked = later(asked, one->demands[resource]);
                askers += one->demands[resource] > 0;
            }
        if (askers < 2 || asked <= CAPACITY)
            continue;
        int64_t speed = FULL * CAPACITY / asked;
        speed = speed < 1 ? 1 : speed;
        for (running_task *one = set->tasks; one < stop; one++)
            if (one->device == device && one->demands[resource] > 0 && speed < one->speed)
                one->speed = speed;
    }
}

static void start_task(running_set *set, int64_t task, int64_t vertex, int64_t left)
{
    int64_t device = item(set->devices, (Py_ssize_t)task);
    set->tasks[set->count++] = (running_task){.task = task, .vertex = vertex, .left = left, .speed = FULL, .device = device,
        .demands = (const int64_t *)set->demands->buf + task * set->resources};
    share(set, device);
}

static void end_task(running_set *set, Py_ssize_t place)
{
    int64_t device = set->tasks[place].device;
    set->tasks[place] = set->tasks[--set->count];
    share(set, device);
}

/* The start or the end (~task) of a task, and the busy period that it is in. */
typedef struct {
    int64_t code, time;
    Py_ssize_t period;
} shared_vertex;

/* What each task would take alone, from the measured times; -1 if they are not in order. */
static int measure_work(running_set *set, const shared_vertex *vertices, Py_ssize_t count, int64_t *work)
{
    set->count = 0;
    set->now = 0;
    for (const shared_vertex *vertex = vertices; vertex < vertices + count; vertex++) {
        int64_t task = vertex->code < 0 ? ~vertex->code : vertex->code;
        if (set->count > 0 && vertex->time < set->now)
            return -1;
        for (Py_ssize_t place = 0; place < set->count; place++)
            set->tasks[place].left =
                later(set->tasks[place].left, done_in(elapsed(set->now, vertex->time), set->tasks[place].speed));
        set->now = vertex->time;
        if (vertex->code >= 0) {
            if (set->count == set->most)
                return -1;
            start_task(set, task, 0, 0);
            continue;
        }
        for (Py_ssize_t place = 0; place < set->count; place++)
            if (set->tasks[place].task == task) {
                work[task] = set->tasks[place].left;
                end_task(set, place);
                break;
            }
    }
    return 0;
}

/* Demands for bandwidth, which are the last ones of a task, follow from its time alone. */
static void set_bandwidths(const running_set *set, int64_t *demands, const int64_t *busy_ns, Py_ssize_t bandwidths, const int64_t *work,
    int64_t task)
{
    int64_t alone_ns = work[task] / FULL < 1 ? 1 : work[task] / FULL;
    for (Py_ssize_t one = 0; one < bandwidths; one++) {
        int64_t demand = done_in(busy_ns[task * bandwidths + one], CAPACITY) / alone_ns;
        demands[(task + 1) * set->resources - bandwidths + one] = demand < CAPACITY ? demand : CAPACITY;
    }
}

/* Repeat until the work of no task changes by more than a part of it. Busy periods in which nothing changes have reached
 * a fixed point, and are left out of the next rounds. -1 if the times are not in order. */
static int measure_rounds(running_set *set, shared_vertex *vertices, Py_ssize_t count, int64_t *demands, const int64_t *busy_ns,
    Py_ssize_t bandwidths, int64_t *work, int64_t *before, char *changes, Py_ssize_t rounds, int64_t exact)
{
    for (int64_t task = 0; task < set->most; task++)
        set_bandwidths(set, demands, busy_ns, bandwidths, work, task);
    for (Py_ssize_t round = 0; round < rounds; round++) {
        for (Py_ssize_t vertex = 0; vertex < count; vertex++)
            if (vertices[vertex].code >= 0) {
                int64_t task = vertices[vertex].code;
                before[task] = work[task];
                set_bandwidths(set, demands, busy_ns, bandwidths, work, task);
            }
        if (measure_work(set, vertices, count, work) < 0)
            return -1;
        int is_exact = 1;
        Py_ssize_t kept = 0;
        for (Py_ssize_t vertex = 0; vertex < count; vertex++)
            changes[vertices[vertex].period] = 0;
        for (Py_ssize_t vertex = 0; vertex < count; vertex++)
            if (vertices[vertex].code >= 0) {
                int64_t task = vertices[vertex].code, more = elapsed(before[task], work[task]);
                is_exact &= (more < 0 ? -more : more) <= before[task] / exact;
                changes[vertices[vertex].period] |= more != 0;
            }
        if (is_exact)
            break;
        for (Py_ssize_t vertex = 0; vertex < count; vertex++)
            if (changes[vertices[vertex].period])
                vertices[kept++] = vertices[vertex];
        count = kept;
    }
    return 0;
}

PyObject *native_work(PyObject *module, PyObject *args)
{
    enum { TASKS, TIMES, DEVICES, BUSY, DEMANDS, WORK, ALL };
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_buffer all[ALL];
    Py_ssize_t resources, bandwidths, rounds, shared = 0, periods = 0, running = 0;
    long long exact;
    int failed = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*nnnL:work", &all[TASKS], &all[TIMES], &all[DEVICES], &all[BUSY], &all[DEMANDS],
            &all[WORK], &resources, &bandwidths, &rounds, &exact))
        return NULL;
    Py_ssize_t count = all[TASKS].len / size, most = all[WORK].len / size;
    int is_valid = resources >= 0 && bandwidths >= 0 && bandwidths <= resources && resources < 64 && exact > 0
                   && all[TIMES].len / size == count && all[DEVICES].len / size == most
                   && all[DEMANDS].len / size == most * resources && all[BUSY].len / size == most * bandwidths;
    running_set set = {.most = most, .devices = &all[DEVICES], .demands = &all[DEMANDS], .resources = resources};
    shared_vertex *vertices = PyMem_Calloc((size_t)count + 1, sizeof *vertices);
    int64_t *before = PyMem_Calloc((size_t)most + 1, sizeof *before);
    char *changes = PyMem_Calloc((size_t)count + 1, 1);
    set.tasks = PyMem_Calloc((size_t)most + 1, sizeof *set.tasks);
    int has_memory = vertices != NULL && before != NULL && changes != NULL && set.tasks != NULL;
    if (has_memory && is_valid) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t vertex = 0; is_valid && vertex < count; vertex++) {
            /* The task that starts at a vertex, or ~task that ends; INT64_MIN: none. */
            int64_t code = item(&all[TASKS], vertex);
            if (code == INT64_MIN)
                continue;
            is_valid = (code < 0 ? ~code : code) < most;
            vertices[shared++] = (shared_vertex){code, item(&all[TIMES], vertex), periods};
            running += code < 0 ? -1 : 1;
            periods += running == 0;
        }
        failed = !is_valid || measure_rounds(&set, vertices, shared, all[DEMANDS].buf, all[BUSY].buf, bandwidths, all[WORK].buf,
                                  before, changes, rounds, exact) < 0;
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(vertices);
    PyMem_Free(before);
    PyMem_Free(changes);
    PyMem_Free(set.tasks);
    for (size_t one = 0; one < ALL; one++)
        PyBuffer_Release(&all[one]);
    if (!has_memory)
        return PyErr_NoMemory();
    if (failed)
        PyErr_SetString(PyExc_ValueError, "tasks are not in order");
    return failed ? NULL : Py_NewRef(Py_None);
}

/* A replay whose contended tasks take as long as their shares of the device permit. */
typedef struct {
    int64_t time, vertex;
} due;

typedef struct {
    Py_ssize_t count;
    int64_t *first, *next_vertex, *next_delay, *waiting, *ready;
    due *heap;
    Py_ssize_t heap_size, ready_count;
} simulation;

static int is_before(due one, due other)
{
    return one.time < other.time || (one.time == other.time && one.vertex < other.vertex);
}

static void push(simulation *state, due added)
{
    Py_ssize_t place = state->heap_size++;
    while (place > 0 && is_before(added, state->heap[(place - 1) / 2])) {
        state->heap[place] = state->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    state->heap[place] = added;
}

static due pop(simulation *state)
{
    due top = state->heap[0], last = state->heap[--state->heap_size];
    Py_ssize_t place = 0, child;
    while ((child = 2 * place + 1) < state->heap_size) {
        if (child + 1 < state->heap_size && is_before(state->heap[child + 1], state->heap[child]))
            child++;
        if (!is_before(state->heap[child], last))
            break;
        state->heap[place] = state->heap[child];
        place = child;
    }
    state->heap[place] = last;
    return top;
}

/* Pass the times of the vertices in `ready` on. A contended task's end is put into the heap, with its start. */
static void settle(simulation *state, const Py_buffer *tasks, int64_t *times)
{
    while (state->ready_count > 0) {
        int64_t vertex = state->ready[--state->ready_count];
        for (int64_t place = state->first[vertex]; place < state->first[vertex + 1]; place++) {
            int64_t next = state->next_vertex[place], task = item(tasks, (Py_ssize_t)next);
            int is_contended = task < 0 && task != INT64_MIN;
            int64_t found = later(times[vertex], is_contended ? 0 : state->next_delay[place]);
            times[next] = found > times[next] ? found : times[next];
            if (--state->waiting[next] > 0)
                continue;
            if (is_contended)
                push(state, (due){.time = times[next], .vertex = next});
            else
                state->ready[state->ready_count++] = next;
        }
    }
}

static int simulate(simulation *state, running_set *set, const Py_buffer *previous, const Py_buffer *delays,
    const Py_buffer *offsets, const Py_buffer *sources, const Py_buffer *edge_delays, const Py_buffer *tasks,
    const Py_buffer *work, int64_t *times)
{
    /* Predecessors → successors. */
    for (Py_ssize_t pass = 0; pass < 2; pass++) {
        for (Py_ssize_t vertex = 0; vertex < state->count; vertex++) {
            int64_t before = item(previous, vertex), stop = item(offsets, vertex + 1);
            for (int64_t edge = item(offsets, vertex) - 1; edge < stop; edge++) {
                int is_line = edge < item(offsets, vertex);
                int64_t source = is_line ? before : item(sources, (Py_ssize_t)edge);
                if (is_line && source < 0)
                    continue;
                if (source < 0 || source >= vertex)
                    return -1;
                if (pass == 0) {
                    state->first[source + 2]++;
                    state->waiting[vertex]++;
                    continue;
                }
                int64_t place = state->first[source + 1]++;
                state->next_vertex[place] = vertex;
                state->next_delay[place] = is_line ? item(delays, vertex) : item(edge_delays, (Py_ssize_t)edge);
            }
        }
        for (Py_ssize_t vertex = 0; pass == 0 && vertex <= state->count; vertex++)
            state->first[vertex + 1] += state->first[vertex];
    }
    for (Py_ssize_t vertex = state->count - 1; vertex >= 0; vertex--) {
        if (state->waiting[vertex] > 0)
            times[vertex] = INT64_MIN;
        else
            state->ready[state->ready_count++] = vertex;
    }
    settle(state, tasks, times);
    while (state->heap_size > 0 || set->count > 0) {
        Py_ssize_t ending = -1;
        int64_t end = INT64_MAX;
        for (Py_ssize_t place = 0; place < set->count; place++) {
            const running_task *one = &set->tasks[place];
            int64_t at = later(set->now, one->left / one->speed + (one->left % one->speed > 0));
            if (ending < 0 || at < end || (at == end && one->vertex < set->tasks[ending].vertex)) {
                ending = place;
                end = at;
            }
        }
        int is_start = state->heap_size > 0 && (ending < 0 || state->heap[0].time < end);
        int64_t time = is_start ? state->heap[0].time : end;
        for (Py_ssize_t place = 0; place < set->count && time > set->now; place++) {
            running_task *one = &set->tasks[place];
            int64_t done = done_in(elapsed(set->now, time), one->speed);
            one->left = done > one->left ? 0 : one->left - done;
        }
        set->now = time > set->now || set->count == 0 ? time : set->now;
        if (is_start) {
            due started = pop(state);
            int64_t task = ~item(tasks, (Py_ssize_t)started.vertex);
            if (set->count == set->most)
                return -1;
            start_task(set, task, started.vertex, item(work, (Py_ssize_t)task));
            continue;
        }
        int64_t vertex = set->tasks[ending].vertex;
        times[vertex] = set->now;
        end_task(set, ending);
        state->ready[state->ready_count++] = vertex;
        settle(state, tasks, times);
    }
    return 0;
}

PyObject *native_simulate(PyObject *module, PyObject *args)
{
    Py_buffer all[10];
    Py_ssize_t resources;
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    int failed = 1, no_memory = 1;
    (void)module;
    /* previous, delays, offsets, sources, edge_delays, tasks, work, devices, demands, times */
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*nw*:simulate", &all[0], &all[1], &all[2], &all[3], &all[4], &all[5],
            &all[6], &all[7], &all[8], &resources, &all[9]))
        return NULL;
    Py_ssize_t count = all[0].len / size, edges = all[3].len / size, most = all[6].len / size;
    int is_valid = resources >= 0 && all[1].len / size == count && all[2].len / size == count + 1 &&
                   all[4].len / size == edges && all[5].len / size == count && all[7].len / size == most &&
                   all[8].len / size == most * resources && all[9].len / size == count;
    for (Py_ssize_t vertex = 0; is_valid && vertex < count; vertex++) {
        int64_t task = item(&all[5], vertex), stop = item(&all[2], vertex + 1);
        is_valid = (task == INT64_MIN || (task < 0 ? ~task : task) < most) && item(&all[2], vertex) <= stop &&
                   stop <= edges && (vertex > 0 || item(&all[2], 0) == 0);
    }
    simulation state = {.count = count};
    running_set set = {.most = most, .devices = &all[7], .demands = &all[8], .resources = resources};
    set.tasks = PyMem_Calloc((size_t)most + 1, sizeof *set.tasks);
    size_t vertices = (size_t)count + 3, links = (size_t)count + (size_t)edges + 1;
    state.first = PyMem_Calloc(vertices, sizeof(int64_t));
    state.waiting = PyMem_Calloc(vertices, sizeof(int64_t));
    state.ready = PyMem_Calloc(vertices, sizeof(int64_t));
    state.heap = PyMem_Calloc(vertices, sizeof(due));
    state.next_vertex = PyMem_Calloc(links, sizeof(int64_t));
    state.next_delay = PyMem_Calloc(links, sizeof(int64_t));
    no_memory = set.tasks == NULL || state.first == NULL || state.waiting == NULL || state.ready == NULL ||
                state.heap == NULL || state.next_vertex == NULL || state.next_delay == NULL;
    if (is_valid && !no_memory) {
        Py_BEGIN_ALLOW_THREADS
        failed = simulate(&state, &set, &all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6], all[9].buf);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(set.tasks);
    PyMem_Free(state.first);
    PyMem_Free(state.waiting);
    PyMem_Free(state.ready);
    PyMem_Free(state.heap);
    PyMem_Free(state.next_vertex);
    PyMem_Free(state.next_delay);
    for (size_t one = 0; one < sizeof all / sizeof *all; one++)
        PyBuffer_Release(&all[one]);
    if (no_memory)
        return PyErr_NoMemory();
    if (failed)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return failed ? NULL : Py_NewRef(Py_None);
}
