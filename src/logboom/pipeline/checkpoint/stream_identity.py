"""Whether the streams are still those with which a checkpoint was made. Knows ids and a file."""

from collections.abc import Container
from pathlib import Path
from typing import Final

from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.errors import PipelineError

_ADVICE: Final = "remove the file: it is then not detected if a source stream was recreated since the last run"


def check_ids(path: Path, ids: dict[str, str], may_go: Container[str] = ()) -> None:
    """PipelineError if a stream was deleted and recreated since: its offsets now denote other records. `may_go`:
    streams without which the pipeline continues when they are deleted.

    Continuing would skip the new stream's records below the old offsets, and treat its records as repeats.
    """
    known = read_checked(path, dict[str, str], _ADVICE) if path.exists() else {}
    for name, stream_id in ids.items():
        if known.get(name, stream_id) != stream_id:
            or_else = ", or delete that stream and create it under another name" if name in may_go else ""
            raise PipelineError(
                f"the stream {name} was deleted and recreated since this pipeline last ran; "
                f"to start over with the new stream remove the checkpoint {path.parent}{or_else}"
            )
    if {**known, **ids} != known:
        write_checked(path, {**known, **ids})
