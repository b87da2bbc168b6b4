/* Rows of columns → records of a timeline: JSON text, or Perfetto packets. A template lists the parts of a record. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "json.h"
#include "module.h"
#include "put.h"

/* The kinds of parts; `Kind` in traceconv/export/record_kinds.py describes them. */
enum {
    LITERAL, INTEGER, UNSIGNED, BOOLEAN, MICROSECONDS, STRING, JSON, RAW, LOOKUP, VARINT, NOTE, NOTE_BYTES, FIXED64,
    OPEN, CLOSE, SKIP_IF_NULL, SKIP_UNLESS_NULL, SHORT_MICROSECONDS, KINDS
};
/* Short bytes are copied 16 at a time, so up to 15 more are read and written after them (SLACK). */
enum { MOST_OPEN = 8, LENGTH_ROOM = 2, MOST_NUMBER = 26, MOST_INNER = 100, MOST_ESCAPED = 6, SLACK = 32, COLUMN_BUFFERS = 3 };

static const int64_t EXACT = (int64_t)1 << 53;
/* The largest number of nanoseconds that all doubles of microseconds can tell apart. */
static const int64_t MOST_SHORT = 999999999999999;

/* A column of 64-bit numbers, or of texts if there is `data`. `values` begin at the first row, `valid` `offset` bits before it. */
typedef struct {
    Text valid, values, data, data_end;
    Py_ssize_t offset, count;
} Column;

typedef struct {
    int kind, has_comma;
    const Column *column, *texts;
    long long number;
    /* Copies with SLACK after them. */
    Text literal, inner;
    Py_ssize_t literal_size, inner_size;
} Part;

typedef struct {
    Part *parts;
    uint8_t *literals;
    Column *columns;
    Py_buffer *buffers;
    /* `most_size`: of a record without its texts. */
    Py_ssize_t part_count, column_count, most_size;
    Py_buffer order, out;
} Records;

static inline int has_texts(const Column *column)
{
    return column->data != NULL;
}

static inline int is_null(const Column *column, Py_ssize_t row)
{
    row += column->offset;
    return column->valid != NULL && !(column->valid[row >> 3] >> (row & 7) & 1);
}

static inline int64_t number_at(const Column *column, Py_ssize_t row)
{
    int64_t number;
    memcpy(&number, column->values + (size_t)row * sizeof number, sizeof number);
    return number;
}

/* The bytes of a text; 0 if it is outside of the data. */
static inline int text_at(const Column *column, Py_ssize_t row, Text *at, Text *end)
{
    int32_t bounds[2];
    memcpy(bounds, column->values + (size_t)row * sizeof *bounds, sizeof bounds);
    if (bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > column->data_end - column->data)
        return 0;
    *at = column->data + bounds[0];
    *end = column->data + bounds[1];
    return 1;
}

/* The difference of two times, which may need 65 bits. */
static inline uint8_t *put_microseconds(uint8_t *out, int64_t ns, int64_t base_ns)
{
    uint64_t size = ns < base_ns ? (uint64_t)base_ns - (uint64_t)ns : (uint64_t)ns - (uint64_t)base_ns;
    if (ns < base_ns)
        *out++ = '-';
    out = put_decimal(out, size / 1000);
    unsigned rest = (unsigned)(size % 1000);
    *out++ = '.';
    *out++ = (uint8_t)('0' + rest / 100);
    return put(out, (Text)PAIRS + rest % 100 * 2, 2);
}

/* A duration without the zeros that a double doesn't print. */
static inline uint8_t *put_short_microseconds(uint8_t *out, int64_t ns)
{
    out = put_microseconds(out, ns, 0);
    if (ns < -MOST_SHORT || ns > MOST_SHORT)
        return out;
    out -= out[-1] == '0';
    return out - (out[-1] == '0' && out[-2] != '.');
}

static uint8_t *put_string(uint8_t *out, Text at, Text end, Text last)
{
    static const char hex[] = "0123456789abcdef";
    *out++ = '"';
    for (;;) {
        Text stop = past_plain(at, end);
        out = put_text(out, at, stop, last);
        if (stop == end)
            break;
        *out++ = '\\';
        switch (*stop) {
        case '"': case '\\': *out++ = *stop; break;
        case '\b': *out++ = 'b'; break;
        case '\f': *out++ = 'f'; break;
        case '\n': *out++ = 'n'; break;
        case '\r': *out++ = 'r'; break;
        case '\t': *out++ = 't'; break;
        default:
            out = put(out, (Text)"u00", 3);
            *out++ = (uint8_t)hex[*stop >> 4];
            *out++ = (uint8_t)hex[*stop & 15];
        }
        at = stop + 1;
    }
    *out++ = '"';
    return out;
}

/* Whether JSON text can be part of a document, and can't be mistaken for text that is not JSON, which becomes a string. */
static inline int is_embeddable(Text at, Text end)
{
    return at < end && *at != '"' && *at != 'n' && past_value(at, end, 0) == end;
}

static inline Py_ssize_t varint_size(uint64_t value)
{
    return (bit_count(value) + 6) / 7;
}

/* Fill in the length before what was written since `start`: two bytes, or more if they don't suffice. */
static inline uint8_t *put_length(uint8_t *start, uint8_t *out)
{
    size_t size = (size_t)(out - start) - LENGTH_ROOM;
    if (size < 1 << 14) {
        start[0] = (uint8_t)(size | 0x80);
        start[1] = (uint8_t)(size >> 7);
        return out;
    }
    memmove(start + varint_size(size), start + LENGTH_ROOM, size);
    return put_varint(start, size) + size;
}

/* Write one record; *room becomes 0 if it doesn't fit. NULL: also if an array is invalid. */
static uint8_t *put_record(const Records *records, Py_ssize_t row, uint8_t *out, const uint8_t *stop, int *room)
{
    uint8_t *open[MOST_OPEN], *first = out, *note;
    int depth = 0;
    if (!(*room = records->most_size <= stop - out))
        return NULL;
    stop -= records->most_size;
    for (const Part *part = records->parts, *last = part + records->part_count; part < last; part++) {
        const Column *column = part->column;
        Text at = NULL, end = NULL;
        int64_t number = 0;
        if (part->kind == SKIP_IF_NULL || part->kind == SKIP_UNLESS_NULL) {
            if (is_null(column, row) == (part->kind == SKIP_IF_NULL))
                part += part->number;
            continue;
        }
        if (column != NULL) {
            Py_ssize_t place = row;
            if (is_null(column, row))
                continue;
            if (!has_texts(column))
                number = number_at(column, row);
            if (part->kind == LOOKUP) {
                column = part->texts;
                place = (Py_ssize_t)number;
                if (place < 0 || place >= column->count || is_null(column, place))
                    continue;
            }
            if (has_texts(column)) {
                if (!text_at(column, place, &at, &end))
                    return NULL;
                if ((*room = (end - at) * MOST_ESCAPED <= stop - out) == 0)
                    return NULL;
            }
        }
        int after_open = part->has_comma && out > first && (out[-1] == '{' || out[-1] == '[');
        out = put_padded(out, part->literal + after_open, part->literal_size - after_open);
        switch (part->kind) {
        case INTEGER:
            if (part->number || (number >= -EXACT && number <= EXACT)) {
                out = put_signed(out, number);
                break;
            }
            *out++ = '"';
            out = put_signed(out, number);
            *out++ = '"';
            break;
        case UNSIGNED:
            if (part->number || (uint64_t)number <= (uint64_t)EXACT) {
                out = put_decimal(out, (uint64_t)number);
                break;
            }
            *out++ = '"';
            out = put_decimal(out, (uint64_t)number);
            *out++ = '"';
            break;
        case BOOLEAN:
            out = number ? put(out, (Text)"true", 4) : put(out, (Text)"false", 5);
            break;
        case MICROSECONDS:
            out = put_microseconds(out, number, part->number);
            break;
        case SHORT_MICROSECONDS:
            out = put_short_microseconds(out, number);
            break;
        case STRING:
            out = put_string(out, at, end, column->data_end);
            break;
        case JSON:
            out = is_embeddable(at, end) ? put(out, at, (size_t)(end - at)) : put_string(out, at, end, column->data_end);
            break;
        case RAW: case LOOKUP:
            out = put_text(out, at, end, column->data_end);
            break;
        case VARINT:
            out = put_varint(out, (uint64_t)number);
            break;
        case NOTE:
            /* The length has one byte: `is_sound` limits the bytes before the number. */
            note = out++;
            out = put_padded(out, part->inner, part->inner_size);
            out = put_varint(out, (uint64_t)number);
            *note = (uint8_t)(out - note - 1);
            break;
        case NOTE_BYTES:
            number = end - at;
            out = put_varint(out, (uint64_t)(part->inner_size + varint_size((uint64_t)number) + number));
            out = put_padded(out, part->inner, part->inner_size);
            out = put_varint(out, (uint64_t)number);
            out = put_text(out, at, end, column->data_end);
            break;
        case FIXED64:
            for (int byte = 0; byte < 8; byte++)
                *out++ = (uint8_t)((uint64_t)number >> 8 * byte);
            break;
        case OPEN:
            open[depth++] = out;
            out += LENGTH_ROOM;
            break;
        case CLOSE:
            depth--;
            out = put_length(open[depth], out);
            break;
        default:
            break;
        }
    }
    return out;
}

/* Parse the columns; 0 with an exception set if one is no array. */
static int parse_columns(Records *records, PyObject *list)
{
    Py_ssize_t count = PyTuple_Size(list);
    records->columns = calloc((size_t)count + 1, sizeof *records->columns);
    records->buffers = calloc((size_t)count + 1, sizeof *records->buffers * COLUMN_BUFFERS);
    if (records->columns == NULL || records->buffers == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        Column *column = &records->columns[place];
        Py_buffer *valid = &records->buffers[place * COLUMN_BUFFERS], *values = valid + 1, *data = valid + 2;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, place), "z*y*z*nn", valid, values, data, &column->offset, &column->count))
            return 0;
        records->column_count = place + 1;
        Py_ssize_t has_texts = data->buf != NULL, width = has_texts ? sizeof(int32_t) : sizeof(int64_t);
        Py_ssize_t last = column->offset + column->count;
        if (column->offset < 0 || column->count < 0 || column->offset > INT32_MAX || column->count > INT32_MAX ||
            values->len < (last + has_texts) * width || (valid->buf != NULL && valid->len < (last + 7) / 8)) {
            PyErr_SetString(PyExc_ValueError, "not an array");
            return 0;
        }
        column->valid = valid->buf;
        column->values = (Text)values->buf + column->offset * width;
        column->data = data->buf;
        column->data_end = has_texts ? column->data + data->len : NULL;
    }
    return 1;
}

static int needs_texts(int kind)
{
    return kind == STRING || kind == JSON || kind == RAW || kind == NOTE_BYTES;
}

/* Whether a part refers to what there is, with `depth` lengths open. */
static int is_sound(const Records *records, const Part *part, Py_ssize_t place, int depth)
{
    int is_skip = part->kind == SKIP_IF_NULL || part->kind == SKIP_UNLESS_NULL;
    if (part->kind < 0 || part->kind >= KINDS)
        return 0;
    if (part->kind == LITERAL || part->kind == OPEN || part->kind == CLOSE)
        return part->column == NULL && (part->kind != OPEN || depth < MOST_OPEN) && (part->kind != CLOSE || depth > 0);
    if (part->column == NULL || (part->kind == NOTE && part->inner_size > MOST_INNER))
        return 0;
    if (is_skip)
        return part->number >= 0 && part->number < records->part_count - place;
    if (needs_texts(part->kind) != has_texts(part->column))
        return 0;
    return part->kind != LOOKUP || (part->texts != NULL && has_texts(part->texts));
}

/* Whether no skip leads into or out of a length: each part that can be skipped to has the depth of the skip. */
static int are_skips_sound(const Records *records)
{
    for (Py_ssize_t place = 0; place < records->part_count; place++) {
        const Part *part = &records->parts[place];
        if (part->kind != SKIP_IF_NULL && part->kind != SKIP_UNLESS_NULL)
            continue;
        int depth = 0;
        for (Py_ssize_t next = 1; next <= part->number; next++) {
            depth += (part[next].kind == OPEN) - (part[next].kind == CLOSE);
            if (depth < 0)
                return 0;
        }
        if (depth)
            return 0;
    }
    return 1;
}

/* Copy the literals of all parts to where SLACK follows each; 0 with an exception set if out of memory. */
static int copy_literals(Records *records)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t place = 0; place < records->part_count; place++)
        size += records->parts[place].literal_size + records->parts[place].inner_size + 2 * SLACK;
    uint8_t *at = records->literals = calloc((size_t)size + 1, 1);
    if (at == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Part *part = records->parts, *last = part + records->part_count; part < last; part++) {
        Text literal = at, inner = literal + part->literal_size + SLACK;
        at = put(at, part->literal, (size_t)part->literal_size) + SLACK;
        at = put(at, part->inner, (size_t)part->inner_size) + SLACK;
        part->literal = literal;
        part->inner = inner;
    }
    return 1;
}

/* The column at a place, NULL if there is none. */
static const Column *column_at(const Records *records, int place)
{
    return place < 0 || place >= records->column_count ? NULL : &records->columns[place];
}

/* Parse the parts; 0 with an exception set if they don't fit the columns. */
static int parse_parts(Records *records, PyObject *list)
{
    int depth = 0;
    records->part_count = PyTuple_Size(list);
    records->parts = calloc((size_t)records->part_count + 1, sizeof *records->parts);
    if (records->parts == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t place = 0; place < records->part_count; place++) {
        Part *part = &records->parts[place];
        const char *literal, *inner;
        int column, texts;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, place), "iiiLy#y#", &part->kind, &column, &texts,
                &part->number, &literal, &part->literal_size, &inner, &part->inner_size))
            return 0;
        part->column = column_at(records, column);
        part->texts = column_at(records, texts);
        part->literal = (Text)literal;
        part->has_comma = part->literal_size && *part->literal == ',';
        part->inner = (Text)inner;
        records->most_size += part->literal_size + part->inner_size + MOST_NUMBER + SLACK;
        if (!is_sound(records, part, place, depth)) {
            PyErr_SetString(PyExc_ValueError, "a part without its column");
            return 0;
        }
        depth += (part->kind == OPEN) - (part->kind == CLOSE);
    }
    if (depth || !are_skips_sound(records)) {
        PyErr_SetString(PyExc_ValueError, "a length that is not closed");
        return 0;
    }
    return copy_literals(records);
}

PyObject *native_records(PyObject *module, PyObject *args)
{
    Records records;
    PyObject *parts, *columns, *found = NULL;
    Py_ssize_t next, count, rows = INT32_MAX;
    int has_room = 1, is_valid = 1;
    (void)module;
    memset(&records, 0, sizeof records);
    if (!PyArg_ParseTuple(args, "O!O!y*nw*:records", &PyTuple_Type, &parts, &PyTuple_Type, &columns, &records.order, &next,
            &records.out))
        return NULL;
    if (!parse_columns(&records, columns) || !parse_parts(&records, parts))
        goto done;
    for (Py_ssize_t place = 0; place < records.part_count; place++)
        if (records.parts[place].column != NULL && records.parts[place].column->count < rows)
            rows = records.parts[place].column->count;
    count = records.order.len / (Py_ssize_t)sizeof(int64_t);
    uint8_t *out = records.out.buf, *stop = out + records.out.len;
    Py_BEGIN_ALLOW_THREADS
    for (; next >= 0 && next < count; next++) {
        int64_t row;
        memcpy(&row, (Text)records.order.buf + (size_t)next * sizeof row, sizeof row);
        uint8_t *after = row < 0 || row >= rows ? NULL :
            put_record(&records, (Py_ssize_t)row, out, stop, &has_room);
        if (after == NULL) {
            is_valid = !has_room;
            break;
        }
        out = after;
    }
    Py_END_ALLOW_THREADS
    if (is_valid)
        found = Py_BuildValue("nn", next, (Py_ssize_t)(out - (uint8_t *)records.out.buf));
    else
        PyErr_SetString(PyExc_ValueError, "a row outside of the array");
done:
    for (Py_ssize_t place = 0; place < records.column_count * COLUMN_BUFFERS; place++)
        PyBuffer_Release(&records.buffers[place]);
    free(records.parts);
    free(records.buffers);
    free(records.literals);
    free(records.columns);
    PyBuffer_Release(&records.order);
    PyBuffer_Release(&records.out);
    return found;
}
