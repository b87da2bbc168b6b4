/* Leaf pages of a SQLite table → columns of integers, floats and texts, without the interpreter lock.

   Accepts sound pages of a table with rowids, whose rows lie on one page and have no blobs; for anything else it returns
   None, and SQLite reads them. The format: https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "distinct.h"
#include "module.h"

enum { MOST_COLUMNS = 128, LEAF = 13, LEAF_HEADER = 8, HEAD_BYTES = 9 };
/* The kind of a value. */
enum { ABSENT, INTEGER, FLOAT, TEXT };

typedef struct {
    int64_t *values; /* of a text: its number; of a float: its bits */
    uint8_t *kinds;
    Distinct texts;
    PyObject *values_bytes, *kinds_bytes;
} Column;

typedef struct {
    Text data, end;
    Py_ssize_t page_bytes, usable_bytes;
    /* By stored column: the place in `columns`, or -1. */
    const int32_t *wanted;
    Py_ssize_t stored_count;
    Column columns[MOST_COLUMNS];
    Py_ssize_t column_count;
    /* The place of the column for rowids, or -1. */
    Py_ssize_t rowid_place;
    int64_t rowid;
} Pages;

static uint64_t big_endian(Text at, size_t size)
{
    uint64_t value = 0;
    for (size_t place = 0; place < size; place++)
        value = value << 8 | at[place];
    return value;
}

/* Past a varint; NULL if it is truncated. */
INLINE Text past_varint(Text at, Text end, uint64_t *value)
{
    uint64_t found = 0;
    for (int place = 0; place < HEAD_BYTES; place++) {
        if (at == end)
            return NULL;
        uint8_t byte = *at++;
        if (place == HEAD_BYTES - 1) {
            *value = found << 8 | byte;
            return at;
        }
        found = found << 7 | (byte & 0x7F);
        if (byte < 0x80)
            break;
    }
    *value = found;
    return at;
}

static const uint8_t SIZES[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};

INLINE Outcome take_value(Pages *pages, Column *column, Py_ssize_t row, uint64_t type, Text at, size_t size)
{
    uint8_t kind = INTEGER;
    int64_t value = 0;
    if (type == 0) {
        kind = ABSENT;
    } else if (type <= 6) {
        int unused = 64 - 8 * (int)size;
        value = (int64_t)(big_endian(at, size) << unused) >> unused;
    } else if (type == 7) {
        double number;
        value = (int64_t)big_endian(at, size);
        memcpy(&number, &value, sizeof number);
        kind = number == number ? FLOAT : ABSENT;
    } else if (type <= 9) {
        value = (int64_t)type - 8;
    } else if (type >= 13 && type % 2) {
        kind = TEXT;
        value = code_of(&column->texts, pages->data, pages->end, at, size);
        if (value < 0)
            return NO_MEMORY;
    } else {
        return FALLBACK;
    }
    column->values[row] = value;
    column->kinds[row] = kind;
    return OK;
}

INLINE Outcome take_record(Pages *pages, Py_ssize_t row, Text at, Text end)
{
    uint64_t head_size, type;
    Text head = past_varint(at, end, &head_size);
    if (head == NULL || head_size > (uint64_t)(end - at))
        return FALLBACK;
    Text body = at + head_size;
    Text head_end = body;
    for (Py_ssize_t number = 0; number < pages->stored_count; number++) {
        if (head >= head_end || (head = past_varint(head, head_end, &type)) == NULL || type == 10 || type == 11)
            return FALLBACK;
        uint64_t size = type < sizeof SIZES ? SIZES[type] : (type - 12) / 2;
        if (size > (uint64_t)(end - body))
            return FALLBACK;
        int32_t place = pages->wanted[number];
        if (place >= 0) {
            Outcome outcome = take_value(pages, &pages->columns[place], row, type, body, (size_t)size);
            if (outcome != OK)
                return outcome;
        }
        body += size;
    }
    return OK;
}

/* Take up to `most` rows of a page from its cell `first` on; `row` is the number of rows so far. */
static Outcome take_page(Pages *pages, Text page, Py_ssize_t first, Py_ssize_t most, Py_ssize_t *row)
{
    Text usable = page + pages->usable_bytes;
    Py_ssize_t cells = (Py_ssize_t)big_endian(page + 3, 2);
    if (page[0] != LEAF || LEAF_HEADER + 2 * cells > pages->usable_bytes)
        return FALLBACK;
    for (Py_ssize_t cell = first; cell < cells && *row < most; cell++) {
        uint64_t size, rowid;
        Py_ssize_t start = (Py_ssize_t)big_endian(page + LEAF_HEADER + 2 * cell, 2);
        if (start < LEAF_HEADER + 2 * cells || start >= pages->usable_bytes)
            return FALLBACK;
        Text at = past_varint(page + start, usable, &size);
        if (at == NULL || (at = past_varint(at, usable, &rowid)) == NULL)
            return FALLBACK;
        /* A larger record continues on another page. */
        if (size > (uint64_t)pages->usable_bytes - 35 || size > (uint64_t)(usable - at) || (int64_t)rowid <= pages->rowid)
            return FALLBACK;
        Outcome outcome = take_record(pages, *row, at, at + size);
        if (outcome != OK)
            return outcome;
        pages->rowid = (int64_t)rowid;
        if (pages->rowid_place >= 0) {
            pages->columns[pages->rowid_place].values[*row] = pages->rowid;
            pages->columns[pages->rowid_place].kinds[*row] = INTEGER;
        }
        ++*row;
    }
    return OK;
}

static Outcome take_pages(Pages *pages, Py_ssize_t first, Py_ssize_t most, Py_ssize_t *row)
{
    Outcome outcome = OK;
    for (Text page = pages->data; outcome == OK && page < pages->end; page += pages->page_bytes) {
        outcome = take_page(pages, page, first, most, row);
        first = 0;
    }
    return outcome;
}

/* Room for the values of a column; 0 with an exception set. */
static int make_column(Column *column, Py_ssize_t count)
{
    column->values_bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    column->kinds_bytes = PyBytes_FromStringAndSize(NULL, count);
    if (column->values_bytes == NULL || column->kinds_bytes == NULL)
        return 0;
    column->values = (int64_t *)PyBytes_AsString(column->values_bytes);
    column->kinds = (uint8_t *)PyBytes_AsString(column->kinds_bytes);
    memset(column->values, 0, (size_t)count * sizeof(int64_t));
    memset(column->kinds, ABSENT, (size_t)count);
    return 1;
}

static PyObject *columns_of(Pages *pages)
{
    PyObject *columns = PyList_New(pages->column_count);
    for (Py_ssize_t place = 0; columns != NULL && place < pages->column_count; place++) {
        Column *column = &pages->columns[place];
        PyObject *texts = distinct_list(&column->texts, pages->data);
        PyObject *found
            = texts == NULL ? NULL : Py_BuildValue("(OON)", column->values_bytes, column->kinds_bytes, texts);
        if (found == NULL || PyList_SetItem(columns, place, found) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

/* 0 with an exception set if the numbers of pages and columns don't fit together. */
static int check(const Pages *pages, const Py_buffer *data, const Py_buffer *wanted, Py_ssize_t first, Py_ssize_t most)
{
    int sound = pages->page_bytes >= 512 && pages->page_bytes <= 65536 && pages->usable_bytes >= 480
        && pages->usable_bytes <= pages->page_bytes && data->len % pages->page_bytes == 0 && data->len <= INT32_MAX
        && (uintptr_t)wanted->buf % sizeof(int32_t) == 0 && pages->column_count >= 0
        && pages->column_count <= MOST_COLUMNS && pages->rowid_place < pages->column_count && first >= 0 && most >= 0 && most <= 1 << 24;
    for (Py_ssize_t number = 0; sound && number < pages->stored_count; number++)
        sound = pages->wanted[number] < pages->column_count;
    if (!sound)
        PyErr_SetString(PyExc_ValueError, "pages or columns out of range");
    return sound;
}

PyObject *native_sqlite_rows(PyObject *module, PyObject *args)
{
    Py_buffer data, wanted;
    Py_ssize_t first, most, count = 0;
    long long after;
    PyObject *found = NULL, *columns = NULL;
    Outcome outcome;
    Pages *pages = calloc(1, sizeof *pages);
    (void)module;
    if (pages == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "y*nny*nnnnL:sqlite_rows", &data, &pages->page_bytes, &pages->usable_bytes, &wanted,
            &pages->column_count, &pages->rowid_place, &first, &most, &after)) {
        free(pages);
        return NULL;
    }
    pages->data = data.buf;
    pages->end = pages->data + data.len;
    pages->wanted = wanted.buf;
    pages->stored_count = wanted.len / (Py_ssize_t)sizeof(int32_t);
    pages->rowid = after;
    if (!check(pages, &data, &wanted, first, most)) {
        pages->column_count = 0;
        goto done;
    }
    for (Py_ssize_t place = 0; place < pages->column_count; place++)
        if (!make_column(&pages->columns[place], most))
            goto done;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_pages(pages, first, most, &count);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else if (outcome == FALLBACK)
        found = Py_NewRef(Py_None);
    else if ((columns = columns_of(pages)) != NULL)
        found = Py_BuildValue("(nLN)", count, (long long)pages->rowid, columns);
done:
    for (Py_ssize_t place = 0; place < pages->column_count; place++) {
        Py_XDECREF(pages->columns[place].values_bytes);
        Py_XDECREF(pages->columns[place].kinds_bytes);
        free_distinct(&pages->columns[place].texts);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&wanted);
    free(pages);
    return found;
}
