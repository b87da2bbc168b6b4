/* Strict JSON (RFC 8259), read in place: each function takes a position and returns the position after what it reads.

   NULL: malformed, or truncated by the end. The caller ensures UTF-8. Nothing is read beyond the end, and nothing is
   allocated. `lines`: a line break is not a blank, but ends an event. */

#ifndef TRACECONV_JSON_H
#define TRACECONV_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__GNUC__)
#define WORDS_AT_ONCE 1
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

enum { DEEPEST = 256, WORD = 8, MOST_DIGITS = 19 };

typedef const uint8_t *Text;

/* Result of a loop over a text. FALLBACK: the text is left to Python. */
typedef enum { OK, FALLBACK, NO_MEMORY } Outcome;

static inline int is_blank(uint8_t byte, int lines)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || (byte == '\n' && !lines);
}

static inline Text past_spaces(Text at, Text end)
{
#ifdef WORDS_AT_ONCE
    for (; end - at >= WORD; at += WORD) {
        uint64_t word;
        memcpy(&word, at, WORD);
        word ^= 0x0101010101010101u * ' ';
        if (word)
            return at + (__builtin_ctzll(word) >> 3);
    }
#endif
    while (at < end && *at == ' ')
        at++;
    return at;
}

static inline Text past_blanks(Text at, Text end, int lines)
{
    while (at < end && *at <= ' ' && is_blank(*at, lines))
        at = past_spaces(at + 1, end);
    return at;
}

static inline int hex_digits(Text at, Text end, unsigned *value)
{
    if (end - at < 4)
        return 0;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t byte = at[i];
        unsigned digit;
        if (byte >= '0' && byte <= '9')
            digit = byte - '0';
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            digit = (byte | 0x20) - 'a' + 10;
        else
            return 0;
        *value = *value << 4 | digit;
    }
    return 1;
}

/* After the escape at `at`; NULL if it is invalid, or half of a surrogate pair. */
static inline Text past_escape(Text at, Text end)
{
    unsigned one, two;
    if (end - at < 2)
        return NULL;
    switch (at[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return at + 2;
    case 'u':
        if (!hex_digits(at + 2, end, &one) || (one >= 0xDC00 && one <= 0xDFFF))
            return NULL;
        if (one < 0xD800 || one > 0xDBFF)
            return at + 6;
        if (end - at < 12 || at[6] != '\\' || at[7] != 'u' || !hex_digits(at + 8, end, &two))
            return NULL;
        return two >= 0xDC00 && two <= 0xDFFF ? at + 12 : NULL;
    default:
        return NULL;
    }
}

/* The next quote, backslash or control character from `at` on; `end` if there is none. */
static inline Text past_plain(Text at, Text end)
{
#ifdef __SSE2__
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
        int found = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), control));
        if (found)
            return at + __builtin_ctz((unsigned)found);
    }
#elif defined(WORDS_AT_ONCE)
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; end - at >= WORD; at += WORD) {
        uint64_t word;
        memcpy(&word, at, WORD);
        uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
        uint64_t found = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20) & ~word)) & tops;
        if (found)
            return at + (__builtin_ctzll(found) >> 3);
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20)
        at++;
    return at;
}

/* The closing quote of a string with its text from `at` on; NULL if it is missing, or the string is invalid. */
static inline Text end_of_string(Text at, Text end)
{
    for (;;) {
        at = past_plain(at, end);
        if (at >= end || *at < 0x20)
            return NULL;
        if (*at == '"')
            return at;
        at = past_escape(at, end);
        if (at == NULL)
            return NULL;
    }
}

static inline Text past_digits(Text at, Text end)
{
#ifdef WORDS_AT_ONCE
    const uint64_t ones = 0x0101010101010101u;
    for (; end - at >= WORD; at += WORD) {
        uint64_t word;
        memcpy(&word, at, WORD);
        /* The high halves are those of '0' to '9', and still are after adding 6. */
        if ((word & ones * 0xF0) != ones * 0x30 || ((word + ones * 6) & ones * 0xF0) != ones * 0x30)
            break;
    }
#endif
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static inline Text past_number(Text at, Text end)
{
    Text digits;
    if (at < end && *at == '-')
        at++;
    digits = at;
    at = past_digits(at, end);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return NULL;
    if (at < end && *at == '.') {
        digits = ++at;
        at = past_digits(at, end);
        if (at == digits)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        digits = at;
        at = past_digits(at, end);
        if (at == digits)
            return NULL;
    }
    return at;
}

static inline Text past_word(Text at, Text end, const char *word, ptrdiff_t size)
{
    return end - at >= size && memcmp(at, word, (size_t)size) == 0 ? at + size : NULL;
}

/* The value after the colon that follows a key, which ends at `at`. */
static inline Text past_colon(Text at, Text end, int lines)
{
    at = past_blanks(at, end, lines);
    return at < end && *at == ':' ? past_blanks(at + 1, end, lines) : NULL;
}

/* From a key's first quote to its value; *last becomes the key's last quote. */
static inline Text past_key(Text at, Text end, int lines, Text *last)
{
    if (at >= end || *at != '"')
        return NULL;
    *last = end_of_string(at + 1, end);
    return *last == NULL ? NULL : past_colon(*last + 1, end, lines);
}

/* After the string, number or word at `at`. */
static inline Text past_scalar(Text at, Text end)
{
    if (at >= end)
        return NULL;
    switch (*at) {
    case '"':
        at = end_of_string(at + 1, end);
        return at == NULL ? NULL : at + 1;
    case 't':
        return past_word(at, end, "true", 4);
    case 'f':
        return past_word(at, end, "false", 5);
    case 'n':
        return past_word(at, end, "null", 4);
    default:
        return past_number(at, end);
    }
}

/* After the value at `at`; NULL if it is malformed or too deep. */
static inline Text past_value(Text at, Text end, int lines)
{
    uint8_t closes[DEEPEST];
    int depth = 0;
    Text last;
    for (;;) {
        if (at >= end)
            return NULL;
        uint8_t first = *at;
        if (first == '{' || first == '[') {
            uint8_t close = first == '{' ? '}' : ']';
            at = past_blanks(at + 1, end, lines);
            if (at >= end)
                return NULL;
            if (*at != close) {
                if (depth == DEEPEST)
                    return NULL;
                closes[depth++] = close;
                if (close == '}' && (at = past_key(at, end, lines, &last)) == NULL)
                    return NULL;
                continue;
            }
            at++;
        } else if ((at = past_scalar(at, end)) == NULL)
            return NULL;
        for (;;) {
            if (depth == 0)
                return at;
            at = past_blanks(at, end, lines);
            if (at >= end)
                return NULL;
            if (*at == closes[depth - 1]) {
                depth--;
                at++;
                continue;
            }
            if (*at != ',')
                return NULL;
            at = past_blanks(at + 1, end, lines);
            if (closes[depth - 1] == '}' && (at = past_key(at, end, lines, &last)) == NULL)
                return NULL;
            break;
        }
    }
}

/* Walk the members of the object at *place; *place becomes the position after it.

   past: from where a key should begin to its value; NULL: the object is left to Python.
   take: receives the start and end of the value. */
INLINE Outcome walk_object(Text *place, Text end, int lines, Text (*past)(void *self, Text at, Text end),
    Outcome (*take)(void *self, Text value, Text stop), void *self)
{
    Text at = *place;
    if (at >= end || *at != '{')
        return FALLBACK;
    at = past_blanks(at + 1, end, lines);
    if (at < end && *at == '}') {
        *place = at + 1;
        return OK;
    }
    for (;;) {
        Text value = past(self, at, end), stop = value == NULL ? NULL : past_value(value, end, lines);
        if (stop == NULL)
            return FALLBACK;
        Outcome outcome = take(self, value, stop);
        if (outcome != OK)
            return outcome;
        at = past_blanks(stop, end, lines);
        if (at < end && *at == '}') {
            *place = at + 1;
            return OK;
        }
        if (at >= end || *at != ',')
            return FALLBACK;
        at = past_blanks(at + 1, end, lines);
    }
}

/* Parse an integer of 64 bits in canonical form: no leading zeros, no plus sign, no -0. Returns 0 for anything else. */
static inline int parse_int64(Text at, Text end, int64_t *number)
{
    int negative = at < end && *at == '-';
    at += negative;
    if (at == end || end - at > MOST_DIGITS || (*at == '0' && (negative || end - at > 1)))
        return 0;
    uint64_t value = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    if (value > (uint64_t)INT64_MAX + (uint64_t)negative)
        return 0;
    *number = (int64_t)(negative ? 0 - value : value);
    return 1;
}

/* The first eight of `size` bytes as a number, padded with zeros. */
static inline uint64_t word_of(Text at, size_t size, Text end)
{
    uint64_t word = 0;
#ifdef WORDS_AT_ONCE
    if (end - at >= WORD) {
        memcpy(&word, at, WORD);
        return size >= WORD ? word : word & (((uint64_t)1 << 8 * size) - 1);
    }
#endif
    memcpy(&word, at, size < WORD ? size : WORD);
    return word;
}

#endif
