/* Fields of protobuf messages → JSON objects, by the descriptors of formats/perfetto_proto/typed_fields.py.

   A message with anything uncommon is left to Python, which gives the same text for those that are taken here. */

#define PY_SSIZE_T_CLEAN
#include "module.h"

#include "json_buffer.h"
#include "protobuf.h"
#include "typed_fields.h"

/* Kinds of fields, as in typed_fields.py. */
enum {
    LEAVE, INTEGER, UNSIGNED, ZIGZAG, BOOLEAN, UNSIGNED32, SIGNED32, UNSIGNED64, SIGNED64, DOUBLE, FLOAT, ENUM, STRING,
    BYTES, MESSAGE, LOCATION
};
/* Limits of what is taken here: different fields of a message, and messages inside each other (5 kB of stack each). */
enum { MOST_FIELDS = 64, DEEPEST_MESSAGE = 12 };

/* All fields of a message with one number. `name`: "name": as JSON. `target`: of the kind. */
typedef struct {
    uint32_t number;
    int kind, is_repeated;
    Py_ssize_t count, name_size;
    const char *name;
    PyObject *target;
    const uint8_t *first, *end;
} Group;

PyObject *numbered(PyObject *known, uint64_t number)
{
    PyObject *key = PyLong_FromUnsignedLongLong(number);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(known, key);
    Py_XDECREF(key);
    return found;
}

/* The descriptor of a number; unknown fields are left if the message has the number 0. */
static Result describe(PyObject *fields, Group *group)
{
    PyObject *found = numbered(fields, group->number);
    if (found == NULL) {
        group->name = NULL;
        return PyErr_Occurred() ? FAILED : numbered(fields, 0) != NULL ? LEFT : PyErr_Occurred() ? FAILED : DONE;
    }
    return PyArg_ParseTuple(found, "ipy#O", &group->kind, &group->is_repeated, &group->name, &group->name_size,
               &group->target)
        ? DONE
        : FAILED;
}

static Result put_hex(Buffer *buffer, const uint8_t *at, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    if (!put(buffer, "\"", 1) || room_for(buffer, 2 * size) == NULL)
        return FAILED;
    for (size_t byte = 0; byte < size; byte++) {
        buffer->data[buffer->size++] = (uint8_t)digits[at[byte] >> 4];
        buffer->data[buffer->size++] = (uint8_t)digits[at[byte] & 15];
    }
    return put(buffer, "\"", 1) ? DONE : FAILED;
}

static Result put_float(Buffer *buffer, uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    double value = number;
    uint64_t wide;
    memcpy(&wide, &value, sizeof wide);
    return put_double(buffer, wide);
}

static Result put_enum(Buffer *buffer, PyObject *names, uint64_t value)
{
    PyObject *name = numbered(names, value);
    if (name == NULL)
        return PyErr_Occurred() ? FAILED : put_integer(buffer, (int64_t)value);
    const char *text = PyBytes_AsString(name);
    return text != NULL && put(buffer, text, (size_t)PyBytes_Size(name)) ? DONE : FAILED;
}

/* An interned source location: a list of names and JSON texts. */
static Result put_location(Buffer *buffer, PyObject *locations, uint64_t iid)
{
    PyObject *members = numbered(locations, iid);
    if (members == NULL || !PyList_Check(members))
        return PyErr_Occurred() ? FAILED : LEFT;
    if (!put(buffer, "{", 1))
        return FAILED;
    for (Py_ssize_t place = 0; place < PyList_Size(members); place++) {
        const char *name, *text;
        Py_ssize_t name_size, size;
        if (!PyArg_ParseTuple(PyList_GetItem(members, place), "s#s#", &name, &name_size, &text, &size)
            || (place && !put(buffer, ",", 1)) || !put_quoted(buffer, (const uint8_t *)name, (size_t)name_size)
            || !put(buffer, ":", 1) || !put(buffer, text, (size_t)size))
            return FAILED;
    }
    return put(buffer, "}", 1) ? DONE : FAILED;
}

/* The wire's kind of a plain value; -1 for those with a length. */
static int wire_kind(int kind)
{
    switch (kind) {
    case INTEGER: case UNSIGNED: case ZIGZAG: case BOOLEAN: case ENUM: case LOCATION:
        return VARINT;
    case UNSIGNED32: case SIGNED32: case FLOAT:
        return FIXED32;
    case UNSIGNED64: case SIGNED64: case DOUBLE:
        return FIXED64;
    default:
        return -1;
    }
}

static Result put_number(Buffer *buffer, const Typed *typed, const Group *group, uint64_t value)
{
    switch (group->kind) {
    case INTEGER: case SIGNED64:
        return put_integer(buffer, (int64_t)value);
    case UNSIGNED: case UNSIGNED32: case UNSIGNED64:
        return put_unsigned(buffer, value);
    case ZIGZAG:
        return put_integer(buffer, (int64_t)(value >> 1 ^ -(value & 1)));
    case BOOLEAN:
        return put(buffer, value ? "true" : "false", value ? 4 : 5) ? DONE : FAILED;
    case SIGNED32:
        return put_integer(buffer, (int32_t)value);
    case FLOAT:
        return put_float(buffer, (uint32_t)value);
    case DOUBLE:
        return put_double(buffer, value);
    case ENUM:
        return put_enum(buffer, group->target, value);
    default:
        return put_location(buffer, typed->locations, value);
    }
}

/* A packed list of numbers, after a comma unless it is the first; `count`: of all numbers so far. */
static Result put_packed(Buffer *buffer, const Typed *typed, const Group *group, const Field *list, Py_ssize_t *count)
{
    const uint8_t *at = list->at, *end = at + list->value;
    size_t width = wire_kind(group->kind) == FIXED32 ? 4 : wire_kind(group->kind) == FIXED64 ? 8 : 0;
    if (!group->is_repeated || group->kind == LOCATION || (width && list->value % width))
        return LEFT;
    while (at < end) {
        uint64_t value = 0;
        if (width == 0) {
            if ((at = past_varint(at, end, &value)) == NULL)
                return LEFT;
        }
        else
            for (size_t byte = 0; byte < width; byte++)
                value |= (uint64_t)*at++ << 8 * byte;
        if ((*count)++ && !put(buffer, ",", 1))
            return FAILED;
        Result result = put_number(buffer, typed, group, value);
        if (result != DONE)
            return result;
    }
    return DONE;
}

static Result put_value(
    Buffer *buffer, const Typed *typed, const Group *group, const Field *field, Py_ssize_t *count, int depth)
{
    if (group->kind == LEAVE)
        return LEFT;
    int wire = group->name == NULL ? field->kind : wire_kind(group->kind);
    if (wire >= 0 && wire != LEN && field->kind == LEN)
        return put_packed(buffer, typed, group, field, count);
    if (field->kind != (wire < 0 ? LEN : wire))
        return LEFT;
    if ((*count)++ && !put(buffer, ",", 1))
        return FAILED;
    if (group->name == NULL)
        return wire == LEN ? put_hex(buffer, field->at, (size_t)field->value) : put_unsigned(buffer, field->value);
    switch (group->kind) {
    case STRING:
        return put_text(buffer, field->at, (size_t)field->value);
    case BYTES:
        return put_hex(buffer, field->at, (size_t)field->value);
    case MESSAGE: {
        Typed inner = {group->target, typed->locations};
        return put_message(buffer, &inner, field->at, field->at + field->value, 0, depth + 1);
    }
    default:
        return put_number(buffer, typed, group, field->value);
    }
}

/* `"name":value`, after a comma unless it is the first member; nothing for empty lists. */
static Result put_member(Buffer *buffer, const Typed *typed, const Group *group, int is_first, int depth)
{
    char unknown[32];
    size_t before = buffer->size;
    int is_list = group->is_repeated || (group->name == NULL && group->count > 1);
    Py_ssize_t count = 0;
    if (group->count > 1 && !is_list)
        return LEFT;
    int size = snprintf(unknown, sizeof unknown, "\"field_%u\":", group->number);
    if ((!is_first && !put(buffer, ",", 1)) || !put(buffer, group->name == NULL ? unknown : group->name,
            group->name == NULL ? (size_t)size : (size_t)group->name_size) || (is_list && !put(buffer, "[", 1)))
        return FAILED;
    for (const uint8_t *at = group->first; at < group->end;) {
        Field field;
        if ((at = past_field(at, group->end, &field)) == NULL)
            return LEFT;
        if (field.number != group->number)
            continue;
        Result result = put_value(buffer, typed, group, &field, &count, depth);
        if (result != DONE)
            return result;
    }
    if (count == 0)
        buffer->size = before;
    else if (is_list && !put(buffer, "]", 1))
        return FAILED;
    return DONE;
}

/* The fields of a message by number, in the order of their first ones; their number of groups, -1 if it is left. */
static int group_fields(const uint8_t *at, const uint8_t *end, Group *groups)
{
    int count = 0;
    while (at < end) {
        Field field;
        const uint8_t *past = past_field(at, end, &field);
        int place = 0;
        if (past == NULL)
            return -1;
        while (place < count && groups[place].number != field.number)
            place++;
        if (place == MOST_FIELDS)
            return -1;
        if (place == count)
            groups[count++] = (Group){.number = field.number, .kind = MESSAGE, .first = at};
        groups[place].count++;
        groups[place].end = at = past;
    }
    return count;
}

Result put_message(
    Buffer *buffer, const Typed *typed, const uint8_t *at, const uint8_t *end, int in_order, int depth)
{
    Group groups[MOST_FIELDS];
    int count = depth > DEEPEST_MESSAGE ? -1 : group_fields(at, end, groups);
    if (count < 0)
        return LEFT;
    if (!put(buffer, "{", 1))
        return FAILED;
    size_t start = buffer->size;
    for (int place = 0; place < count; place++) {
        int least = place;
        for (int other = place + 1; in_order && other < count; other++)
            if (groups[other].number < groups[least].number)
                least = other;
        Group group = groups[least];
        groups[least] = groups[place];
        Result result = describe(typed->fields, &group);
        if (result == DONE)
            result = put_member(buffer, typed, &group, buffer->size == start, depth);
        if (result != DONE)
            return result;
    }
    return put(buffer, "}", 1) ? DONE : FAILED;
}

PyObject *native_typed_fields(PyObject *module, PyObject *args)
{
    PyObject *data;
    Py_ssize_t at, end;
    int depth;
    Typed typed;
    Buffer buffer = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "SnnO!O!i:typed_fields", &data, &at, &end, &PyDict_Type, &typed.fields, &PyDict_Type,
            &typed.locations, &depth))
        return NULL;
    Result result = LEFT;
    if (at >= 0 && at <= end && end <= PyBytes_Size(data)) {
        const uint8_t *text = (const uint8_t *)PyBytes_AsString(data);
        result = put_message(&buffer, &typed, text + at, text + end, 0, depth);
    }
    PyObject *made = result == FAILED ? NULL : result == LEFT ? Py_NewRef(Py_None)
                   : PyUnicode_DecodeUTF8((const char *)buffer.data, (Py_ssize_t)buffer.size, NULL);
    free(buffer.data);
    return made;
}
