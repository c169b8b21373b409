"""What a pipeline remembers behind one batch: by transform and shard the files of its state, and how far times are.

Plain data. Knows no file, no transform and no batch in particular.
"""

from typing import Final

import msgspec

from logboom.pipeline.state.watermarks import Watermarks

SHARDS: Final = 16
"""Of each stateful transform: more than the cores that one pipeline is likely to have, and few enough that sixteen
files are nothing beside a batch. A checkpoint keeps the number that it began with."""


class ShardMemory(msgspec.Struct, frozen=True):
    """What one shard remembers."""

    segments: tuple[str, ...] = ()
    """Files of its tables, in order."""
    held: int = 0
    """Events of the input that are in there and have not left the pipeline."""
    remembered: int = 0
    """Keys, windows and the like that it remembers."""


class TransformMemory(msgspec.Struct, frozen=True):
    """What all shards of one transform remember."""

    form: str
    """`StatefulTransform.state_form` of the transform that wrote it: only one of the same form can read it."""
    shards: tuple[ShardMemory, ...]
    progress: Watermarks = Watermarks()

    @property
    def held(self) -> int:
        """Events of the input in all shards."""
        return sum(shard.held for shard in self.shards)

    @property
    def remembered(self) -> int:
        """Things that all shards remember."""
        return sum(shard.remembered for shard in self.shards)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be lost with it."""
        return not any(shard.segments for shard in self.shards)


class Memory(msgspec.Struct, frozen=True):
    """What all transforms remember behind a batch."""

    shards: int = SHARDS
    transforms: dict[str, TransformMemory] = {}
