/* Packets of a Perfetto trace → columns of what all have, and their other fields, without the interpreter lock.

   Which packets are sound: those of whole fields whose kinds are plausible, as in formats/perfetto_proto/framing.py. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include "protobuf.h"
#include "room.h"

/* Numbers of fields, as in field_numbers.py. */
enum { FTRACE = 1, TIMESTAMP = 8, SEQUENCE = 10, TRACK_EVENT = 11, FLAGS = 13, CLOCK_ID = 58, MOST_KINDS = 128, MOST_NUMBER = 1200 };
/* The columns: bounds of the event, -1 for none; numbers, 0 if missing; whether there is a timestamp. */
enum { AT_START, AT_END, OF_SEQUENCE, OF_TIME, OF_CLOCK, OF_FLAGS, IS_TIMED, COLUMNS };

typedef struct {
    const uint8_t *data;
    int64_t size;
    /* Another thread may write to the bounds: each is read once. */
    const volatile int64_t *bounds;
    Py_ssize_t count;
    const int8_t *kinds;
    int64_t *columns;
    char *sound;
    Found *found;
    size_t found_count, found_room;
} Work;

static int64_t *cell(Work *work, int column, Py_ssize_t row)
{
    return work->columns + column * work->count + row;
}

/* Take a field; 0 if out of memory. */
static int take_field(Work *work, Py_ssize_t row, const Field *field)
{
    if (field->number == TRACK_EVENT && field->kind == LEN) {
        *cell(work, AT_START, row) = field->at - work->data;
        *cell(work, AT_END, row) = field->at - work->data + (int64_t)field->value;
        return 1;
    }
    int column = field->number == TIMESTAMP ? OF_TIME
        : field->number == SEQUENCE         ? OF_SEQUENCE
        : field->number == FLAGS            ? OF_FLAGS
        : field->number == CLOCK_ID         ? OF_CLOCK
                                            : COLUMNS;
    if (column < COLUMNS && field->kind != LEN) {
        *cell(work, column, row) = (int64_t)field->value;
        if (column == OF_TIME)
            *cell(work, IS_TIMED, row) = 1;
        return 1;
    }
    if (!room_for_one(&work->found, work->found_count, &work->found_room, sizeof *work->found, 1024))
        return 0;
    work->found[work->found_count++]
        = (Found){row, field->at - work->data, field->value, (int32_t)field->number, field->kind};
    return 1;
}

static int is_plausible(const Work *work, const Field *field)
{
    if (field->number >= MOST_KINDS)
        return field->number <= MOST_NUMBER;
    return field->kind != FIXED64 && (work->kinds[field->number] < 0 || work->kinds[field->number] == field->kind);
}

/* 0 if out of memory. */
static int read_packets(Work *work)
{
    for (Py_ssize_t row = 0; row < work->count; row++) {
        int64_t start = work->bounds[2 * row], stop = work->bounds[2 * row + 1];
        int is_sound = start >= 0 && stop <= work->size, ftrace_count = 0;
        const uint8_t *at = is_sound && start < stop ? work->data + start : NULL;
        *cell(work, AT_START, row) = *cell(work, AT_END, row) = -1;
        while (at != NULL && at < work->data + stop) {
            Field field;
            at = past_field(at, work->data + stop, &field);
            if (at != NULL && !take_field(work, row, &field))
                return 0;
            is_sound &= at != NULL && is_plausible(work, &field);
            ftrace_count += at != NULL && field.number == FTRACE;
        }
        work->sound[row] = (char)(is_sound && ftrace_count < 2);
    }
    return 1;
}

PyObject *native_packets(PyObject *module, PyObject *args)
{
    PyObject *data, *columns = NULL, *sound = NULL, *result = NULL;
    Py_buffer bounds, kinds;
    int is_done;
    (void)module;
    if (!PyArg_ParseTuple(args, "Sy*y*:packets", &data, &bounds, &kinds))
        return NULL;
    Work work = {.data = (const uint8_t *)PyBytes_AsString(data), .size = PyBytes_Size(data), .bounds = bounds.buf,
        .count = bounds.len / (Py_ssize_t)(2 * sizeof(int64_t)), .kinds = kinds.buf};
    if (kinds.len != MOST_KINDS || (uintptr_t)bounds.buf % sizeof(int64_t) != 0) {
        PyErr_SetString(PyExc_ValueError, "bounds of no array, or kinds of another number of fields");
        goto done;
    }
    columns = PyBytes_FromStringAndSize(NULL, COLUMNS * work.count * (Py_ssize_t)sizeof(int64_t));
    sound = PyBytes_FromStringAndSize(NULL, work.count);
    if (columns == NULL || sound == NULL)
        goto done;
    work.columns = (int64_t *)(void *)PyBytes_AsString(columns);
    work.sound = PyBytes_AsString(sound);
    memset(work.columns, 0, (size_t)PyBytes_Size(columns));
    Py_BEGIN_ALLOW_THREADS
    is_done = read_packets(&work);
    Py_END_ALLOW_THREADS
    if (is_done)
        result = Py_BuildValue("Oy#O", columns, work.found == NULL ? "" : (const char *)work.found,
            (Py_ssize_t)(work.found_count * sizeof(Found)), sound);
    else
        PyErr_NoMemory();
done:
    free(work.found);
    Py_XDECREF(columns);
    Py_XDECREF(sound);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&kinds);
    return result;
}
