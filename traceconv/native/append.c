/* Events of the runtime as machine words: one call per event instead of one to pack it and one to append it, with the
   readings of the clock where they belong to it, and one for all tasks of a run. traceconv/runtime/event_log.py has the
   order of the words. */

#define PY_SSIZE_T_CLEAN
#include "clock.h"

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

/* The head of a change of memory: the number in `heads` or, the first time, what `add_head` returns. 0: error. */
static int memory_head(PyObject *const *fields, PyObject *device_id, PyObject *heads, PyObject *add_head, int64_t *head)
{
    static const int key_fields[] = {1, 2, 8, 9, 10, 11};
    PyObject *key = PyTuple_New(7);
    if (key == NULL)
        return 0;
    for (int place = 0; place < 7; place++)
        PyTuple_SetItem(key, place, Py_NewRef(place < 6 ? fields[key_fields[place]] : device_id));
    int found = head_of(heads, key, head);
    Py_DECREF(key);
    if (found != 0)
        return found > 0;
    PyObject *event = PyTuple_New(MEMORY_FIELDS);
    for (int place = 0; event != NULL && place < MEMORY_FIELDS; place++)
        PyTuple_SetItem(event, place, Py_NewRef(fields[place]));
    PyObject *added = event == NULL ? NULL : PyObject_CallFunctionObjArgs(add_head, event, device_id, NULL);
    Py_XDECREF(event);
    *head = added == NULL ? -1 : PyLong_AsLongLong(added);
    Py_XDECREF(added);
    return !PyErr_Occurred();
}

/* An argument as a word; 0: error. */
static int word_of(PyObject *number, int64_t *word)
{
    *word = PyLong_AsLongLong(number);
    return !(*word == -1 && PyErr_Occurred());
}

PyObject *native_append_memory(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static const int places[] = {0, 3, 4, 5, 6, 7};
    enum { BUFFER, HEADS, ADD_HEAD, DEVICE, FIELDS };
    int64_t words[MEMORY_WORDS];
    (void)module;
    if (count != FIELDS + MEMORY_FIELDS || !PyByteArray_Check(args[BUFFER]) || !PyDict_Check(args[HEADS]))
        return PyErr_Format(PyExc_TypeError, "a bytearray, heads, and a change of memory of %d fields", (int)MEMORY_FIELDS);
    if (!memory_head(args + FIELDS, args[DEVICE], args[HEADS], args[ADD_HEAD], &words[MEMORY_WORDS - 1]))
        return NULL;
    for (int place = 0; place < MEMORY_WORDS - 1; place++)
        if (!word_of(args[FIELDS + places[place]], &words[place]))
            return NULL;
    return append_words(args[BUFFER], words, MEMORY_WORDS) < 0 ? NULL : Py_NewRef(Py_None);
}

enum { CALL_WORDS = 6 };

/* The next number of a call; 0: error. */
static int next_number(PyObject *numbers, int64_t *number)
{
    PyObject *next = PyIter_Next(numbers);
    if (next == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_StopIteration, "no more numbers of calls");
    *number = next == NULL ? -1 : PyLong_AsLongLong(next);
    Py_XDECREF(next);
    return !PyErr_Occurred();
}

PyObject *native_dispatch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    enum { BUFFER, CLOCK, NUMBERS, PUT, WORDS, ADD_WORD, STEP, OP, WORK, ARGS };
    int64_t words[CALL_WORDS] = {0};
    (void)module;
    if (count != ARGS || !PyByteArray_Check(args[BUFFER]) || !is_clock(args[CLOCK]) || !PyIter_Check(args[NUMBERS])
        || !PyDict_Check(args[WORDS]))
        return PyErr_Format(PyExc_TypeError, "dispatch() takes a bytearray, a clock, numbers, a function and words");
    if (!clock_read(args[CLOCK], &words[0]))
        return NULL;
    PyObject *done = PyObject_CallFunctionObjArgs(args[PUT], args[WORK], NULL);
    Py_XDECREF(done);
    if (done == NULL || !clock_read(args[CLOCK], &words[1]) || !next_number(args[NUMBERS], &words[3]))
        return NULL;
    PyObject *word = PyDict_GetItemWithError(args[WORDS], args[OP]);
    Py_XINCREF(word);
    if (word == NULL && !PyErr_Occurred())
        word = PyObject_CallFunctionObjArgs(args[ADD_WORD], args[OP], NULL);
    int is_word = word != NULL && word_of(word, &words[4]);
    Py_XDECREF(word);
    if (!is_word || !word_of(args[STEP], &words[5]) || append_words(args[BUFFER], words, CALL_WORDS) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *native_append_launch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    enum { BUFFER, CLOCK, BEGIN_NS, SUBMIT_NS, NUMBER, WORD, STEP, ARGS };
    int64_t words[CALL_WORDS];
    (void)module;
    if (count != ARGS || !PyByteArray_Check(args[BUFFER]) || !is_clock(args[CLOCK]))
        return PyErr_Format(PyExc_TypeError, "append_launch() takes a bytearray, a clock, and five words");
    if (!word_of(args[BEGIN_NS], &words[0]) || !word_of(args[SUBMIT_NS], &words[1]) || !clock_read(args[CLOCK], &words[2])
        || !word_of(args[NUMBER], &words[3]) || !word_of(args[WORD], &words[4]) || !word_of(args[STEP], &words[5])
        || append_words(args[BUFFER], words, CALL_WORDS) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Append the words of tasks from `first` on, until one with an unknown head; return the place of that one. */
PyObject *native_append_tasks(PyObject *module, PyObject *args)
{
    PyObject *buffer, *other, *tasks, *heads;
    Py_ssize_t first, place;
    (void)module;
    if (!PyArg_ParseTuple(args, "YYO!O!n", &buffer, &other, &PyList_Type, &tasks, &PyDict_Type, &heads, &first))
        return NULL;
    if (first < 0 || !find_names())
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a place is not negative");
    Py_ssize_t count = PyList_Size(tasks) - first;
    if (count <= 0)
        return PyLong_FromSsize_t(first);
    int64_t *words = malloc((size_t)count * (TASK_WORDS + WAIT_WORDS) * sizeof *words);
    if (words == NULL)
        return PyErr_NoMemory();
    int64_t *waits = words + (size_t)count * TASK_WORDS;
    size_t wait_count = 0;
    int done = 1;
    for (place = 0; place < count && done > 0; place += done > 0) {
        PyObject *task = PyList_GetItem(tasks, first + place);
        int has_wait = 0;
        if (task == NULL) {
            done = -1;
            break;
        }
        Py_INCREF(task);
        done = convert_task(task, heads, words + (size_t)place * TASK_WORDS, waits + WAIT_WORDS * wait_count, &has_wait);
        Py_DECREF(task);
        wait_count += (size_t)(done > 0 && has_wait);
    }
    if (done >= 0 && append_words(buffer, words, (size_t)place * TASK_WORDS) < 0)
        done = -1;
    if (done >= 0 && wait_count > 0 && append_words(other, waits, WAIT_WORDS * wait_count) < 0)
        done = -1;
    free(words);
    return done < 0 ? NULL : PyLong_FromSsize_t(first + place);
}
