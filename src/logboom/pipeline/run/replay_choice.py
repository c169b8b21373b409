"""Chooses where a replay reads from: the log, an archive, or what is before a seam from an archive and the rest from
the log.

The log is read where it has all of the time that is asked for. What it has deleted comes from an archive, of which is
believed what its files show: it reaches back behind the beginning of that time, and on to where the log begins, and in
between it lacks no more offsets than the pipeline has dropped records or given up on the way to it. No event comes
twice: the seam is an offset of each partition, and both sides know events by it. A transform that remembers would begin
anew at the seam, so that all comes from the archive then.

A pure rule over offsets. Must not know brokers, files or the command line.
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
    """What the log holds of a partition."""

    start: int
    """The first offset that it holds."""
    since: int
    """The first that it holds of the time that is asked for."""
    until: int
    """The first behind that time."""
    is_cut: bool
    """Whether records of that time may be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart:
    """What an archive holds of a partition that its events came from."""

    first_ms: int
    """When its first event was seen, in milliseconds since 1970."""
    first: int
    """The lowest offset."""
    last: int
    """The highest."""
    older: int = 0
    """Events of the time that is asked for, before the log's first offset."""
    before: int | None = None
    """The highest offset, in front of the log's first where it has deleted some, of an event seen before that time."""
    after: int | None = None
    """The lowest offset of an event that was seen behind it."""
    offsets: HeldOffsets | None = None
    """All of them; None if they were not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """An archive of the pipeline that could be read."""

    name: str
    unfit: str | None = None
    """Why the events that are asked for cannot come from it, whatever it holds."""
    held: Mapping[Origin, HeldPart] | None = None
    """None if it was not looked at."""
    lost_max: int | None = None
    """How many records the pipeline has dropped or given up on the way to it; None if nobody has counted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where a replay reads from."""

    source: Literal["log", "archive", "both"]
    why: str
    archive: str | None = None
    seam: Mapping[Origin, int] | None = None
    """With both: the first offset that comes from the log, of each partition of which the archive has the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """Why there is no choice: what is missing from each."""

    lines: tuple[str, ...]


def choose(
    from_ms: int,
    log: Mapping[Origin, LogPart],
    archives: Sequence[ArchiveState],
    remembering: str | None = None,
    *,
    partial: bool = False,
) -> Choice | Incomplete:
    """`remembering`: a transform of the replay that has a state. `partial`: what is missing may be so."""
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
            return Choice(source="log", why="no archive is known to have more; what it has deleted is left out")
        return _of_archive(most, cut, None)
    missing += [f"the archive {archive.name} cannot stand in: {archive.unfit}" for archive in archives if archive.unfit]
    return Incomplete(lines=tuple(missing))


def _of_archive(archive: ArchiveState, cut: Mapping[Origin, LogPart], remembering: str | None) -> Choice:
    named = _named(cut)
    if remembering is not None:
        why = f"the log has deleted older records of {named}, and {remembering} would forget between archive and log"
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
    """What of a partition an archive may lack, from the beginning of the time that is asked for up to an offset."""
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
    """Where an archive has no events in between, if these are more than the pipeline has dropped on the way to it."""
    held = archive.held or {}
    found = {origin: missing for origin, upto in wanted.items() if (missing := _missing(held[origin], upto))}
    if archive.lost_max is None or sum(missing.offsets for missing in found.values()) <= archive.lost_max:
        return
    for origin, missing in found.items():
        rest = missing.offsets - (missing.behind - missing.first)
        more = f" and {rest:,} more between" if rest else ""
        yield f"{origin.stream}/{origin.partition} from offset {missing.first} to {missing.behind - 1}{more}"


def _missing(held: HeldPart, upto: int) -> Missing | None:
    """Of the time that is asked for, up to an offset."""
    first = held.first if held.before is None else held.before + 1
    end = upto if held.after is None else min(upto, held.after)
    return None if held.offsets is None or first >= end else held.offsets.missing(first, end)


def _named(cut: Mapping[Origin, LogPart]) -> str:
    return ", ".join(dict.fromkeys(origin.stream for origin in sorted(cut)))
