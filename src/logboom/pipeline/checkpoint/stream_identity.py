"""Whether the streams are still the ones a checkpoint was made with. Knows ids and a file."""

from pathlib import Path

import msgspec

from logboom.pipeline.checkpoint.files import write_durably
from logboom.pipeline.errors import PipelineError


def check_ids(path: Path, ids: dict[str, str]) -> None:
    """PipelineError where a stream was deleted and made again since: its offsets mean other records now.

    Going on would skip what the new stream holds below the old offsets, and take its records for repeats.
    """
    known = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
    for name, stream_id in ids.items():
        if known.get(name, stream_id) != stream_id:
            raise PipelineError(
                f"the stream {name} was deleted and made again since this pipeline last ran; "
                f"to start over with the new one remove the checkpoint {path.parent}"
            )
    if {**known, **ids} != known:
        write_durably(path, msgspec.json.encode({**known, **ids}))
