/* Events of the runtime as machine words: one call per event instead of one to pack it and one to append it, and one for
   all tasks of a run. traceconv/runtime/event_log.py has the order of the words. */

#define PY_SSIZE_T_CLEAN
#include "module.h"
#include "words.h"

#include <stdlib.h>

enum { MOST_WORDS = 16 };
/* Memory that a buffer keeps when its bytes are taken: it is used again, since the system clears each page of fresh memory. */
enum { FIRST_ROOM = 1 << 12, MOST_KEPT = 1 << 22 };

static PyObject *buffer_type;

int is_buffer(PyObject *object) { return Py_TYPE(object) == (PyTypeObject *)buffer_type; }

int grow_buffer(Buffer *buffer, size_t size)
{
    if (buffer->start > 0) {
        buffer->size -= buffer->start;
        memmove(buffer->bytes, buffer->bytes + buffer->start, buffer->size);
        buffer->start = 0;
    }
    size_t room = buffer->room > 0 ? buffer->room : FIRST_ROOM;
    while (room - buffer->size < size && room <= PY_SSIZE_T_MAX / 2)
        room *= 2;
    char *bytes = room - buffer->size < size ? NULL : realloc(buffer->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return 1;
}

static PyObject *buffer_extend(PyObject *self, PyObject *bytes)
{
    if (!PyBytes_Check(bytes))
        return PyErr_Format(PyExc_TypeError, "a buffer takes bytes");
    return append_bytes(self, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes)) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *buffer_take(PyObject *self, PyObject *out)
{
    Buffer *buffer = (Buffer *)self;
    Py_buffer view;
    if (!PyArg_Parse(out, "w*", &view))
        return NULL;
    size_t left = buffer->size - buffer->start, size = (size_t)view.len < left ? (size_t)view.len : left;
    if (size > 0)
        memcpy(view.buf, buffer->bytes + buffer->start, size);
    PyBuffer_Release(&view);
    buffer->start += size;
    if (size == left) {
        buffer->start = buffer->size = 0;
        if (buffer->room > MOST_KEPT) {
            free(buffer->bytes);
            buffer->bytes = NULL;
            buffer->room = 0;
        }
    }
    return PyLong_FromSize_t(size);
}

static Py_ssize_t buffer_length(PyObject *self) 
{
    return (Py_ssize_t)(((Buffer *)self)->size - ((Buffer *)self)->start);
}

static void buffer_free(PyObject *self)
{
    free(((Buffer *)self)->bytes);
    free_object(self);
}

static PyMethodDef buffer_methods[] = {
    {"extend", buffer_extend, METH_O, "extend(bytes): append bytes."},
    {"take", buffer_take, METH_O, "take(out): move the first bytes to `out`; how many."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot buffer_slots[] = {
    {Py_tp_dealloc, buffer_free},
    {Py_tp_methods, buffer_methods},
    {Py_sq_length, buffer_length},
    {Py_tp_doc, "Bytes of events that wait for a delivery."},
    {0, NULL},
};
static PyType_Spec buffer_spec = {
    "traceconv.native._native.Buffer", sizeof(Buffer), 0, Py_TPFLAGS_DEFAULT, buffer_slots};

int add_buffer(PyObject *module)
{
    if (buffer_type == NULL)
        buffer_type = PyType_FromSpec(&buffer_spec);
    return buffer_type == NULL ? -1 : PyModule_AddObjectRef(module, "Buffer", buffer_type);
}

PyObject *native_append(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    int64_t words[MOST_WORDS];
    if (count < 1 || count > 1 + MOST_WORDS || !is_buffer(args[0])) {
        PyErr_Format(PyExc_TypeError, "append() takes a buffer and at most %d words", (int)MOST_WORDS);
        return NULL;
    }
    for (Py_ssize_t place = 1; place < count; place++)
        if (!word_of(args[place], &words[place - 1]))
            return NULL;
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
    return word_of(found, head) ? 1 : -1;
}

/* The number of a head in a dictionary, which adds a new one. 0: error. */
static int known_head(PyObject *heads, PyObject *key, int64_t *head)
{
    int found = head_of(heads, key, head);
    if (found != 0)
        return found > 0;
    PyObject *added = PyObject_GetItem(heads, key);
    int is_word = added != NULL && word_of(added, head);
    Py_XDECREF(added);
    return is_word;
}

/* Convert an item of a tuple; None is -1, as unknown words are. 0: error. */
static int item_of(PyObject *tuple, Py_ssize_t place, int64_t *word)
{
    PyObject *item = PyTuple_GetItem(tuple, place);
    *word = -1;
    return item == Py_None || (item != NULL && word_of(item, word));
}

enum { START, END, TASK_ID, STREAM_ID, NOTE, EVENT, SLOTS };
/* The class of tasks, and its slots: they are read without a look-up by name, which takes most of the time. */
static PyTypeObject *task_type;
static PyObject *slots[SLOTS];
static descrgetfunc get_slot;

/* Find the slots of a class; 0: error. */
static int find_slots(PyTypeObject *type)
{
    static const char *const names[SLOTS] = {"start", "end", "task_id", "stream_id", "note", "event"};
    task_type = NULL;
    get_slot = (descrgetfunc)PyType_GetSlot(&PyMemberDescr_Type, Py_tp_descr_get);
    for (int slot = 0; slot < SLOTS; slot++) {
        Py_CLEAR(slots[slot]);
        slots[slot] = PyObject_GetAttrString((PyObject *)type, names[slot]);
        if (slots[slot] == NULL)
            return 0;
        if (Py_TYPE(slots[slot]) != &PyMemberDescr_Type) {
            PyErr_Format(PyExc_TypeError, "%s is not a slot", names[slot]);
            return 0;
        }
    }
    task_type = type;
    return 1;
}

/* The value of a slot; NULL: error. */
static PyObject *value_of(PyObject *task, int slot)
{
    if (Py_TYPE(task) != task_type && !find_slots(Py_TYPE(task)))
        return NULL;
    return get_slot(slots[slot], task, (PyObject *)task_type);
}

/* Convert the value of a slot; 0: error. */
static int slot_of(PyObject *task, int slot, int64_t *word)
{
    PyObject *value = value_of(task, slot);
    int is_word = value != NULL && word_of(value, word);
    Py_XDECREF(value);
    return is_word;
}

enum { TASK_WORDS = 9, WAIT_WORDS = 3, MEMORY_WORDS = 7 };

/* Convert a task, and its wait if it has an event; 0: error. */
static int convert_task(PyObject *task, PyObject *heads, int64_t *words, int64_t *wait, int *has_wait)
{
    enum { ORIGIN, SIZE, CORRELATION, STEP, EXECUTION, FIELDS };
    PyObject *note = value_of(task, NOTE), *event = NULL;
    int done = note != NULL;
    if (done && (!PyTuple_Check(note) || PyTuple_Size(note) != FIELDS)) {
        PyErr_Format(PyExc_TypeError, "the note of a task has %d fields", (int)FIELDS);
        done = 0;
    }
    done = done && slot_of(task, START, &words[0]) && slot_of(task, END, &words[1])
        && item_of(note, CORRELATION, &words[2]) && item_of(note, SIZE, &words[3])
        && slot_of(task, TASK_ID, &words[4]) && slot_of(task, STREAM_ID, &words[5])
        && item_of(note, STEP, &words[6]) && item_of(note, EXECUTION, &words[7])
        && known_head(heads, PyTuple_GetItem(note, ORIGIN), &words[8])
        && (event = value_of(task, EVENT)) != NULL;
    *has_wait = done && event != Py_None;
    if (*has_wait) {
        wait[0] = words[1];
        wait[1] = words[4];
        done = slot_of(event, TASK_ID, &wait[2]);
    }
    Py_XDECREF(event);
    Py_XDECREF(note);
    return done;
}

PyObject *native_append_memory(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    enum { BUFFER, HEADS, FIELDS };
    int64_t words[MEMORY_WORDS];
    (void)module;
    if (count != FIELDS + MEMORY_WORDS || !is_buffer(args[BUFFER]) || !PyDict_Check(args[HEADS]))
        return PyErr_Format(PyExc_TypeError, "a buffer, heads, and a change of memory of %d fields", (int)MEMORY_WORDS);
    for (int place = 0; place < MEMORY_WORDS - 1; place++)
        if (!word_of(args[FIELDS + place], &words[place]))
            return NULL;
    if (!known_head(args[HEADS], args[FIELDS + MEMORY_WORDS - 1], &words[MEMORY_WORDS - 1]))
        return NULL;
    return append_words(args[BUFFER], words, MEMORY_WORDS) < 0 ? NULL : Py_NewRef(Py_None);
}

/* Append the words of tasks and of their waits. */
PyObject *native_append_tasks(PyObject *module, PyObject *args)
{
    PyObject *buffer, *other, *tasks, *heads;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!O!", buffer_type, &buffer, buffer_type, &other, &PyList_Type, &tasks, &PyDict_Type, &heads))
        return NULL;
    Py_ssize_t count = PyList_Size(tasks);
    int64_t *words = malloc(((size_t)count * (TASK_WORDS + WAIT_WORDS) + 1) * sizeof *words);
    if (words == NULL)
        return PyErr_NoMemory();
    int64_t *waits = words + (size_t)count * TASK_WORDS;
    size_t wait_count = 0;
    int done = 1;
    for (Py_ssize_t place = 0; place < count && done; place++) {
        PyObject *task = PyList_GetItem(tasks, place);
        int has_wait = 0;
        Py_XINCREF(task);
        done = task != NULL
            && convert_task(task, heads, words + (size_t)place * TASK_WORDS, waits + WAIT_WORDS * wait_count, &has_wait);
        Py_XDECREF(task);
        wait_count += (size_t)has_wait;
    }
    done = done && append_words(buffer, words, (size_t)count * TASK_WORDS) == 0
        && (wait_count == 0 || append_words(other, waits, WAIT_WORDS * wait_count) == 0);
    free(words);
    return done ? Py_NewRef(Py_None) : NULL;
}
