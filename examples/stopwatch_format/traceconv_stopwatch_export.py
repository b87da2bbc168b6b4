"""An export target of traceconv: the slices of a run as a stopwatch file, which the format of this package reads."""

from traceconv.export.output import CountedFile, open_output
from traceconv.export.registry import Export, Option, Written

_ROWS = 10_000


def write(connection, run_id, output, *, track=None):
    """Write one line per slice, in the order of start. Slices that a line can't express are counted as omitted."""
    rows = connection.execute(
        "SELECT coalesce(name, ''), start_ns, start_ns + dur_ns FROM slice "
        "WHERE run_id = $1 AND ($2 IS NULL OR track_id = $2) ORDER BY start_ns, id",
        [run_id, track],
    )
    laps = omitted = 0
    with open_output(output) as file:
        counted = CountedFile(file)
        counted.write(b"# stopwatch\n")
        while part := rows.fetchmany(_ROWS):
            lines = [
                f"{name},{start_ns},{end_ns}\n"
                for name, start_ns, end_ns in part
                if start_ns >= 0 and end_ns is not None and not set(name) & set(",\r\n")
            ]
            counted.write("".join(lines).encode())
            laps += len(lines)
            omitted += len(part) - len(lines)
    return Written({"laps": laps}, counted.size_bytes, {"slices without an end, before 0 or with a comma": omitted})


EXPORT = Export(
    "stopwatch",
    "a stopwatch file",
    "laps.txt",
    "traceconv_stopwatch_export:write",
    options=(Option("track", int, "Only slices of this track_id."),),
)
