/* Events of the runtime as records of a log: copies of templates with the events' own words, which
   traceconv/runtime/expand.py describes. One pass over the words, without the interpreter lock. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include <stdint.h>
#include <string.h>

/* An event's code is its template times the number of shapes, plus its shape.
   A record of an event: the template after the event's head, and the stores. A store: the word (column), where it goes
   (offset, size), and what is added to it. */
enum { STORE = 4, MOST_SHAPES = 8 };

typedef struct {
    const int64_t *words, *links;
    const uint8_t *templates;
    uint8_t *out;
    Py_ssize_t count, width, codes, link_count, size, template_count, room;
    const int32_t *starts[MOST_SHAPES];
    int32_t shape_count;
} Work;

/* Check a plan and find its shapes; 0: it is invalid. */
static int find_shapes(Work *work, const int32_t *plan, Py_ssize_t length)
{
    const int32_t *at = plan, *end = plan + length;
    if (at == end || *at < 1 || *at > MOST_SHAPES)
        return 0;
    work->shape_count = *at++;
    for (int32_t shape = 0; shape < work->shape_count; shape++) {
        if (at == end)
            return 0;
        work->starts[shape] = at;
        for (int32_t parts = *at++; parts > 0; parts--) {
            if (end - at < 2 || at[0] < 0 || at[1] < 0 || at[1] > (end - at - 2) / STORE)
                return 0;
            int32_t stores = at[1];
            for (at += 2; stores > 0; stores--, at += STORE) {
                int32_t bytes = at[2];
                if (at[0] < 0 || at[0] >= work->width || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
                    || at[1] < 0 || at[1] > work->size - bytes)
                    return 0;
            }
        }
    }
    return at == end;
}

/* Write all records; the number of them, -1 if a code is unknown or there is no room. */
static Py_ssize_t write_all(const Work *work)
{
    Py_ssize_t made = 0;
    for (Py_ssize_t event = 0; event < work->count; event++) {
        const int64_t *words = work->words + event * work->width;
        int64_t code = work->codes < 0 ? 0 : words[work->codes];
        if (work->links != NULL)
            code = code < 0 || code >= work->link_count ? -1 : work->links[code];
        if (code < 0)
            return -1;
        /* Most plans have one shape: a division takes as long as a record. */
        int64_t head = work->shape_count == 1 ? code : code / work->shape_count;
        const int32_t *at = work->starts[code - head * work->shape_count];
        for (int32_t parts = *at++; parts > 0; parts--, made++) {
            if (head >= work->template_count - at[0] || made == work->room)
                return -1;
            uint8_t *record = work->out + made * work->size;
            memcpy(record, work->templates + (head + at[0]) * work->size, (size_t)work->size);
            int32_t stores = at[1];
            for (at += 2; stores > 0; stores--, at += STORE) {
                uint64_t word = (uint64_t)words[at[0]] + (uint64_t)(int64_t)at[3];
                /* Sizes that the compiler knows: a call of memcpy takes longer than the rest. */
                switch (at[2]) {
                case 8: memcpy(record + at[1], &word, 8); break;
                case 4: memcpy(record + at[1], &word, 4); break;
                case 2: memcpy(record + at[1], &word, 2); break;
                default: record[at[1]] = (uint8_t)word;
                }
            }
        }
    }
    return made;
}

PyObject *native_expand(PyObject *module, PyObject *args)
{
    (void)module;
    enum { WORDS, LINKS, TEMPLATES, PLAN, OUT, BUFFERS };
    Py_buffer buffers[BUFFERS] = {{0}};
    Work work = {0};
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(args, "y*nnz*y*y*w*n", &buffers[WORDS], &work.width, &work.codes, &buffers[LINKS],
            &buffers[TEMPLATES], &buffers[PLAN], &buffers[OUT], &work.size))
        return NULL;
    work.words = buffers[WORDS].buf;
    work.links = buffers[LINKS].buf;
    work.templates = buffers[TEMPLATES].buf;
    work.out = buffers[OUT].buf;
    work.link_count = buffers[LINKS].len / 8;
    if (work.size > 0 && work.width > 0 && work.codes < work.width && buffers[WORDS].len % (8 * work.width) == 0) {
        work.count = buffers[WORDS].len / (8 * work.width);
        work.template_count = buffers[TEMPLATES].len / work.size;
        work.room = buffers[OUT].len / work.size;
        Py_ssize_t count = -1;
        Py_BEGIN_ALLOW_THREADS
        if (find_shapes(&work, buffers[PLAN].buf, buffers[PLAN].len / 4))
            count = write_all(&work);
        Py_END_ALLOW_THREADS
        if (count >= 0)
            made = PyLong_FromSsize_t(count);
    }
    if (made == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "expand(): the arrays don't match the plan");
    for (int buffer = 0; buffer < BUFFERS; buffer++)
        PyBuffer_Release(&buffers[buffer]);
    return made;
}
