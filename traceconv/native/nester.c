/* Slices and instants in the order of their start → parents, depth and self time, with one stack per track.

   The rules are those of normalize/trace/complete_nesting.py. A row is complete when its slice leaves the stack, which
   is when one comes that it doesn't enclose. Open slices, and instants that wait for a slice, stay from window to
   window. A slice without an end never leaves: its row is complete at once; only the last one of a track is kept. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>

#include "module.h"
#include "room.h"
#include "span.h"

enum { NO_PARENT = -1, MOST_TRACKS = 1 << 28, FEW = 12 };
static const int64_t never = INT64_MAX;
/* gap_ns after a slice without an end, or that doesn't fit 64 bits. */
static const int64_t unknown = INT64_MIN;

/* NESTED_DTYPE and ENCLOSING_DTYPE. */
typedef struct {
    int64_t id, parent_id, dur_ns, self_ns, gap_ns, link;
    int32_t depth;
    int16_t kind, overlap;
} Nested;
typedef struct {
    int64_t id, slice_id;
} Point;

SIZE(Nested, 56);
AT(Nested, id, 0); AT(Nested, parent_id, 8); AT(Nested, dur_ns, 16); AT(Nested, self_ns, 24); AT(Nested, gap_ns, 32);
AT(Nested, link, 40); AT(Nested, depth, 48); AT(Nested, kind, 52); AT(Nested, overlap, 54);
SIZE(Point, 16);
AT(Point, id, 0); AT(Point, slice_id, 8);

typedef struct {
    Nested row; /* self_ns is complete when it leaves the stack */
    int64_t start_ns, end_ns;
    int64_t covered_ns; /* the latest end of its children so far, or else its start */
} Open;
typedef struct {
    Open *open;
    int64_t *asks; /* instants that wait for the next slice */
    int64_t *loose; /* ends of slices that left the stack before their end: a heap, smallest first */
    int64_t last_end_ns;
    size_t depth, room, ask_count, ask_room, loose_count, loose_room;
    int has_slices, last_unfinished;
} Track;

typedef struct {
    PyObject_HEAD
    Track *tracks;
    size_t track_count;
    Nested *rows;
    Point *points;
    size_t row_count, row_room, point_count, point_room;
    Span *tied;
    const Span **order;
    size_t tied_room;
    long long overlaps;
    long long start_step_ns;
    int is_busy, is_unsound; /* a call is running; a span had no track or kind */
} Nester;

/* The end of a slice, saturated at 64 bits; no reader passes on such a slice. */
static inline int64_t plus(int64_t start, int64_t dur)
{
    if (dur < 0)
        return start < INT64_MIN - dur ? INT64_MIN : start + dur;
    return start > INT64_MAX - dur ? INT64_MAX : start + dur;
}

/* From the end of a slice to the next start; unknown if it doesn't fit 64 bits. */
static inline int64_t gap(int64_t end, int64_t start)
{
    int beyond = end < 0 ? start > INT64_MAX + end : start < INT64_MIN + end;
    return beyond ? unknown : start - end;
}

static Track *track_of(Nester *nester, int32_t number)
{
    size_t place = (size_t)number;
    if (place >= nester->track_count) {
        size_t count = nester->track_count ? nester->track_count : 64;
        while (count <= place)
            count *= 2;
        Track *tracks = realloc(nester->tracks, count * sizeof *tracks);
        if (tracks == NULL)
            return NULL;
        memset(tracks + nester->track_count, 0, (count - nester->track_count) * sizeof *tracks);
        nester->tracks = tracks;
        nester->track_count = count;
    }
    return &nester->tracks[place];
}

static int64_t end_of(const Span *span)
{
    if (span->kind == UNFINISHED)
        return never;
    return span->kind > UNFINISHED ? span->start_ns : plus(span->start_ns, span->dur_ns);
}

static int add_row(Nester *nester, const Open *open)
{
    if (!room_for_one(&nester->rows, nester->row_count, &nester->row_room, sizeof open->row, 4096))
        return 0;
    nester->rows[nester->row_count++] = open->row;
    return 1;
}

static int add_point(Nester *nester, int64_t id, int64_t slice_id)
{
    if (!room_for_one(&nester->points, nester->point_count, &nester->point_room, sizeof(Point), 1024))
        return 0;
    nester->points[nester->point_count++] = (Point){id, slice_id};
    return 1;
}

static int answer_asks(Nester *nester, Track *track, int64_t slice_id)
{
    for (size_t ask = 0; ask < track->ask_count; ask++)
        if (!add_point(nester, track->asks[ask], slice_id))
            return 0;
    track->ask_count = 0;
    return 1;
}

static int add_loose(Track *track, int64_t end)
{
    if (!room_for_one(&track->loose, track->loose_count, &track->loose_room, sizeof end, 4))
        return 0;
    size_t at = track->loose_count++;
    for (; at > 0 && track->loose[(at - 1) / 2] > end; at = (at - 1) / 2)
        track->loose[at] = track->loose[(at - 1) / 2];
    track->loose[at] = end;
    return 1;
}

/* Whether a slice that left the stack before its end overlaps one with this start and end without enclosing it. */
static int crosses_loose(Track *track, int64_t start, int64_t end)
{
    int64_t *heap = track->loose;
    while (track->loose_count > 0 && heap[0] <= start) {
        int64_t last = heap[--track->loose_count];
        size_t at = 0, count = track->loose_count;
        for (size_t child; (child = 2 * at + 1) < count; at = child) {
            if (child + 1 < count && heap[child + 1] < heap[child])
                child++;
            if (heap[child] >= last)
                break;
            heap[at] = heap[child];
        }
        heap[at] = last;
    }
    return track->loose_count > 0 && heap[0] < end;
}

/* Whether an open slice, or one without duration that its source has not ended before the span, is at the span's start. */
static inline int is_open(const Open *open, const Span *span)
{
    int ended = open->row.kind == PAIR && open->row.link < span->id;
    return open->end_ns > span->start_ns || (open->end_ns == span->start_ns && open->start_ns == span->start_ns && !ended);
}

/* Whether a slice seems to end after an open one only because starts are rounded down, not durations: by less than a
   step, and it starts at least a step before that end, when the other one can't have ended. */
static inline int seems_to_end_after(const Open *open, const Span *span, int64_t end, int64_t step)
{
    return step > 1 && span->kind < UNFINISHED && open->end_ns < end
        && (uint64_t)end - (uint64_t)open->end_ns < (uint64_t)step
        && open->end_ns >= INT64_MIN + step && span->start_ns <= open->end_ns - step;
}

static int take_point(Nester *nester, Track *track, const Span *span)
{
    if (span->kind == BEFORE_NEXT) {
        if (!room_for_one(&track->asks, track->ask_count, &track->ask_room, sizeof(int64_t), 2))
            return 0;
        track->asks[track->ask_count++] = span->id;
        return 1;
    }
    int64_t ended = NO_PARENT; /* the innermost slice that ends now: the instant belongs to it if none continues */
    for (size_t depth = track->depth; depth > 0; depth--) {
        const Open *open = &track->open[depth - 1];
        if (is_open(open, span))
            return add_point(nester, span->id, open->row.id);
        if (open->end_ns == span->start_ns && ended == NO_PARENT)
            ended = open->row.id;
    }
    return add_point(nester, span->id, ended);
}

static int take_slice(Nester *nester, Track *track, const Span *span)
{
    int64_t start = span->start_ns, end = end_of(span);
    size_t depth = track->depth;
    int16_t overlap = track->loose_count > 0 && crosses_loose(track, start, end);
    while (depth > 0) {
        const Open *open = &track->open[depth - 1];
        if (open->end_ns >= end && (end != start || is_open(open, span)))
            break;
        if (seems_to_end_after(open, span, end, nester->start_step_ns)) {
            end = open->end_ns;
            break;
        }
        if (open->end_ns > start) {
            overlap = 1;
            if (!add_loose(track, open->end_ns))
                return 0;
        }
        if (open->row.kind != UNFINISHED && !add_row(nester, open))
            return 0;
        depth--;
    }
    track->depth = depth;
    if (!room_for_one(&track->open, depth, &track->room, sizeof(Open), 2))
        return 0;
    if (span->kind == UNFINISHED)
        overlap = 0; /* unknown whether it ends after its parent */
    Open *parent = depth > 0 ? &track->open[depth - 1] : NULL;
    if (parent != NULL && parent->row.kind != UNFINISHED && span->kind != UNFINISHED && end > parent->covered_ns) {
        parent->row.self_ns -= end - (start > parent->covered_ns ? start : parent->covered_ns);
        parent->covered_ns = end;
    }
    Open *open = &track->open[depth];
    if (span->kind == UNFINISHED && parent != NULL && parent->row.kind == UNFINISHED)
        open = &track->open[--depth]; /* it encloses all that follows: its own parents are not needed again */
    open->start_ns = start;
    open->end_ns = end;
    open->covered_ns = start;
    open->row = (Nested){
        .id = span->id,
        .parent_id = parent != NULL ? parent->row.id : NO_PARENT,
        .dur_ns = span->dur_ns,
        .self_ns = span->dur_ns,
        .gap_ns = !track->has_slices ? 0 : track->last_unfinished ? unknown : gap(track->last_end_ns, start),
        .link = span->link,
        .depth = parent != NULL ? parent->row.depth + 1 : 0,
        .kind = (int16_t)span->kind,
        .overlap = overlap,
    };
    if (span->kind == UNFINISHED && !add_row(nester, open)) /* its row is complete, and it stays open */
        return 0;
    nester->overlaps += overlap;
    track->depth = depth + 1;
    track->last_end_ns = end_of(span);
    track->last_unfinished = span->kind == UNFINISHED;
    track->has_slices = 1;
    return answer_asks(nester, track, span->id);
}

static int take(Nester *nester, const Span *span)
{
    Track *track = track_of(nester, span->track);
    if (track == NULL)
        return 0;
    return span->kind > UNFINISHED ? take_point(nester, track, span) : take_slice(nester, track, span);
}

/* Order of spans with one start, by track: instants that wait for the next slice, slices (longest first), instants. */
static int in_order(const void *one, const void *two)
{
    const Span *left = *(const Span *const *)one, *right = *(const Span *const *)two;
    if (left->track != right->track)
        return left->track < right->track ? -1 : 1;
    int ranks[2] = {1, 1};
    for (int side = 0; side < 2; side++) {
        int32_t kind = (side ? right : left)->kind;
        ranks[side] = kind == BEFORE_NEXT ? 0 : kind == POINT ? 2 : 1;
    }
    if (ranks[0] != ranks[1])
        return ranks[0] - ranks[1];
    int64_t ends[2] = {end_of(left), end_of(right)};
    if (ends[0] != ends[1])
        return ends[0] > ends[1] ? -1 : 1;
    if (left->id != right->id)
        return left->id < right->id ? -1 : 1;
    return left < right ? -1 : left > right;
}

static int is_zero(const Span *span)
{
    return span->kind < UNFINISHED && end_of(span) == span->start_ns;
}

/* Slices without duration and instants of one start and track, both in the order of the source. `kept`: the end of the
   instants that were not taken. `reach`: the last end event of the slices that were. */
typedef struct {
    const Span **spans;
    size_t zero, zero_end, point, point_end, kept;
    int64_t reach;
} Zeros;

/* Take slices without duration that begin before a place of the source, and instants between their begins and ends. */
static int take_zeros(Nester *nester, Zeros *zeros, int64_t before_id)
{
    for (;;) {
        const Span *zero = zeros->zero < zeros->zero_end ? zeros->spans[zeros->zero] : NULL;
        const Span *point = zeros->point < zeros->point_end ? zeros->spans[zeros->point] : NULL;
        if (point != NULL && point->id < before_id && (zero == NULL || point->id < zero->id)) {
            zeros->point++;
            if (point->id > zeros->reach)
                zeros->spans[zeros->kept++] = point;
            else if (!take(nester, point))
                return 0;
        } else if (zero != NULL && zero->id < before_id) {
            zeros->zero++;
            if (zero->kind == PAIR && zero->link > zeros->reach)
                zeros->reach = zero->link;
            if (!take(nester, zero))
                return 0;
        } else {
            return 1;
        }
    }
}

/* Spans of one start and track, in order. A begin doesn't enclose what precedes it in the source and has ended by then:
   slices without duration (sorted last) are taken before later begins. */
static int take_in_order(Nester *nester, const Span **spans, size_t count)
{
    size_t zero = 0;
    while (zero < count && spans[zero]->kind != POINT && !is_zero(spans[zero]))
        zero++;
    size_t point = zero;
    while (point < count && spans[point]->kind != POINT)
        point++;
    Zeros zeros = {spans, zero, point, point, count, point, INT64_MIN};
    for (size_t place = 0; place < zero; place++) {
        if (spans[place]->kind == PAIR || spans[place]->kind == UNFINISHED)
            if (!take_zeros(nester, &zeros, spans[place]->id))
                return 0;
        if (!take(nester, spans[place]))
            return 0;
    }
    if (!take_zeros(nester, &zeros, INT64_MAX))
        return 0;
    for (size_t place = point; place < zeros.kept; place++)
        if (!take(nester, spans[place]))
            return 0;
    return 1;
}

/* The spans of one start: copies, since another thread may write to the input. */
static int take_tied(Nester *nester, const volatile Span *given, size_t count)
{
    if (count > nester->tied_room) {
        free(nester->tied);
        free(nester->order);
        nester->tied = malloc(count * sizeof *nester->tied);
        nester->order = malloc(count * sizeof *nester->order);
        nester->tied_room = nester->tied == NULL || nester->order == NULL ? 0 : count;
        if (nester->tied_room == 0)
            return 0;
    }
    const Span **order = nester->order;
    for (size_t place = 0; place < count; place++) {
        Span *span = &nester->tied[place];
        *span = given[place];
        order[place] = span;
        if (span->track < 0 || span->track >= MOST_TRACKS || span->kind < 0 || span->kind > BEFORE_NEXT) {
            nester->is_unsound = 1;
            return 0;
        }
    }
    if (count == 1)
        return take(nester, *order);
    if (count <= FEW)
        for (size_t place = 1; place < count; place++)
            for (size_t at = place; at > 0 && in_order(&order[at - 1], &order[at]) > 0; at--) {
                const Span *later = order[at - 1];
                order[at - 1] = order[at];
                order[at] = later;
            }
    else
        qsort(order, count, sizeof *order, in_order);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && order[next]->track == order[first]->track;)
            next++;
        if (!take_in_order(nester, order + first, next - first))
            return 0;
    }
    return 1;
}

static int take_spans(Nester *nester, const Span *spans, size_t count)
{
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && spans[next].start_ns == spans[first].start_ns;)
            next++;
        if (!take_tied(nester, spans + first, next - first))
            return 0;
    }
    return 1;
}

static int take_rest(Nester *nester)
{
    for (size_t place = 0; place < nester->track_count; place++) {
        Track *track = &nester->tracks[place];
        for (; track->depth > 0; track->depth--) {
            const Open *open = &track->open[track->depth - 1];
            if (open->row.kind != UNFINISHED && !add_row(nester, open))
                return 0;
        }
        if (!answer_asks(nester, track, NO_PARENT))
            return 0;
    }
    return 1;
}

/* Return the complete rows and instants, and forget them. NULL with an exception set. */
static PyObject *done(Nester *nester, int sound)
{
    PyObject *found = NULL;
    if (nester->is_unsound)
        PyErr_SetString(PyExc_ValueError, "a span of no track or kind");
    else if (!sound)
        PyErr_NoMemory();
    else
        found = Py_BuildValue(
            "(NN)",
            PyBytes_FromStringAndSize((const char *)nester->rows, (Py_ssize_t)(nester->row_count * sizeof *nester->rows)),
            PyBytes_FromStringAndSize(
                (const char *)nester->points, (Py_ssize_t)(nester->point_count * sizeof *nester->points)));
    nester->row_count = nester->point_count = 0;
    nester->is_busy = nester->is_unsound = 0;
    return found;
}

/* 0 with an exception set while another thread is inside. */
static int enter(Nester *nester)
{
    if (nester->is_busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread uses this nester");
    return !nester->is_busy && (nester->is_busy = 1);
}

static PyObject *nester_feed(PyObject *self, PyObject *given)
{
    Nester *nester = (Nester *)self;
    PyObject *found = NULL;
    Py_buffer buffer;
    int sound;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    if ((uintptr_t)buffer.buf % sizeof(int64_t) != 0)
        PyErr_SetString(PyExc_ValueError, "spans of no array");
    else if (enter(nester)) {
        Py_BEGIN_ALLOW_THREADS
        sound = take_spans(nester, buffer.buf, (size_t)buffer.len / sizeof(Span));
        Py_END_ALLOW_THREADS
        found = done(nester, sound);
    }
    PyBuffer_Release(&buffer);
    return found;
}

static PyObject *nester_finish(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    Nester *nester = (Nester *)self;
    return enter(nester) ? done(nester, take_rest(nester)) : NULL;
}

static void nester_free(PyObject *self)
{
    Nester *nester = (Nester *)self;
    for (size_t place = 0; place < nester->track_count; place++) {
        free(nester->tracks[place].open);
        free(nester->tracks[place].asks);
        free(nester->tracks[place].loose);
    }
    free(nester->tracks);
    free(nester->rows);
    free(nester->points);
    free(nester->tied);
    free(nester->order);
    free_object(self);
}

static PyMethodDef methods[] = {
    {"feed", nester_feed, METH_O, "feed(spans): rows that are done and points, as bytes; the spans sorted by start."},
    {"finish", nester_finish, METH_NOARGS, "finish(): the same of what is left."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef members[] = {
    {"overlaps", T_LONGLONG, offsetof(Nester, overlaps), READONLY,
        "Slices that overlap one before them without lying inside of it."},
    {"start_step_ns", T_LONGLONG, offsetof(Nester, start_step_ns), 0,
        "Starts are rounded down to multiples of it, durations are not; 0 or 1: neither is."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, nester_free},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "Nests slices, window by window."},
    {0, NULL},
};
PyType_Spec native_nester = {"traceconv.native._native.Nester", sizeof(Nester), 0, Py_TPFLAGS_DEFAULT, slots};
