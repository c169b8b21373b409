"""An object store as the rules of a checkpoint see one: names and contents. Requests can be cut short, before or behind
what they do."""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from logboom.pipeline.checkpoint.bucket.objects import Listed, StoreError, TakenError


class CutError(StoreError):
    """The request that was to be cut short."""


class ModelStore:
    """`Objects` in memory."""

    url = "s3://model/checkpoint"

    def __init__(self) -> None:
        self.there: dict[str, bytes] = {}
        self.modified: dict[str, datetime] = {}
        self.now = datetime(2026, 11, 23, tzinfo=UTC)
        self.requests: list[str] = []
        self.heeds_conditions = True
        self._cut_at: int | None = None
        self._cut_behind = False
        self._lock = threading.Lock()

    def cut(self, at: int, *, behind: bool) -> None:
        """Lets the request that comes `at` others from now fail: before, or behind what it does."""
        self._cut_at, self._cut_behind = len(self.requests) + at, behind

    def mend(self) -> None:
        """Lets no request fail."""
        self._cut_at = None

    def put_new(self, path: str, data: bytes) -> None:
        with self._lock, self._request(f"put {path}"):
            if path in self.there and self.heeds_conditions:
                raise TakenError(path)
            self._put(path, data)

    def put(self, path: str, data: bytes) -> None:
        with self._lock, self._request(f"put {path}"):
            self._put(path, data)

    def put_file(self, path: str, file: Path) -> None:
        self.put(path, file.read_bytes())

    def get(self, path: str) -> bytes:
        with self._lock, self._request(f"get {path}"):
            if path not in self.there:
                raise FileNotFoundError(path)
            return self.there[path]

    def list(self, directory: str) -> Sequence[Listed]:
        with self._lock, self._request(f"list {directory}"):
            return [
                Listed(path, self.modified[path]) for path in sorted(self.there) if path.startswith(f"{directory}/")
            ]

    def delete(self, paths: Iterable[str]) -> None:
        with self._lock, self._request("delete"):
            for path in paths:
                self.there.pop(path, None)

    def _put(self, path: str, data: bytes) -> None:
        self.now += timedelta(seconds=1)
        self.there[path], self.modified[path] = data, self.now

    def _request(self, what: str) -> "_Request":
        is_cut = self._cut_at == len(self.requests)
        self.requests.append(what)
        return _Request(what, is_cut=is_cut, behind=self._cut_behind)


class _Request:
    """What a request does stands in its body."""

    def __init__(self, what: str, *, is_cut: bool, behind: bool) -> None:
        self._what, self._is_cut, self._behind = what, is_cut, behind

    def __enter__(self) -> None:
        if self._is_cut and not self._behind:
            raise CutError(f"{self._what}: cut short before")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_cut and kind is None:
            raise CutError(f"{self._what}: its answer is lost")
