/* Times of the vertices of a dependency graph, and the chain of causes of one of them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
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
/* Numbers of resources: cube, vector and AI CPU cores, and the bandwidths of memory and L2. */
#define RESOURCES 5
#define BANDWIDTHS 2
/* Those of all tasks together are below 2^63. */
#define MOST_DEMAND (CAPACITY << 16)
#define MOST_TASKS ((Py_ssize_t)1 << 26)

typedef struct {
    int64_t task, vertex, left, speed, device;
    /* [resource] */
    const int64_t *demands;
} running_task;

/* What the running tasks of a device ask for, and how many of them: [resource]. is_short: some run slower than alone. */
typedef struct {
    int64_t asked[RESOURCES], askers[RESOURCES];
    int is_short;
} device_load;

typedef struct {
    running_task *tasks;
    Py_ssize_t count, most;
    int64_t now;
    /* [task, resource] */
    const Py_buffer *demands;
    /* [task] */
    const Py_buffer *devices;
    /* [device] */
    device_load *loads;
} running_set;

/* Set the speeds of the tasks of a device, after one of them has started or ended. */
static void share(running_set *set, int64_t device)
{
    device_load *load = &set->loads[device];
    running_task *stop = set->tasks + set->count;
    int was_short = load->is_short;
    load->is_short = 0;
    for (int resource = 0; resource < RESOURCES; resource++)
        load->is_short |= load->asked[resource] > CAPACITY && load->askers[resource] > 1;
    if (!was_short && !load->is_short)
        return;
    for (running_task *one = set->tasks; one < stop; one++)
        if (one->device == device)
            one->speed = FULL;
    for (int resource = 0; resource < RESOURCES; resource++) {
        if (load->asked[resource] <= CAPACITY || load->askers[resource] < 2)
            continue;
        int64_t speed = FULL * CAPACITY / load->asked[resource];
        speed = speed < 1 ? 1 : speed;
        for (running_task *one = set->tasks; one < stop; one++)
            if (one->device == device && one->demands[resource] > 0 && speed < one->speed)
                one->speed = speed;
    }
}

/* Add what a task asks for to its device's load, or take it away. */
static void ask(running_set *set, const running_task *one, int sign)
{
    device_load *load = &set->loads[one->device];
    for (int resource = 0; resource < RESOURCES; resource++) {
        int64_t demand = one->demands[resource] < MOST_DEMAND ? one->demands[resource] : MOST_DEMAND;
        load->asked[resource] += sign * demand;
        load->askers[resource] += demand > 0 ? sign : 0;
    }
}

static void start_task(running_set *set, int64_t task, int64_t vertex, int64_t left)
{
    int64_t device = item(set->devices, (Py_ssize_t)task);
    running_task *added = &set->tasks[set->count++];
    *added = (running_task){.task = task, .vertex = vertex, .left = left, .speed = FULL, .device = device,
        .demands = (const int64_t *)set->demands->buf + task * RESOURCES};
    ask(set, added, 1);
    share(set, device);
}

static void end_task(running_set *set, Py_ssize_t place)
{
    running_task ended = set->tasks[place];
    ask(set, &ended, -1);
    if (place < --set->count)
        set->tasks[place] = set->tasks[set->count];
    share(set, ended.device);
}

/* Return the number of tasks and set that of the last device; -1: columns don't fit one another, or are too large. */
static Py_ssize_t count_devices(const Py_buffer *devices, const Py_buffer *demands, int64_t *last)
{
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t tasks = devices->len / size;
    if (tasks > MOST_TASKS || demands->len / size != tasks * RESOURCES)
        return -1;
    for (Py_ssize_t task = 0; task < tasks; task++) {
        int64_t device = item(devices, task);
        if (device < 0 || device >= tasks)
            return -1;
        *last = device > *last ? device : *last;
    }
    return tasks;
}

/* Make a set of which no task runs yet. NULL in `tasks` or `loads`: there is no memory. 0: the columns don't fit. */
static int make_set(running_set *set, const Py_buffer *demands, const Py_buffer *devices)
{
    int64_t last = 0;
    Py_ssize_t most = count_devices(devices, demands, &last);
    *set = (running_set){.most = most, .demands = demands, .devices = devices};
    if (most < 0)
        return 0;
    set->tasks = PyMem_Calloc((size_t)most + 1, sizeof *set->tasks);
    set->loads = PyMem_Calloc((size_t)last + 1, sizeof *set->loads);
    return 1;
}

static void free_set(running_set *set)
{
    PyMem_Free(set->tasks);
    PyMem_Free(set->loads);
}

/* The start or the end (~task) of a task. */
typedef struct {
    int64_t code, time;
} shared_vertex;

/* A time in which the same tasks of a device run, of which there are several: members[first] to members[stop]. */
typedef struct {
    int64_t ns;
    Py_ssize_t first, stop;
} shared_time;

typedef struct {
    int32_t task, speed;
} member;

typedef struct {
    Py_ssize_t most, rounds;
    int64_t exact;
    const int64_t *devices;
    /* [task][bandwidth], [task][resource] */
    const int64_t (*busy_ns)[BANDWIDTHS];
    int64_t (*demands)[RESOURCES];
    int64_t *work;
    /* [task] The work that is done while no other task of the device runs, and what `work` was before the last round. */
    int64_t *alone, *before;
    /* [task] Whether its demands are others than in the last round. */
    uint8_t *changed;
    /* [device] When one of its tasks started or ended last. */
    int64_t *since;
    /* What runs, in any order. */
    int32_t *running;
    Py_ssize_t running_count;
    /* The tasks of a busy period, and the times in which they run together. */
    int32_t *tasks;
    Py_ssize_t task_count;
    shared_time *times;
    member *members;
    Py_ssize_t time_count, times_room, member_count, members_room;
} measurement;

/* Return memory with room for more, or NULL; `room` is in items. */
static void *with_room(void *items, Py_ssize_t *room, Py_ssize_t needed, size_t size)
{
    Py_ssize_t wanted = needed + needed / 2 + 1024;
    void *moved = realloc(items, (size_t)wanted * size);
    if (moved != NULL)
        *room = wanted;
    return moved;
}

/* Note that the same tasks of a device have run until now. 0: there is no memory. */
static int add_time(measurement *all, int64_t device, int64_t now)
{
    int64_t ns = elapsed(all->since[device], now);
    all->since[device] = now;
    if (all->time_count == all->times_room) {
        shared_time *times = with_room(all->times, &all->times_room, all->time_count, sizeof *times);
        if (times == NULL)
            return 0;
        all->times = times;
    }
    if (all->member_count + all->running_count > all->members_room) {
        member *members =
            with_room(all->members, &all->members_room, all->member_count + all->running_count, sizeof *members);
        if (members == NULL)
            return 0;
        all->members = members;
    }
    Py_ssize_t first = all->member_count, stop = first;
    for (Py_ssize_t place = 0; place < all->running_count; place++)
        if (all->devices[all->running[place]] == device)
            all->members[stop++].task = all->running[place];
    if (stop - first == 1) {
        int64_t *alone = &all->alone[all->members[first].task];
        *alone = later(*alone, done_in(ns, FULL));
    } else if (stop > first && ns > 0) {
        all->times[all->time_count++] = (shared_time){ns, first, stop};
        all->member_count = stop;
    }
    return 1;
}

/* Find what runs together in a busy period. -1 if its times are not in order, -2: there is no memory. */
static int find_times(measurement *all, const shared_vertex *vertices, Py_ssize_t count)
{
    all->time_count = all->member_count = all->running_count = all->task_count = 0;
    for (const shared_vertex *vertex = vertices; vertex < vertices + count; vertex++) {
        int32_t task = (int32_t)(vertex->code < 0 ? ~vertex->code : vertex->code);
        if (all->running_count > 0 && vertex->time < vertex[-1].time)
            return -1;
        if (!add_time(all, all->devices[task], vertex->time))
            return -2;
        if (vertex->code >= 0) {
            if (all->task_count == all->most)
                return -1;
            all->tasks[all->task_count++] = all->running[all->running_count++] = task;
            all->alone[task] = 0;
            continue;
        }
        for (Py_ssize_t place = 0; place < all->running_count; place++)
            if (all->running[place] == task) {
                all->running[place] = all->running[--all->running_count];
                break;
            }
    }
    return 0;
}

/* Demands for bandwidth, which are the last ones of a task, follow from its time alone. */
static void set_bandwidths(measurement *all, int64_t task)
{
    int64_t alone_ns = all->work[task] / FULL < 1 ? 1 : all->work[task] / FULL;
    for (int one = 0; one < BANDWIDTHS; one++) {
        int64_t *demand = &all->demands[task][RESOURCES - BANDWIDTHS + one], previous = *demand;
        *demand = done_in(all->busy_ns[task][one], CAPACITY) / alone_ns;
        *demand = *demand < CAPACITY ? *demand : CAPACITY;
        all->changed[task] |= *demand != previous;
    }
}

/* Set the speeds of tasks that run together. */
static void set_speeds(const measurement *all, const shared_time *time)
{
    int64_t asked[RESOURCES] = {0};
    for (Py_ssize_t place = time->first; place < time->stop; place++) {
        all->members[place].speed = FULL;
        for (int resource = 0; resource < RESOURCES; resource++)
            asked[resource] += all->demands[all->members[place].task][resource];
    }
    for (int resource = 0; resource < RESOURCES; resource++) {
        if (asked[resource] <= CAPACITY)
            continue;
        int64_t speed = FULL * CAPACITY / asked[resource], askers = 0;
        speed = speed < 1 ? 1 : speed;
        for (Py_ssize_t place = time->first; place < time->stop; place++)
            askers += all->demands[all->members[place].task][resource] > 0;
        for (Py_ssize_t place = time->first; askers > 1 && place < time->stop; place++)
            if (all->demands[all->members[place].task][resource] > 0 && speed < all->members[place].speed)
                all->members[place].speed = (int32_t)speed;
    }
}

/* Add the work that tasks do while they run together. */
static void add_work(const measurement *all, const shared_time *time)
{
    int changed = 0;
    for (Py_ssize_t place = time->first; place < time->stop; place++)
        changed |= all->changed[all->members[place].task];
    if (changed)
        set_speeds(all, time);
    for (Py_ssize_t place = time->first; place < time->stop; place++) {
        int64_t *work = &all->work[all->members[place].task];
        *work = later(*work, done_in(time->ns, all->members[place].speed));
    }
}

/* Repeat for one busy period until the work of no task changes by more than a part of it. Results as of find_times. */
static int measure_period(measurement *all, const shared_vertex *vertices, Py_ssize_t count)
{
    int is_exact = 0, failed = find_times(all, vertices, count);
    const int32_t *stop = all->tasks + all->task_count;
    for (Py_ssize_t round = 0; !failed && !is_exact && round < all->rounds; round++) {
        for (const int32_t *task = all->tasks; task < stop; task++) {
            all->changed[*task] = round == 0;
            if (round == 0 || all->before[*task] / FULL != all->work[*task] / FULL)
                set_bandwidths(all, *task);
            all->before[*task] = all->work[*task];
            all->work[*task] = all->alone[*task];
        }
        for (Py_ssize_t time = 0; time < all->time_count; time++)
            add_work(all, &all->times[time]);
        is_exact = 1;
        for (const int32_t *task = all->tasks; is_exact && task < stop; task++) {
            int64_t more = elapsed(all->before[*task], all->work[*task]);
            is_exact = (more < 0 ? -more : more) <= all->before[*task] / all->exact;
        }
    }
    return failed;
}

/* Times without an idle device between them don't affect one another, so each busy period is measured on its own. */
static int measure_periods(measurement *all, const shared_vertex *vertices, Py_ssize_t count)
{
    Py_ssize_t running = 0, first = 0;
    int failed = 0;
    for (int64_t task = 0; task < all->most; task++) {
        set_bandwidths(all, task);
        for (int resource = 0; resource < RESOURCES; resource++)
            if (all->demands[task][resource] > MOST_DEMAND)
                all->demands[task][resource] = MOST_DEMAND;
    }
    for (Py_ssize_t vertex = 0; !failed && vertex < count; vertex++) {
        running += vertices[vertex].code < 0 ? -1 : 1;
        if (running > 0 && vertex < count - 1)
            continue;
        failed = measure_period(all, vertices + first, vertex + 1 - first);
        first = vertex + 1;
    }
    return failed;
}

PyObject *native_work(PyObject *module, PyObject *args)
{
    enum { TASKS, TIMES, DEVICES, BUSY, DEMANDS, WORK, ALL };
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_buffer got[ALL];
    Py_ssize_t shared = 0;
    long long exact;
    int failed = -1;
    measurement all = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*nL:work", &got[TASKS], &got[TIMES], &got[DEVICES], &got[BUSY], &got[DEMANDS],
            &got[WORK], &all.rounds, &exact))
        return NULL;
    Py_ssize_t count = got[TASKS].len / size;
    int64_t devices = 0;
    all.exact = exact;
    all.most = got[WORK].len / size;
    all.devices = got[DEVICES].buf;
    all.busy_ns = got[BUSY].buf;
    all.demands = got[DEMANDS].buf;
    all.work = got[WORK].buf;
    int is_valid = exact > 0 && got[TIMES].len / size == count && got[BUSY].len / size == all.most * BANDWIDTHS &&
                   count_devices(&got[DEVICES], &got[DEMANDS], &devices) == all.most;
    shared_vertex *vertices = PyMem_Calloc((size_t)count + 1, sizeof *vertices);
    all.before = PyMem_Calloc((size_t)all.most + 1, sizeof *all.before);
    all.alone = PyMem_Calloc((size_t)all.most + 1, sizeof *all.alone);
    all.changed = PyMem_Calloc((size_t)all.most + 1, sizeof *all.changed);
    all.running = PyMem_Calloc((size_t)all.most + 1, sizeof *all.running);
    all.tasks = PyMem_Calloc((size_t)all.most + 1, sizeof *all.tasks);
    all.since = PyMem_Calloc((size_t)devices + 1, sizeof *all.since);
    int has_memory = vertices != NULL && all.before != NULL && all.alone != NULL && all.changed != NULL &&
                     all.running != NULL && all.tasks != NULL && all.since != NULL;
    if (has_memory && is_valid) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t vertex = 0; is_valid && vertex < count; vertex++) {
            /* The task that starts at a vertex, or ~task that ends; INT64_MIN: none. */
            int64_t code = item(&got[TASKS], vertex);
            if (code == INT64_MIN)
                continue;
            is_valid = (code < 0 ? ~code : code) < all.most;
            vertices[shared++] = (shared_vertex){code, item(&got[TIMES], vertex)};
        }
        failed = is_valid ? measure_periods(&all, vertices, shared) : -1;
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(vertices);
    PyMem_Free(all.before);
    PyMem_Free(all.alone);
    PyMem_Free(all.changed);
    PyMem_Free(all.running);
    PyMem_Free(all.tasks);
    PyMem_Free(all.since);
    free(all.times);
    free(all.members);
    for (size_t one = 0; one < ALL; one++)
        PyBuffer_Release(&got[one]);
    if (!has_memory || failed == -2)
        return PyErr_NoMemory();
    if (failed)
        PyErr_SetString(PyExc_ValueError, "tasks are not in order");
    return failed ? NULL : Py_NewRef(Py_None);
}

/* A replay whose contended tasks take as long as their shares of the device permit. */
typedef struct {
    int64_t time, vertex;
} due;

/* A successor of a vertex, and the edge to it. */
enum { ON_LINE = -1, TO_CONTENDED_END = -2 };
typedef struct {
    int32_t vertex, edge;
} successor;

/* A graph by its predecessors, and by its successors: those of vertex v are links[first[v]] to links[first[v + 1]]. */
typedef struct {
    Py_ssize_t count, edges;
    const int64_t *previous, *offsets, *sources;
    /* [vertex] The task that starts there, ~task that ends there, or INT64_MIN. */
    const int64_t *tasks;
    int64_t last_task;
    int32_t *first, *predecessors;
    successor *links;
} graph;

/* The time of a vertex as far as it is known, and how many of its predecessors have none yet. */
typedef struct {
    int64_t time;
    int32_t waiting;
} reached;

typedef struct {
    const graph *graph;
    const int64_t *delays, *edge_delays;
    reached *vertices;
    /* The vertices whose time is final. */
    int32_t *ready;
    Py_ssize_t ready_count, heap_size;
    due *heap;
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
static void settle(simulation *state)
{
    const graph *all = state->graph;
    while (state->ready_count > 0) {
        int32_t vertex = state->ready[--state->ready_count];
        int64_t time = state->vertices[vertex].time;
        for (int32_t place = all->first[vertex]; place < all->first[vertex + 1]; place++) {
            successor to = all->links[place];
            reached *next = &state->vertices[to.vertex];
            int64_t delay = to.edge == ON_LINE ? state->delays[to.vertex] : to.edge < 0 ? 0 : state->edge_delays[to.edge];
            int64_t found = later(time, delay);
            next->time = found > next->time ? found : next->time;
            if (--next->waiting > 0)
                continue;
            if (to.edge == TO_CONTENDED_END)
                push(state, (due){.time = next->time, .vertex = to.vertex});
            else
                state->ready[state->ready_count++] = to.vertex;
        }
    }
}

/* Set the successors; -1: a predecessor is not before its vertex. */
static int link_vertices(graph *all)
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
                    all->links[all->first[source + 1]++] = (successor){.vertex = vertex,
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
static int simulate(simulation *state, running_set *set, const int64_t *work, int64_t *times)
{
    const graph *all = state->graph;
    for (int32_t vertex = (int32_t)all->count - 1; vertex >= 0; vertex--) {
        int32_t waiting = all->predecessors[vertex];
        state->vertices[vertex] = (reached){waiting > 0 ? INT64_MIN : times[vertex], waiting};
        if (waiting == 0)
            state->ready[state->ready_count++] = vertex;
    }
    settle(state);
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
            int64_t task = ~all->tasks[started.vertex];
            if (set->count == set->most)
                return -1;
            start_task(set, task, started.vertex, work[task]);
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

/* One replay of a graph; 0 with an exception set if that fails. */
static int replay_shared(const graph *all, const Py_buffer *devices, PyObject *given)
{
    enum { DELAYS, EDGE_DELAYS, WORK, DEMANDS, TIMES, ALL };
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_buffer got[ALL];
    int failed = 1, is_valid, has_memory;
    if (!PyArg_ParseTuple(given, "y*y*y*y*w*", &got[DELAYS], &got[EDGE_DELAYS], &got[WORK], &got[DEMANDS], &got[TIMES]))
        return 0;
    running_set set;
    is_valid = make_set(&set, &got[DEMANDS], devices) && all->last_task < set.most && got[WORK].len / size == set.most &&
               got[DELAYS].len / size == all->count && got[EDGE_DELAYS].len / size == all->edges &&
               got[TIMES].len / size == all->count;
    simulation state = {.graph = all, .delays = got[DELAYS].buf, .edge_delays = got[EDGE_DELAYS].buf};
    size_t vertices = (size_t)all->count + 1;
    state.vertices = PyMem_Malloc(vertices * sizeof *state.vertices);
    state.ready = PyMem_Malloc(vertices * sizeof *state.ready);
    state.heap = PyMem_Malloc(vertices * sizeof *state.heap);
    has_memory = state.vertices != NULL && state.ready != NULL && state.heap != NULL &&
                 (!is_valid || (set.tasks != NULL && set.loads != NULL));
    if (is_valid && has_memory) {
        Py_BEGIN_ALLOW_THREADS
        failed = simulate(&state, &set, got[WORK].buf, got[TIMES].buf);
        Py_END_ALLOW_THREADS
    }
    free_set(&set);
    PyMem_Free(state.vertices);
    PyMem_Free(state.ready);
    PyMem_Free(state.heap);
    for (size_t one = 0; one < ALL; one++)
        PyBuffer_Release(&got[one]);
    if (!has_memory)
        PyErr_NoMemory();
    else if (failed)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    return !failed;
}

PyObject *native_simulate(PyObject *module, PyObject *args)
{
    enum { PREVIOUS, OFFSETS, SOURCES, TASKS, DEVICES, ALL };
    const Py_ssize_t size = (Py_ssize_t)sizeof(int64_t);
    Py_buffer got[ALL];
    PyObject *replays;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*O!:simulate", &got[PREVIOUS], &got[OFFSETS], &got[SOURCES], &got[TASKS],
            &got[DEVICES], &PyList_Type, &replays))
        return NULL;
    graph all = {.count = got[PREVIOUS].len / size, .edges = got[SOURCES].len / size, .previous = got[PREVIOUS].buf,
        .offsets = got[OFFSETS].buf, .sources = got[SOURCES].buf, .tasks = got[TASKS].buf, .last_task = -1};
    int is_valid = all.count + all.edges < INT32_MAX - 3 && got[OFFSETS].len / size == all.count + 1 &&
                   got[TASKS].len / size == all.count && all.offsets[0] == 0;
    for (Py_ssize_t vertex = 0; is_valid && vertex < all.count; vertex++)
        is_valid = all.offsets[vertex] <= all.offsets[vertex + 1] && all.offsets[vertex + 1] <= all.edges;
    size_t vertices = (size_t)all.count + 3;
    all.first = PyMem_Calloc(vertices, sizeof *all.first);
    all.predecessors = PyMem_Calloc(vertices, sizeof *all.predecessors);
    all.links = PyMem_Malloc(((size_t)all.count + (size_t)all.edges + 1) * sizeof *all.links);
    int has_memory = all.first != NULL && all.predecessors != NULL && all.links != NULL;
    if (is_valid && has_memory) {
        Py_BEGIN_ALLOW_THREADS
        is_valid = link_vertices(&all) == 0;
        Py_END_ALLOW_THREADS
    }
    int is_done = is_valid && has_memory;
    for (Py_ssize_t place = 0; is_done && place < PyList_Size(replays); place++)
        is_done = replay_shared(&all, &got[DEVICES], PyList_GetItem(replays, place));
    PyMem_Free(all.first);
    PyMem_Free(all.predecessors);
    PyMem_Free(all.links);
    for (size_t one = 0; one < ALL; one++)
        PyBuffer_Release(&got[one]);
    if (!has_memory)
        return PyErr_NoMemory();
    if (!is_valid)
        PyErr_SetString(PyExc_ValueError, "a predecessor is not before its vertex");
    return is_done ? Py_NewRef(Py_None) : NULL;
}
