"""Which pipeline a checkpoint belongs to. Knows names and one file.

The offsets in a checkpoint say what its own pipeline has read. Another pipeline that started from them would silently
skip everything below. A pipeline is identified by its name: an edited pipeline is still the same one.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.errors import PipelineError

_FILE: Final = "pipeline.json"
_ADVICE: Final = "remove the file: the name of the pipeline is then read from its batches"


class _Owner(msgspec.Struct, frozen=True):
    name: str


def owner_of(checkpoint: Path, last_plan_name: str | None) -> str | None:
    """The pipeline that uses a checkpoint; None if it was never used.

    `last_plan_name`: the name in the newest pinned plan; it identifies the owner if the file is missing.
    """
    path = checkpoint / _FILE
    return read_checked(path, _Owner, _ADVICE).name if path.exists() else last_plan_name


def check_owner(checkpoint: Path, owner: str | None, name: str, renamed_from: str | None) -> bool:
    """Whether the pipeline is being renamed; PipelineError if the checkpoint belongs to another pipeline.

    `renamed_from`: the former name of the pipeline, if the user declares that it was renamed.
    """
    if owner is None or owner == name:
        if renamed_from is not None and renamed_from != name and owner is None:
            raise PipelineError(f"--renamed-from {renamed_from}: the checkpoint {checkpoint} has never been used")
        return False
    if renamed_from == owner:
        return True
    if renamed_from is not None:
        raise PipelineError(
            f"--renamed-from {renamed_from}: the checkpoint {checkpoint} belongs to the pipeline {owner}"
        )
    raise PipelineError(
        f"the checkpoint {checkpoint} belongs to the pipeline {owner}, not to {name}: continuing would skip the "
        f"records that {owner} has read; give {name} a checkpoint of its own, or, if {owner} was only renamed, add "
        f"--renamed-from {owner}"
    )


def claim(checkpoint: Path, name: str) -> None:
    """Durably records that the checkpoint belongs to this pipeline."""
    if not (checkpoint / _FILE).exists() or owner_of(checkpoint, None) != name:
        write_checked(checkpoint / _FILE, _Owner(name))
