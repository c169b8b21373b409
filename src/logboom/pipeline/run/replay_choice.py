"""Chooses whether a replay reads the log, an archive, or the archive up to an offset and the log from there.

The log is used if it has the whole time range. Records that it has deleted come from an archive, if the archive's files
show that it is complete: it starts before the time range, reaches to the log's start offset, and lacks no more offsets
in between than the number of records that the pipeline has dropped on the way to it. No event is read twice, because
the border is an offset of each partition on both sides. A transform with state would start with an empty state at the
border; then everything comes from the archive.

Pure. Must not know brokers, files or the command line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from logboom.pipeline.run.archive_slices import Origin
from logboom.pipeline.run.held_offsets import HeldOffsets, Missing

_NAMED_MAX: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """What the log has of a partition."""

    start: int
    """Log start offset."""
    since: int
    """The first offset in the time range."""
    until: int
    """The first offset after the time range."""
    is_cut: bool
    """Whether records of the time range may have been deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart:
    """What an archive has of one partition of origin."""

    first_ms: int
    """When its first event was seen, in milliseconds since 1970."""
    first: int
    """The lowest offset."""
    last: int
    """The highest."""
    older: int = 0
    """Number of events in the time range before the log start offset."""
    before: int | None = None
    """The highest offset, before the log start offset if the log has deleted records, of an event before the time
    range."""
    after: int | None = None
    """The lowest offset of an event after the time range."""
    offsets: HeldOffsets | None = None
    """All its offsets; None if they were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """A readable archive of the pipeline."""

    name: str
    unfit: str | None = None
    """Why it cannot be used for the requested events, whatever it contains."""
    held: Mapping[Origin, HeldPart] | None = None
    """What it has of each partition; None if that was not read."""
    lost_max: int | None = None
    """How many records the pipeline has dropped on the way to it; None if that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where a replay reads from."""

    source: Literal["log", "archive", "both"]
    why: str
    archive: str | None = None
    seam: Mapping[Origin, int] | None = None
    """For both: the first offset to read from the log, of each partition whose earlier records are in the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """Why none of them is complete: what is missing from each."""

    lines: tuple[str, ...]


def choose(
    from_ms: int,
    log: Mapping[Origin, LogPart],
    archives: Sequence[ArchiveState],
    remembering: str | None = None,
    *,
    partial: bool = False,
) -> Choice | Incomplete:
    """`remembering`: a transform of the replay that has a state. `partial`: missing records are acceptable."""
    cut = {origin: part for origin, part in log.items() if part.is_cut}
    if not cut:
        return Choice(source="log", why="it has all of that time")
    missing = [f"the log has deleted older records of {_named(cut)}, perhaps some of that time"]
    fit = [archive for archive in archives if archive.unfit is None]
    for archive in fit:
        if remembering is None:
            wanted = {origin: part.start for origin, part in cut.items()}
        else:
            wanted = {origin: part.until for origin, part in log.items() if part.is_cut or part.until > part.since}
        gaps = [gap for origin, upto in wanted.items() for gap in _gaps(from_ms, archive, origin, log[origin], upto)]
        gaps = gaps or list(_holes(archive, wanted))
        if not gaps:
            return _of_archive(archive, cut, remembering)
        more = "" if len(gaps) <= _NAMED_MAX else f" and {len(gaps) - _NAMED_MAX} more"
        missing.append(f"the archive {archive.name} may lack {', '.join(gaps[:_NAMED_MAX])}{more}")
    if partial:
        most = max(fit, key=lambda archive: _older(archive, cut), default=None)
        if most is None or remembering is not None or not _older(most, cut):
            return Choice(source="log", why="no archive is known to have more; deleted records are left out")
        return _of_archive(most, cut, None)
    missing += [
        f"the archive {archive.name} cannot be used instead: {archive.unfit}" for archive in archives if archive.unfit
    ]
    return Incomplete(lines=tuple(missing))


def _of_archive(archive: ArchiveState, cut: Mapping[Origin, LogPart], remembering: str | None) -> Choice:
    named = _named(cut)
    if remembering is not None:
        why = (
            f"the log has deleted older records of {named}, and {remembering} would lose its state between archive "
            "and log"
        )
        return Choice(source="archive", archive=archive.name, why=why)
    older = _older(archive, cut)
    if not older:
        why = f"the log has deleted older records of {named}, but the archive {archive.name} has none of that time"
        return Choice(source="log", why=why)
    seam = {origin: part.start for origin, part in cut.items()}
    why = (
        f"the log has deleted older records of {named}, and {archive.name} has {older:,} events of that time before it"
    )
    return Choice(source="both", archive=archive.name, seam=seam, why=why)


def _older(archive: ArchiveState, cut: Mapping[Origin, LogPart]) -> int:
    held = archive.held or {}
    return sum(held[origin].older for origin in cut if origin in held)


def _gaps(from_ms: int, archive: ArchiveState, origin: Origin, part: LogPart, upto: int) -> Iterator[str]:
    """What an archive may lack of a partition, from the start of the time range to an offset."""
    name, held = f"{origin.stream}/{origin.partition}", (archive.held or {}).get(origin)
    if held is None:
        yield f"all of {name} before offset {upto}"
        return
    reaches_back = held.first_ms < from_ms or held.first == 0 or (not part.is_cut and held.first <= part.since)
    if not reaches_back:
        yield f"{name} before {datetime.fromtimestamp(held.first_ms / 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    if held.last < upto - 1:
        yield f"{name} from offset {held.last + 1} to {upto - 1}"


def _holes(archive: ArchiveState, wanted: Mapping[Origin, int]) -> Iterator[str]:
    """The gaps of an archive, if they have more offsets than the pipeline has dropped on the way to it."""
    held = archive.held or {}
    found = {origin: missing for origin, upto in wanted.items() if (missing := _missing(held[origin], upto))}
    if archive.lost_max is None or sum(missing.offsets for missing in found.values()) <= archive.lost_max:
        return
    for origin, missing in found.items():
        rest = missing.offsets - (missing.behind - missing.first)
        more = f" and {rest:,} more between" if rest else ""
        yield f"{origin.stream}/{origin.partition} from offset {missing.first} to {missing.behind - 1}{more}"


def _missing(held: HeldPart, upto: int) -> Missing | None:
    """Number of events in the time range, up to an offset."""
    first = held.first if held.before is None else held.before + 1
    end = upto if held.after is None else min(upto, held.after)
    return None if held.offsets is None or first >= end else held.offsets.missing(first, end)


def _named(cut: Mapping[Origin, LogPart]) -> str:
    return ", ".join(dict.fromkeys(origin.stream for origin in sorted(cut)))
