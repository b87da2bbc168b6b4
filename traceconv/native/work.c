/* What tasks that shared the memory of a device would take alone, and the bandwidth that they need. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "module.h"
#include "resources.h"

/* The start or the end (~task) of a task. */
typedef struct {
    int64_t code, time;
} Vertex;

/* A time in which the same tasks of a device run, of which there are several: members[first] to members[stop]. */
typedef struct {
    int64_t ns;
    Py_ssize_t first, stop;
} SharedTime;

typedef struct {
    int32_t task, speed;
} Member;

typedef struct {
    Py_ssize_t most, rounds;
    int64_t exact;
    const int64_t *devices;
    /* [task][bandwidth], [task][resource] */
    const int64_t (*busy_ns)[BANDWIDTHS];
    /* [task] How long it takes alone; 0: that follows from its work. */
    const int64_t *alone_ns;
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
    SharedTime *times;
    Member *members;
    Py_ssize_t time_count, times_room, member_count, members_room;
} Measurement;

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
static int add_time(Measurement *all, int64_t device, int64_t now)
{
    int64_t ns = between(all->since[device], now);
    all->since[device] = now;
    if (all->time_count == all->times_room) {
        SharedTime *times = with_room(all->times, &all->times_room, all->time_count, sizeof *times);
        if (times == NULL)
            return 0;
        all->times = times;
    }
    if (all->member_count + all->running_count > all->members_room) {
        Member *members =
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
        all->times[all->time_count++] = (SharedTime){ns, first, stop};
        all->member_count = stop;
    }
    return 1;
}

/* Find what runs together in a busy period. -1 if its times are not in order, -2: there is no memory. */
static int find_times(Measurement *all, const Vertex *vertices, Py_ssize_t count)
{
    all->time_count = all->member_count = all->running_count = all->task_count = 0;
    for (const Vertex *vertex = vertices; vertex < vertices + count; vertex++) {
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
static void set_bandwidths(Measurement *all, int64_t task)
{
    int64_t alone_ns = all->alone_ns[task] > 0 ? all->alone_ns[task] : all->work[task] / FULL;
    alone_ns = alone_ns < 1 ? 1 : alone_ns;
    for (int one = 0; one < BANDWIDTHS; one++) {
        int64_t *demand = &all->demands[task][RESOURCES - BANDWIDTHS + one], previous = *demand;
        *demand = done_in(all->busy_ns[task][one], CAPACITY) / alone_ns;
        *demand = *demand < CAPACITY ? *demand : CAPACITY;
        all->changed[task] |= *demand != previous;
    }
}

/* Set the speeds of tasks that run together. */
static void set_speeds(const Measurement *all, const SharedTime *time)
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
static void add_work(const Measurement *all, const SharedTime *time)
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
static int measure_period(Measurement *all, const Vertex *vertices, Py_ssize_t count)
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
            int64_t more = between(all->before[*task], all->work[*task]);
            is_exact = (more < 0 ? -more : more) <= all->before[*task] / all->exact;
        }
    }
    return failed;
}

/* Times without an idle device between them don't affect one another, so each busy period is measured on its own. */
static int measure_periods(Measurement *all, const Vertex *vertices, Py_ssize_t count)
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
    enum { TASKS, TIMES, DEVICES, BUSY, ALONE, DEMANDS, WORK, ALL };
    Py_buffer got[ALL];
    Py_ssize_t shared = 0;
    long long exact;
    int failed = -1;
    Measurement all = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*nL:work", &got[TASKS], &got[TIMES], &got[DEVICES], &got[BUSY], &got[ALONE],
            &got[DEMANDS], &got[WORK], &all.rounds, &exact))
        return NULL;
    Py_ssize_t count = items(&got[TASKS]);
    int64_t devices = 0;
    all.exact = exact;
    all.most = items(&got[WORK]);
    all.devices = got[DEVICES].buf;
    all.busy_ns = got[BUSY].buf;
    all.alone_ns = got[ALONE].buf;
    all.demands = got[DEMANDS].buf;
    all.work = got[WORK].buf;
    int is_valid = exact > 0 && items(&got[TIMES]) == count && items(&got[BUSY]) == all.most * BANDWIDTHS &&
                   items(&got[ALONE]) == all.most &&
                   count_devices(&got[DEVICES], &got[DEMANDS], &devices) == all.most;
    Vertex *vertices = PyMem_Calloc((size_t)count + 1, sizeof *vertices);
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
            vertices[shared++] = (Vertex){code, item(&got[TIMES], vertex)};
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
    release(got, ALL);
    if (!has_memory || failed == -2)
        return PyErr_NoMemory();
    if (failed)
        PyErr_SetString(PyExc_ValueError, "tasks are not in order");
    return failed ? NULL : Py_NewRef(Py_None);
}
