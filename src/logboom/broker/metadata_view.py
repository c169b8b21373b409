"""What those who only read the metadata know of it."""

from typing import Protocol

from logboom.metadata import Image


class MetadataView(Protocol):
    """Where the image in force is read; `metadata_state.MetadataState`."""

    @property
    def image(self) -> Image:
        """The image in force. It never changes; ask again for a later one."""
