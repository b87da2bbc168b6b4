/* Arrow array of JSON objects, and members to add to some of them → the array with these members, without the
   interpreter lock.

   A text of at most two bytes is an object without members. If one that gets members does not end with a brace, the
   result is None, and Python adds them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

enum { MOST_ADDED = 16, EMPTY = 2 };

/* Texts of members for some rows, in ascending order. */
typedef struct {
    Py_buffer numbers;
    Rows texts;
    Py_ssize_t next;
} Added;

typedef struct {
    Rows objects;
    const uint8_t *lead; /* before the members */
    size_t lead_size;
    Added added[MOST_ADDED];
    int count;
    uint8_t *at;
    const uint8_t *limit;
} Extension;

static int put(Extension *extension, Text text, size_t size)
{
    if ((size_t)(extension->limit - extension->at) < size)
        return 0;
    memcpy(extension->at, text, size);
    extension->at += size;
    return 1;
}

static int has_members(const Extension *extension, Py_ssize_t row)
{
    for (int number = 0; number < extension->count; number++) {
        const Added *added = &extension->added[number];
        const volatile int64_t *rows = added->numbers.buf;
        if (added->next < added->texts.count && rows[added->next] == row)
            return 1;
    }
    return 0;
}

/* Write the texts for a row, with commas between them; 0 if there are none, or they don't fit. */
static int put_members(Extension *extension, Py_ssize_t row)
{
    int found = 0;
    for (int number = 0; number < extension->count; number++) {
        Added *added = &extension->added[number];
        const volatile int64_t *rows = added->numbers.buf;
        Text at, end;
        if (added->next == added->texts.count || rows[added->next] != row)
            continue;
        if (!row_of(&added->texts, added->next++, &at, &end)
            || !(found ? put(extension, (Text)",", 1) : put(extension, extension->lead, extension->lead_size))
            || !put(extension, at, (size_t)(end - at)))
            return 0;
        found = 1;
    }
    return found;
}

static Text before_blanks(Text begin, Text end)
{
    while (end > begin && is_blank(end[-1], 0))
        end--;
    return end;
}

static Outcome extend_row(Extension *extension, Py_ssize_t row)
{
    Text at, end;
    if (!row_of(&extension->objects, row, &at, &end))
        return FALLBACK;
    if (!has_members(extension, row))
        return put(extension, at, (size_t)(end - at)) ? OK : FALLBACK;
    if (end - at <= EMPTY) {
        at = (Text)"{";
        end = at + 1;
    } else {
        end = before_blanks(at, end);
        if (end == at || end[-1] != '}')
            return FALLBACK;
        end = before_blanks(at, end - 1);
    }
    if (end == at || !put(extension, at, (size_t)(end - at)) || (end - at > 1 && !put(extension, (Text)",", 1)))
        return FALLBACK;
    return put_members(extension, row) && put(extension, (Text)"}}", 2) ? OK : FALLBACK;
}

static Outcome extend_rows(Extension *extension, int32_t *ends)
{
    const uint8_t *out = extension->at;
    Outcome outcome = OK;
    ends[0] = 0;
    for (Py_ssize_t row = 0; outcome == OK && row < extension->objects.count; row++) {
        outcome = extend_row(extension, row);
        ends[row + 1] = (int32_t)(extension->at - out);
    }
    for (int number = 0; number < extension->count; number++)
        if (extension->added[number].next != extension->added[number].texts.count)
            return FALLBACK; /* a row that is not there, or twice */
    return outcome;
}

/* 0 with an exception set. */
static int add_texts(Extension *extension, PyObject *given)
{
    if (PyTuple_Size(given) > MOST_ADDED) {
        PyErr_SetString(PyExc_ValueError, "at most 16 texts to add to a row");
        return 0;
    }
    for (Py_ssize_t place = 0; place < PyTuple_Size(given); place++) {
        Added *added = &extension->added[extension->count];
        if (!PyArg_ParseTuple(PyTuple_GetItem(given, place), "y*y*y*", &added->numbers, &added->texts.offsets,
                &added->texts.data))
            return 0;
        extension->count++;
        if (!count_rows(&added->texts))
            return 0;
        if (added->numbers.len / (Py_ssize_t)sizeof(int64_t) != added->texts.count) {
            PyErr_SetString(PyExc_ValueError, "as many texts as rows");
            return 0;
        }
    }
    return 1;
}

/* The most bytes that the result may have. */
static int64_t room_of(const Extension *extension)
{
    enum { MARKS = 4 }; /* a comma before the lead, and the braces */
    int64_t room = extension->objects.data.len + MARKS;
    for (int number = 0; number < extension->count; number++) {
        const Rows *texts = &extension->added[number].texts;
        room += texts->data.len + (int64_t)texts->count * (int64_t)(extension->lead_size + MARKS);
    }
    return room;
}

PyObject *native_extend(PyObject *module, PyObject *args)
{
    PyObject *lead, *given, *ends = NULL, *data = NULL, *found = NULL;
    char *lead_text;
    Py_ssize_t lead_size;
    Outcome outcome;
    Extension *extension = calloc(1, sizeof *extension);
    (void)module;
    if (extension == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "y*y*SO!:extend", &extension->objects.offsets, &extension->objects.data, &lead,
            &PyTuple_Type, &given)) {
        free(extension);
        return NULL;
    }
    if (!count_rows(&extension->objects) || PyBytes_AsStringAndSize(lead, &lead_text, &lead_size) < 0
        || !add_texts(extension, given))
        goto done;
    extension->lead = (const uint8_t *)lead_text;
    extension->lead_size = (size_t)lead_size;
    int64_t room = room_of(extension);
    if (room > INT32_MAX) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    ends = PyBytes_FromStringAndSize(NULL, (extension->objects.count + 1) * (Py_ssize_t)sizeof(int32_t));
    data = ends == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (data == NULL)
        goto done;
    int32_t *ends_out = (int32_t *)PyBytes_AsString(ends);
    extension->at = (uint8_t *)PyBytes_AsString(data);
    extension->limit = extension->at + room;
    Py_BEGIN_ALLOW_THREADS
    outcome = extend_rows(extension, ends_out);
    Py_END_ALLOW_THREADS
    found = outcome == OK ? PyTuple_Pack(2, ends, data) : Py_NewRef(Py_None);
done:
    for (int number = 0; number < extension->count; number++) {
        release_rows(&extension->added[number].texts);
        PyBuffer_Release(&extension->added[number].numbers);
    }
    release_rows(&extension->objects);
    free(extension);
    Py_XDECREF(ends);
    Py_XDECREF(data);
    return found;
}
