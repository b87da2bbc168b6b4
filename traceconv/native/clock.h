/* The host's clock, for the other parts that read it. */

#ifndef TRACECONV_CLOCK_H
#define TRACECONV_CLOCK_H

#include "module.h"

#include <stdint.h>

int add_clock(PyObject *module);
int is_clock(PyObject *object);

/* Its time into `ns`. 0: it is stopped, or only Python reads its source. Runs no Python code. */
int clock_now(PyObject *clock, int64_t *ns);

/* The same, waiting and running Python code where needed. 0: error. */
int clock_read(PyObject *clock, int64_t *ns);

#endif
