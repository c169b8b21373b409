"""What this broker does with the messages of one partition, while leaderships change. Pure.

    PUBLISHING    it leads: messages are published as they come
    TAKING_OVER   it leads, and asks the previous leader for what that one could not store: messages are held
    HANDING_OVER  another broker leads, or soon will: messages are held until that one asks for them
    ENDING        that one has asked: what is still on the way here is held too, up to the mark that both receive at the
                  same place (`is_cut`); and after the mark what a server gives to only one member of a queue group
    ENDED         all of that is here. What comes now is for the other broker only; it comes because this broker
                  continues a subscription for its other partitions

Both brokers receive the same messages for a while, each in its own order, and NATS numbers nothing. So messages that
both received are recognised by their content, byte for byte, and counted: of ten equal messages here and seven there,
three arrived only here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import Enum, auto
from itertools import compress
from typing import Final, NamedTuple

from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.nats.ingress.refusals import digest
from logboom.nats.link.frames import Delivery

MESSAGE_BYTES: Final = 256
"""What a message takes beside its bytes."""

Epochs = Sequence[tuple[int, int]]
"""Leader epochs of a log and the offset at which each began, rising."""


class HoldingState(Enum):
    """See the module."""

    PUBLISHING = auto()
    TAKING_OVER = auto()
    HANDING_OVER = auto()
    ENDING = auto()
    ENDED = auto()


class Unstored(NamedTuple):
    """A message that is not stored."""

    message: Delivery
    by_all: bool
    """Whether each broker that was subscribed has got it; else the server has chosen one of a queue."""

    @property
    def size_bytes(self) -> int:
        """The memory it takes."""
        _, subject, reply, header, payload = self.message
        return len(subject) + len(reply) + len(header) + len(payload) + MESSAGE_BYTES


class Doubt(NamedTuple):
    """A message that is in the log of a broker which ceased to lead before it was committed."""

    unstored: Unstored
    offset: Offset
    epoch: Epoch
    """Of its record."""
    ack: bytes
    """What is said to its publisher if the next leader has it; empty where nobody asks."""


class Resolved(NamedTuple):
    """What became of messages that were in doubt."""

    acks: Sequence[bytes]
    """What is said to the publishers of those that the next leader has, once it has committed them."""
    kept: int
    """How many those are, with those whose publishers ask for nothing."""
    lost: Sequence[Unstored]
    """Those that it does not have, in their order."""


class HeldMessages:
    """See the module. Life: from the beginning of a leadership until the next leader has what is held here."""

    __slots__ = (
        "_has_gap",
        "_mark",
        "_since",
        "_start",
        "asks_again",
        "doubts",
        "held",
        "index",
        "is_asking",
        "is_cut",
        "size_bytes",
        "state",
    )

    def __init__(self, index: int) -> None:
        """`index`: of the partition."""
        self.index = index
        self.state = HoldingState.TAKING_OVER
        self.is_asking = False
        """Whether another broker is being asked for what it holds."""
        self.asks_again = False
        """Whether a later leadership of this broker has begun meanwhile: then there is another one to be asked."""
        self.is_cut = False
        """Whether what the server gives to all is the other broker's from now on."""
        self.held: list[Unstored] = []
        self.size_bytes = 0
        """Of what is held."""
        self.doubts: list[Doubt] = []
        self._start = 0
        self._has_gap = False
        self._mark: int | None = None
        self._since: int = NO_EPOCH

    @property
    def is_publishing(self) -> bool:
        """Whether messages are published."""
        return self.state is HoldingState.PUBLISHING

    @property
    def is_handing_over(self) -> bool:
        """Whether another broker is to have what is held."""
        return self.state in (HoldingState.HANDING_OVER, HoldingState.ENDING, HoldingState.ENDED)

    @property
    def is_leaving(self) -> bool:
        """Whether that one has asked for it."""
        return self.state in (HoldingState.ENDING, HoldingState.ENDED)

    def hold(self, unstored: Unstored) -> None:
        """Keep a message."""
        self.held.append(unstored)
        self.size_bytes += unstored.size_bytes

    def missed(self) -> None:
        """The connection was lost: this broker lacks what others receive from now on until it is connected again."""
        self._has_gap = self._has_gap or bool(self.held)

    def publish(self, epoch: int) -> None:
        """This broker leads, in this leader epoch, and has nothing to wait for."""
        self.state, self._since = HoldingState.PUBLISHING, epoch

    def begin(self) -> None:
        """What was published before this broker led has arrived here. The previous leader may have stored it: this
        broker may get a message through the log before it reads it here."""
        self._start, self._mark = len(self.held), None

    def mark(self) -> None:
        """The other broker has what came until now, and nothing of what comes from now on, unless it marks again."""
        self._mark = len(self.held)

    def unmark(self) -> None:
        """Another broker will ask, or be asked."""
        self._start, self._mark = 0, None

    def written_by_others(self, epochs: Epochs, epoch: int) -> tuple[int, int] | None:
        """The range of offsets that leaders have written between this broker's last leadership and that in `epoch`;
        None if nothing held here depends on that, or if this broker has not led."""
        if not self._start or self._since == NO_EPOCH:
            return None
        starts = [start for known, start in epochs if self._since < known < epoch]
        ends = [start for known, start in epochs if known >= epoch]
        return (starts[0], ends[0]) if starts and ends else None

    def without_others(self, epochs: Epochs, epoch: int) -> Epochs:
        """These epochs without those in which others have led since this broker last led."""
        return [each for each in epochs if not self._since < each[0] < epoch]

    def take_over(
        self, others: Sequence[Unstored] | None, epochs: Epochs, epoch: int, refused: Sequence[bytes] = ()
    ) -> Sequence[Unstored]:
        """Merge what the previous leader has held into what arrived here, in its order, without what both have
        received. None: it has reported nothing. `epochs`: of the log of this broker, which leads in `epoch`; epochs in
        which no NATS message was stored may be left out.

        If leaders have stored records since this broker last led, the previous leader alone reports what arrived here
        before `begin`, because they received that too. If it reports nothing, those messages are returned and not
        stored here: they would be stored a second time, behind later ones. This does not apply to a queue group, where
        a server gives a message to one broker only.

        `refused`: digests of the messages that the previous leader has told publishers were not stored. They are left
        out here too, except for those that it held: an equal message that it held was published again.
        """
        theirs = self._start if any(self._since < known < epoch for known, _ in epochs) else 0
        gone = self._insert(others or (), theirs, Counter(refused))
        self.unmark()
        self._since = epoch
        return gone if others is None else ()

    def _insert(self, others: Sequence[Unstored], theirs: int, refused: Mapping[bytes, int]) -> Sequence[Unstored]:
        """Put what did not arrive here before what did. If a connection that was lost for a moment has left a gap here,
        put it instead at its place among what both have received, up to the mark. Of the first `theirs` messages here
        only those stay that are among the others. Returns those that do not stay, without the refused."""
        places: dict[tuple[bytes, ...], list[int]] = {}
        mark = len(self.held) if self._mark is None else self._mark
        for place, one in enumerate(self.held[:mark]):
            if one.by_all:
                places.setdefault(one.message[1:], []).append(place)
        before: int | None = None
        stays = [place >= theirs or not one.by_all for place, one in enumerate(self.held)]
        more, last = list[tuple[int, Unstored]](), list[Unstored]()
        for one in reversed(others):  # the later of equal ones are those that arrived here, too
            known = places.get(one.message[1:]) if one.by_all else None
            if known:
                place = known.pop()
                stays[place] = True
                if before is None:
                    more = [(place + 1, each) for each in last]
                before = place if before is None else min(before, place)
            elif before is None:
                last.append(one)
            else:
                more.append((before, one))
        if before is None:
            more = [(0, each) for each in last]
        answered = _refused_places(places, refused)
        for place in answered:
            stays[place] = False
        if not self._has_gap:
            # It was on its way before this broker was subscribed, and so was all that its publisher has sent before.
            more = [(0, one) for _, one in more]
        merged, at = list[Unstored](), 0
        for place, one in reversed(more):
            merged += compress(self.held[at:place], stays[at:place])
            merged.append(one)
            at = place
        left_out = [(place, one) for place, one in enumerate(self.held) if not stays[place]]
        self.held = [*merged, *compress(self.held[at:], stays[at:])]
        self.size_bytes += sizes([one for _, one in more]) - sizes(one for _, one in left_out)
        return tuple(one for place, one in left_out if place not in answered)

    def put_first(self, more: Sequence[Unstored]) -> None:
        """Put messages before all that are held."""
        self.held[:0] = more
        self.size_bytes += sizes(more)
        self._start += len(more)
        self._mark = None if self._mark is None else self._mark + len(more)

    def take(self) -> Sequence[Unstored]:
        """All that was held; nothing is held then."""
        held, self.held, self.size_bytes, self._has_gap = self.held, [], 0, False
        self.unmark()
        return held

    def resolve(self, epochs: Epochs) -> Resolved:
        """What became of the messages in doubt, by the log of the next leader: its epochs up to the one in which it
        leads."""
        doubts, self.doubts = self.doubts, []
        kept = [one for one in doubts if epoch_at(epochs, one.offset) == one.epoch]
        lost = [one.unstored for one in doubts if epoch_at(epochs, one.offset) != one.epoch]
        return Resolved([one.ack for one in kept if one.ack], len(kept), lost)


def _refused_places(places: Mapping[tuple[bytes, ...], Sequence[int]], refused: Mapping[bytes, int]) -> Set[int]:
    """Where those messages stand that were refused; of equal ones the first."""
    if not refused:
        return frozenset()
    return frozenset(place for words, found in places.items() for place in found[: refused.get(digest(words), 0)])


def epoch_at(epochs: Epochs, offset: int) -> int:
    """The epoch in which the record at `offset` was written; -1 below the first that is known.

    >>> epoch_at([(3, 0), (5, 100)], 99)
    3
    """
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), -1)


def sizes(some: Iterable[Unstored]) -> int:
    """The memory that messages take together."""
    return sum(one.size_bytes for one in some)
