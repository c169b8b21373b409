"""Whether the streams are still the ones a checkpoint was made with. Knows ids and a file."""

from collections.abc import Container
from pathlib import Path
from typing import Final

from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.errors import PipelineError

_ADVICE: Final = "remove the file: a source stream that was made anew since the last run is not known then"


def check_ids(path: Path, ids: dict[str, str], may_go: Container[str] = ()) -> None:
    """PipelineError where a stream was deleted and made again since: its offsets mean other records now. `may_go`:
    those that the pipeline goes on without where they are deleted.

    Going on would skip what the new stream holds below the old offsets, and take its records for repeats.
    """
    known = read_checked(path, dict[str, str], _ADVICE) if path.exists() else {}
    for name, stream_id in ids.items():
        if known.get(name, stream_id) != stream_id:
            or_else = ", or delete that stream and make it under another name" if name in may_go else ""
            raise PipelineError(
                f"the stream {name} was deleted and made again since this pipeline last ran; "
                f"to start over with the new one remove the checkpoint {path.parent}{or_else}"
            )
    if {**known, **ids} != known:
        write_checked(path, {**known, **ids})
