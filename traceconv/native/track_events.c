/* Track events of a Perfetto trace → rows, up to one with uncommon fields.

   That one is left to Python (formats/perfetto_proto/events.py), which gives the same rows for the events taken here.
   Interned texts are looked up in Python's dictionaries, so the interpreter lock is held. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "protobuf.h"

/* _PACKET of translate.py, _ROW and _FLOW of rows.py. */
typedef struct {
    int64_t start, end, ts;
    int32_t packet, what;
} Packet;
typedef struct {
    int64_t ts, args_end;
    int32_t packet, ph, name, cat, pid, tid, id, timed;
} Row;
typedef struct {
    int64_t place;
    uint64_t key;
    int64_t step;
} Flow;
SIZE(Packet, 32);
AT(Packet, start, 0); AT(Packet, end, 8); AT(Packet, ts, 16); AT(Packet, packet, 24); AT(Packet, what, 28);
SIZE(Row, 48);
AT(Row, ts, 0); AT(Row, args_end, 8); AT(Row, packet, 16); AT(Row, ph, 20); AT(Row, name, 24); AT(Row, cat, 28);
AT(Row, pid, 32); AT(Row, tid, 36); AT(Row, id, 40); AT(Row, timed, 44);
SIZE(Flow, 24);
AT(Flow, place, 0); AT(Flow, key, 8); AT(Flow, step, 16);

enum { SKIP, TAKE };
typedef enum { DONE, LEFT, FAILED } Result;

/* Fields of TrackEvent and DebugAnnotation, as in field_numbers.py and annotations.py. */
enum {
    CATEGORY_IIDS = 3, ANNOTATIONS = 4, TYPE = 9, NAME_IID = 10, TRACK_UUID = 11, CATEGORIES = 22, NAME = 23,
    COUNTER_VALUE = 30, FLOWS_OLD = 36, FLOW_ENDS_OLD = 42, DOUBLE_VALUE = 44, FLOWS = 47, FLOW_ENDS = 48
};
enum { NOTE_NAME_IID = 1, BOOL, UINT, INT, DOUBLE, STRING, POINTER, NOTE_NAME = 10, STRING_IID = 17 };
enum { BEGIN = 1, END, INSTANT, COUNTER };
enum { GOES_ON = 3, ENDS };
/* Limits of an event; one with more is left. */
enum { MOST_NOTES = 64, MOST_FLOWS = 64 };

typedef struct {
    uint8_t *data;
    size_t size, room;
} Buffer;

typedef struct {
    uint64_t iid;
    const uint8_t *at;
    size_t size;
} Name;

typedef struct {
    uint64_t type, track, value;
    int has_track, values, is_double, categories, note_count, flow_count, flow_order;
    Name name, category;
    Field notes[MOST_NOTES];
    Flow flows[MOST_FLOWS];
} Event;

/* Codes of distinct values in the rows: `known` by value, and all values in order. */
typedef struct {
    PyObject *known, *distinct;
} Coder;

typedef struct {
    PyObject *names, *categories, *note_names, *note_values, *places, *counters;
    unsigned long long default_track;
    int here_pid, here_tid;
    Coder name, cat;
    Py_ssize_t most_args, first_args, first_row;
    Buffer rows, args, flows;
    /* Codes of the last track with slices. */
    uint64_t track;
    int track_known, pid, tid;
    /* Unknown numbers of names and categories: of the current event, and of those taken. */
    Py_ssize_t unknown, all_unknown;
} Taker;

/* Room for `more` bytes; NULL with an exception set. */
static uint8_t *room_for(Buffer *buffer, size_t more)
{
    if (buffer->room - buffer->size < more) {
        size_t room = buffer->room * 2 + more + 256;
        uint8_t *data = realloc(buffer->data, room);
        if (data == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    return buffer->data + buffer->size;
}

static int put(Buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return 1;
    uint8_t *room = room_for(buffer, size);
    if (room == NULL)
        return 0;
    memcpy(room, data, size);
    buffer->size += size;
    return 1;
}

/* UTF-8 as a JSON string. */
static int put_quoted(Buffer *buffer, const uint8_t *at, size_t size)
{
    static const char short_ones[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    const uint8_t *end = at + size, *plain = at;
    if (!put(buffer, "\"", 1))
        return 0;
    for (; at < end; at++) {
        if (*at >= 0x20 && *at != '"' && *at != '\\')
            continue;
        char text[8] = {'\\', (char)*at};
        size_t length = 2;
        if (*at < 0x20) {
            text[1] = short_ones[*at];
            if (!text[1])
                length = (size_t)snprintf(text, sizeof text, "\\u%04x", *at);
        }
        if (!put(buffer, plain, (size_t)(at - plain)) || !put(buffer, text, length))
            return 0;
        plain = at + 1;
    }
    return put(buffer, plain, (size_t)(end - plain)) && put(buffer, "\"", 1);
}

/* A double as its shortest exact text; NaN and infinities are left. */
static Result put_double(Buffer *buffer, uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    if (!isfinite(number))
        return LEFT;
    char *text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    int is_put = text != NULL && put(buffer, text, strlen(text));
    PyMem_Free(text);
    return is_put ? DONE : FAILED;
}

static Result put_number(Buffer *buffer, const char *format, uint64_t value)
{
    char text[32];
    int size = snprintf(text, sizeof text, format, (unsigned long long)value);
    return put(buffer, text, (size_t)size) ? DONE : FAILED;
}

/* The dictionary value for a number, borrowed; NULL: none, or with an exception set. */
static PyObject *numbered(PyObject *known, uint64_t iid)
{
    PyObject *key = PyLong_FromUnsignedLongLong(iid);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(known, key);
    Py_XDECREF(key);
    return found;
}

static Result put_numbered(Buffer *buffer, PyObject *known, uint64_t iid)
{
    Py_ssize_t size;
    PyObject *text = numbered(known, iid);
    if (text == NULL)
        return PyErr_Occurred() ? FAILED : LEFT;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    return utf8 != NULL && put_quoted(buffer, (const uint8_t *)utf8, (size_t)size) ? DONE : FAILED;
}

/* Bytes of the trace as text; invalid UTF-8 is left. */
static Result put_text(Buffer *buffer, const uint8_t *at, size_t size)
{
    uint8_t all = 0;
    for (size_t byte = 0; byte < size; byte++)
        all |= at[byte];
    if (all >= 0x80) {
        PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
        if (text == NULL) {
            PyErr_Clear();
            return LEFT;
        }
        Py_DECREF(text);
    }
    return put_quoted(buffer, at, size) ? DONE : FAILED;
}

/* `"name":value` of an annotation that has one plain value. */
static Result put_note(Taker *taker, const Field *note, size_t *name_size)
{
    const uint8_t *at = note->at, *end = at + note->value;
    Buffer *args = &taker->args;
    Name name = {0, NULL, 0};
    Field field, value = {0, 0, 0, NULL};
    size_t start = args->size;
    Result result;
    while (at < end) {
        if ((at = past_field(at, end, &field)) == NULL)
            return LEFT;
        if (field.number == NOTE_NAME_IID && field.kind == VARINT)
            name.iid = field.value;
        else if (field.number == NOTE_NAME && field.kind == LEN)
            name = (Name){name.iid, field.at, (size_t)field.value};
        else if (value.number || field.number == NOTE_NAME_IID || field.number == NOTE_NAME)
            return LEFT;
        else
            value = field;
    }
    if (name.iid)
        result = name.at == NULL ? put_numbered(args, taker->note_names, name.iid) : LEFT;
    else
        result = put_text(args, name.at == NULL ? note->at : name.at, name.size);
    *name_size = args->size - start;
    if (result != DONE)
        return result;
    if (!put(args, ":", 1))
        return FAILED;
    switch (value.number << 3 | (unsigned)value.kind) {
    case BOOL << 3 | VARINT:
        return put(args, value.value ? "true" : "false", value.value ? 4 : 5) ? DONE : FAILED;
    case UINT << 3 | VARINT:
        return put_number(args, "%llu", value.value);
    case INT << 3 | VARINT:
        return put_number(args, "%lld", value.value);
    case STRING_IID << 3 | VARINT:
        return put_numbered(args, taker->note_values, value.value);
    case DOUBLE << 3 | FIXED64:
        return put_double(args, value.value);
    case STRING << 3 | LEN:
        return put_text(args, value.at, (size_t)value.value);
    default:
        return LEFT;
    }
}

/* All annotations as one object; duplicate names are left. */
static Result put_notes(Taker *taker, const Event *event)
{
    size_t starts[MOST_NOTES], sizes[MOST_NOTES];
    Buffer *args = &taker->args;
    for (int note = 0; note < event->note_count; note++) {
        if (!put(args, note ? "," : "{", 1))
            return FAILED;
        starts[note] = args->size;
        Result result = put_note(taker, &event->notes[note], &sizes[note]);
        if (result != DONE)
            return result;
        if (taker->first_args + (Py_ssize_t)args->size > taker->most_args)
            return LEFT;
        for (int other = 0; other < note; other++)
            if (sizes[other] == sizes[note]
                && memcmp(args->data + starts[other], args->data + starts[note], sizes[note]) == 0)
                return LEFT;
    }
    return event->note_count == 0 || put(args, "}", 1) ? DONE : FAILED;
}

/* -1 with an exception set. */
static int code_of_value(const Coder *coder, PyObject *value)
{
    PyObject *known = PyDict_GetItemWithError(coder->known, value);
    if (known != NULL)
        return (int)PyLong_AsLong(known);
    if (PyErr_Occurred())
        return -1;
    Py_ssize_t code = PyList_Size(coder->distinct);
    PyObject *number = PyLong_FromSsize_t(code);
    if (number == NULL || PyDict_SetItem(coder->known, value, number) < 0
        || PyList_Append(coder->distinct, value) < 0)
        code = -1;
    Py_XDECREF(number);
    return (int)code;
}

/* The code of a name or category: by its number, else by its text in the event; 0 for none. */
static Result code_of_name(Taker *taker, const Coder *coder, PyObject *known, const Name *name, int32_t *code)
{
    *code = 0;
    if (name->iid) {
        PyObject *text = numbered(known, name->iid);
        if (text == NULL && PyErr_Occurred())
            return FAILED;
        if (text == NULL)
            taker->unknown++;
        else
            *code = code_of_value(coder, text);
    }
    else if (name->at != NULL) {
        PyObject *text = PyUnicode_DecodeUTF8((const char *)name->at, (Py_ssize_t)name->size, NULL);
        if (text == NULL) {
            PyErr_Clear();
            return LEFT;
        }
        *code = code_of_value(coder, text);
        Py_DECREF(text);
    }
    return *code < 0 ? FAILED : DONE;
}

/* The codes of a track from a dictionary, which finds them on first use. */
static Result numbers_of(PyObject *places, uint64_t track, int *numbers, int count)
{
    PyObject *key = PyLong_FromUnsignedLongLong(track);
    PyObject *found = key == NULL ? NULL : PyObject_GetItem(places, key);
    Result result = found == NULL ? FAILED : DONE;
    for (int place = 0; result == DONE && place < count; place++) {
        PyObject *number = PyTuple_GetItem(found, place);
        numbers[place] = number == NULL ? -1 : (int)PyLong_AsLong(number);
        if (PyErr_Occurred())
            result = FAILED;
    }
    Py_XDECREF(key);
    Py_XDECREF(found);
    return result;
}

/* The fields of an event; one with fields that a row lacks is left. */
static Result read_event(const uint8_t *at, const uint8_t *end, Event *event)
{
    Field field;
    /* The arrays are filled as far as they are counted. */
    memset(event, 0, offsetof(Event, notes));
    while (at < end) {
        if ((at = past_field(at, end, &field)) == NULL)
            return LEFT;
        switch (field.number << 3 | (unsigned)field.kind) {
        case TYPE << 3 | VARINT:
            event->type = field.value;
            break;
        case TRACK_UUID << 3 | VARINT:
            event->track = field.value;
            event->has_track = 1;
            break;
        case NAME_IID << 3 | VARINT:
            event->name.iid = field.value;
            break;
        case NAME << 3 | LEN:
            event->name.at = field.at;
            event->name.size = (size_t)field.value;
            break;
        case CATEGORY_IIDS << 3 | VARINT:
            event->category.iid = field.value;
            event->categories++;
            break;
        case CATEGORIES << 3 | LEN:
            event->category.at = field.value ? field.at : NULL;
            event->category.size = (size_t)field.value;
            event->categories++;
            break;
        case COUNTER_VALUE << 3 | VARINT:
        case DOUBLE_VALUE << 3 | FIXED64:
            event->value = field.value;
            event->is_double = field.number == DOUBLE_VALUE;
            event->values++;
            break;
        case ANNOTATIONS << 3 | LEN:
            if (event->note_count == MOST_NOTES)
                return LEFT;
            event->notes[event->note_count++] = field;
            break;
        case FLOWS << 3 | FIXED64:
        case FLOWS_OLD << 3 | VARINT:
        case FLOW_ENDS << 3 | FIXED64:
        case FLOW_ENDS_OLD << 3 | VARINT: {
            int ends = field.number == FLOW_ENDS || field.number == FLOW_ENDS_OLD;
            int order = 2 * ends + (field.kind == VARINT);
            if (event->flow_count == MOST_FLOWS || order < event->flow_order)
                return LEFT;
            event->flow_order = order;
            event->flows[event->flow_count++] = (Flow){0, field.value, ends ? ENDS : GOES_ON};
            break;
        }
        default:
            return LEFT;
        }
    }
    return DONE;
}

static Result fill_counter(Taker *taker, const Event *event, uint64_t track, Row *row)
{
    enum { PID, TITLE, ID, IS_PLAIN, NUMBERS };
    int numbers[NUMBERS];
    Buffer *args = &taker->args;
    if (event->values != 1 || event->note_count || event->flow_count || event->name.iid || event->name.at != NULL)
        return LEFT;
    Result result = numbers_of(taker->counters, track, numbers, NUMBERS);
    if (result != DONE || !numbers[IS_PLAIN])
        return result != DONE ? result : LEFT;
    row->pid = numbers[PID];
    row->name = numbers[TITLE];
    row->id = numbers[ID];
    if (!put(args, "{\"value\":", 9))
        return FAILED;
    result = event->is_double ? put_double(args, event->value) : put_number(args, "%lld", event->value);
    return result == DONE && !put(args, "}", 1) ? FAILED : result;
}

static Result fill_slice(Taker *taker, Event *event, uint64_t track, Row *row)
{
    if (event->values || event->categories > 1 || (event->flow_count && event->type == END))
        return LEFT;
    Result result = code_of_name(taker, &taker->name, taker->names, &event->name, &row->name);
    if (result == DONE)
        result = code_of_name(taker, &taker->cat, taker->categories, &event->category, &row->cat);
    if (result == DONE && track && !(taker->track_known && track == taker->track)) {
        int numbers[2] = {0, 0};
        result = numbers_of(taker->places, track, numbers, 2);
        taker->track = track;
        taker->track_known = result == DONE;
        taker->pid = numbers[0];
        taker->tid = numbers[1];
    }
    row->pid = track ? taker->pid : taker->here_pid;
    row->tid = track ? taker->tid : taker->here_tid;
    return result == DONE ? put_notes(taker, event) : result;
}

static Result take_event(Taker *taker, const uint8_t *data, const Packet *packet, Event *event)
{
    Row row = {.ts = packet->ts, .packet = packet->packet, .timed = 1};
    size_t args = taker->args.size;
    taker->unknown = 0;
    Result result = read_event(data + packet->start, data + packet->end, event);
    if (result == DONE && (event->type < BEGIN || event->type > COUNTER))
        result = LEFT;
    /* An event that names track 0 isn't on the thread that wrote it. */
    if (result == DONE && event->has_track && event->track == 0)
        result = LEFT;
    if (result == DONE) {
        uint64_t track = event->has_track ? event->track : taker->default_track;
        result = event->type == COUNTER ? fill_counter(taker, event, track, &row)
                                        : fill_slice(taker, event, track, &row);
    }
    if (result != DONE) {
        taker->args.size = args;
        return result;
    }
    taker->all_unknown += taker->unknown;
    row.ph = (int32_t)event->type - 1;
    row.args_end = taker->first_args + (int64_t)taker->args.size;
    int64_t place = taker->first_row + (int64_t)(taker->rows.size / sizeof row);
    for (int flow = 0; flow < event->flow_count; flow++)
        event->flows[flow].place = place;
    if (!put(&taker->rows, &row, sizeof row)
        || !put(&taker->flows, event->flows, (size_t)event->flow_count * sizeof event->flows[0]))
        return FAILED;
    return DONE;
}

static int append(PyObject *array, Buffer *buffer, int is_sound)
{
    Py_ssize_t before = PyByteArray_Size(array);
    is_sound = is_sound && (buffer->size == 0 || PyByteArray_Resize(array, before + (Py_ssize_t)buffer->size) == 0);
    if (is_sound && buffer->size)
        memcpy(PyByteArray_AsString(array) + before, buffer->data, buffer->size);
    free(buffer->data);
    return is_sound;
}

PyObject *native_track_events(PyObject *module, PyObject *args)
{
    Py_buffer packets;
    Taker taker = {0};
    PyObject *data, *rows, *texts, *flows;
    Py_ssize_t at;
    Event event;
    Result result = DONE;
    (void)module;
    if (!PyArg_ParseTuple(args, "Sy*n(O!O!O!O!K(ii))(O!O!O!O!OO)(O!O!O!)n:track_events", &data, &packets, &at,
            &PyDict_Type, &taker.names, &PyDict_Type, &taker.categories, &PyDict_Type, &taker.note_names,
            &PyDict_Type, &taker.note_values, &taker.default_track, &taker.here_pid, &taker.here_tid,
            &PyDict_Type, &taker.name.known, &PyList_Type, &taker.name.distinct,
            &PyDict_Type, &taker.cat.known, &PyList_Type, &taker.cat.distinct, &taker.places, &taker.counters,
            &PyByteArray_Type, &rows, &PyByteArray_Type, &texts, &PyByteArray_Type, &flows, &taker.most_args))
        return NULL;
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    taker.first_args = PyByteArray_Size(texts);
    taker.first_row = PyByteArray_Size(rows) / (Py_ssize_t)sizeof(Row);
    Py_ssize_t count = packets.len / (Py_ssize_t)sizeof(Packet);
    for (; result == DONE && at >= 0 && at < count; at += result == DONE) {
        Packet packet;
        memcpy(&packet, (const char *)packets.buf + at * (Py_ssize_t)sizeof packet, sizeof packet);
        if (packet.what == SKIP)
            continue;
        int is_inside = packet.start >= 0 && packet.start <= packet.end && packet.end <= PyBytes_Size(data);
        result = packet.what == TAKE && is_inside ? take_event(&taker, text, &packet, &event) : LEFT;
    }
    PyBuffer_Release(&packets);
    int is_sound = append(rows, &taker.rows, result != FAILED);
    is_sound = append(texts, &taker.args, is_sound);
    is_sound = append(flows, &taker.flows, is_sound);
    return is_sound ? Py_BuildValue("nn", at, taker.all_unknown) : NULL;
}
