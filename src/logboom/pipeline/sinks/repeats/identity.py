"""The identity of a delivery, by which its target recognises it. Knows a file of the delivery's checkpoint."""

import uuid
from pathlib import Path

from logboom.pipeline.checkpoint.files import make_dir, write_durably


def delivery_id(checkpoint: Path) -> str:
    """The unique identity of a delivery's checkpoint. Created on first use."""
    path = checkpoint / "id"
    if not path.exists():
        make_dir(checkpoint)
        write_durably(path, uuid.uuid4().hex[:12].encode())
    return path.read_text()
