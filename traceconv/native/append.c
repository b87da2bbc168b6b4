/* Events of the runtime as machine words: one call per event instead of one to pack it and one to append it, and one for
   all tasks or changes of memory of a run. traceconv/runtime/event_log.py has the order of the words. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 16 };

/* Append all words, or none and return -1. */
static int append_words(PyObject *buffer, const int64_t *words, size_t count)
{
    Py_ssize_t before = PyByteArray_Size(buffer), size = (Py_ssize_t)(count * sizeof *words);
    if (before > PY_SSIZE_T_MAX - size) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyByteArray_Resize(buffer, before + size) < 0)
        return -1;
    memcpy(PyByteArray_AsString(buffer) + before, words, (size_t)size);
    return 0;
}

PyObject *native_append(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    int64_t words[MOST_WORDS];
    if (count < 1 || count > 1 + MOST_WORDS || !PyByteArray_Check(args[0])) {
        PyErr_Format(PyExc_TypeError, "append() takes a bytearray and at most %d words", (int)MOST_WORDS);
        return NULL;
    }
    /* Converting may run Python code, which may append too: the size is read after that. */
    for (Py_ssize_t place = 1; place < count; place++) {
        words[place - 1] = PyLong_AsLongLong(args[place]);
        if (words[place - 1] == -1 && PyErr_Occurred())
            return NULL;
    }
    if (append_words(args[0], words, (size_t)(count - 1)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The number of a head by its key; 0: there is none; -1: error. */
static int head_of(PyObject *heads, PyObject *key, int64_t *head)
{
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(heads, key);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    *head = PyLong_AsLongLong(found);
    return PyErr_Occurred() ? -1 : 1;
}

/* Convert an item of a tuple; None is -1, as unknown words are. 0: error. */
static int item_of(PyObject *tuple, Py_ssize_t place, int64_t *word)
{
    PyObject *item = PyTuple_GetItem(tuple, place);
    *word = item == NULL || item == Py_None ? -1 : PyLong_AsLongLong(item);
    return !(*word == -1 && PyErr_Occurred());
}

/* Convert an attribute; 0: error. */
static int attribute_of(PyObject *object, PyObject *name, int64_t *word)
{
    PyObject *value = PyObject_GetAttr(object, name);
    *word = value == NULL ? -1 : PyLong_AsLongLong(value);
    Py_XDECREF(value);
    return !(*word == -1 && PyErr_Occurred());
}

enum { START, END, TASK_ID, STREAM_ID, NOTE, EVENT, NAMES };
static PyObject *names[NAMES];

static int find_names(void)
{
    static const char *const texts[NAMES] = {"start", "end", "task_id", "stream_id", "note", "event"};
    for (int name = 0; name < NAMES; name++)
        if (names[name] == NULL && (names[name] = PyUnicode_InternFromString(texts[name])) == NULL)
            return 0;
    return 1;
}

enum { TASK_WORDS = 9, WAIT_WORDS = 3, MEMORY_WORDS = 7, MEMORY_FIELDS = 12 };

/* Convert a task, and its wait if it has an event. 1: done; 0: its head is unknown; -1: error. */
static int convert_task(PyObject *task, PyObject *heads, int64_t *words, int64_t *wait, int *waits)
{
    PyObject *note = PyObject_GetAttr(task, names[NOTE]), *event = NULL;
    int done = note == NULL ? -1 : 0;
    if (done == 0 && (!PyTuple_Check(note) || PyTuple_Size(note) != 6)) {
        PyErr_SetString(PyExc_TypeError, "the note of a task has 6 fields");
        done = -1;
    }
    if (done == 0)
        done = head_of(heads, PyTuple_GetItem(note, 0), &words[8]);
    if (done > 0) {
        int good = attribute_of(task, names[START], &words[0]) && attribute_of(task, names[END], &words[1])
            && item_of(note, 3, &words[2]) && item_of(note, 2, &words[3]) && attribute_of(task, names[TASK_ID], &words[4])
            && attribute_of(task, names[STREAM_ID], &words[5]) && item_of(note, 4, &words[6]) && item_of(note, 5, &words[7])
            && (event = PyObject_GetAttr(task, names[EVENT])) != NULL;
        *waits = good && event != Py_None;
        if (*waits) {
            wait[0] = words[1];
            wait[1] = words[4];
            good = attribute_of(event, names[TASK_ID], &wait[2]);
        }
        done = good ? 1 : -1;
    }
    Py_XDECREF(event);
    Py_XDECREF(note);
    return done;
}

/* Convert a change of memory. 1: done; 0: its head is unknown; -1: error. */
static int convert_memory(PyObject *event, PyObject *heads, PyObject *device_id, int64_t *words)
{
    static const int fields[] = {0, 3, 4, 5, 6, 7}, key_fields[] = {1, 2, 8, 9, 10, 11};
    if (!PyTuple_Check(event) || PyTuple_Size(event) != MEMORY_FIELDS) {
        PyErr_Format(PyExc_TypeError, "a change of memory has %d fields", (int)MEMORY_FIELDS);
        return -1;
    }
    PyObject *key = PyTuple_New(7);
    if (key == NULL)
        return -1;
    for (int place = 0; place < 7; place++) {
        PyObject *item = place < 6 ? PyTuple_GetItem(event, key_fields[place]) : device_id;
        Py_INCREF(item);
        PyTuple_SetItem(key, place, item);
    }
    int done = head_of(heads, key, &words[6]);
    Py_DECREF(key);
    for (int place = 0; done > 0 && place < 6; place++)
        if (!item_of(event, fields[place], &words[place]))
            done = -1;
    return done;
}

/* Append the words of items from `first` on, until one with an unknown head; return the place of that one. */
static PyObject *append_all(PyObject *args, int are_tasks)
{
    PyObject *buffer, *other, *items, *heads;
    Py_ssize_t first, place;
    if (!PyArg_ParseTuple(args, "YOO!O!n", &buffer, &other, &PyList_Type, &items, &PyDict_Type, &heads, &first))
        return NULL;
    if (first < 0 || (are_tasks && !PyByteArray_Check(other)) || !find_names())
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a bytearray and a place are needed");
    size_t width = are_tasks ? TASK_WORDS : MEMORY_WORDS, wait_count = 0;
    Py_ssize_t count = PyList_Size(items) - first;
    if (count <= 0)
        return PyLong_FromSsize_t(first);
    int64_t *words = malloc((size_t)count * (width + WAIT_WORDS) * sizeof *words);
    if (words == NULL)
        return PyErr_NoMemory();
    int64_t *waits = words + (size_t)count * width;
    int done = 1;
    for (place = 0; place < count && done > 0; place += done > 0) {
        PyObject *item = PyList_GetItem(items, first + place);
        int has_wait = 0;
        if (item == NULL) {
            done = -1;
            break;
        }
        Py_INCREF(item);
        int64_t *row = words + (size_t)place * width;
        done = are_tasks ? convert_task(item, heads, row, waits + WAIT_WORDS * wait_count, &has_wait)
                         : convert_memory(item, heads, other, row);
        Py_DECREF(item);
        wait_count += (size_t)(done > 0 && has_wait);
    }
    if (done >= 0 && append_words(buffer, words, (size_t)place * width) < 0)
        done = -1;
    if (done >= 0 && wait_count > 0 && append_words(other, waits, WAIT_WORDS * wait_count) < 0)
        done = -1;
    free(words);
    return done < 0 ? NULL : PyLong_FromSsize_t(first + place);
}

PyObject *native_append_tasks(PyObject *module, PyObject *args)
{
    (void)module;
    return append_all(args, 1);
}

PyObject *native_append_memory(PyObject *module, PyObject *args)
{
    (void)module;
    return append_all(args, 0);
}
