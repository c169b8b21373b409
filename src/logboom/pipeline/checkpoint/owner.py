"""Which pipeline a checkpoint belongs to. Knows names and one file.

The offsets in a checkpoint say what its own pipeline has read. Another pipeline that started from them would skip
everything below, unseen. A pipeline is known by its name: an edited one is the same pipeline.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.errors import PipelineError

_FILE: Final = "pipeline.json"
_ADVICE: Final = "remove the file: the name of the pipeline is found in its batches then"


class _Owner(msgspec.Struct, frozen=True):
    name: str


def owner_of(checkpoint: Path, last_plan_name: str | None) -> str | None:
    """The pipeline that uses a checkpoint; None where none has.

    `last_plan_name`: of the newest plan that a batch was pinned to, which tells of checkpoints without the file.
    """
    path = checkpoint / _FILE
    return read_checked(path, _Owner, _ADVICE).name if path.exists() else last_plan_name


def check_owner(checkpoint: Path, owner: str | None, name: str, renamed_from: str | None) -> bool:
    """Whether this is a renaming; PipelineError where the checkpoint is another pipeline's.

    `renamed_from`: the former name of the pipeline, where the user declares that it was renamed.
    """
    if owner is None or owner == name:
        if renamed_from is not None and renamed_from != name and owner is None:
            raise PipelineError(f"--renamed-from {renamed_from}: the checkpoint {checkpoint} has never been used")
        return False
    if renamed_from == owner:
        return True
    if renamed_from is not None:
        raise PipelineError(f"--renamed-from {renamed_from}: the checkpoint {checkpoint} is of the pipeline {owner}")
    raise PipelineError(
        f"the checkpoint {checkpoint} belongs to the pipeline {owner}, not to {name}: going on would skip what {owner} "
        f"has read; give {name} a checkpoint of its own, or, if {owner} has only got another name, "
        f"add --renamed-from {owner}"
    )


def claim(checkpoint: Path, name: str) -> None:
    """Durably notes that the checkpoint belongs to this pipeline."""
    if not (checkpoint / _FILE).exists() or owner_of(checkpoint, None) != name:
        write_checked(checkpoint / _FILE, _Owner(name))
