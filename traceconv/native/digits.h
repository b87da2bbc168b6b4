/* Integers as decimal digits. */

#ifndef TRACECONV_DIGITS_H
#define TRACECONV_DIGITS_H

#include <stdint.h>
#include <string.h>

static const char PAIRS[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354"
    "555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Bits of a number without its leading zeros; 1 for 0. */
static inline int bit_count(uint64_t value)
{
    return 64 - __builtin_clzll(value | 1);
}

static inline int digit_count(uint64_t value)
{
    static const uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000,
        10000000000, 100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000, 10000000000000000,
        100000000000000000, 1000000000000000000, 10000000000000000000u};
    /* 1233 / 4096 is log10(2), rounded down: one digit less than needed, or the right number. */
    int digits = bit_count(value) * 1233 >> 12;
    return digits + ((value | 1) >= powers[digits]);
}

/* Write a number; returns where it ends. Digits go to their final place: loading what was just written in smaller pieces would wait for it. */
static inline uint8_t *put_decimal(uint8_t *out, uint64_t value)
{
    uint8_t *end = out + digit_count(value), *at = end;
    while (value >= 10000) {
        unsigned rest = (unsigned)(value % 10000);
        value /= 10000;
        at -= 4;
        memcpy(at, PAIRS + rest / 100 * 2, 2);
        memcpy(at + 2, PAIRS + rest % 100 * 2, 2);
    }
    unsigned first = (unsigned)value;
    if (first >= 100) {
        memcpy(at - 2, PAIRS + first % 100 * 2, 2);
        first /= 100;
    }
    if (first >= 10)
        memcpy(out, PAIRS + first * 2, 2);
    else
        *out = (uint8_t)('0' + first);
    return end;
}

static inline uint8_t *put_signed(uint8_t *out, int64_t value)
{
    if (value < 0)
        *out++ = '-';
    return put_decimal(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

#endif
