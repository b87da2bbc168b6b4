/* Records of ranges, for the parts that append them. */

#ifndef TRACECONV_RANGE_H
#define TRACECONV_RANGE_H

#include "module.h"
#include "words.h"

#include <stdint.h>
#include <string.h>

/* A record of schemas/records/range.toml. */
typedef struct {
    int64_t host_ns;
    uint64_t span_id, parent_span_id, trace_id, name, category, args;
    uint32_t thread_id, step_id;
    uint8_t event, kind;
    uint16_t pad;
    uint32_t pe_index, item_index, execution_id;
} Range;
SIZE(Range, 80);
AT(Range, host_ns, 0); AT(Range, span_id, 8); AT(Range, parent_span_id, 16); AT(Range, trace_id, 24); AT(Range, name, 32);
AT(Range, category, 40); AT(Range, args, 48); AT(Range, thread_id, 56); AT(Range, step_id, 60); AT(Range, event, 64);
AT(Range, kind, 65); AT(Range, pad, 66); AT(Range, pe_index, 68); AT(Range, item_index, 72); AT(Range, execution_id, 76);

#endif
