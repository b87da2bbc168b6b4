/* Spans of the user's program: the usual ones, on a thread and in one profile, from entry to record without Python.

   A span that anything else is true of (several profiles, a pause, an asyncio task, a stream, an exception, an end on
   another thread …) is left to the methods `_begin`, `_end`, `_keep` and `_leave` of runtime/spans.py, which also define
   what happens here.

   All state is guarded by the interpreter lock. Calls may run Python code, and any allocation may run the garbage
   collector, which finishes generators that have spans. So what changes the log comes after the last such call, and
   only if `serial` and the span are as they were before. */

#define PY_SSIZE_T_CLEAN
#include "clock.h"

#include <structmember.h>

#include "range.h"
#include "room.h"

enum { OFF, BY_C, BY_PYTHON };
enum { BEGIN, END, END_APART, TEMPLATES };
/* `_NAME_LIMIT`; and more open spans than are searched one by one. */
enum { NAME_LIMIT = 4000, MOST_OPEN = 1024 };

/* A span that only C knows. */
typedef struct {
    uint64_t id, parent;
    PyObject *name, *args;
    uint32_t thread;
} Open;

/* `open`: in the order of their begins. `inside`: the threads that run a model or change what is recorded. */
typedef struct {
    PyObject_HEAD
    PyObject *clock, *ids, *get, *set, *reset, *begin_thread, *parent, *inside, *records, *text;
    Range templates[TEMPLATES];
    Open *open;
    size_t count, room;
    uint64_t serial;
    int state;
} Log;

typedef struct {
    PyObject_HEAD
    PyObject *name, *args, *stream, *entries;
    Py_ssize_t before;
    /* The entry, if C made it: number, token, and the code and frame that entered. */
    PyObject *id, *token, *code;
    void *frame;
    unsigned long ident;
} Span;

/* The log of the process, which all spans are in. */
static Log *the_log;
static uint64_t serials;
static PyObject *copy_context;
/* The module asyncio if it was seen, its function of that name, and its name. */
static PyObject *known_asyncio, *running_loop, *asyncio_name;
/* The number of this thread in logs, if `serial` is that of the log. */
static _Thread_local struct {
    uint64_t serial;
    uint32_t id;
} here;

static int is_none(const PyObject *object) { return object == NULL || object == Py_None; }

/* Call a function with an argument or, if that is NULL, none. The log has no functions after the program's end. */
static PyObject *call_with(PyObject *function, PyObject *argument)
{
    if (function != NULL)
        return PyObject_CallFunctionObjArgs(function, argument, NULL);
    PyErr_SetString(PyExc_RuntimeError, "a span after the end of the program");
    return NULL;
}

static void set(PyObject **place, PyObject *object)
{
    PyObject *before = *place;
    *place = object;
    Py_XDECREF(before);
}

/* Until 3.11 the garbage collector may change the context during a change of it: see _reset in runtime/spans.py. */
static int keep_context(PyObject **kept)
{
#ifdef Py_LIMITED_API
    int is_needed = Py_Version < 0x030c0000;
#else
    int is_needed = PY_VERSION_HEX < 0x030c0000;
#endif
    *kept = is_needed ? call_with(copy_context, NULL) : NULL;
    return is_needed && *kept == NULL ? -1 : 0;
}

/* Set the current span to what it was before the one with this token; not in another context than its own. */
static int reset_current(Log *log, PyObject *token)
{
    PyObject *kept;
    if (keep_context(&kept) < 0)
        return -1;
    PyObject *done = call_with(log->reset, token);
    if (done == NULL && PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(kept);
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether this thread runs an event loop; -1: error. */
static int in_loop(void)
{
    if (asyncio_name == NULL && (asyncio_name = PyUnicode_InternFromString("asyncio")) == NULL)
        return -1;
    PyObject *asyncio = PyDict_GetItemWithError(PyImport_GetModuleDict(), asyncio_name);
    if (asyncio == NULL || asyncio == Py_None)
        return PyErr_Occurred() ? -1 : 0;
    if (asyncio != known_asyncio) {
        PyObject *found = PyObject_GetAttrString(asyncio, "_get_running_loop");
        if (found == NULL) { /* another thread is importing it */
            PyErr_Clear();
            return 0;
        }
        Py_INCREF(asyncio);
        set(&running_loop, found);
        set(&known_asyncio, asyncio);
    }
    PyObject *loop = call_with(running_loop, NULL);
    int found = loop == NULL ? -1 : loop != Py_None;
    Py_XDECREF(loop);
    return found;
}

/* The place of an open span plus one; 0: not here. Mostly it is the latest. */
static size_t place_of(const Log *log, uint64_t id)
{
    size_t place = log->count;
    while (place > 0 && log->open[place - 1].id != id)
        place--;
    return place;
}

static void forget(Log *log, size_t place)
{
    Open gone = log->open[place];
    log->count--;
    memmove(log->open + place, log->open + place + 1, (log->count - place) * sizeof(Open));
    Py_DECREF(gone.name);
    Py_XDECREF(gone.args);
}

/* The number of an object that a Python function returned, which is released; 0 and -1 in *failed: error. */
static uint64_t number_of(PyObject *found, int *failed)
{
    uint64_t number = found == NULL ? 0 : PyLong_AsUnsignedLongLong(found);
    Py_XDECREF(found);
    if (PyErr_Occurred()) {
        *failed = -1;
        return 0;
    }
    return number;
}

static int has_entries(const Span *span)
{
    return !is_none(span->entries) && !(PyList_Check(span->entries) && PyList_Size(span->entries) == 0);
}

static int is_unused(const Span *span) { return span->id == NULL && span->before == 0 && !has_entries(span); }

/* Record a begin. 1: done; 0: left to Python; -1: error. */
static int begin(Log *log, Span *span)
{
    uint64_t serial = log->serial;
    Range record = log->templates[BEGIN];
    PyObject *args = NULL, *before = NULL, *id = NULL, *token = NULL, *kept = NULL, *code = NULL;
    int failed = 0, done = 0;
    if (log->count >= MOST_OPEN || span->name == NULL || !PyUnicode_CheckExact(span->name) || PyUnicode_GetLength(span->name) > NAME_LIMIT)
        return 0;
    PyFrameObject *frame = PyEval_GetFrame();
    int is_task = in_loop();
    if (is_task != 0 || frame == NULL)
        return is_task < 0 ? -1 : 0;
    code = (PyObject *)PyFrame_GetCode(frame);
    if (here.serial != serial) {
        uint64_t thread = number_of(call_with(log->begin_thread, NULL), &failed);
        if (failed || log->serial != serial)
            goto end;
        here.id = (uint32_t)thread;
        here.serial = serial;
    }
    if (!is_none(span->args)) {
        args = PyObject_CallMethod((PyObject *)span, "_args_text", NULL);
        if (args == NULL || args == Py_None) { /* None: it was cut */
            failed = args == NULL ? -1 : 0;
            goto end;
        }
        record.args = number_of(call_with(log->text, args), &failed);
    }
    if (!failed)
        record.name = number_of(call_with(log->text, span->name), &failed);
    if (failed || (before = call_with(log->get, NULL)) == NULL)
        goto end;
    Py_INCREF(before);
    uint64_t parent = number_of(before, &failed);
    record.parent_span_id = parent;
    if (!failed && parent != 0 && place_of(log, parent) == 0)
        record.parent_span_id = number_of(call_with(log->parent, before), &failed);
    if (failed || log->serial != serial || (id = PyIter_Next(log->ids)) == NULL)
        goto end;
    Py_INCREF(id);
    record.span_id = number_of(id, &failed);
    if (failed || keep_context(&kept) < 0 || (token = call_with(log->set, id)) == NULL)
        goto end;
    record.thread_id = here.id;
    if (log->serial == serial && log->state == BY_C && is_unused(span) && clock_now(log->clock, &record.host_ns)
        && room_for_one(&log->open, log->count, &log->room, sizeof(Open), 16)) {
        if (append_bytes(log->records, &record, sizeof record) < 0)
            goto end;
        log->open[log->count++] = (Open){record.span_id, parent, span->name, args, here.id};
        Py_INCREF(span->name);
        span->id = id;
        span->token = token;
        span->code = code;
        span->frame = frame;
        span->ident = PyThread_get_thread_ident();
        args = id = token = code = NULL;
        done = 1;
    }
end:
    if (token != NULL) {
        PyObject *error, *value, *trace;
        PyErr_Fetch(&error, &value, &trace);
        if (reset_current(log, token) < 0)
            PyErr_Clear();
        PyErr_Restore(error, value, trace);
    }
    Py_XDECREF(args);
    Py_XDECREF(before);
    Py_XDECREF(id);
    Py_XDECREF(token);
    Py_XDECREF(kept);
    Py_XDECREF(code);
    return PyErr_Occurred() ? -1 : done;
}

/* Record an end. 1: done; 0: left to Python; -1: error. */
static int end(Log *log, PyObject *number)
{
    int failed = 0, is_task = in_loop();
    if (is_task != 0 || log->state != BY_C)
        return is_task < 0 ? -1 : 0;
    Py_INCREF(number);
    uint64_t id = number_of(number, &failed);
    if (!failed && PyDict_Size(log->inside) > 0) {
        PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
        int is_inside = ident == NULL ? -1 : PyDict_Contains(log->inside, ident);
        Py_XDECREF(ident);
        if (is_inside != 0)
            return is_inside < 0 ? -1 : 0;
    }
    size_t place = failed ? 0 : place_of(log, id);
    int64_t ns;
    if (log->state != BY_C || place == 0 || here.serial != log->serial || log->open[place - 1].thread != here.id
        || !clock_now(log->clock, &ns))
        return failed;
    Range record = log->templates[END];
    for (size_t later = place; later < log->count; later++)
        if (log->open[later].thread == here.id)
            record = log->templates[END_APART];
    record.host_ns = ns;
    record.span_id = id;
    record.thread_id = here.id;
    if (append_bytes(log->records, &record, sizeof record) < 0)
        return -1;
    forget(log, place - 1);
    return 1;
}

/* Call a method of the span with arguments, a tuple, which is released. */
static int call(Span *span, const char *name, PyObject *args)
{
    PyObject *method = args == NULL ? NULL : PyObject_GetAttrString((PyObject *)span, name);
    PyObject *result = method == NULL ? NULL : PyObject_CallObject(method, args);
    Py_XDECREF(method);
    Py_XDECREF(args);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* The frame of the code that enters or leaves. */
static PyObject *caller(void)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (frame == NULL)
        PyErr_SetString(PyExc_RuntimeError, "a span is of Python code");
    Py_XINCREF(frame);
    return frame;
}

/* Pass C's entry to Python, if there is one. */
static int keep_entry(Span *span)
{
    if (span->id == NULL)
        return 0;
    PyObject *fields = Py_BuildValue("NNkNN", PyLong_FromVoidPtr(span->frame), span->code, span->ident, span->id, span->token);
    span->id = span->token = span->code = NULL;
    return call(span, "_keep", fields);
}

static PyObject *span_enter(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    Span *span = (Span *)self;
    Log *log = the_log;
    int is_on = log != NULL && log->state != OFF, done = 0;
    if (!is_on && span->id == NULL && is_none(span->entries)) {
        span->before++;
        done = 1;
    } else if (is_on && log->state == BY_C && is_none(span->stream) && is_unused(span))
        done = begin(log, span);
    if (done == 0)
        done = keep_entry(span) < 0 ? -1 : call(span, "_begin", Py_BuildValue("(N)", caller()));
    if (done < 0)
        return NULL;
    Py_INCREF(self);
    return self;
}

static PyObject *span_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Span *span = (Span *)self;
    Log *log = the_log;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "__exit__() takes 3 arguments (%zd given)", count);
    if (span->id == NULL && span->before > 0 && !has_entries(span)) {
        span->before--;
        Py_RETURN_NONE;
    }
    if (log == NULL || span->id == NULL || span->before != 0 || has_entries(span)) {
        if (keep_entry(span) < 0 || call(span, "_leave", Py_BuildValue("(NO)", caller(), args[0])) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *id = span->id, *token = span->token, *code = span->code;
    span->id = span->token = span->code = NULL;
    PyObject *current = call_with(log->get, NULL);
    int is_current = current == NULL ? -1 : current == id ? 1 : PyObject_RichCompareBool(current, id, Py_EQ);
    int done = is_current > 0 ? reset_current(log, token) : is_current;
    if (done == 0 && args[0] == Py_None)
        done = end(log, id);
    if (done == 0)
        done = call(span, "_end", Py_BuildValue("(OO)", id, args[0]));
    Py_XDECREF(current);
    Py_DECREF(id);
    Py_DECREF(token);
    Py_XDECREF(code);
    if (done < 0)
        return NULL;
    Py_RETURN_NONE;
}

static int span_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    Span *span = (Span *)self;
    PyObject *name = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL, *stream = NULL, *attributes = NULL;
    if (PyTuple_Size(args) > 1) {
        PyErr_Format(PyExc_TypeError, "span() takes 1 positional argument but %zd were given", PyTuple_Size(args));
        return -1;
    }
    Py_XINCREF(name);
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        if ((attributes = PyDict_Copy(kwargs)) == NULL)
            goto failed;
        PyObject *given = PyDict_GetItemString(attributes, "name");
        if (given != NULL && name != NULL) {
            PyErr_SetString(PyExc_TypeError, "span() got multiple values for argument 'name'");
            goto failed;
        }
        if (given != NULL) {
            Py_INCREF(name = given);
            PyDict_DelItemString(attributes, "name");
        }
        if ((stream = PyDict_GetItemString(attributes, "stream")) != NULL) {
            Py_INCREF(stream);
            PyDict_DelItemString(attributes, "stream");
        }
        if (PyDict_Size(attributes) == 0)
            Py_CLEAR(attributes);
    }
    if (name == NULL) {
        PyErr_SetString(PyExc_TypeError, "span() missing 1 required positional argument: 'name'");
        goto failed;
    }
    set(&span->name, name);
    set(&span->stream, stream);
    set(&span->args, attributes);
    return 0;
failed:
    Py_XDECREF(name);
    Py_XDECREF(stream);
    Py_XDECREF(attributes);
    return -1;
}

static int span_traverse(PyObject *self, visitproc visit, void *arg)
{
    Span *span = (Span *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(span->name);
    Py_VISIT(span->args);
    Py_VISIT(span->stream);
    Py_VISIT(span->entries);
    Py_VISIT(span->token);
    return 0;
}

static int span_clear(PyObject *self)
{
    Span *span = (Span *)self;
    Py_CLEAR(span->name);
    Py_CLEAR(span->args);
    Py_CLEAR(span->stream);
    Py_CLEAR(span->entries);
    Py_CLEAR(span->id);
    Py_CLEAR(span->token);
    Py_CLEAR(span->code);
    return 0;
}

static void span_free(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    span_clear(self);
    free_object(self);
}

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, "Begin the span."},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, "End the span."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef span_members[] = {
    {"_name", T_OBJECT, offsetof(Span, name), READONLY, NULL},
    {"_attributes", T_OBJECT, offsetof(Span, args), READONLY, NULL},
    {"_stream", T_OBJECT, offsetof(Span, stream), READONLY, NULL},
    {"_open", T_OBJECT, offsetof(Span, entries), 0, NULL},
    {"_before", T_PYSSIZET, offsetof(Span, before), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot span_slots[] = {
    {Py_tp_init, span_init},
    {Py_tp_traverse, span_traverse},
    {Py_tp_clear, span_clear},
    {Py_tp_dealloc, span_free},
    {Py_tp_methods, span_methods},
    {Py_tp_members, span_members},
    {Py_tp_doc, "Span(name, *, stream=None, **attributes)\n--\n\nA labelled range around a `with` block."},
    {0, NULL},
};
PyType_Spec native_span = {
    "traceconv.native._native.Span", sizeof(Span), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, span_slots};

static int log_init(PyObject *self, PyObject *args, PyObject *nothing)
{
    (void)nothing;
    Log *log = (Log *)self;
    PyObject *current, **callables[] = {&log->get, &log->set, &log->reset};
    const char *names[] = {"get", "set", "reset"};
    if (log->clock != NULL) {
        PyErr_SetString(PyExc_TypeError, "a log is initialised once");
        return -1;
    }
    if (copy_context == NULL) {
        PyObject *module = PyImport_ImportModule("contextvars");
        copy_context = module == NULL ? NULL : PyObject_GetAttrString(module, "copy_context");
        Py_XDECREF(module);
        if (copy_context == NULL)
            return -1;
    }
    PyObject *clock, *ids, *begin_thread, *parent;
    if (!PyArg_ParseTuple(args, "OOOOO", &clock, &ids, &current, &begin_thread, &parent))
        return -1;
    if (!is_clock(clock) || !PyIter_Check(ids)) {
        PyErr_SetString(PyExc_TypeError, "a clock and an iterator are needed");
        return -1;
    }
    for (int place = 0; place < 3; place++)
        if ((*callables[place] = PyObject_GetAttrString(current, names[place])) == NULL)
            return -1;
    Py_INCREF(log->clock = clock);
    Py_INCREF(log->ids = ids);
    Py_INCREF(log->begin_thread = begin_thread);
    Py_INCREF(log->parent = parent);
    Py_INCREF(self);
    Log *earlier = the_log;
    the_log = log;
    Py_XDECREF((PyObject *)earlier);
    return 0;
}

static PyObject *log_aim(PyObject *self, PyObject *args)
{
    Log *log = (Log *)self;
    int is_on;
    PyObject *inside = NULL, *records = NULL, *text = NULL;
    Py_buffer templates = {0};
    if (!PyArg_ParseTuple(args, "p|O!OOy*", &is_on, &PyDict_Type, &inside, &records, &text, &templates))
        return NULL;
    if (records != NULL && !is_buffer(records)) {
        PyBuffer_Release(&templates);
        return PyErr_Format(PyExc_TypeError, "records are appended to a buffer");
    }
    if (templates.buf != NULL && templates.len != sizeof log->templates) {
        PyBuffer_Release(&templates);
        return PyErr_Format(PyExc_ValueError, "templates of %zd bytes", templates.len);
    }
    log->serial = ++serials;
    log->state = templates.buf != NULL ? BY_C : is_on ? BY_PYTHON : OFF;
    if (templates.buf != NULL) {
        memcpy(log->templates, templates.buf, sizeof log->templates);
        PyBuffer_Release(&templates);
    }
    Py_XINCREF(inside);
    Py_XINCREF(records);
    Py_XINCREF(text);
    while (log->state == OFF && log->count > 0) /* of a profile that has ended, or of the process that forked */
        forget(log, log->count - 1);
    set(&log->inside, inside);
    set(&log->records, records);
    set(&log->text, text);
    Py_RETURN_NONE;
}

static PyObject *log_opened(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    Log *log = (Log *)self;
    PyObject *found = PyList_New(0);
    /* Others may end meanwhile, when the collector runs. */
    for (size_t place = 0; found != NULL && place < log->count; place++) {
        const Open *open = log->open + place;
        PyObject *fields = Py_BuildValue("KKOOI", (unsigned long long)open->id, (unsigned long long)open->parent, open->name,
            open->args == NULL ? Py_None : open->args, (unsigned)open->thread);
        if (fields == NULL || PyList_Append(found, fields) < 0)
            Py_CLEAR(found);
        Py_XDECREF(fields);
    }
    return found;
}

static PyObject *log_forget(PyObject *self, PyObject *number)
{
    Log *log = (Log *)self;
    int failed = 0;
    Py_INCREF(number);
    uint64_t id = number_of(number, &failed);
    if (failed)
        return NULL;
    size_t place = place_of(log, id);
    if (place != 0)
        forget(log, place - 1);
    return PyBool_FromLong(place != 0);
}

static PyObject *log_holds(PyObject *self, PyObject *number)
{
    int failed = 0;
    Py_INCREF(number);
    uint64_t id = number_of(number, &failed);
    return failed ? NULL : PyBool_FromLong(place_of((Log *)self, id) != 0);
}

static PyObject *log_close(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    Log *log = (Log *)self;
    PyObject **held[] = {&log->get, &log->set, &log->reset, &log->clock, &log->ids, &log->begin_thread, &log->parent,
        &log->inside, &log->records, &log->text, &known_asyncio, &running_loop, &copy_context};
    if (the_log != log)
        Py_RETURN_NONE;
    the_log = NULL;
    log->state = OFF;
    log->serial = ++serials;
    while (log->count > 0)
        forget(log, log->count - 1);
    for (size_t place = 0; place < sizeof held / sizeof *held; place++)
        set(held[place], NULL);
    Py_DECREF(self);
    Py_RETURN_NONE;
}

static PyObject *log_state(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyBool_FromLong(((Log *)self)->state != OFF);
}

static PyMethodDef log_methods[] = {
    {"aim", log_aim, METH_VARARGS,
        "aim(is_on, inside, records, text, templates): append to `records`; without these, leave spans to Python."},
    {"close", log_close, METH_NOARGS, "close(): leave spans to nobody, and release what they need, at the program's end."},
    {"forget", log_forget, METH_O, "forget(span_id): forget an open span; whether there is one."},
    {"holds", log_holds, METH_O, "holds(span_id): whether this span is open and here."},
    {"opened", log_opened, METH_NOARGS, "opened(): (span_id, parent_id, name, args, thread_id) of the open spans here."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef log_values[] = {
    {"is_on", log_state, NULL, "Whether there is a profile.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot log_slots[] = {
    {Py_tp_init, log_init},
    {Py_tp_methods, log_methods},
    {Py_tp_getset, log_values},
    {Py_tp_doc, "SpanLog(clock, ids, current, begin_thread, parent): where the spans of the process are logged, for good."},
    {0, NULL},
};
PyType_Spec native_span_log = {"traceconv.native._native.SpanLog", sizeof(Log), 0, Py_TPFLAGS_DEFAULT, log_slots};
