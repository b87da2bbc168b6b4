/* Pairs of JSON objects → the members of both, for all rows of two Arrow arrays, without the interpreter lock.

   A key of both has its place in the first, and its value in the second. Accepts sound objects with keys of ASCII without
   escapes; for anything else it returns None, and Python merges them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

enum { MOST_MEMBERS = 64 };

typedef struct {
    Text key, value, stop;
    size_t size;
} Member;

/* The objects of a row. */
typedef struct {
    Member members[MOST_MEMBERS];
    int count;
    Text key;
    size_t size;
} Merged;

INLINE Text past_name(void *self, Text at, Text end)
{
    Merged *merged = self;
    if (at >= end || *at++ != '"')
        return NULL;
    Text quote = past_plain(at, end);
    if (quote >= end || *quote != '"')
        return NULL;
    for (Text byte = at; byte < quote; byte++)
        if (*byte >= 0x80)
            return NULL;
    merged->key = at;
    merged->size = (size_t)(quote - at);
    return past_colon(quote + 1, end, 0);
}

INLINE Outcome take_value(void *self, Text value, Text stop)
{
    Merged *merged = self;
    Member *member = merged->members, *last = member + merged->count;
    while (member < last && (member->size != merged->size || memcmp(member->key, merged->key, merged->size) != 0))
        member++;
    if (member == last) {
        if (merged->count == MOST_MEMBERS)
            return FALLBACK;
        merged->count++;
        member->key = merged->key;
        member->size = merged->size;
    }
    member->value = value;
    member->stop = stop;
    return OK;
}

/* The end of the row's text in `out`, which has room up to `limit`; NULL if it exceeds that: the input has changed. */
static uint8_t *write_row(const Merged *merged, uint8_t *out, const uint8_t *limit)
{
    for (int number = 0; number < merged->count; number++) {
        const Member *member = &merged->members[number];
        size_t value_size = (size_t)(member->stop - member->value);
        if ((size_t)(limit - out) < member->size + value_size + 5)
            return NULL;
        *out++ = number ? ',' : '{';
        *out++ = '"';
        memcpy(out, member->key, member->size);
        out += member->size;
        *out++ = '"';
        *out++ = ':';
        memcpy(out, member->value, value_size);
        out += value_size;
    }
    if (limit - out < 2)
        return NULL;
    if (!merged->count)
        *out++ = '{';
    *out++ = '}';
    return out;
}

static Outcome merge_rows(const Rows *ones, const Rows *others, int32_t *ends, uint8_t *out, size_t room)
{
    uint8_t *at = out;
    ends[0] = 0;
    for (Py_ssize_t row = 0; row < ones->count; row++) {
        Merged merged;
        merged.count = 0;
        Outcome outcome = walk_row(ones, row, past_name, take_value, &merged);
        if (outcome == OK)
            outcome = walk_row(others, row, past_name, take_value, &merged);
        if (outcome != OK)
            return outcome;
        at = write_row(&merged, at, out + room);
        if (at == NULL)
            return FALLBACK;
        ends[row + 1] = (int32_t)(at - out);
    }
    return OK;
}

PyObject *native_merge(PyObject *module, PyObject *args)
{
    Rows ones, others;
    PyObject *ends = NULL, *data = NULL, *found = NULL;
    Outcome outcome = FALLBACK;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*:merge", &ones.offsets, &ones.data, &others.offsets, &others.data))
        return NULL;
    if (!count_rows(&ones) || !count_rows(&others))
        goto done;
    if (ones.count != others.count) {
        PyErr_SetString(PyExc_ValueError, "arrays of different lengths");
        goto done;
    }
    /* No row is longer than both objects: two braces less, a comma more. A blank row is `{}`. */
    int64_t room = (int64_t)ones.data.len + others.data.len + 2 * (int64_t)ones.count + 8;
    if (room > INT32_MAX) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    ends = PyBytes_FromStringAndSize(NULL, (ones.count + 1) * (Py_ssize_t)sizeof(int32_t));
    data = ends == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (data == NULL)
        goto done;
    int32_t *ends_out = (int32_t *)PyBytes_AsString(ends);
    uint8_t *out = (uint8_t *)PyBytes_AsString(data);
    Py_BEGIN_ALLOW_THREADS
    outcome = merge_rows(&ones, &others, ends_out, out, (size_t)room);
    Py_END_ALLOW_THREADS
    found = outcome == OK ? PyTuple_Pack(2, ends, data) : Py_NewRef(Py_None);
done:
    Py_XDECREF(ends);
    Py_XDECREF(data);
    release_rows(&ones);
    release_rows(&others);
    return found;
}
