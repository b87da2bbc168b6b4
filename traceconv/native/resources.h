/* Resources of a device for which tasks compete: each runs at the smallest share that it gets of any resource for which
 * more is asked than exists, as long as another task asks for that resource, too. Speeds are multiples of 1 / FULL; what
 * remains of a task is in ns times FULL. */

#ifndef TRACECONV_RESOURCES_H
#define TRACECONV_RESOURCES_H

#include "int64.h"

#define FULL ((int64_t)1 << 20)
/* Demands are multiples of 1 / CAPACITY of a resource. */
#define CAPACITY ((int64_t)1 << 20)
/* Numbers of resources: cube, vector and AI CPU cores, and the bandwidths of memory and L2. */
#define RESOURCES 5
#define BANDWIDTHS 2
/* Those of all tasks together are below 2^63. */
#define MOST_DEMAND (CAPACITY << 16)
#define MOST_TASKS ((Py_ssize_t)1 << 26)

/* The work done in a time at a speed that is not negative. */
static inline int64_t done_in(int64_t time, int64_t speed)
{
    int64_t product;
    return __builtin_mul_overflow(time, speed, &product) ? INT64_MAX : product;
}

/* Return the number of tasks and set that of the last device; -1: columns don't fit one another, or are too large. */
static inline Py_ssize_t count_devices(const Py_buffer *devices, const Py_buffer *demands, int64_t *last)
{
    Py_ssize_t tasks = items(devices);
    if (tasks > MOST_TASKS || items(demands) != tasks * RESOURCES)
        return -1;
    for (Py_ssize_t task = 0; task < tasks; task++) {
        int64_t device = item(devices, task);
        if (device < 0 || device >= tasks)
            return -1;
        *last = device > *last ? device : *last;
    }
    return tasks;
}

#endif
