"""Kinds of dependencies between the starts and ends of slices, and of tasks, by number."""

from __future__ import annotations

import numpy as np

#: Kinds of dependencies. The first four are those of a vertex on the one before it on its thread or stream, which
#: native/graph.c knows, too.
RUN, HOST, STREAM, IDLE, LAUNCH, EVENT, RECORDED_EVENT, SYNC, RECORDED_SYNC, COPY, FLOW, QUEUE, JOIN, MEET = range(14)
#: Dependencies that the source doesn't record.
INFERRED = (EVENT, SYNC, QUEUE, JOIN, MEET)
#: [kind] Whether what depends on it waits as long as it has to.
WAITS = np.isin(np.arange(MEET + 1), (EVENT, RECORDED_EVENT, SYNC, RECORDED_SYNC, COPY, QUEUE, JOIN))
#: Kinds of tasks, by number.
TASK_KINDS = ("compute", "copy", "collective", "sync", "other")
