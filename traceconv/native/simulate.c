/* Times of the vertices of a dependency graph whose tasks share their devices' resources. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "heap.h"
#include "module.h"
#include "resources.h"

typedef struct {
    int64_t task, vertex, left, speed, device;
    /* [resource] */
    const int64_t *demands;
} RunningTask;

/* What the running tasks of a device ask for, and how many of them: [resource]. is_short: some run slower than alone. */
typedef struct {
    int64_t asked[RESOURCES], askers[RESOURCES];
    int is_short;
} Load;

typedef struct {
    RunningTask *tasks;
    Py_ssize_t count, most;
    int64_t now;
    /* [task, resource] */
    const Py_buffer *demands;
    /* [task] */
    const Py_buffer *devices;
    /* [device] */
    Load *loads;
} RunningSet;

/* How long the rest of a task takes. Most run as fast as alone, which needs no division. */
static inline int64_t time_for(int64_t left, int64_t speed)
{
    return speed == FULL ? left / FULL + (left % FULL > 0) : left / speed + (left % speed > 0);
}

/* Set the speeds of the tasks of a device, after one of them has started or ended. */
static void share(RunningSet *set, int64_t device)
{
    Load *load = &set->loads[device];
    RunningTask *stop = set->tasks + set->count;
    int was_short = load->is_short;
    load->is_short = 0;
    for (int resource = 0; resource < RESOURCES; resource++)
        load->is_short |= load->asked[resource] > CAPACITY && load->askers[resource] > 1;
    if (!was_short && !load->is_short)
        return;
    for (RunningTask *one = set->tasks; one < stop; one++)
        if (one->device == device)
            one->speed = FULL;
    for (int resource = 0; resource < RESOURCES; resource++) {
        if (load->asked[resource] <= CAPACITY || load->askers[resource] < 2)
            continue;
        int64_t speed = FULL * CAPACITY / load->asked[resource];
        speed = speed < 1 ? 1 : speed;
        for (RunningTask *one = set->tasks; one < stop; one++)
            if (one->device == device && one->demands[resource] > 0 && speed < one->speed)
                one->speed = speed;
    }
}

/* Add what a task asks for to its device's load, or take it away. */
static void ask(RunningSet *set, const RunningTask *one, int sign)
{
    Load *load = &set->loads[one->device];
    for (int resource = 0; resource < RESOURCES; resource++) {
        int64_t demand = one->demands[resource] < MOST_DEMAND ? one->demands[resource] : MOST_DEMAND;
        load->asked[resource] += sign * demand;
        load->askers[resource] += demand > 0 ? sign : 0;
    }
}

static void start_task(RunningSet *set, int64_t task, int64_t vertex, int64_t left)
{
    int64_t device = item(set->devices, (Py_ssize_t)task);
    RunningTask *added = &set->tasks[set->count++];
    *added = (RunningTask){.task = task, .vertex = vertex, .left = left, .speed = FULL, .device = device,
        .demands = (const int64_t *)set->demands->buf + task * RESOURCES};
    ask(set, added, 1);
    share(set, device);
}

static void end_task(RunningSet *set, Py_ssize_t place)
{
    RunningTask ended = set->tasks[place];
    ask(set, &ended, -1);
    if (place < --set->count)
        set->tasks[place] = set->tasks[set->count];
    share(set, ended.device);
}

/* Make a set of which no task runs yet. NULL in `tasks` or `loads`: there is no memory. 0: the columns don't fit. */
static int make_set(RunningSet *set, const Py_buffer *demands, const Py_buffer *devices)
{
    int64_t last = 0;
    Py_ssize_t most = count_devices(devices, demands, &last);
    *set = (RunningSet){.most = most, .demands = demands, .devices = devices};
    if (most < 0)
        return 0;
    set->tasks = PyMem_Calloc((size_t)most + 1, sizeof *set->tasks);
    set->loads = PyMem_Calloc((size_t)last + 1, sizeof *set->loads);
    return 1;
}

static void free_set(RunningSet *set)
{
    PyMem_Free(set->tasks);
    PyMem_Free(set->loads);
}

/* A successor of a vertex, and the edge to it. */
enum { ON_LINE = -1, TO_CONTENDED_END = -2 };
typedef struct {
    int32_t vertex, edge;
} Successor;

/* A graph by its predecessors, and by its successors: those of vertex v are links[first[v]] to links[first[v + 1]]. */
typedef struct {
    Py_ssize_t count, edges;
    const int64_t *previous, *offsets, *sources;
    /* [vertex] The task that starts there, ~task that ends there, or INT64_MIN. */
    const int64_t *tasks;
    int64_t last_task;
    int32_t *first, *predecessors;
    Successor *links;
} Graph;

/* The time of a vertex as far as it is known, and how many of its predecessors have none yet. */
typedef struct {
    int64_t time;
    int32_t waiting;
} Reached;

/* A replay whose contended tasks take as long as their shares of the device permit. */
typedef struct {
    const Graph *graph;
    const int64_t *delays, *edge_delays;
    Reached *vertices;
    /* The vertices whose time is final. */
    int32_t *ready;
    Py_ssize_t ready_count;
    /* The starts of contended tasks, ranked by the vertices of their ends. */
    Heap due;
} Simulation;

/* Pass the times of the vertices in `ready` on. A contended task's end is put into the heap, with its start. */
static void settle(Simulation *state)
{
    const Graph *all = state->graph;
    while (state->ready_count > 0) {
        int32_t vertex = state->ready[--state->ready_count];
        int64_t time = state->vertices[vertex].time;
        for (int32_t place = all->first[vertex]; place < all->first[vertex + 1]; place++) {
            Successor to = all->links[place];
            Reached *next = &state->vertices[to.vertex];
            int64_t delay = to.edge == ON_LINE ? state->delays[to.vertex] : to.edge < 0 ? 0 : state->edge_delays[to.edge];
            int64_t found = later(time, delay);
            next->time = found > next->time ? found : next->time;
            if (--next->waiting > 0)
                continue;
            if (to.edge == TO_CONTENDED_END)
                push(&state->due, (Due){next->time, to.vertex});
            else
                state->ready[state->ready_count++] = to.vertex;
        }
    }
}

/* Set the successors; -1: a predecessor is not before its vertex. */
static int link_vertices(Graph *all)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t vertex = 0; vertex < all->count; vertex++) {
            int64_t first = all->offsets[vertex], stop = all->offsets[vertex + 1];
            int64_t task = all->tasks[vertex];
            int is_contended_end = task < 0 && task != INT64_MIN;
            task = is_contended_end ? ~task : task;
            all->last_task = task > all->last_task ? task : all->last_task;
            for (int64_t edge = all->previous[vertex] < 0 ? first : first - 1; edge < stop; edge++) {
                int is_line = edge < first;
                int64_t source = is_line ? all->previous[vertex] : all->sources[edge];
                if (source < 0 || source >= vertex)
                    return -1;
                if (pass == 0) {
                    all->first[source + 2]++;
                    all->predecessors[vertex]++;
                } else {
                    all->links[all->first[source + 1]++] = (Successor){.vertex = vertex,
                        .edge = is_contended_end ? TO_CONTENDED_END : is_line ? ON_LINE : (int32_t)edge};
                }
            }
        }
        for (int32_t vertex = 0; pass == 0 && vertex <= all->count; vertex++)
            all->first[vertex + 1] += all->first[vertex];
    }
    return 0;
}

/* Set the times of the vertices with predecessors; -1: more tasks run at once than there are. */
static int simulate(Simulation *state, RunningSet *set, const int64_t *work, int64_t *times)
{
    const Graph *all = state->graph;
    for (int32_t vertex = (int32_t)all->count - 1; vertex >= 0; vertex--) {
        int32_t waiting = all->predecessors[vertex];
        state->vertices[vertex] = (Reached){waiting > 0 ? INT64_MIN : times[vertex], waiting};
        if (waiting == 0)
            state->ready[state->ready_count++] = vertex;
    }
    settle(state);
    while (state->due.count > 0 || set->count > 0) {
        Py_ssize_t ending = -1;
        int64_t end = INT64_MAX;
        for (Py_ssize_t place = 0; place < set->count; place++) {
            const RunningTask *one = &set->tasks[place];
            int64_t at = later(set->now, time_for(one->left, one->speed));
            if (ending < 0 || at < end || (at == end && one->vertex < set->tasks[ending].vertex)) {
                ending = place;
                end = at;
            }
        }
        int is_start = state->due.count > 0 && (ending < 0 || state->due.items[0].time < end);
        int64_t time = is_start ? state->due.items[0].time : end;
        for (Py_ssize_t place = 0; place < set->count && time > set->now; place++) {
            RunningTask *one = &set->tasks[place];
            int64_t done = done_in(between(set->now, time), one->speed);
            one->left = done > one->left ? 0 : one->left - done;
        }
        set->now = time > set->now || set->count == 0 ? time : set->now;
        if (is_start) {
            int64_t vertex = pop(&state->due).rank, task = ~all->tasks[vertex];
            if (set->count == set->most)
                return -1;
            start_task(set, task, vertex, work[task]);
            continue;
        }
        int32_t vertex = (int32_t)set->tasks[ending].vertex;
        state->vertices[vertex].time = set->now;
        end_task(set, ending);
        state->ready[state->ready_count++] = vertex;
        settle(state);
    }
    for (Py_ssize_t vertex = 0; vertex < all->count; vertex++)
        times[vertex] = state->vertices[vertex].time;
    return 0;
}

/* One replay of a graph in the memory of a simulation; 0 with an exception set if that fails. */
static int replay_shared(const Graph *all, const Simulation *memory, const Py_buffer *devices, PyObject *given)
{
    enum { DELAYS, EDGE_DELAYS, WORK, DEMANDS, TIMES, ALL };
    Py_buffer got[ALL];
    int failed = 1, is_valid, has_memory;
    if (!PyArg_ParseTuple(given, "y*y*y*y*w*", &got[DELAYS], &got[EDGE_DELAYS], &got[WORK], &got[DEMANDS], &got[TIMES]))
        return 0;
    RunningSet set;
    is_valid = make_set(&set, &got[DEMANDS], devices) && all->last_task < set.most && items(&got[WORK]) == set.most &&
               items(&got[DELAYS]) == all->count && items(&got[EDGE_DELAYS]) == all->edges &&
               items(&got[TIMES]) == all->count;
    Simulation state = *memory;
    state.delays = got[DELAYS].buf;
    state.edge_delays = got[EDGE_DELAYS].buf;
    has_memory = !is_valid || (set.tasks != NULL && set.loads != NULL);
    if (is_valid && has_memory) {
        Py_BEGIN_ALLOW_THREADS
        failed = simulate(&state, &set, got[WORK].buf, got[TIMES].buf);
        Py_END_ALLOW_THREADS
    }
    free_set(&set);
    release(got, ALL);
    if (!has_memory)
        PyErr_NoMemory();
    else if (failed)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    return !failed;
}

PyObject *native_simulate(PyObject *module, PyObject *args)
{
    enum { PREVIOUS, OFFSETS, SOURCES, TASKS, DEVICES, ALL };
    Py_buffer got[ALL];
    PyObject *replays;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*O!:simulate", &got[PREVIOUS], &got[OFFSETS], &got[SOURCES], &got[TASKS],
            &got[DEVICES], &PyList_Type, &replays))
        return NULL;
    Graph all = {.count = items(&got[PREVIOUS]), .edges = items(&got[SOURCES]), .previous = got[PREVIOUS].buf,
        .offsets = got[OFFSETS].buf, .sources = got[SOURCES].buf, .tasks = got[TASKS].buf, .last_task = -1};
    int is_valid = all.count + all.edges < INT32_MAX - 3 && items(&got[OFFSETS]) == all.count + 1 &&
                   items(&got[TASKS]) == all.count && all.offsets[0] == 0;
    for (Py_ssize_t vertex = 0; is_valid && vertex < all.count; vertex++)
        is_valid = all.offsets[vertex] <= all.offsets[vertex + 1] && all.offsets[vertex + 1] <= all.edges;
    size_t vertices = (size_t)all.count + 3;
    all.first = PyMem_Calloc(vertices, sizeof *all.first);
    all.predecessors = PyMem_Calloc(vertices, sizeof *all.predecessors);
    all.links = PyMem_Malloc(((size_t)all.count + (size_t)all.edges + 1) * sizeof *all.links);
    Simulation state = {.graph = &all};
    state.vertices = PyMem_Malloc(vertices * sizeof *state.vertices);
    state.ready = PyMem_Malloc(vertices * sizeof *state.ready);
    state.due.items = PyMem_Malloc(vertices * sizeof *state.due.items);
    int has_memory = all.first != NULL && all.predecessors != NULL && all.links != NULL && state.vertices != NULL &&
                     state.ready != NULL && state.due.items != NULL;
    if (is_valid && has_memory) {
        Py_BEGIN_ALLOW_THREADS
        is_valid = link_vertices(&all) == 0;
        Py_END_ALLOW_THREADS
    }
    int is_done = is_valid && has_memory;
    for (Py_ssize_t place = 0; is_done && place < PyList_Size(replays); place++)
        is_done = replay_shared(&all, &state, &got[DEVICES], PyList_GetItem(replays, place));
    PyMem_Free(all.first);
    PyMem_Free(all.predecessors);
    PyMem_Free(all.links);
    PyMem_Free(state.vertices);
    PyMem_Free(state.ready);
    PyMem_Free(state.due.items);
    release(got, ALL);
    if (!has_memory)
        return PyErr_NoMemory();
    if (!is_valid)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return is_done ? Py_NewRef(Py_None) : NULL;
}
