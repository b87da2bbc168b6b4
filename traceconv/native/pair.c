/* Begins and ends of many tracks, in the order of time → slices, for ends that close the innermost open begin.

   The rule is that of normalize/trace/begin_end.py. An end of another name than the innermost begin stays between those
   around it, which are not matched across it: Python looks for its begin. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "span.h"

enum { MOST_TRACKS = 1 << 24 };
enum { ALONE, IS_BEGIN, IS_END };
static const int32_t none = -1;

/* POINT_DTYPE. */
typedef struct {
    int64_t ts_ns, id, name;
    int32_t track, end;
} BeginOrEnd;

SIZE(BeginOrEnd, 32);
AT(BeginOrEnd, ts_ns, 0); AT(BeginOrEnd, id, 8); AT(BeginOrEnd, name, 16); AT(BeginOrEnd, track, 24);
AT(BeginOrEnd, end, 28);

/* top: the innermost point of each track, or none. below: of each point, the one around it on its track; of an end that
   was matched, its begin instead. matched: ALONE, or as what a point was matched. */
typedef struct {
    const BeginOrEnd *points;
    size_t count, track_count, paired_count;
    int32_t low;
    int32_t *top, *below;
    uint8_t *matched;
} Work;

/* Find the tracks' range; 0 if it is too wide. */
static int number_tracks(Work *work)
{
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (size_t place = 0; place < work->count; place++) {
        int32_t track = work->points[place].track;
        low = track < low ? track : low;
        high = track > high ? track : high;
    }
    work->low = low;
    work->track_count = work->count ? (size_t)((int64_t)high - low) + 1 : 0;
    return work->track_count <= MOST_TRACKS;
}

/* Match the points; 0 if another thread changes them meanwhile. */
static int match(Work *work)
{
    memset(work->top, none, work->track_count * sizeof *work->top);
    for (size_t place = 0; place < work->count; place++) {
        BeginOrEnd point = work->points[place];
        size_t track = (size_t)((int64_t)point.track - work->low);
        if (track >= work->track_count)
            return 0;
        int32_t top = work->top[track];
        if (point.end && top != none && !work->points[top].end
            && (point.name == 0 || point.name == work->points[top].name)) {
            work->top[track] = work->below[top];
            work->below[place] = top;
            work->matched[top] = IS_BEGIN;
            work->matched[place] = IS_END;
            work->paired_count++;
        } else {
            work->below[place] = top;
            work->top[track] = (int32_t)place;
        }
    }
    return 1;
}

static Span span_of(const BeginOrEnd *begin, const BeginOrEnd *end)
{
    int64_t dur;
    int is_long = __builtin_sub_overflow(end->ts_ns, begin->ts_ns, &dur) || dur == INT64_MIN;
    return (Span){begin->ts_ns, is_long ? 0 : dur, begin->id, end->id, begin->track, is_long ? UNFINISHED : PAIR};
}

/* The slices in the order of their ends, and the places of the points that are left. */
static void write_rows(const Work *work, Span *spans, int64_t *rest)
{
    for (size_t place = 0; place < work->count; place++) {
        if (work->matched[place] == ALONE)
            *rest++ = (int64_t)place;
        else if (work->matched[place] == IS_END)
            *spans++ = span_of(&work->points[work->below[place]], &work->points[place]);
    }
}

PyObject *native_pair(PyObject *module, PyObject *given)
{
    (void)module;
    Work work = {0};
    Py_buffer buffer;
    PyObject *spans = NULL, *rest = NULL, *found = NULL;
    int sound = 0, is_known = 0;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    work.points = buffer.buf;
    work.count = (size_t)buffer.len / sizeof(BeginOrEnd);
    if ((uintptr_t)buffer.buf % sizeof(int64_t) != 0 || work.count >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "points of no array");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    is_known = number_tracks(&work);
    if (is_known) {
        work.top = malloc(work.track_count * sizeof *work.top + 1);
        work.below = malloc(work.count * sizeof *work.below + 1);
        work.matched = calloc(work.count + 1, 1);
        sound = work.top != NULL && work.below != NULL && work.matched != NULL;
        is_known = !sound || match(&work);
    }
    Py_END_ALLOW_THREADS
    if (!is_known) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    if (!sound) {
        PyErr_NoMemory();
        goto done;
    }
    spans = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(work.paired_count * sizeof(Span)));
    rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((work.count - 2 * work.paired_count) * sizeof(int64_t)));
    if (spans != NULL && rest != NULL) {
        Span *of_spans = (Span *)(void *)PyBytes_AsString(spans);
        int64_t *of_rest = (int64_t *)(void *)PyBytes_AsString(rest);
        Py_BEGIN_ALLOW_THREADS
        write_rows(&work, of_spans, of_rest);
        Py_END_ALLOW_THREADS
        found = PyTuple_Pack(2, spans, rest);
    }
done:
    Py_XDECREF(spans);
    Py_XDECREF(rest);
    free(work.top);
    free(work.below);
    free(work.matched);
    PyBuffer_Release(&buffer);
    return found;
}
