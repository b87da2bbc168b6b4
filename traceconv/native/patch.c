/* Repair non-standard JSON: bare words and invalid numbers become strings, commas before a closing bracket are removed,
   raw control characters in strings are escaped. One pass, without the interpreter lock.

   Returns None for text with other faults (an escape, too deep), which Python repairs. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdio.h>
#include <stdlib.h>

#include "json.h"
#include "module.h"

/* The faults. */
enum { COMMA, WORD_OR_NUMBER, CONTROL, KINDS };

typedef struct {
    uint8_t *bytes;
    size_t size, room;
    Py_ssize_t first[KINDS]; /* the first position of each kind, -1: none */
    Py_ssize_t count;
} Patch;

static const char *const words[] = {
    "NaN", "nan", "NAN", "Infinity", "infinity", "inf", "Inf", "INF", "N/A", "None", "True", "False", "undefined",
};
/* First characters of such words and numbers, except of numbers that end in a point. */
static const char firsts[] = "+-.0NnIiTFu";
/* SIGNED_WORDS: the first words, which may have a sign. */
enum { WORDS = sizeof words / sizeof *words, SIGNED_WORDS = 8 };

static int is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static int is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Whether a bare word may end before `at`. */
static int ends_word(Text at, Text end)
{
    return at == end || is_space(*at) || *at == ',' || *at == ']' || *at == '}';
}

/* After the bare word or invalid number at `at`; NULL if there is none. *bound is where a word that began earlier has
   to end: if it is ahead, it is the bound of this word too, and isn't searched for again. */
static Text past_wrong_word(Text at, Text end, Text *bound)
{
    Text stop, digits = at + (*at == '-'), point;
    if (digits < end && *digits >= '1' && *digits <= '9') {
        point = past_digits(digits, end);
        stop = point + 1;
        return point < end && *point == '.' && ends_word(stop, end) ? stop : NULL;
    }
    if (!memchr(firsts, *at, sizeof firsts - 1))
        return NULL;
    if (*bound < at)
        for (*bound = at; !ends_word(*bound, end) && **bound != '"';)
            ++*bound;
    stop = *bound;
    if (stop == at || (stop < end && *stop == '"'))
        return NULL;
    if (*at == '+' && stop - at > 1 && is_digit(at[1]))
        return stop;
    int sign = *at == '+' || *at == '-';
    for (int word = 0; word < WORDS; word++) {
        Text first = at + (word < SIGNED_WORDS ? sign : 0);
        size_t size = strlen(words[word]);
        if ((size_t)(stop - first) == size && memcmp(first, words[word], size) == 0)
            return stop;
    }
    if (stop - digits > 1 && (*digits == '0' || *digits == '.') && is_digit(digits[1]))
        return stop;
    point = past_digits(digits, stop);
    return point > digits && point + 1 == stop && *point == '.' ? stop : NULL;
}

static int add(Patch *patch, const void *bytes, size_t size)
{
    if (size == 0)
        return 1;
    if (patch->size + size > patch->room) {
        size_t room = (patch->size + size) * 2;
        uint8_t *more = realloc(patch->bytes, room);
        if (more == NULL)
            return 0;
        patch->bytes = more;
        patch->room = room;
    }
    memcpy(patch->bytes + patch->size, bytes, size);
    patch->size += size;
    return 1;
}

static void note(Patch *patch, int kind, Py_ssize_t place)
{
    if (patch->first[kind] < 0)
        patch->first[kind] = place;
    patch->count++;
}

/* Copy a string from its first quote on, with control characters escaped. *after becomes the position after its last
   quote; of an unclosed one, as at the end of a chunk, after its first. The text from *from on is not copied yet. */
static Outcome take_string(Patch *patch, Text begin, Text at, Text end, Text *from, Text *after)
{
    Patch before = *patch;
    Text from_before = *from;
    *after = at + 1;
    for (at++;;) {
        at = past_plain(at, end);
        if (at >= end) {
            patch->size = before.size;
            patch->count = before.count;
            patch->first[CONTROL] = before.first[CONTROL];
            *from = from_before;
            return OK;
        }
        if (*at == '"')
            break;
        if (*at == '\\') {
            at = past_escape(at, end);
            if (at == NULL)
                return FALLBACK;
        } else {
            char escape[8];
            int size = snprintf(escape, sizeof escape, "\\u%04x", *at);
            if (!add(patch, *from, (size_t)(at - *from)) || !add(patch, escape, (size_t)size))
                return NO_MEMORY;
            note(patch, CONTROL, at - begin);
            *from = ++at;
        }
    }
    *after = at + 1;
    return OK;
}

static Outcome take_text(Patch *patch, Text begin, Text end, long deepest)
{
    long depth = 0;
    Text at = begin, from = begin; /* the text from `from` to `at` is copied unchanged */
    Text bound = begin;
    while (at < end) {
        uint8_t byte = *at;
        if (byte == '"') {
            Outcome outcome = take_string(patch, begin, at, end, &from, &at);
            if (outcome != OK)
                return outcome;
            continue;
        }
        if (byte == '\\') {
            at += 1 + (at + 1 < end && (at[1] == '"' || at[1] == '\\'));
            continue;
        }
        if (byte == '{' || byte == '[') {
            if (++depth > deepest)
                return FALLBACK;
        } else if (byte == '}' || byte == ']')
            depth--;
        else if (byte == ',') {
            Text next = at + 1;
            while (next < end && is_space(*next))
                next++;
            if (next < end && (*next == ']' || *next == '}')) {
                if (!add(patch, from, (size_t)(at - from)))
                    return NO_MEMORY;
                note(patch, COMMA, at - begin);
                from = at + 1;
            }
        } else if (at > begin && (is_space(at[-1]) || at[-1] == ':' || at[-1] == ',' || at[-1] == '[')) {
            Text stop = is_space(byte) || byte == ':' ? NULL : past_wrong_word(at, end, &bound);
            if (stop != NULL) {
                if (!add(patch, from, (size_t)(at - from)) || !add(patch, "\"", 1)
                    || !add(patch, at, (size_t)(stop - at)) || !add(patch, "\"", 1))
                    return NO_MEMORY;
                note(patch, WORD_OR_NUMBER, at - begin);
                from = at = stop;
                continue;
            }
        }
        at++;
    }
    return add(patch, from, (size_t)(at - from)) ? OK : NO_MEMORY;
}

PyObject *native_patch(PyObject *module, PyObject *args)
{
    Patch patch = {NULL, 0, 0, {-1, -1, -1}, 0};
    char *text;
    Py_ssize_t size;
    long deepest;
    Outcome outcome;
    PyObject *given, *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "Sl:patch", &given, &deepest) || PyBytes_AsStringAndSize(given, &text, &size) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    outcome = take_text(&patch, (Text)text, (Text)text + size, deepest);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY)
        PyErr_NoMemory();
    else if (outcome == FALLBACK)
        found = Py_NewRef(Py_None);
    else
        found = Py_BuildValue(
            "(Nnnnn)", PyBytes_FromStringAndSize((const char *)patch.bytes, (Py_ssize_t)patch.size), patch.count,
            patch.first[COMMA], patch.first[WORD_OR_NUMBER], patch.first[CONTROL]);
    free(patch.bytes);
    return found;
}
