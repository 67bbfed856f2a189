/* Numbers exactly as they are written: no value passes through a float. */
#include <string.h>

#include "scan.h"

#define DIGITS 40 /* more than any time has; what lies behind them only rounds */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int exponent_of(const char *p, const char *end, int *out)
{
    *out = 0;
    if (p == end)
        return 1;
    int negative = ++p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end)
        return 0;
    for (; p < end; p++) {
        if (!is_digit(*p))
            return 0;
        if (*out < 100000)
            *out = *out * 10 + (*p - '0');
    }
    *out = negative ? -*out : *out;
    return 1;
}

/* A decimal number times 10^places, rounded half to even. Returns 0 for what is no number or is too
 * large; *inexact says that digits were lost. */
static int decimal(const char *p, const char *end, int places, int64_t *out, int *inexact)
{
    char digits[DIGITS];
    int count = 0, dropped = 0, behind = 0, point = 0, seen = 0, lost = 0, exponent = 0;
    int negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.' && !point) {
            point = 1;
            continue;
        }
        if (!is_digit(*p))
            return 0;
        seen = 1;
        behind += point;
        if (count == 0 && *p == '0')
            continue;
        if (count < DIGITS) {
            digits[count++] = (char)(*p - '0');
        } else {
            dropped++;
            lost |= *p != '0';
        }
        if (dropped > 1000 || behind > 100000)
            return 0;
    }
    if (!seen || !exponent_of(p, end, &exponent))
        return 0;
    int shift = places + exponent + dropped - behind; /* the result is the digits times 10^shift */
    int kept = count + shift;
    if (count && kept > 19)
        return 0;
    uint64_t value = 0;
    for (int i = 0; i < kept && count; i++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value)
            || __builtin_add_overflow(value, (uint64_t)(i < count ? digits[i] : 0), &value))
            return 0;
    }
    int half = kept >= 0 && kept < count ? digits[kept] : 0;
    for (int i = kept < 0 ? 0 : kept + 1; i < count; i++)
        lost |= digits[i] != 0;
    *inexact = half || lost;
    value += half > 5 || (half == 5 && (lost || (value & 1)));
    if (value > INT64_MAX)
        return 0;
    *out = negative ? -(int64_t)value : (int64_t)value;
    return 1;
}

/* Strings hold numbers too; spaces around them count for nothing. */
static int bounds(const span *s, const char **p, const char **end)
{
    if (s->kind != NUMBER && s->kind != STRING)
        return 0;
    *p = s->at;
    *end = s->at + s->size;
    while (*p < *end && **p == ' ')
        ++*p;
    while (*p < *end && (*end)[-1] == ' ')
        --*end;
    return *p < *end;
}

int64_t to_ns(const span *s, int64_t largest)
{
    const char *p, *end;
    int64_t out;
    int inexact;
    if (!bounds(s, &p, &end))
        return MISSING;
    /* The usual case: up to 18 digits, then none or three behind the point. */
    int64_t value = 0;
    const char *q = p;
    while (q < end && q - p < 18 && is_digit(*q))
        value = value * 10 + (*q++ - '0');
    if (q > p && value < largest / 1000) {
        if (q == end)
            return value * 1000;
        if (end - q == 4 && *q == '.' && is_digit(q[1]) && is_digit(q[2]) && is_digit(q[3]))
            return value * 1000 + (q[1] - '0') * 100 + (q[2] - '0') * 10 + (q[3] - '0');
    }
    if (!decimal(p, end, 3, &out, &inexact) || out >= largest || out <= -LARGEST_DURATION_NS)
        return MISSING;
    return out;
}

/* Decimal or 0x; up to 2^64 - 1 where `wrap`. */
static int64_t whole(const span *s, int wrap)
{
    const char *p, *end;
    if (!bounds(s, &p, &end))
        return MISSING;
    const char *q = p;
    int negative = *q == '-';
    if (negative)
        q++;
    uint64_t value = 0;
    if (end - q > 2 && q[0] == '0' && (q[1] == 'x' || q[1] == 'X') && s->kind == STRING) {
        if (end - q > 18)
            return MISSING;
        for (q += 2; q < end; q++) {
            int digit = hex_digit(*q);
            if (digit < 0)
                return MISSING;
            value = value << 4 | (unsigned)digit;
        }
    } else {
        for (; q < end && is_digit(*q); q++) {
            if (__builtin_mul_overflow(value, (uint64_t)10, &value)
                || __builtin_add_overflow(value, (uint64_t)(*q - '0'), &value))
                return MISSING;
        }
        if (q < end || q == p + negative) {
            int64_t out;
            int inexact = 0; /* 5.0 is a whole number, 5.5 is none */
            return decimal(p, end, 0, &out, &inexact) && !inexact ? out : MISSING;
        }
    }
    if (value > INT64_MAX && (negative || !wrap))
        return MISSING;
    int64_t out = (int64_t)value;
    out = negative ? -out : out;
    return out == MISSING ? MISSING + 1 : out;
}

int64_t to_whole(const span *s) { return whole(s, 0); }

int64_t to_identity(const span *s) { return whole(s, 1); }
