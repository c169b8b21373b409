"""What a stream's settings say of NATS."""

from typing import NamedTuple

from logboom.metadata import Stream

_PREFIX = "logboom.nats."


class Attachment(NamedTuple):
    """The settings `logboom.nats.*` of a stream that has subjects."""

    subjects: tuple[str, ...]
    group: str | None
    ack: str
    key: str
    partitioner: str


def attachment_of(stream: Stream) -> Attachment | None:
    """How a stream is attached to NATS; None where it is not."""

    def setting(name: str, default: str) -> str:
        return stream.overrides.get(f"{_PREFIX}{name}", default)

    subjects = tuple(part.strip() for part in setting("subjects", "").split(",") if part.strip())
    if stream.internal or not subjects:
        return None
    return Attachment(
        subjects,
        setting("group", "") or None,
        setting("ack", "commit"),
        setting("key", "header"),
        setting("partitioner", ""),
    )
