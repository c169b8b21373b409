"""Checks whether a pipeline can be renamed: streams of edges and dead letters contain the pipeline's name.

Knows the deliveries' checkpoints and the log. Must not know queries.
"""

from pathlib import Path

from logboom.pipeline.checkpoint.spark_log import unfinished_batch
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.edge.trimming import restart_offsets
from logboom.pipeline.errors import PipelineError


def check_nothing_left(admin: StreamAdmin, checkpoint: Path, former_name: str) -> None:
    """Raises PipelineError if streams with the old name have events that no query would read after the renaming."""
    batch = unfinished_batch(checkpoint / "router")
    left = sum(_undelivered(admin, path) for path in sorted((checkpoint / "deliveries").glob("*")) if path.is_dir())
    if batch is not None:
        what = f"batch {batch} has to run again"
    elif left:
        what = f"{left:,} events are not delivered to its sinks yet"
    else:
        return
    raise PipelineError(
        f"the pipeline cannot be renamed now: {what} as {former_name}; run it with --once under that name first"
    )


def _undelivered(admin: StreamAdmin, delivery: Path) -> int:
    there = admin.partitions()
    reached = {stream: offsets for stream, offsets in restart_offsets(delivery).items() if stream in there}
    ends = admin.ends({stream: there[stream] for stream in reached})
    return sum(
        max(0, end - reached[stream].get(int(partition), 0))
        for stream, partitions in ends.items()
        for partition, end in partitions.items()
    )
