"""The format of the databases that torch_npu, MindSpore and msprof write."""

from __future__ import annotations

import re

from traceconv.formats.common.files import SQLITE_MAGIC
from traceconv.formats.format import Format

#: Tables that only these databases have, and those with sums of several of them (msprof-analyze).
_TABLES = re.compile(
    rb'CREATE TABLE "?(?:STRING_IDS|CANN_API|PYTORCH_API|COMPUTE_TASK_INFO|COMMUNICATION_OP|CommAnalyzerTime'
    rb"|ClusterStepTraceTime|ClusterCommAnalyzer\w+|ClusterBaseInfo|CommunicationGroupMapping)\b"
)

FORMAT = Format(
    "ascend_db",
    "a database of torch_npu or msprof (SQLite)",
    lambda head: 95 if head.startswith(SQLITE_MAGIC) and _TABLES.search(head) else 0,
    "traceconv.formats.ascend_db.reader:AscendDbReader",
    "traceconv.formats.ascend_db.reader:locate",
    event_times="startNs, and endNs minus startNs: ns in the file",
)
