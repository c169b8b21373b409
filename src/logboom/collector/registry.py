"""The registry of an input: its followed files by path, by identity, and by the path their lines were written under.

It also holds the generations that the next checkpoint has to name. Knows watches and generations; opens and reads
nothing.
"""

from collections.abc import Iterator

from logboom.collector.tail import Generation, Identity
from logboom.collector.watch import WatchedFile


class FileRegistry:
    """The followed files of one input, and the generations that a checkpoint must name because of them."""

    def __init__(self) -> None:
        self.by_path: dict[str, WatchedFile] = {}
        """Files that a path of the input names."""
        self.by_identity: dict[Identity, WatchedFile] = {}
        """Every file that has not ended."""
        self._latest: dict[str, WatchedFile] = {}
        self._generations: dict[Generation, None] = {}
        self.changed = False
        """Whether anything but an acknowledgement changed what the checkpoint has to name."""

    def __iter__(self) -> Iterator[WatchedFile]:
        return iter(list(self.by_identity.values()))

    def __len__(self) -> int:
        return len(self.by_identity)

    @property
    def generations(self) -> list[Generation]:
        """Those that were not read and acknowledged to their end."""
        return list(self._generations)

    def add(self, watch: WatchedFile) -> None:
        """Follow a file. Lines written under the same path before, in another file, are sent first."""
        origin = watch.tail.generation.path
        previous = self._latest.get(origin)
        if previous is not None and previous is not watch:
            watch.predecessor = previous
        self._latest[origin] = watch
        self._generations[watch.tail.generation] = None
        self.by_identity[watch.identity] = watch
        self.by_path[watch.path] = watch
        self.changed = True

    def rename(self, watch: WatchedFile, path: str) -> None:
        """The same file, under another path."""
        self.forget_path(watch)
        watch.path = watch.tail.location = path
        self.by_path[path] = watch

    def forget_path(self, watch: WatchedFile) -> None:
        """Its path leads to another file or to none."""
        if self.by_path.get(watch.path) is watch:
            del self.by_path[watch.path]

    def end(self, watch: WatchedFile) -> None:
        """Nothing more is read from it; its generation stays until all of it is acknowledged."""
        watch.end()
        generation = watch.tail.generation
        self.close(generation)
        if self.by_identity.get(watch.identity) is watch:
            del self.by_identity[watch.identity]
        if self._latest.get(generation.path) is watch:
            del self._latest[generation.path]

    def end_truncated(self, watch: WatchedFile) -> None:
        """Its content is missing from its file. The generation is left open: a copy of the content may carry it on."""
        self.forget_path(watch)
        self.by_identity.pop(watch.identity, None)
        path = watch.tail.generation.path
        if watch.predecessor is not None:
            self._latest[path] = watch.predecessor
        else:
            self._latest.pop(path, None)
        watch.end()

    def close(self, generation: Generation) -> None:
        """Nothing more will be read of this content."""
        generation.closed = True
        self.changed = True
        self.drop_if_finished(generation)

    def drop_if_finished(self, generation: Generation) -> None:
        """Forget a content that was read and acknowledged whole."""
        if generation.finished:
            self._generations.pop(generation, None)
