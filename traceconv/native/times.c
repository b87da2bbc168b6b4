/* Texts of numbers → integer nanoseconds, exactly; digits beyond a nanosecond are rounded half to even.

   It supports plain numbers, quoted or not. Any other text is marked, and parsed in Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "module.h"
#include "rows.h"

/* Numbers of more than MOST_DIGITS digits are left to Python; 64 bits without a sign are enough for others. */
enum { MOST_PLACES = 18 };
typedef enum { VALID, ABSENT, UNPARSED } Status;

/* The value of eight digits, of which the first is the lowest byte: pairs of neighbours are added up three times. */
static inline uint64_t eight_digits(Text at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word -= 0x3030303030303030u;
    word = (word * 10 + (word >> 8)) & 0x00FF00FF00FF00FFu;
    word = (word * 100 + (word >> 16)) & 0x0000FFFF0000FFFFu;
    return (word * 10000 + (word >> 32)) & 0xFFFFFFFFu;
}

static inline uint64_t with_digits(uint64_t value, Text at, Text end)
{
#ifdef WORDS_AT_ONCE
    for (; end - at >= WORD; at += WORD)
        value = value * 100000000 + eight_digits(at);
#endif
    for (; at < end; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

/* Read [-]digits[.digits], in units of 10^places; 0 if it is something else, or beyond 63 bits.
   `rounded` is increased if digits other than 0 are dropped. */
static int read_number(Text at, Text end, int places, int64_t *number, int64_t *rounded)
{
    int negative = 0, left = places, half = 0, more = 0;
    if (end - at >= 2 && *at == '"' && end[-1] == '"') {
        at++;
        end--;
    }
    if (at < end && *at == '-') {
        negative = 1;
        at++;
    }
    Text digits = at;
    at = past_digits(at, end);
    if (at == digits || at - digits + places > MOST_DIGITS)
        return 0;
    uint64_t value = with_digits(0, digits, at);
    if (at < end && *at == '.') {
        digits = ++at;
        at = past_digits(at, end);
        if (at == digits)
            return 0;
        Text kept = at - digits > left ? digits + left : at;
        value = with_digits(value, digits, kept);
        left -= (int)(kept - digits);
        if (kept < at)
            half = *kept++ - '0';
        for (; kept < at; kept++)
            more |= *kept != '0';
    }
    if (at != end)
        return 0;
    for (; left > 0; left--)
        value *= 10;
    value += half > 5 || (half == 5 && (more || value & 1));
    if (value > INT64_MAX)
        return 0;
    *rounded += half || more;
    *number = negative ? -(int64_t)value : (int64_t)value;
    return 1;
}

/* Returns how many numbers were rounded. Empty texts are absent. */
static int64_t read_numbers(const Rows *texts, int places, int64_t *ns, uint8_t *status)
{
    Text at, end;
    int64_t rounded = 0;
    for (Py_ssize_t row = 0; row < texts->count; row++) {
        ns[row] = 0;
        if (!row_of(texts, row, &at, &end))
            status[row] = UNPARSED;
        else if (at == end)
            status[row] = ABSENT;
        else
            status[row] = read_number(at, end, places, &ns[row], &rounded) ? VALID : UNPARSED;
    }
    return rounded;
}

PyObject *native_times(PyObject *module, PyObject *args)
{
    Rows texts;
    int places;
    PyObject *ns = NULL, *status = NULL, *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*i:times", &texts.offsets, &texts.data, &places))
        return NULL;
    if (!count_rows(&texts))
        goto done;
    if (places < 0 || places > MOST_PLACES) {
        PyErr_SetString(PyExc_ValueError, "places beyond 18");
        goto done;
    }
    ns = PyBytes_FromStringAndSize(NULL, texts.count * (Py_ssize_t)sizeof(int64_t));
    status = PyBytes_FromStringAndSize(NULL, texts.count);
    if (ns == NULL || status == NULL)
        goto done;
    int64_t *ns_out = (int64_t *)PyBytes_AsString(ns);
    uint8_t *status_out = (uint8_t *)PyBytes_AsString(status);
    int64_t rounded;
    Py_BEGIN_ALLOW_THREADS
    rounded = read_numbers(&texts, places, ns_out, status_out);
    Py_END_ALLOW_THREADS
    found = Py_BuildValue("OOL", ns, status, (long long)rounded);
done:
    Py_XDECREF(ns);
    Py_XDECREF(status);
    release_rows(&texts);
    return found;
}
