/* What the nester takes: SPAN_DTYPE of normalize/trace/complete_nesting.py. */

#ifndef TRACECONV_SPAN_H
#define TRACECONV_SPAN_H

#include "module.h"

#include <stdint.h>

enum { SLICE, PAIR, UNFINISHED, POINT, BEFORE_NEXT };

typedef struct {
    int64_t start_ns, dur_ns, id, link;
    int32_t track, kind;
} Span;

SIZE(Span, 40);
AT(Span, start_ns, 0); AT(Span, dur_ns, 8); AT(Span, id, 16); AT(Span, link, 24); AT(Span, track, 32); AT(Span, kind, 36);

#endif
