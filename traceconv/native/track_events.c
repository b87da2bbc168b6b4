/* Track events of a Perfetto trace → rows, up to one with uncommon fields.

   That one is left to Python (formats/perfetto_proto/events.py), which gives the same rows for the events taken here.
   Python also makes args of uncommon fields without other effects; the args that it keeps are looked up here.
   Interned texts are looked up in Python's dictionaries, so the interpreter lock is held. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include "json.h"
#include "json_buffer.h"
#include "protobuf.h"
#include "typed_fields.h"

/* _PACKET of translate.py, _ROW, _FLOW and _TIME of rows.py. */
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
typedef struct {
    int64_t place, ns;
} Time;
SIZE(Packet, 32);
AT(Packet, start, 0); AT(Packet, end, 8); AT(Packet, ts, 16); AT(Packet, packet, 24); AT(Packet, what, 28);
SIZE(Row, 48);
AT(Row, ts, 0); AT(Row, args_end, 8); AT(Row, packet, 16); AT(Row, ph, 20); AT(Row, name, 24); AT(Row, cat, 28);
AT(Row, pid, 32); AT(Row, tid, 36); AT(Row, id, 40); AT(Row, timed, 44);
SIZE(Flow, 24);
AT(Flow, place, 0); AT(Flow, key, 8); AT(Flow, step, 16);
SIZE(Time, 16);
AT(Time, place, 0); AT(Time, ns, 8);

enum { SKIP, TAKE };

/* Fields of TrackEvent and DebugAnnotation, as in field_numbers.py and annotations.py. */
enum {
    CATEGORY_IIDS = 3, ANNOTATIONS = 4, TYPE = 9, NAME_IID = 10, TRACK_UUID = 11, EXTRA_VALUES = 12, CATEGORIES = 22,
    NAME = 23, COUNTER_VALUE = 30, FLOWS_OLD = 36, FLOW_ENDS_OLD = 42, DOUBLE_VALUE = 44, FLOWS = 47, FLOW_ENDS = 48
};
enum {
    NOTE_NAME_IID = 1, BOOL, UINT, INT, DOUBLE, STRING, POINTER, NESTED, JSON, NOTE_NAME, DICT, ARRAY, STRING_IID = 17
};
/* Of NestedValue (legacy), and its forms other than a single value. */
enum { FORM = 1, KEYS, VALUES, ELEMENTS, NESTED_INT, NESTED_DOUBLE, NESTED_BOOL, NESTED_STRING };
enum { FORM_DICT = 1, FORM_ARRAY };
enum { BEGIN = 1, END, INSTANT, COUNTER };
enum { GOES_ON = 3, ENDS };
/* Limits of an event; one with more is left. */
enum { MOST_NOTES = 64, DEEPEST_NOTE = 16, MOST_FLOWS = 64, MOST_EXTRAS = 8, MOST_CATEGORIES = 8 };
/* Numbers that are remembered during a call, by their last bits; the largest text, and all texts, that are. */
enum { RECENT_CODES = 512, RECENT_JOINED = 64, RECENT_TEXTS = 64, LARGEST_TEXT = 256, TEXTS_ROOM = 1 << 16 };
/* The numbers of a counter's track (_count_codes of translate.py). */
enum { PID, TITLE, ID, IS_PLAIN, MULTIPLIER, IS_INCREMENTAL, OF_THREAD, NUMBERS };
/* Values of OF_THREAD. */
enum { THREAD_TIME = 1, THREAD_INSTRUCTIONS };
/* Absolute values up to which products and sums of samples can't overflow. */
#define MOST_SAMPLE ((int64_t)1 << 40)
#define MOST_MULTIPLIER (1 << 20)
#define MOST_SUM ((int64_t)1 << 61)

/* The key of an event's fields without columns, in its args. */
#define TYPED_KEY "\"track_event\""

typedef struct {
    uint64_t iid;
    const uint8_t *at;
    size_t size;
} Name;

/* An annotation. `inner`: those of a dictionary or an array. */
typedef struct {
    Name name;
    int is_named, inner_count;
    Field value, inner[MOST_NOTES];
} Note;

typedef struct {
    uint64_t type, track, value;
    int has_track, values, is_double, category_text_count, category_iid_count, note_count, flow_count, flow_order;
    int extra_count, has_others;
    Name name, category;
    Field notes[MOST_NOTES];
    uint64_t category_iids[MOST_CATEGORIES];
    Flow flows[MOST_FLOWS];
    int64_t extras[MOST_EXTRAS];
} Event;

/* A counter that events of other tracks sample. `next`: its value after the current event. */
typedef struct {
    uint64_t track;
    int64_t sum, next;
    int numbers[NUMBERS];
    int is_known, has_new_sum;
} Extra;

/* Codes of distinct values in the rows: `known` by value, and all values in order. `recent`: those of some numbers. */
typedef struct {
    uint64_t iid;
    int32_t code;
} Recent;
typedef struct {
    PyObject *known, *distinct;
    Recent recent[RECENT_CODES];
} Coder;

/* A number's text as JSON, in `quoted`. */
typedef struct {
    uint64_t iid;
    size_t at, size;
} Quoted;

/* Interned texts of annotations by number. `recent`: those of some numbers, which are not looked up again. */
typedef struct {
    PyObject *known;
    Buffer quoted;
    Quoted recent[RECENT_TEXTS];
} Texts;

/* Several categories of an event, and the code of their joined names. */
typedef struct {
    int count;
    uint64_t iids[MOST_CATEGORIES];
    int32_t code;
} Joined;

typedef struct {
    PyObject *names, *categories, *places, *counters, *sums, *made, *make;
    Texts note_names, note_values;
    unsigned long long default_track;
    int here_pid, here_tid;
    Coder name, cat;
    Joined joined[RECENT_JOINED];
    Py_ssize_t most_args, first_args, first_row, events;
    Buffer rows, args, flows, thread_times, others;
    Typed typed;
    /* Of the sequence; -1: such events are left. */
    Py_ssize_t extra_count;
    Extra extras[MOST_EXTRAS];
    /* Codes of the last track with slices. */
    uint64_t track;
    int track_known, pid, tid;
    /* Unknown numbers of names and categories: of the current event, and of those taken. */
    Py_ssize_t unknown, all_unknown;
} Taker;

static Result put_numbered(Buffer *buffer, Texts *texts, uint64_t iid)
{
    Quoted *recent = &texts->recent[iid % RECENT_TEXTS];
    if (recent->size && recent->iid == iid)
        return put(buffer, texts->quoted.data + recent->at, recent->size) ? DONE : FAILED;
    Py_ssize_t size;
    size_t before = buffer->size;
    PyObject *text = numbered(texts->known, iid);
    if (text == NULL)
        return PyErr_Occurred() ? FAILED : LEFT;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    if (utf8 == NULL || !put_quoted(buffer, (const uint8_t *)utf8, (size_t)size))
        return FAILED;
    if (size > LARGEST_TEXT || texts->quoted.size > TEXTS_ROOM)
        return DONE;
    *recent = (Quoted){iid, texts->quoted.size, buffer->size - before};
    return put(&texts->quoted, buffer->data + before, recent->size) ? DONE : FAILED;
}

/* Whether a number in a JSON text may exceed the range of doubles: it has very many digits, or three in its exponent.
   Digits in strings count, too. */
static int may_exceed_doubles(const uint8_t *at, const uint8_t *end)
{
    enum { MOST_PLAIN = 200, MOST_EXPONENT = 2 };
    for (ptrdiff_t digits = 0; at < end; at++) {
        if (*at >= '0' && *at <= '9') {
            if (++digits > MOST_PLAIN)
                return 1;
            continue;
        }
        if (digits && (*at | 0x20) == 'e') {
            const uint8_t *exponent = at + 1;
            if (exponent < end && (*exponent == '+' || *exponent == '-'))
                exponent++;
            if (past_digits(exponent, end) - exponent > MOST_EXPONENT)
                return 1;
        }
        digits = 0;
    }
    return 0;
}

/* A text that is JSON as it is; any other is left. */
static Result put_json(Buffer *buffer, const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size, *past = past_value(past_blanks(at, end, 0), end, 0);
    if (past == NULL || past_blanks(past, end, 0) != end || may_exceed_doubles(at, end) || !is_utf8(at, size))
        return LEFT;
    return put(buffer, at, size) ? DONE : FAILED;
}

/* An annotation that has one value; another is left. */
static Result read_note(const Field *note, Note *read)
{
    const uint8_t *at = note->at, *end = at + note->value;
    Field field;
    memset(read, 0, offsetof(Note, inner));
    while (at < end) {
        if ((at = past_field(at, end, &field)) == NULL)
            return LEFT;
        int is_inner = (field.number == DICT || field.number == ARRAY) && field.kind == LEN;
        if (field.number == NOTE_NAME_IID && field.kind == VARINT)
            read->name.iid = field.value;
        else if (field.number == NOTE_NAME && field.kind == LEN)
            read->name = (Name){read->name.iid, field.at, (size_t)field.value};
        else if (field.number == NOTE_NAME_IID || field.number == NOTE_NAME
            || (read->value.number && !(is_inner && field.number == read->value.number)))
            return LEFT;
        else
            read->value = field;
        if (is_inner && read->inner_count == MOST_NOTES)
            return LEFT;
        if (is_inner)
            read->inner[read->inner_count++] = field;
    }
    read->is_named = read->name.iid || read->name.at != NULL;
    return read->name.iid && read->name.at != NULL ? LEFT : DONE;
}

static Result put_nested(Taker *taker, const uint8_t *at, const uint8_t *end, int depth);

/* Whether the last of several names in an object was there before. */
static int is_repeated(const Buffer *args, const size_t *starts, const size_t *sizes, int last)
{
    for (int other = 0; other < last; other++)
        if (sizes[other] == sizes[last]
            && memcmp(args->data + starts[other], args->data + starts[last], sizes[last]) == 0)
            return 1;
    return 0;
}

/* Nested values as an object with these keys, or as an array without keys. */
static Result put_nested_list(Taker *taker, const Field *keys, const Field *values, int count, int depth)
{
    size_t starts[MOST_NOTES], sizes[MOST_NOTES];
    Buffer *args = &taker->args;
    for (int place = 0; place < count; place++) {
        Result result = DONE;
        if (!put(args, place ? "," : keys ? "{" : "[", 1))
            return FAILED;
        if (keys != NULL) {
            starts[place] = args->size;
            result = put_text(args, keys[place].at, (size_t)keys[place].value);
            sizes[place] = args->size - starts[place];
            if (result == DONE && is_repeated(args, starts, sizes, place))
                result = LEFT;
            if (result == DONE && !put(args, ":", 1))
                result = FAILED;
        }
        if (result == DONE)
            result = put_nested(taker, values[place].at, values[place].at + values[place].value, depth + 1);
        if (result != DONE)
            return result;
        if (taker->first_args + (Py_ssize_t)args->size > taker->most_args)
            return LEFT;
    }
    if (count == 0)
        return put(args, keys ? "{}" : "[]", 2) ? DONE : FAILED;
    return put(args, keys ? "}" : "]", 1) ? DONE : FAILED;
}

/* A NestedValue that is either one value, or a dictionary, or an array, as its form says; another is left. */
static Result put_nested(Taker *taker, const uint8_t *at, const uint8_t *end, int depth)
{
    Field keys[MOST_NOTES], values[MOST_NOTES], value = {0};
    int key_count = 0, value_count = 0, forms = 0;
    uint64_t form = 0;
    Buffer *args = &taker->args;
    if (depth > DEEPEST_NOTE)
        return LEFT;
    while (at < end) {
        Field field;
        if ((at = past_field(at, end, &field)) == NULL)
            return LEFT;
        if (field.number == FORM && field.kind == VARINT && forms++ == 0)
            form = field.value;
        else if (field.number == KEYS && field.kind == LEN && key_count < MOST_NOTES)
            keys[key_count++] = field;
        else if ((field.number == VALUES || field.number == ELEMENTS) && field.kind == LEN && value_count < MOST_NOTES
            && form == (field.number == VALUES ? FORM_DICT : FORM_ARRAY))
            values[value_count++] = field;
        else if (field.number >= NESTED_INT && field.number <= NESTED_STRING && value.number == 0)
            value = field;
        else
            return LEFT;
    }
    if (form == FORM_DICT || form == FORM_ARRAY) {
        int is_dict = form == FORM_DICT;
        if (value.number || key_count != (is_dict ? value_count : 0))
            return LEFT;
        return put_nested_list(taker, is_dict ? keys : NULL, values, value_count, depth);
    }
    if (form || key_count)
        return LEFT;
    switch (value.number << 3 | (unsigned)value.kind) {
    case 0:
        return put(args, "null", 4) ? DONE : FAILED;
    case NESTED_INT << 3 | VARINT:
        return put_integer(args, (int64_t)value.value);
    case NESTED_DOUBLE << 3 | FIXED64:
        return put_double(args, value.value);
    case NESTED_BOOL << 3 | VARINT:
        return put(args, value.value ? "true" : "false", value.value ? 4 : 5) ? DONE : FAILED;
    case NESTED_STRING << 3 | LEN:
        return put_text(args, value.at, (size_t)value.value);
    default:
        return LEFT;
    }
}

static Result put_notes(Taker *taker, const Field *notes, int count, int depth);

static Result put_array(Taker *taker, const Note *array, int depth);

static Result put_note_value(Taker *taker, const Note *note, int depth)
{
    Buffer *args = &taker->args;
    const Field *value = &note->value;
    switch (value->number << 3 | (unsigned)value->kind) {
    case BOOL << 3 | VARINT:
        return put(args, value->value ? "true" : "false", value->value ? 4 : 5) ? DONE : FAILED;
    case UINT << 3 | VARINT:
        return put_unsigned(args, value->value);
    case INT << 3 | VARINT:
        return put_integer(args, (int64_t)value->value);
    case STRING_IID << 3 | VARINT:
        return put_numbered(args, &taker->note_values, value->value);
    case DOUBLE << 3 | FIXED64:
        return put_double(args, value->value);
    case STRING << 3 | LEN:
        return put_text(args, value->at, (size_t)value->value);
    case JSON << 3 | LEN:
        return put_json(args, value->at, (size_t)value->value);
    case POINTER << 3 | VARINT: {
        char text[24];
        int size = snprintf(text, sizeof text, "\"0x%llx\"", (unsigned long long)value->value);
        /* The names of those outside of others are noted. */
        return depth == 0 ? LEFT : put(args, text, (size_t)size) ? DONE : FAILED;
    }
    case NESTED << 3 | LEN:
        return put_nested(taker, value->at, value->at + value->value, depth + 1);
    case DICT << 3 | LEN:
        return put_notes(taker, note->inner, note->inner_count, depth + 1);
    case ARRAY << 3 | LEN:
        return put_array(taker, note, depth + 1);
    default:
        return LEFT;
    }
}

static Result put_array(Taker *taker, const Note *array, int depth)
{
    if (depth > DEEPEST_NOTE)
        return LEFT;
    for (int place = 0; place < array->inner_count; place++) {
        Note element;
        if (!put(&taker->args, place ? "," : "[", 1))
            return FAILED;
        Result result = read_note(&array->inner[place], &element);
        if (result == DONE)
            result = element.is_named ? LEFT : put_note_value(taker, &element, depth);
        if (result != DONE)
            return result;
    }
    return put(&taker->args, "]", 1) ? DONE : FAILED;
}

/* Annotations as one object; duplicate names, and the key of typed fields, are left. */
static Result put_notes(Taker *taker, const Field *notes, int count, int depth)
{
    size_t starts[MOST_NOTES], sizes[MOST_NOTES];
    Buffer *args = &taker->args;
    if (depth > DEEPEST_NOTE)
        return LEFT;
    for (int place = 0; place < count; place++) {
        Note note;
        if (!put(args, place ? "," : "{", 1))
            return FAILED;
        starts[place] = args->size;
        Result result = read_note(&notes[place], &note);
        if (result == DONE && note.name.iid)
            result = put_numbered(args, &taker->note_names, note.name.iid);
        else if (result == DONE)
            result = put_text(args, note.name.at == NULL ? notes[place].at : note.name.at, note.name.size);
        sizes[place] = args->size - starts[place];
        if (result == DONE && !put(args, ":", 1))
            return FAILED;
        if (result == DONE)
            result = put_note_value(taker, &note, depth);
        if (result != DONE)
            return result;
        if (taker->first_args + (Py_ssize_t)args->size > taker->most_args)
            return LEFT;
        if (depth == 0 && sizes[place] == sizeof TYPED_KEY - 1
            && memcmp(args->data + starts[place], TYPED_KEY, sizes[place]) == 0)
            return LEFT;
        if (is_repeated(args, starts, sizes, place))
            return LEFT;
    }
    return count == 0 || put(args, "}", 1) ? DONE : FAILED;
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
static Result code_of_name(Taker *taker, Coder *coder, PyObject *known, const Name *name, int32_t *code)
{
    *code = 0;
    if (name->iid) {
        Recent *recent = &coder->recent[name->iid % RECENT_CODES];
        if (recent->iid == name->iid) {
            *code = recent->code;
            return DONE;
        }
        PyObject *text = numbered(known, name->iid);
        if (text == NULL && PyErr_Occurred())
            return FAILED;
        if (text == NULL)
            taker->unknown++;
        else {
            *code = code_of_value(coder, text);
            *recent = (Recent){*code < 0 ? 0 : name->iid, *code};
        }
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

/* The code of several categories; one that is unknown is left. */
static Result code_of_joined(Taker *taker, const Event *event, int32_t *code)
{
    uint64_t hash = 0;
    for (int place = 0; place < event->category_iid_count; place++)
        hash = hash * 31 + event->category_iids[place];
    Joined *joined = &taker->joined[hash % RECENT_JOINED];
    size_t size = (size_t)event->category_iid_count * sizeof event->category_iids[0];
    if (joined->count == event->category_iid_count && memcmp(joined->iids, event->category_iids, size) == 0) {
        *code = joined->code;
        return DONE;
    }
    PyObject *words = PyList_New(event->category_iid_count), *comma = PyUnicode_FromString(","), *text = NULL;
    Result result = words == NULL || comma == NULL ? FAILED : DONE;
    for (int place = 0; result == DONE && place < event->category_iid_count; place++) {
        PyObject *word = numbered(taker->categories, event->category_iids[place]);
        if (word == NULL)
            result = PyErr_Occurred() ? FAILED : LEFT;
        else if (PyList_SetItem(words, place, Py_NewRef(word)) < 0)
            result = FAILED;
    }
    if (result == DONE && (text = PyUnicode_Join(comma, words)) == NULL)
        result = FAILED;
    if (result == DONE && PyUnicode_GetLength(text) == 0)
        result = LEFT;
    if (result == DONE && (*code = code_of_value(&taker->cat, text)) < 0)
        result = FAILED;
    if (result == DONE) {
        joined->count = event->category_iid_count;
        joined->code = *code;
        memcpy(joined->iids, event->category_iids, size);
    }
    Py_XDECREF(words);
    Py_XDECREF(comma);
    Py_XDECREF(text);
    return result;
}

/* Whether a field of an event is read here. */
static int is_plain(uint32_t number)
{
    switch (number) {
    case CATEGORY_IIDS: case ANNOTATIONS: case TYPE: case NAME_IID: case TRACK_UUID: case EXTRA_VALUES: case CATEGORIES:
    case NAME: case COUNTER_VALUE: case FLOWS_OLD: case FLOW_ENDS_OLD: case DOUBLE_VALUE: case FLOWS: case FLOW_ENDS:
        return 1;
    default:
        return 0;
    }
}

/* Collect the fields of an event that are not read here, and its annotations. */
static Result collect(Buffer *others, const uint8_t *at, const uint8_t *end, int with_notes)
{
    others->size = 0;
    while (at < end) {
        Field field;
        const uint8_t *past = past_field(at, end, &field);
        if (past == NULL)
            return LEFT;
        int is_other = field.number == ANNOTATIONS ? with_notes : !is_plain(field.number);
        if (is_other && !put(others, at, (size_t)(past - at)))
            return FAILED;
        at = past;
    }
    return DONE;
}

/* The fields of an event that are not read here, as one more member of its args. */
static Result put_others(Taker *taker, const uint8_t *at, const uint8_t *end, int note_count)
{
    Buffer *args = &taker->args, *others = &taker->others;
    Result result = collect(others, at, end, 0);
    if (result != DONE)
        return result;
    args->size -= note_count > 0; /* the brace */
    if (!put(args, note_count ? "," : "{", 1) || !put(args, TYPED_KEY ":", sizeof TYPED_KEY))
        return FAILED;
    size_t before = args->size;
    result = put_message(args, &taker->typed, others->data, others->data + others->size, 1, 0);
    if (result == DONE && args->size == before + 2) /* no members */
        result = LEFT;
    return result == DONE && !put(args, "}", 1) ? FAILED : result;
}

/* The args that Python makes of the annotations and the other fields of an event; left if they have other effects. */
static Result put_made(Taker *taker, const uint8_t *at, const uint8_t *end)
{
    Buffer *others = &taker->others;
    Result collected = collect(others, at, end, 1);
    if (collected != DONE)
        return collected;
    PyObject *fields = PyBytes_FromStringAndSize((const char *)others->data, (Py_ssize_t)others->size);
    PyObject *made = fields == NULL ? NULL : PyDict_GetItemWithError(taker->made, fields);
    if (made != NULL)
        Py_INCREF(made);
    else if (fields != NULL && !PyErr_Occurred())
        made = PyObject_CallFunctionObjArgs(taker->make, fields, NULL);
    Py_XDECREF(fields);
    Result result = made == NULL ? FAILED : made == Py_None ? LEFT : DONE;
    if (result == DONE) {
        Py_ssize_t size;
        const char *utf8 = PyUnicode_AsUTF8AndSize(made, &size);
        result = utf8 != NULL && put(&taker->args, utf8, (size_t)size) ? DONE : FAILED;
    }
    Py_XDECREF(made);
    return result;
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
            if (event->category_iid_count == MOST_CATEGORIES)
                return LEFT;
            event->category_iids[event->category_iid_count++] = field.value;
            break;
        case CATEGORY_IIDS << 3 | LEN:
            for (const uint8_t *one = field.at; one < at;)
                if (event->category_iid_count == MOST_CATEGORIES
                    || (one = past_varint(one, at, &event->category_iids[event->category_iid_count++])) == NULL)
                    return LEFT;
            break;
        case CATEGORIES << 3 | LEN:
            event->category.at = field.value ? field.at : NULL;
            event->category.size = (size_t)field.value;
            event->category_text_count++;
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
        case EXTRA_VALUES << 3 | VARINT:
            if (event->extra_count == MOST_EXTRAS)
                return LEFT;
            event->extras[event->extra_count++] = (int64_t)field.value;
            break;
        case EXTRA_VALUES << 3 | LEN:
            for (const uint8_t *one = field.at; one < at;) {
                uint64_t value;
                if (event->extra_count == MOST_EXTRAS || (one = past_varint(one, at, &value)) == NULL)
                    return LEFT;
                event->extras[event->extra_count++] = (int64_t)value;
            }
            break;
        default:
            if (is_plain(field.number))
                return LEFT;
            event->has_others = 1;
        }
    }
    return DONE;
}

/* The counters that events of a sequence sample besides their own rows: up to MOST_EXTRAS different ones. */
static void take_extra_tracks(Taker *taker, PyObject *tracks)
{
    Py_ssize_t count = PyList_Size(tracks);
    taker->extra_count = count <= MOST_EXTRAS ? count : -1;
    for (Py_ssize_t place = 0; place < taker->extra_count; place++) {
        Extra *extra = &taker->extras[place];
        extra->track = PyLong_AsUnsignedLongLong(PyList_GetItem(tracks, place));
        for (Py_ssize_t other = 0; other < place; other++)
            if (taker->extras[other].track == extra->track)
                taker->extra_count = -1;
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        taker->extra_count = -1;
    }
}

/* Look up a counter, and its sum before the current event. */
static Result know_extra(Taker *taker, Extra *extra)
{
    Result result = numbers_of(taker->counters, extra->track, extra->numbers, NUMBERS);
    if (result == DONE && extra->numbers[IS_INCREMENTAL]) {
        PyObject *sum = numbered(taker->sums, extra->track);
        if (sum != NULL && PyLong_Check(sum)) {
            extra->sum = PyLong_AsLongLong(sum);
            result = PyErr_Occurred() ? LEFT : DONE;
        }
        else if (sum != NULL || PyErr_Occurred())
            result = sum != NULL ? LEFT : FAILED;
        if (result == LEFT)
            PyErr_Clear();
    }
    extra->is_known = result == DONE;
    return result;
}

/* The values of the counters after an event; those of instructions have keys in its args, too, and are left. */
static Result add_extras(Taker *taker, const Event *event, Py_ssize_t count)
{
    for (Py_ssize_t place = 0; place < count; place++) {
        Extra *extra = &taker->extras[place];
        int64_t value = event->extras[place], multiplier;
        Result result = extra->is_known ? DONE : know_extra(taker, extra);
        if (result != DONE)
            return result;
        multiplier = extra->numbers[MULTIPLIER];
        if (extra->numbers[OF_THREAD] == THREAD_INSTRUCTIONS || multiplier <= 0 || multiplier > MOST_MULTIPLIER
            || value < -MOST_SAMPLE || value > MOST_SAMPLE || extra->sum < -MOST_SUM || extra->sum > MOST_SUM)
            return LEFT;
        extra->next = extra->sum + value * multiplier;
    }
    return DONE;
}

/* The samples of an event as rows after its own. */
static int put_extras(Taker *taker, const Row *of_event, int64_t place, Py_ssize_t count)
{
    for (Py_ssize_t number = 0; number < count; number++) {
        Extra *extra = &taker->extras[number];
        Row row = {.ts = of_event->ts, .packet = of_event->packet, .timed = 1, .ph = COUNTER - 1};
        Time time = {place, extra->next};
        row.pid = extra->numbers[PID];
        row.name = extra->numbers[TITLE];
        row.id = extra->numbers[ID];
        if (extra->numbers[IS_INCREMENTAL]) {
            extra->sum = extra->next;
            extra->has_new_sum = 1;
        }
        if (!put(&taker->args, "{\"value\":", 9)
            || put_integer(&taker->args, extra->next) != DONE || !put(&taker->args, "}", 1))
            return 0;
        row.args_end = taker->first_args + (int64_t)taker->args.size;
        if (!put(&taker->rows, &row, sizeof row)
            || (extra->numbers[OF_THREAD] == THREAD_TIME && !put(&taker->thread_times, &time, sizeof time)))
            return 0;
    }
    return 1;
}

/* Store the sums for the events that are left. */
static int store_sums(Taker *taker)
{
    int is_sound = 1;
    for (Py_ssize_t place = 0; is_sound && place < taker->extra_count; place++) {
        const Extra *extra = &taker->extras[place];
        if (!extra->has_new_sum)
            continue;
        PyObject *key = PyLong_FromUnsignedLongLong(extra->track), *sum = PyLong_FromLongLong(extra->sum);
        is_sound = key != NULL && sum != NULL && PyDict_SetItem(taker->sums, key, sum) == 0;
        Py_XDECREF(key);
        Py_XDECREF(sum);
    }
    return is_sound;
}

static Result fill_counter(Taker *taker, const Event *event, uint64_t track, Row *row)
{
    int numbers[NUMBERS];
    Buffer *args = &taker->args;
    if (event->values != 1 || event->note_count || event->has_others || event->flow_count || event->extra_count
        || event->name.iid || event->name.at != NULL)
        return LEFT;
    Result result = numbers_of(taker->counters, track, numbers, NUMBERS);
    if (result != DONE || !numbers[IS_PLAIN])
        return result != DONE ? result : LEFT;
    row->pid = numbers[PID];
    row->name = numbers[TITLE];
    row->id = numbers[ID];
    if (!put(args, "{\"value\":", 9))
        return FAILED;
    result = event->is_double ? put_double(args, event->value) : put_integer(args, (int64_t)event->value);
    return result == DONE && !put(args, "}", 1) ? FAILED : result;
}

static Result fill_slice(Taker *taker, Event *event, uint64_t track, Row *row)
{
    if (event->values || event->category_text_count + (event->category_iid_count > 0) > 1
        || (event->flow_count && event->type == END))
        return LEFT;
    Result result = code_of_name(taker, &taker->name, taker->names, &event->name, &row->name);
    if (result == DONE && event->category_iid_count > 1)
        result = code_of_joined(taker, event, &row->cat);
    else if (result == DONE) {
        event->category.iid = event->category_iid_count ? event->category_iids[0] : 0;
        result = code_of_name(taker, &taker->cat, taker->categories, &event->category, &row->cat);
    }
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
    return result;
}

/* Python makes all args if one of them is left. */
static Result put_args(Taker *taker, const uint8_t *at, const uint8_t *end, const Event *event)
{
    size_t before = taker->args.size;
    Result result = put_notes(taker, event->notes, event->note_count, 0);
    if (result == DONE && event->has_others)
        result = put_others(taker, at, end, event->note_count);
    if (result != LEFT)
        return result;
    taker->args.size = before;
    return put_made(taker, at, end);
}

static Result take_event(Taker *taker, const uint8_t *data, const Packet *packet, Event *event)
{
    Row row = {.ts = packet->ts, .packet = packet->packet, .timed = 1};
    size_t args = taker->args.size;
    Py_ssize_t extras = 0;
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
    if (result == DONE && event->extra_count) {
        extras = event->extra_count < taker->extra_count ? event->extra_count : taker->extra_count;
        result = taker->extra_count < 0 ? LEFT : add_extras(taker, event, extras);
    }
    if (result == DONE && event->type != COUNTER) {
        result = put_args(taker, data + packet->start, data + packet->end, event);
        if (taker->first_args + (Py_ssize_t)taker->args.size + MOST_EXTRAS * 40 > taker->most_args)
            result = result == DONE ? LEFT : result;
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
        || !put(&taker->flows, event->flows, (size_t)event->flow_count * sizeof event->flows[0])
        || !put_extras(taker, &row, place, extras))
        return FAILED;
    taker->events++;
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
    PyObject *data, *rows, *texts, *flows, *thread_times, *extra_tracks;
    Py_ssize_t at;
    Event event;
    Result result = DONE;
    (void)module;
    if (!PyArg_ParseTuple(args, "Sy*n(O!O!O!O!K(ii)O!O!O!OO!O!)(O!O!O!O!OO)(O!O!O!O!)n:track_events",
            &data, &packets, &at, &PyDict_Type, &taker.names, &PyDict_Type, &taker.categories,
            &PyDict_Type, &taker.note_names.known, &PyDict_Type, &taker.note_values.known,
            &taker.default_track, &taker.here_pid, &taker.here_tid,
            &PyList_Type, &extra_tracks, &PyDict_Type, &taker.sums, &PyDict_Type, &taker.made, &taker.make,
            &PyDict_Type, &taker.typed.fields, &PyDict_Type, &taker.typed.locations,
            &PyDict_Type, &taker.name.known, &PyList_Type, &taker.name.distinct,
            &PyDict_Type, &taker.cat.known, &PyList_Type, &taker.cat.distinct, &taker.places, &taker.counters,
            &PyByteArray_Type, &rows, &PyByteArray_Type, &texts, &PyByteArray_Type, &flows,
            &PyByteArray_Type, &thread_times, &taker.most_args))
        return NULL;
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
    taker.first_args = PyByteArray_Size(texts);
    taker.first_row = PyByteArray_Size(rows) / (Py_ssize_t)sizeof(Row);
    take_extra_tracks(&taker, extra_tracks);
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
    free(taker.note_names.quoted.data);
    free(taker.note_values.quoted.data);
    free(taker.others.data);
    int is_sound = append(rows, &taker.rows, result != FAILED);
    is_sound = append(texts, &taker.args, is_sound);
    is_sound = append(flows, &taker.flows, is_sound);
    is_sound = append(thread_times, &taker.thread_times, is_sound) && store_sums(&taker);
    return is_sound ? Py_BuildValue("nnn", at, taker.all_unknown, taker.events) : NULL;
}
