/* Text of complete events → columns: one pass over the bytes, without the interpreter lock.

   Accepts strict JSON only: objects with commas or line breaks between them. For anything else it returns None, and
   Python finds out what is wrong. The text is immutable bytes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "distinct.h"
#include "module.h"
#include "room.h"

enum { MOST_FIELDS = 32, FIRST = MOST_FIELDS, UNKNOWN, PLACES };

/* A field of events, identified by the first eight bytes of its name; no name is longer. */
typedef struct {
    uint64_t word;
    size_t size;
    int is_label;
    int place; /* among the labels or the raw fields */
} Field;

/* A key that is not a field: its event, the positions of its quotes, start and end of its value. */
typedef int32_t Other[5];

typedef struct {
    Text begin, end;
    int lines;
    Field fields[MOST_FIELDS];
    int field_count, label_count, raw_count;
    /* One row per event: codes of its labels (-1: none), then start and end of its raw fields. */
    int32_t *rows;
    size_t row_count, row_room, row_size;
    Distinct labels[MOST_FIELDS];
    Other *others;
    size_t other_count, other_room;
    /* The sound part: the number of events and other keys, and where the next event begins. */
    size_t sound_rows, sound_others;
    Text sound_end;
    /* Which field last followed each field, came first in an event, and followed a key that is not a field. */
    int guess[PLACES];
} Scan;

/* The current event. */
typedef struct {
    Scan *scan;
    int32_t *row;
    uint32_t seen; /* one bit per field */
    int number; /* the field read last, or FIRST or UNKNOWN */
    Text key, last; /* the quotes of a key that is not a field */
} Event;

/* After the colon of the key with its quote at `at`, if it is the guessed field. */
static inline Text past_guess(const Scan *scan, Text at, int guess)
{
    const Field *field = &scan->fields[guess];
    if (scan->end - at < WORD + 3 || *at != '"' || word_of(at + 1, field->size, scan->end) != field->word)
        return NULL;
    at += field->size + 1;
    return at[0] == '"' && at[1] == ':' ? at + 2 : NULL;
}

static int field_of(const Scan *scan, Text at, size_t size)
{
    if (size > WORD)
        return UNKNOWN;
    uint64_t word = word_of(at, size, scan->end);
    for (int number = 0; number < scan->field_count; number++)
        if (scan->fields[number].word == word && scan->fields[number].size == size)
            return number;
    return UNKNOWN;
}

static int32_t *new_row(Scan *scan)
{
    if (!room_for_one(&scan->rows, scan->row_count, &scan->row_room, scan->row_size * sizeof *scan->rows, 4096))
        return NULL;
    int32_t *row = scan->rows + scan->row_count++ * scan->row_size;
    for (int label = 0; label < scan->label_count; label++)
        row[label] = -1;
    memset(row + scan->label_count, 0, (size_t)scan->raw_count * 2 * sizeof *row);
    return row;
}

INLINE Text past_name(void *self, Text at, Text end)
{
    Event *event = self;
    Scan *scan = event->scan;
    int *guess = &scan->guess[event->number];
    Text value = *guess == UNKNOWN ? NULL : past_guess(scan, at, *guess);
    if (value != NULL)
        value = past_blanks(value, end, scan->lines);
    else {
        event->key = at;
        value = past_key(at, end, scan->lines, &event->last);
        if (value == NULL)
            return NULL;
        *guess = field_of(scan, at + 1, (size_t)(event->last - at - 1));
    }
    event->number = *guess;
    return value;
}

INLINE Outcome take_value(void *self, Text value, Text stop)
{
    Event *event = self;
    Scan *scan = event->scan;
    int32_t start = (int32_t)(value - scan->begin), end = (int32_t)(stop - scan->begin);
    if (event->number == UNKNOWN) {
        if (!room_for_one(&scan->others, scan->other_count, &scan->other_room, sizeof *scan->others, 1024))
            return NO_MEMORY;
        Other other = {(int32_t)(scan->row_count - 1), (int32_t)(event->key - scan->begin),
            (int32_t)(event->last - scan->begin), start, end};
        memcpy(scan->others[scan->other_count++], other, sizeof other);
        return OK;
    }
    const Field *field = &scan->fields[event->number];
    if (event->seen & 1u << event->number)
        return FALLBACK; /* a duplicate key */
    event->seen |= 1u << event->number;
    if (field->is_label) {
        int32_t code = code_of(&scan->labels[field->place], scan->begin, scan->end, value, (size_t)(stop - value));
        event->row[field->place] = code;
        return code < 0 ? NO_MEMORY : OK;
    }
    int32_t *stretch = event->row + scan->label_count + 2 * field->place;
    stretch[0] = start;
    stretch[1] = end;
    return OK;
}

static void note_sound(Scan *scan, Text at)
{
    scan->sound_rows = scan->row_count;
    scan->sound_others = scan->other_count;
    scan->sound_end = at;
}

static Outcome take_events(Scan *scan)
{
    Text at = scan->begin, end = scan->end;
    for (;;) {
        note_sound(scan, at);
        Event event = {scan, new_row(scan), 0, FIRST, at, at};
        if (event.row == NULL)
            return NO_MEMORY;
        Outcome outcome = walk_object(&at, end, scan->lines, past_name, take_value, &event);
        if (outcome != OK)
            return outcome;
        at = past_blanks(at, end, scan->lines);
        if (at == end) {
            note_sound(scan, at);
            return OK;
        }
        if (*at != (scan->lines ? '\n' : ','))
            return FALLBACK;
        at = past_blanks(at + 1, end, 0);
    }
}

/* -- results for Python -- */

/* The columns of the sound part, which are allocated with the interpreter lock and filled without it. */
typedef struct {
    int64_t raw_bytes[MOST_FIELDS]; /* 0: no event has the field */
    PyObject *codes[MOST_FIELDS], *offsets[MOST_FIELDS], *data[MOST_FIELDS];
    char *code_out[MOST_FIELDS], *offset_out[MOST_FIELDS], *data_out[MOST_FIELDS];
} Columns;

static void measure(const Scan *scan, Columns *columns)
{
    for (int raw = 0; raw < scan->raw_count; raw++) {
        const int32_t *stretch = scan->rows + scan->label_count + 2 * raw;
        for (size_t row = 0; row < scan->sound_rows; row++)
            columns->raw_bytes[raw] += stretch[row * scan->row_size + 1] - stretch[row * scan->row_size];
    }
}

/* A new bytes object and its memory; NULL with an exception set. */
static PyObject *new_bytes(size_t size, char **out)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    *out = bytes == NULL ? NULL : PyBytes_AsString(bytes);
    return bytes;
}

static int allocate(const Scan *scan, Columns *columns)
{
    for (int label = 0; label < scan->label_count; label++)
        if (scan->labels[label].count
            && (columns->codes[label] = new_bytes(scan->sound_rows * sizeof(int32_t), &columns->code_out[label])) == NULL)
            return 0;
    for (int raw = 0; raw < scan->raw_count; raw++)
        if (columns->raw_bytes[raw]
            && ((columns->offsets[raw] = new_bytes((scan->sound_rows + 1) * sizeof(int32_t), &columns->offset_out[raw])) == NULL
                || (columns->data[raw] = new_bytes((size_t)columns->raw_bytes[raw], &columns->data_out[raw])) == NULL))
            return 0;
    return 1;
}

static void free_columns(Columns *columns)
{
    for (int place = 0; place < MOST_FIELDS; place++) {
        Py_XDECREF(columns->codes[place]);
        Py_XDECREF(columns->offsets[place]);
        Py_XDECREF(columns->data[place]);
    }
}

/* Short values are copied together with the bytes after them, where there is room. */
static inline void copy_short(char *out, Py_ssize_t room, Text at, Text end, int32_t size)
{
    enum { SHORT = 32 };
    if (size <= SHORT && room >= SHORT && end - at >= SHORT)
        memcpy(out, at, SHORT);
    else
        memcpy(out, at, (size_t)size);
}

static void fill(const Scan *scan, Columns *columns)
{
    for (int label = 0; label < scan->label_count; label++) {
        char *out = columns->code_out[label];
        for (size_t row = 0; out != NULL && row < scan->sound_rows; row++)
            memcpy(out + row * sizeof(int32_t), &scan->rows[row * scan->row_size + (size_t)label], sizeof(int32_t));
    }
    for (int raw = 0; raw < scan->raw_count; raw++) {
        const int32_t *stretch = scan->rows + scan->label_count + 2 * raw;
        char *ends = columns->offset_out[raw], *out = columns->data_out[raw];
        int32_t at = 0;
        if (out == NULL)
            continue;
        memcpy(ends, &at, sizeof at);
        for (size_t row = 0; row < scan->sound_rows; row++, stretch += scan->row_size) {
            int32_t size = stretch[1] - stretch[0];
            copy_short(out + at, columns->raw_bytes[raw] - at, scan->begin + stretch[0], scan->end, size);
            at += size;
            memcpy(ends + (row + 1) * sizeof at, &at, sizeof at);
        }
    }
}

/* A column of two parts for Python, or None; NULL with an exception set. */
static PyObject *column_of(PyObject *one, PyObject *other)
{
    return one == NULL ? Py_NewRef(Py_None) : Py_BuildValue("(OO)", one, other);
}

/* For each label, an int32 code per event and the text of each code; for each raw field, Arrow's int32 offsets and data. */
static PyObject *result_of(const Scan *scan, const Columns *columns)
{
    PyObject *labels = PyList_New(scan->label_count), *raws = PyList_New(scan->raw_count), *column;
    if (labels == NULL || raws == NULL)
        goto failed;
    for (int label = 0; label < scan->label_count; label++) {
        PyObject *texts = columns->codes[label] == NULL ? NULL : distinct_list(&scan->labels[label], scan->begin);
        if (texts == NULL && columns->codes[label] != NULL)
            goto failed;
        column = column_of(columns->codes[label], texts);
        Py_XDECREF(texts);
        if (column == NULL || PyList_SetItem(labels, label, column) < 0)
            goto failed;
    }
    for (int raw = 0; raw < scan->raw_count; raw++)
        if ((column = column_of(columns->offsets[raw], columns->data[raw])) == NULL || PyList_SetItem(raws, raw, column) < 0)
            goto failed;
    return Py_BuildValue(
        "(nnNNN)", (Py_ssize_t)scan->sound_rows, (Py_ssize_t)(scan->sound_end - scan->begin), labels, raws,
        PyBytes_FromStringAndSize((const char *)scan->others, (Py_ssize_t)(scan->sound_others * sizeof(Other))));
failed:
    Py_XDECREF(labels);
    Py_XDECREF(raws);
    return NULL;
}

/* Each time that the lock is needed again, other threads may hold it for a while. */
static PyObject *columns_of(const Scan *scan, Columns *columns)
{
    PyObject *found = NULL;
    if (allocate(scan, columns)) {
        Py_BEGIN_ALLOW_THREADS
        fill(scan, columns);
        Py_END_ALLOW_THREADS
        found = result_of(scan, columns);
    }
    free_columns(columns);
    return found;
}

static int add_fields(Scan *scan, PyObject *names, int is_label)
{
    Py_ssize_t count = PyTuple_Size(names);
    for (Py_ssize_t place = 0; place < count; place++) {
        char *name;
        Py_ssize_t size;
        PyObject *item = PyTuple_GetItem(names, place);
        if (item == NULL || PyBytes_AsStringAndSize(item, &name, &size) < 0)
            return 0;
        if (size < 1 || size > WORD || scan->field_count == MOST_FIELDS) {
            PyErr_SetString(PyExc_ValueError, "at most 32 fields, whose names have 1 to 8 bytes");
            return 0;
        }
        Field *field = &scan->fields[scan->field_count++];
        field->word = word_of((Text)name, (size_t)size, (Text)name + size);
        field->size = (size_t)size;
        field->is_label = is_label;
        field->place = (int)place;
    }
    *(is_label ? &scan->label_count : &scan->raw_count) = (int)count;
    return 1;
}

PyObject *native_events(PyObject *module, PyObject *args)
{
    PyObject *given, *labels, *raws, *found = NULL;
    char *text;
    Py_ssize_t size;
    int partly;
    Outcome outcome;
    Columns columns = {0};
    Scan *scan = calloc(1, sizeof *scan);
    (void)module;
    if (scan == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(
            args, "SpO!O!p:events", &given, &scan->lines, &PyTuple_Type, &labels, &PyTuple_Type, &raws, &partly)
        || PyBytes_AsStringAndSize(given, &text, &size) < 0 || !add_fields(scan, labels, 1) || !add_fields(scan, raws, 0))
        goto done;
    if (size > INT32_MAX / 2) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    scan->begin = (Text)text;
    scan->end = scan->begin + size;
    scan->row_size = scan->field_count ? (size_t)scan->label_count + 2 * (size_t)scan->raw_count : 1;
    for (int place = 0; place < PLACES; place++)
        scan->guess[place] = UNKNOWN;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_events(scan);
    measure(scan, &columns);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else
        found = outcome == OK || partly ? columns_of(scan, &columns) : Py_NewRef(Py_None);
done:
    for (int label = 0; label < scan->label_count; label++)
        free_distinct(&scan->labels[label]);
    free(scan->rows);
    free(scan->others);
    free(scan);
    return found;
}
