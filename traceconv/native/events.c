/* Text of complete events → columns: one pass over the bytes, without the interpreter lock.

   Accepts strict JSON only: objects with commas or line breaks between them. For anything else it returns None, and
   Python finds out what is wrong. The text is immutable bytes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "distinct.h"
#include "module.h"
#include "room.h"

enum { MOST_FIELDS = 32, FIRST = MOST_FIELDS, UNKNOWN, PLACES };
enum { MOST_LEAD = 32, LEADS = 2, INNER_BITS = 6 };

/* A field of events, identified by the first eight bytes of its name; no name is longer. */
typedef struct {
    uint64_t word;
    size_t size;
    int is_label;
    int place; /* among the labels or the raw fields */
} Field;

/* What led from a value (or the first brace) to the next one: the text in between, and the number of its key: a field's,
   or inside a field, some of the key's bits. Size 0: none. */
typedef struct {
    uint8_t text[MOST_LEAD];
    uint32_t size;
    int number;
} Lead;

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
    /* Those that followed each field, began an event, and followed a key that is not a field; the latest first. */
    Lead leads[PLACES][LEADS];
    /* The same inside fields; at 0, those that began an object: no key has that number, since others begin with a comma. */
    Lead inner_leads[(1 << INNER_BITS) + 1][LEADS];
} Scan;

/* The current event. */
typedef struct {
    Scan *scan;
    int32_t *row;
    uint32_t seen; /* one bit per field */
    int number; /* the field read last, or FIRST or UNKNOWN */
    Text key, last; /* the quotes of a key that is not a field */
} Event;

#ifdef __SSE2__
/* Whether the first `size` bytes are equal, of up to 16. */
static inline int are_equal(Text one, Text other, uint32_t size)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)one), others = _mm_loadu_si128((const __m128i *)other);
    return (~_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, others)) & ((1 << size) - 1)) == 0;
}
#endif

/* Whether a lead is at this position, from where on there are MOST_LEAD bytes. */
static inline int has_text(const Lead *lead, Text at)
{
    uint32_t size = lead->size;
#ifdef __SSE2__
    return size <= 16 ? size > 0 && are_equal(at, lead->text, size)
                      : are_equal(at, lead->text, 16) && are_equal(at + 16, lead->text + 16, size - 16);
#else
    return size > 0 && memcmp(at, lead->text, size) == 0;
#endif
}

/* From the end of a value to the next one, if it is led to as before; else NULL. Changes the number of the key. */
static inline Text past_lead(const Lead *leads, Text at, Text end, int lines, int *number)
{
    if (end - at < MOST_LEAD || *at == '}')
        return NULL;
    for (int place = 0; place < LEADS; place++)
        if (has_text(&leads[place], at)) {
            *number = leads[place].number;
            return past_blanks(at + leads[place].size, end, lines);
        }
    return NULL;
}

static void remember(Lead *leads, Text at, Text value, int number)
{
    if (value - at > MOST_LEAD)
        return;
    leads[1] = leads[0];
    leads[0].size = (uint32_t)(value - at);
    leads[0].number = number;
    memcpy(leads[0].text, at, leads[0].size);
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

static inline Outcome take_value(Event *event, Text value, Text stop)
{
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

/* From after the blanks that follow a value to the next key; NULL: malformed. */
static inline Text past_comma(Text at, Text end, int lines)
{
    return at < end && *at == ',' ? past_blanks(at + 1, end, lines) : NULL;
}

/* After the value at `at`, which is rarely an object or array. */
static inline Text past_simple(Text at, Text end, int lines)
{
    return at < end && (*at == '{' || *at == '[') ? past_value(at, end, lines) : past_scalar(at, end);
}

/* After the object at `at`, as past_value. */
static Text past_object(Scan *scan, Text at)
{
    Text end = scan->end, last;
    int number = 0;
    at++;
    for (int is_first = 1;; is_first = 0) {
        Lead *leads = scan->inner_leads[number];
        Text begin = at, value = past_lead(leads, at, end, scan->lines, &number);
        if (value == NULL) {
            at = past_blanks(at, end, scan->lines);
            if (at < end && *at == '}')
                return at + 1;
            at = is_first ? at : past_comma(at, end, scan->lines);
            value = at == NULL ? NULL : past_key(at, end, scan->lines, &last);
            if (value == NULL)
                return NULL;
            number = 1 + (int)(word_of(at + 1, (size_t)(last - at - 1), end) * 0x9E3779B97F4A7C15u >> (64 - INNER_BITS));
            remember(leads, begin, value, number);
        }
        at = past_simple(value, end, scan->lines);
        if (at == NULL)
            return NULL;
    }
}

/* Take the members of the event at *place; *place becomes the position after it. */
static Outcome take_event(Event *event, Text *place)
{
    Scan *scan = event->scan;
    Text at = *place, end = scan->end;
    if (at >= end || *at != '{')
        return FALLBACK;
    at++;
    for (int is_first = 1;; is_first = 0) {
        Lead *leads = scan->leads[event->number];
        Text begin = at, value = past_lead(leads, at, end, scan->lines, &event->number);
        if (value == NULL) {
            at = past_blanks(at, end, scan->lines);
            if (at < end && *at == '}') {
                *place = at + 1;
                return OK;
            }
            at = is_first ? at : past_comma(at, end, scan->lines);
            event->key = at;
            value = at == NULL ? NULL : past_key(at, end, scan->lines, &event->last);
            if (value == NULL)
                return FALLBACK;
            event->number = field_of(scan, at + 1, (size_t)(event->last - at - 1));
            if (event->number != UNKNOWN)
                remember(leads, begin, value, event->number);
        }
        at = value < end && *value == '{' ? past_object(scan, value) : past_simple(value, end, scan->lines);
        if (at == NULL)
            return FALLBACK;
        Outcome outcome = take_value(event, value, at);
        if (outcome != OK)
            return outcome;
    }
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
        Outcome outcome = take_event(&event, &at);
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
