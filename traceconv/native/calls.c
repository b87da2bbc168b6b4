/* The calls of a host in real time: their words, with readings of the clock, in one call of C each.
   traceconv/runtime/event_log.py has the order of the words; traceconv/runtime/calls.py does the same in Python. */

#define PY_SSIZE_T_CLEAN
#include "clock.h"
#include "words.h"

#include <structmember.h>

enum { CALL_WORDS = 6 };
/* `CALL_BEGINS`, `CALL_ENDS`, and NONE32. */
enum { BEGINS, ENDS };
static const int64_t NONE = 0xffffffff;

/* `begin_ns`: when the worker began the launch that it is in. */
typedef struct {
    PyObject_HEAD
    PyObject *buffer, *clock, *numbers;
    int64_t begin_ns;
} Log;

/* A call around a `with` block. `word`: 4 times its head. `has_inner`: another call with the next head begins right after
   it and ends right before it; its number is one less. */
typedef struct {
    PyObject_HEAD
    Log *log;
    int64_t word, step_id, number;
    int has_inner;
} Call;

static PyObject *call_type;

/* The next number of a call; 0: error. */
static int next_number(const Log *log, int64_t *number)
{
    PyObject *next = PyIter_Next(log->numbers);
    if (next == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_StopIteration, "no more numbers of calls");
    int is_word = next != NULL && word_of(next, number);
    Py_XDECREF(next);
    return is_word;
}

static PyObject *dispatch(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    enum { PUT, WORDS, ADD_WORD, STEP, OP, WORK, ARGS };
    Log *log = (Log *)self;
    int64_t words[CALL_WORDS] = {0};
    if (count != ARGS || !PyDict_Check(args[WORDS]))
        return PyErr_Format(PyExc_TypeError, "dispatch(put, words, add_word, step_id, op_index, work)");
    if (!clock_read(log->clock, &words[0]))
        return NULL;
    PyObject *done = PyObject_CallFunctionObjArgs(args[PUT], args[WORK], NULL);
    Py_XDECREF(done);
    if (done == NULL || !clock_read(log->clock, &words[1]) || !next_number(log, &words[3]))
        return NULL;
    PyObject *word = PyDict_GetItemWithError(args[WORDS], args[OP]);
    Py_XINCREF(word);
    if (word == NULL && !PyErr_Occurred())
        word = PyObject_CallFunctionObjArgs(args[ADD_WORD], args[OP], NULL);
    int is_word = word != NULL && word_of(word, &words[4]);
    Py_XDECREF(word);
    if (!is_word || !word_of(args[STEP], &words[5]) || append_words(log->buffer, words, CALL_WORDS) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *enter(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return clock_read(((Log *)self)->clock, &((Log *)self)->begin_ns) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *launched(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    enum { SUBMIT_NS, WORD, STEP, ARGS };
    Log *log = (Log *)self;
    int64_t words[CALL_WORDS] = {log->begin_ns};
    if (count != ARGS)
        return PyErr_Format(PyExc_TypeError, "launched(submit_ns, word, step_id)");
    if (!word_of(args[SUBMIT_NS], &words[1]) || !next_number(log, &words[3]) || !word_of(args[WORD], &words[4])
        || !word_of(args[STEP], &words[5]) || !clock_read(log->clock, &words[2])
        || append_words(log->buffer, words, CALL_WORDS) < 0)
        return NULL;
    return PyLong_FromLongLong(words[3] - 1);
}

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int is_valid = count == 3;
    Call *made = is_valid ? PyObject_New(Call, (PyTypeObject *)call_type) : NULL;
    if (made == NULL)
        return is_valid ? NULL : PyErr_Format(PyExc_TypeError, "call(word, step_id, has_inner)");
    Py_INCREF(self);
    made->log = (Log *)self;
    made->number = 0;
    made->has_inner = args[2] == Py_True;
    if (!word_of(args[0], &made->word) || !word_of(args[1], &made->step_id) || !next_number(made->log, &made->number))
        Py_CLEAR(made);
    return (PyObject *)made;
}

/* Append one half of a call, or of the one inside, that happens now; 0: error. */
static int append_half(const Call *call, int shape, int is_inner)
{
    int64_t words[CALL_WORDS] = {
        0, 0, 0, call->number - is_inner, call->word + 4 * is_inner + shape, shape == BEGINS ? call->step_id : NONE};
    return clock_read(call->log->clock, &words[0]) && append_words(call->log->buffer, words, CALL_WORDS) == 0;
}

static PyObject *call_enter(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    const Call *made = (Call *)self;
    if (!append_half(made, BEGINS, 0) || (made->has_inner && !append_half(made, BEGINS, 1)))
        return NULL;
    return PyLong_FromLongLong(made->number);
}

static PyObject *call_exit(PyObject *self, PyObject *error)
{
    (void)error;
    const Call *made = (Call *)self;
    return (!made->has_inner || append_half(made, ENDS, 1)) && append_half(made, ENDS, 0) ? Py_NewRef(Py_None) : NULL;
}

static int log_init(PyObject *self, PyObject *args, PyObject *names)
{
    (void)names;
    Log *log = (Log *)self;
    PyObject *buffer, *clock, *numbers;
    if (!PyArg_ParseTuple(args, "OOO:CallLog", &buffer, &clock, &numbers))
        return -1;
    if (log->buffer != NULL || !is_buffer(buffer) || !is_clock(clock) || !PyIter_Check(numbers)) {
        PyErr_SetString(PyExc_TypeError, "CallLog(buffer, clock, numbers)");
        return -1;
    }
    Py_INCREF(buffer);
    Py_INCREF(clock);
    Py_INCREF(numbers);
    log->buffer = buffer;
    log->clock = clock;
    log->numbers = numbers;
    return 0;
}

static void log_free(PyObject *self)
{
    Log *log = (Log *)self;
    Py_CLEAR(log->buffer);
    Py_CLEAR(log->clock);
    Py_CLEAR(log->numbers);
    free_object(self);
}

static void call_free(PyObject *self)
{
    Py_CLEAR(((Call *)self)->log);
    free_object(self);
}

static PyMethodDef log_methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
        "call(word, step_id, has_inner): a call around a `with` block, which gets its number, perhaps with one inside."},
    {"dispatch", (PyCFunction)(void (*)(void))dispatch, METH_FASTCALL,
        "dispatch(put, words, add_word, step_id, op_index, work): put(work), as a call."},
    {"enter", enter, METH_NOARGS, "enter(): the worker begins a launch."},
    {"launched", (PyCFunction)(void (*)(void))launched, METH_FASTCALL,
        "launched(submit_ns, word, step_id): the launch ends; the number of the call inside, which began at submit_ns."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot log_slots[] = {
    {Py_tp_init, log_init},
    {Py_tp_dealloc, log_free},
    {Py_tp_methods, log_methods},
    {Py_tp_doc, "CallLog(buffer, clock, numbers): appends the words of a host's calls, which have the next of `numbers`."},
    {0, NULL},
};
PyType_Spec native_call_log = {"traceconv.native._native.CallLog", sizeof(Log), 0, Py_TPFLAGS_DEFAULT, log_slots};

static PyMethodDef call_methods[] = {
    {"__enter__", call_enter, METH_NOARGS, "The call begins."},
    {"__exit__", call_exit, METH_VARARGS, "The call ends."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot call_slots[] = {
    {Py_tp_dealloc, call_free},
    {Py_tp_methods, call_methods},
    {0, NULL},
};
static PyType_Spec call_spec = {
    "traceconv.native._native.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, call_slots};

int add_call(void)
{
    if (call_type == NULL)
        call_type = PyType_FromSpec(&call_spec);
    return call_type == NULL ? -1 : 0;
}
