"""Dead letters are written and read whole, whatever their size and wherever an attempt to write them ended."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.edge.letters import Letter, ReadLetter, packed_records, usable_bytes, whole_letters
from logboom.pipeline.plan import names
from logboom.records import Codec, Record, build_batch, iter_records, read_header, seal_batch

LIMIT = 6_000


@dataclass
class Message:
    """A record as the consumer gives it."""

    record: Record
    at: int
    stream: str = "p.dead.s"
    kept: list[tuple[str, Any]] = field(default_factory=list)

    def topic(self) -> str:
        return self.stream

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 99)

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.record.headers)

    def error(self) -> None:
        return None


def _letter(origin: int, value: bytes | None, key: bytes | None = None, **more: Any) -> Letter:
    return Letter(
        stage="s",
        reason=more.pop("reason", "why"),
        form=names.FORM_RAW,
        origin=f"web/0/{origin}",
        pipeline="p",
        key=key,
        value=value,
        **more,
    )


def _stored(records: Iterable[Record]) -> list[Message]:
    return [Message(record, at) for at, record in enumerate(records)]


def _content(letter: Letter | ReadLetter) -> tuple[Any, ...]:
    return letter.key, letter.value, letter.headers


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LETTERS = st.builds(
    _letter,
    origin=st.integers(0, 3),
    value=st.none() | st.binary(max_size=40) | st.integers(1, 15_000).map(lambda size: b"v" * size),
    key=st.none() | st.integers(0, 9_000).map(lambda size: b"k" * size),
    headers=st.lists(
        st.tuples(TEXTS.map(lambda name: f"h{name}"), st.none() | st.integers(0, 9_000).map(lambda size: b"h" * size)),
        max_size=3,
    ).map(tuple),
    reason=TEXTS | st.just("r" * 20_000),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LETTERS, st.booleans(), st.integers(1, 5)), max_size=6))
def test_letters_come_back_whole_through_attempts_that_were_cut_short(
    given_letters: Sequence[tuple[Letter, bool, int]],
) -> None:
    written: list[Record] = []
    for letter, cut_short, reached in given_letters:
        records = letter.records(LIMIT)
        if cut_short and reached < len(records):
            written += records[:reached]
        written += records
    assert [_content(letter) for letter in whole_letters(_stored(written))] == [
        _content(letter) for letter, _, _ in given_letters
    ]


@settings(max_examples=40, deadline=None)
@given(LETTERS)
def test_every_record_of_a_letter_is_taken_by_its_stream(letter: Letter) -> None:
    for record in letter.records(LIMIT):
        assert len(build_batch([record])) <= LIMIT
    told = [dict(record.headers) for record in letter.records(LIMIT)]
    assert {one[names.HEADER_STAGE] for one in told} == {b"s"}
    assert {one[names.HEADER_ORIGIN] for one in told} == {letter.origin.encode()}


def test_letters_of_two_tasks_may_stand_between_each_others_parts() -> None:
    one, two = _letter(1, b"a" * 9_000).records(LIMIT), _letter(2, b"b" * 9_000).records(LIMIT)
    mixed = [record for pair in zip(one, two, strict=True) for record in pair]
    found = list(whole_letters(_stored(mixed)))
    assert [letter.value for letter in found] == [b"a" * 9_000, b"b" * 9_000]
    assert [letter.offset for letter in found] == [0, 1]


def test_a_letter_whose_last_part_is_not_there_yet_is_left_out() -> None:
    assert list(whole_letters(_stored(_letter(1, b"a" * 9_000).records(LIMIT)[:-1]))) == []


def test_pieces_of_letters_hold_all_records_in_order() -> None:
    records = [record for number in range(20) for record in _letter(number, b"v" * 100_000).records(1_048_588)]
    found = []
    for piece in packed_records(records):
        batch = bytes(seal_batch(bytes(piece.records), piece.count, codec=Codec.NONE, times_ms=(0, 0)))
        found += [record.value for record in iter_records(batch, 0, read_header(batch), 1 << 30)]
        assert len(batch) < 1_048_588
    assert found == [b"v" * 100_000] * 20


def test_what_a_record_may_take_leaves_room_for_its_batch() -> None:
    for limit in (1_000, 10_000, 1_048_588, 33 * 1024 * 1024):
        assert limit // 2 <= usable_bytes(limit) < limit
