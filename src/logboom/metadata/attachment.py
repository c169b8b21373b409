"""How a stream is attached to NATS: the kinds of values that its settings `logboom.nats.*` have, and what they mean.

They have no defaults of a broker: all brokers that hold partitions of a stream have to agree where a message goes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from logboom.base.subjects import PARTITION, covers, overlap, pattern_fault, without_partition
from logboom.metadata.setting_values import SettingType

SUBJECTS: Final = "logboom.nats.subjects"
GROUP: Final = "logboom.nats.group"
ACK: Final = "logboom.nats.ack"
KEY: Final = "logboom.nats.key"
PARTITIONER: Final = "logboom.nats.partitioner"
SERVICES: Final = "logboom.nats.services"
REPLIES: Final = "logboom.nats.replies"

REPLIES_DEFAULT: Final = "_INBOX.>"
"""Where clients of NATS have their replies sent to, unless they are told another prefix."""

SUBJECTS_MAX: Final = 100
GROUP_LENGTH_MAX: Final = 200
TOKENS_MAX: Final = 32
"""The highest number that a token of a subject is chosen by."""
BOUNDS_MAX: Final = 1_000
_GROUP: Final = re.compile(rf"[^\s,\x00-\x1f\x7f]{{1,{GROUP_LENGTH_MAX}}}")
_NUMBER: Final = re.compile(r"[1-9][0-9]?")
_ANSWERED: Final = ("$JS.>", "$SYS.>", "_INBOX.>")
_EVENTS: Final = ("$JS.EVENT.>", "$SYS.ACCOUNT.>")
"""What of the above is told to everyone, and answered by nobody. nats-server makes the same exceptions."""


class AckWhen(StrEnum):
    """What the ack of a message waits for."""

    COMMIT = "commit"
    LEADER = "leader"
    NONE = "none"


class KeySource(NamedTuple):
    """Where a record's key comes from."""

    kind: str
    """none, header, envelope, subject or token."""
    token: int = 0
    """Which token of the subject, from 1."""


class PartitionerKind(StrEnum):
    """By what the partition of a message is chosen."""

    KEY = "key"
    SUBJECT = "subject"
    TOKEN = "token"  # noqa: S105  # of a subject
    ROUND_ROBIN = "round_robin"
    RANGE = "range"


class PartitionerChoice(NamedTuple):
    """How the partition of a message is chosen, where its subject does not say it."""

    kind: PartitionerKind
    tokens: tuple[int, ...] = ()
    """Which tokens of the subject count, from 1; none for a range of keys."""
    bounds: tuple[str, ...] = ()
    """Of a range: what is not below the first bound goes to partition 1, and so on."""


def read_key(text: str) -> KeySource:
    """The meaning of a value of `logboom.nats.key`. Raises ValueError for none."""
    kind, colon, number = text.partition(":")
    if kind == "token" and _NUMBER.fullmatch(number) and int(number) <= TOKENS_MAX:
        return KeySource(kind, int(number))
    if colon or kind not in ("none", "header", "envelope", "subject"):
        raise ValueError
    return KeySource(kind)


def read_partitioner(text: str) -> PartitionerChoice:
    """The meaning of a value of `logboom.nats.partitioner`. Raises ValueError for none."""
    name, colon, rest = text.partition(":")
    kind = PartitionerKind(name)
    if kind is PartitionerKind.TOKEN:
        return PartitionerChoice(kind, tuple(_token(one) for one in rest.split("+")))
    if kind is PartitionerKind.RANGE:
        of, _, bounds = rest.partition(":")
        split = tuple(bounds.split(":"))
        ordered = [one.encode() for one in split]
        if not all(ordered) or ordered != sorted(set(ordered)) or len(split) > BOUNDS_MAX:
            raise ValueError
        return PartitionerChoice(kind, () if of == "key" else (_token(of),), split)
    if colon:
        raise ValueError
    return PartitionerChoice(kind)


def _token(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > TOKENS_MAX:
        raise ValueError
    return int(text)


@dataclass(frozen=True, slots=True)
class Subjects:
    """Patterns of subjects, separated by commas; none is no attachment."""

    type = SettingType.LIST
    expected = (
        f"up to {SUBJECTS_MAX} subjects of NATS, separated by commas and without blanks, with * for one token, > for "
        f"the rest, {PARTITION} for the partition's index; none that matches what another one does"
    )

    def parse(self, text: str) -> str:
        subjects = [one.strip() for one in text.split(",")] if text.strip() else []
        if len(subjects) > SUBJECTS_MAX:
            raise ValueError(self.expected)
        for place, subject in enumerate(subjects):
            fault = pattern_fault(subject) or _partition_fault(subject)
            if fault is not None:
                raise ValueError(f"{self.expected}; {subject!r} {fault}")
            for other in subjects[:place]:
                if overlap(without_partition(subject), without_partition(other)):
                    raise ValueError(f"{self.expected}; {other!r} and {subject!r} would store a message twice")
        return ",".join(subjects)


@dataclass(frozen=True, slots=True)
class Listened:
    """Patterns of subjects that are listened to and not answered, separated by commas."""

    type = SettingType.LIST
    expected = (
        f"up to {SUBJECTS_MAX} subjects of NATS, separated by commas and without blanks, with * for one token and > "
        "for the rest; none that matches what another one does"
    )

    def parse(self, text: str) -> str:
        subjects = [one.strip() for one in text.split(",")] if text.strip() else []
        if len(subjects) > SUBJECTS_MAX:
            raise ValueError(self.expected)
        for place, subject in enumerate(subjects):
            if (fault := pattern_fault(subject)) is not None:
                raise ValueError(f"{self.expected}; {subject!r} {fault}")
            if (other := _overlapping(subject, subjects[:place])) is not None:
                raise ValueError(f"{self.expected}; {other!r} and {subject!r} would record a message twice")
        return ",".join(subjects)


def _overlapping(subject: str, others: Iterable[str]) -> str | None:
    return next((other for other in others if overlap(without_partition(subject), without_partition(other))), None)


def _partition_fault(subject: str) -> str | None:
    count = subject.split(".").count(PARTITION)
    if subject.count(PARTITION) != count:
        return f"has {PARTITION} inside of a token: it stands alone between dots"
    return f"has {PARTITION} more than once" if count > 1 else None


@dataclass(frozen=True, slots=True)
class Group:
    """The name of a queue group; empty is none."""

    type = SettingType.STRING
    expected = f"a name of up to {GROUP_LENGTH_MAX} characters without blanks and commas, or nothing"

    def parse(self, text: str) -> str:
        name = text.strip()
        if name and not _GROUP.fullmatch(name):
            raise ValueError(self.expected)
        return name


@dataclass(frozen=True, slots=True)
class Key:
    """Where keys come from."""

    type = SettingType.STRING
    expected = f"none, header, envelope, subject, or token:N with N from 1 to {TOKENS_MAX}"

    def parse(self, text: str) -> str:
        try:
            read_key(text.strip())
        except ValueError:
            raise ValueError(self.expected) from None
        return text.strip()


@dataclass(frozen=True, slots=True)
class Partitioner:
    """How partitions are chosen."""

    type = SettingType.STRING
    expected = (
        "key, subject, round_robin, token:N or token:N+N+..., or a table of ranges: range:key:BOUND:BOUND:... or "
        "range:N:BOUND:BOUND:... with rising bounds, where N is the number of a token"
    )

    def parse(self, text: str) -> str:
        try:
            read_partitioner(text.strip())
        except ValueError:
            raise ValueError(self.expected) from None
        return text.strip()


def attachment_fault(overrides: Mapping[str, str], partitions: int) -> str | None:
    """What is wrong with the settings of a stream's attachment, taken together; one sentence. Each by itself is right.

    `partitions`: how many the stream has.
    """
    subjects = _listed(overrides.get(SUBJECTS, ""))
    if (fault := _services_fault(overrides, subjects)) is not None:
        return fault
    if not subjects:
        return None
    if overrides.get(ACK, AckWhen.COMMIT).strip() != AckWhen.NONE:
        for subject in map(without_partition, subjects):
            if (of := _answered_by_others(subject)) is not None:
                return (
                    f"{SUBJECTS} has {subject!r}, which matches subjects of {of!r} that others answer, or are answers: "
                    f"set {ACK}=none, or name subjects that do not"
                )
    if partitions == 1:
        return None
    choice = read_partitioner(overrides.get(PARTITIONER, PartitionerKind.KEY).strip())
    if len(choice.bounds) >= partitions:
        return (
            f"{PARTITIONER} has {len(choice.bounds)} bounds, which is for {len(choice.bounds) + 1} partitions, and the "
            f"stream has {partitions}"
        )
    plain = [subject for subject in subjects if PARTITION not in subject]
    if overrides.get(GROUP, "").strip() and plain and choice.kind is not PartitionerKind.ROUND_ROBIN:
        return (
            f"{GROUP} is set, so nats-server gives each message to one broker, and {PARTITIONER}={choice.kind} may "
            f"choose another: set {PARTITIONER}=round_robin, or have {PARTITION} in {plain[0]!r}, or one partition"
        )
    return None


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _services_fault(overrides: Mapping[str, str], subjects: Iterable[str]) -> str | None:
    """What is wrong with the services that are recorded in a stream, beside what else it takes."""
    replies = _listed(overrides.get(REPLIES, REPLIES_DEFAULT))
    for service in _listed(overrides.get(SERVICES, "")):
        if (other := _overlapping(service, subjects)) is not None:
            return f"{SERVICES} has {service!r} and {SUBJECTS} has {other!r}: a request would be stored twice"
        if (other := _overlapping(service, replies)) is not None:
            return f"{SERVICES} has {service!r} and {REPLIES} has {other!r}: a reply would be taken for a request"
    return None


def _answered_by_others(subject: str) -> str | None:
    """Whose requests and answers a pattern matches, if any."""
    if any(covers(events, subject) for events in _EVENTS):
        return None
    return next((one for one in _ANSWERED if overlap(one, subject)), None)


def is_attached(overrides: Mapping[str, str]) -> bool:
    """Whether a stream with these own settings takes messages of NATS."""
    return bool(overrides.get(SUBJECTS, "").strip())
