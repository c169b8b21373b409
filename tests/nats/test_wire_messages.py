"""What of a message becomes a record, what its publisher asks for, and the answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nats.envelopes import message as enveloped
from tests.nats.envelopes import sealed

from logboom.base.errors import (
    DiskFullError,
    InvalidRecordError,
    InvalidStreamNameError,
    LogboomError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderError,
    OverloadedError,
    StorageError,
    UnknownStreamError,
    WrongLastMessageIdError,
    WrongLastOffsetError,
)
from logboom.base.ids import Offset
from logboom.broker.partition.publications import Terms
from logboom.nats.wire.acks import ack, error_ack
from logboom.nats.wire.envelope import MAGIC
from logboom.nats.wire.errors import HeaderError, MessageRefusedError, WrongStreamError
from logboom.nats.wire.messages import Message, Reader
from logboom.records import Record, batch_of, iter_records, read_header


def block(*fields: tuple[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"NATS/1.0\r\n{lines}\r\n".encode() if fields else b""


def read(
    reader: Reader, payload: bytes = b"v", *fields: tuple[str, str], subject: str = "a.b.c", reply: str = ""
) -> Message:
    found = reader.read(subject.encode(), reply.encode(), block(*fields), payload)
    assert found is not None
    return found


def record_of(found: Message) -> Record:
    batch = batch_of([found.content], 7)
    (record,) = iter_records(batch, 0, read_header(batch), 1 << 20)
    return record


def reader(**settings: str) -> Reader:
    return Reader("s", **{"key": "header", "ack": "commit", **settings})  # type: ignore[arg-type]


def test_a_plain_message_is_its_payload_with_subject_and_reply_behind() -> None:
    record = record_of(read(reader(), b"payload"))
    assert (record.key, record.value) == (None, b"payload")
    assert record.headers == (("logboom-subject", b"a.b.c"),)
    replied = read(reader(), b"", reply="_INBOX.x")
    assert record_of(replied).headers == (("logboom-reply", b"_INBOX.x"), ("logboom-subject", b"a.b.c"))
    assert record_of(replied).value == b""
    assert (replied.reply, replied.acks, replied.terms) == (b"_INBOX.x", -1, None)


def test_headers_are_stored_in_order_and_what_belongs_to_the_request_is_not() -> None:
    found = read(
        reader(),
        b"v",
        ("A", "1"),
        ("Nats-Msg-Id", "id-1"),
        ("a", "2"),
        ("Nats-Expected-Stream", "s"),
        ("A", "3"),
        ("Nats-Expected-Last-Sequence", "5"),
        ("Nats-Expected-Last-Msg-Id", "id-0"),
        ("Logboom-Ack", "leader"),
        ("Logboom-Key", "k"),
        reply="r",
    )
    record = record_of(found)
    assert record.key == b"k"
    assert record.headers == (
        ("A", b"1"),
        ("Nats-Msg-Id", b"id-1"),
        ("a", b"2"),
        ("A", b"3"),
        ("logboom-reply", b"r"),
        ("logboom-subject", b"a.b.c"),
    )
    assert found.terms == Terms(b"id-1", Offset(5), b"id-0")
    assert found.acks == 1


def test_the_first_of_a_repeated_header_counts_and_its_case_matters() -> None:
    found = read(reader(), b"v", ("nats-msg-id", "no"), ("Nats-Msg-Id", "one"), ("Nats-Msg-Id", "two"))
    assert found.terms == Terms(b"one")
    assert read(reader(), b"v", ("Nats-Msg-Id", ""), ("Nats-Expected-Last-Sequence", "")).terms is None


@pytest.mark.parametrize(
    ("key", "subject", "expected"),
    [
        ("none", "a.b.c", None),
        ("header", "a.b.c", b"h"),
        ("envelope", "a.b.c", None),
        ("subject", "a.b.c", b"a.b.c"),
        ("token:2", "a.b.c", b"b"),
        ("token:4", "a.b.c", None),
    ],
)
def test_keys_come_from_where_the_stream_says(key: str, subject: str, expected: bytes | None) -> None:
    found = read(reader(key=key), b"v", ("Logboom-Key", "h"), subject=subject)
    assert record_of(found).key == expected
    if expected != b"h":
        assert record_of(read(reader(key=key), subject=subject)).key == expected


@pytest.mark.parametrize(("setting", "acks"), [("commit", -1), ("leader", 1), ("none", 0)])
def test_acks_are_as_the_stream_says_and_a_message_may_say_otherwise(setting: str, acks: int) -> None:
    found = read(reader(ack=setting), reply="r")
    assert (found.acks, found.reply) == (acks, b"r" if acks else b"")
    silent = read(reader(ack=setting), b"v", ("Logboom-Ack", "none"), reply="r")
    assert (silent.acks, silent.reply) == (0, b"")
    assert read(reader(ack=setting), b"v", ("Logboom-Ack", "commit"), reply="r").acks == -1


@pytest.mark.parametrize("setting", ["commit", "leader", "none"])
def test_who_gets_no_ack_gets_no_refusal_either(setting: str) -> None:
    """Of messages that are refused without being read to their end, and where what they say cannot be read."""
    by_setting = b"" if setting == "none" else b"r"
    for block, expected in (
        (b"", by_setting),
        (b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n", by_setting),
        (b"NATS/1.0\r\nLogboom-Ack: none\r\n\r\n", b""),
        (b"NATS/1.0\r\nLogboom-Ack: leader\r\n\r\n", b"r"),
        (b"NATS/1.0\r\nLogboom-Ack: perhaps\r\n\r\n", by_setting),
        (b"no header block", by_setting),
    ):
        assert reader(ack=setting).refusal_reply(b"r", block, b"payload") == (expected, None)


@pytest.mark.parametrize("setting", ["commit", "none"])
@pytest.mark.parametrize("block", [b"", b"NATS/1.0\r\nLogboom-Ack: none\r\n\r\n", b"no header block"])
def test_an_envelope_says_where_its_refusal_goes_too(setting: str, block: bytes) -> None:
    for policy, inbox, expected in ((0, "acks", b"acks"), (1, "acks", b"acks"), (2, "acks", b""), (1, "", b"")):
        payload = sealed(enveloped(b"v", inbox=inbox, correlation="c", policy=policy))
        reply, envelope = reader(ack=setting).refusal_reply(b"r", block, payload)
        assert reply == expected
        assert envelope is not None
        assert envelope.correlation_id == b"c"
    damaged = sealed(enveloped(b"v", inbox="acks", policy=2), crc=True)[:-1]
    by_setting = reader(ack=setting).refusal_reply(b"r", block, b"payload")
    assert reader(ack=setting).refusal_reply(b"r", block, damaged) == by_setting, "what cannot be read chooses nothing"


def test_an_envelope_is_opened_and_says_where_the_ack_goes() -> None:
    body = enveloped(b"inner", key=b"ek", headers={"e": b"1"}, inbox="acks", correlation="c", policy=1)
    found = read(reader(ack="leader"), sealed(body), ("n", "2"), reply="r")
    record = record_of(found)
    assert (record.key, record.value) == (b"ek", b"inner")
    assert record.headers == (("n", b"2"), ("e", b"1"), ("logboom-reply", b"r"), ("logboom-subject", b"a.b.c"))
    assert (found.reply, found.acks) == (b"acks", -1)
    assert found.envelope is not None
    assert found.envelope.correlation_id == b"c"
    keyed = read(reader(), sealed(body), ("Logboom-Key", "hk"))
    assert record_of(keyed).key == b"hk"
    assert record_of(read(reader(key="envelope"), sealed(body), ("Logboom-Key", "hk"))).key == b"ek"
    assert record_of(read(reader(key="token:1"), sealed(body))).key == b"a"
    named = read(reader(), sealed(enveloped(b"v", headers={"Nats-Msg-Id": b"id"})))
    assert named.terms == Terms(b"id"), "what another leader would find in the record"
    with pytest.raises(MessageRefusedError):
        read(reader(), sealed(enveloped(b"v", headers={"logboom-expected-offset": b"1"})))
    plain = read(reader(), sealed(b"not protobuf at all"))
    assert record_of(plain).value == sealed(b"not protobuf at all")


@pytest.mark.parametrize("block", [b"", b"NATS/1.0\r\na: b\r\n\r\n"])
def test_messages_of_a_batch_are_refused_by_their_reply_subjects(block: bytes) -> None:
    """The first was acked, which its publisher took for the beginning of a batch, and waited for its end in vain."""
    reader, reply = Reader("orders", key="none", ack="commit"), b"_INBOX.a.K7PjI3E6.5.fail.1.0.$FI"
    with pytest.raises(MessageRefusedError) as refused:
        reader.read(b"q", reply, block, b"1")
    told = json.loads(error_ack("orders", refused.value))["error"]
    assert told == {"code": 400, "err_code": 10205, "description": "batch publish is disabled"}
    assert reader.read(b"q", reply, block, b"1", partition=0, takes=lambda _: False) is None
    assert reader.read_alike(b"q", [b"_INBOX.a", reply], [b"1", b"2"], takes=lambda _: True) is None
    assert reader.read(b"q", b"_INBOX.$FI.a", block, b"1") is not None


@pytest.mark.parametrize(
    ("fields", "code", "err_code", "description"),
    [
        ([("Nats-Expected-Stream", "other")], 400, 10060, "expected stream does not match"),
        ([("Nats-Rollup", "sub")], 500, 10111, "rollup not permitted"),
        ([("Nats-TTL", "1h")], 400, 10166, "per-message TTL is disabled"),
        ([("Nats-Incr", "+1")], 400, 10168, "message counters is disabled"),
        ([("Nats-Batch-Id", "b")], 400, 10174, "atomic publish is disabled"),
        ([("Nats-Schedule", "@every 1s")], 400, 10188, "message schedules is disabled"),
        ([("Nats-Expected-Last-Subject-Sequence", "1")], 400, 10003, "bad request: sequences of single subjects"),
        (
            [("Nats-Expected-Last-Subject-Sequence-Subject", "a")],
            400,
            10193,
            "missing sequence for expected last sequence",
        ),
        ([("Nats-Expected-Last-Sequence", "-1")], 400, 10003, "bad request: '-1' is no sequence"),
        ([("Nats-Expected-Last-Sequence", "1" * 20)], 400, 10003, "is no sequence"),
        ([("Logboom-Ack", "all")], 400, 10003, "should be commit, leader or none"),
        ([("logboom-expected-offset", "1")], 400, 10003, "is for producers of Kafka"),
    ],
)
def test_what_is_not_done_is_refused_as_jetstream_does(
    fields: list[tuple[str, str]], code: int, err_code: int, description: str
) -> None:
    with pytest.raises(MessageRefusedError) as refused:
        read(reader(), b"v", *fields)
    told = json.loads(error_ack("s", refused.value))
    assert (told["stream"], told["seq"]) == ("s", 0)
    assert (told["error"]["code"], told["error"]["err_code"]) == (code, err_code)
    assert description in told["error"]["description"]


@pytest.mark.parametrize(
    ("error", "code", "err_code", "description"),
    [
        (WrongLastOffsetError(Offset(41), Offset(7)), 400, 10071, "wrong last sequence: 41"),
        (WrongLastMessageIdError(b"last", b"other"), 400, 10070, "wrong last msg ID: last"),
        (WrongLastMessageIdError(None, b"other"), 400, 10070, "wrong last msg ID: "),
        (WrongStreamError("x"), 400, 10060, "expected stream does not match"),
        (MessageTooLargeError("x"), 400, 10054, "message size exceeds maximum allowed"),
        (UnknownStreamError("x"), 404, 10059, "stream not found"),
        (HeaderError("bad request: x"), 400, 10003, "bad request: x"),
        (InvalidRecordError("x"), 400, 10003, "bad request: x"),
        (InvalidStreamNameError("x"), 400, 10003, "bad request: x"),
        (OverloadedError("x"), 503, 10023, "insufficient resources: x"),
        (DiskFullError("x"), 500, 10047, "insufficient storage resources available: x"),
        (StorageError("x"), 503, 10077, "x"),
        (NotLeaderError("x"), 503, 10008, "JetStream system temporarily unavailable: x"),
        (NotEnoughReplicasError("x"), 503, 10008, "JetStream system temporarily unavailable: x"),
    ],
)
def test_errors_are_those_of_jetstream(error: LogboomError, code: int, err_code: int, description: str) -> None:
    told = json.loads(error_ack("s", error))["error"]
    assert told == {"code": code, "err_code": err_code, "description": description}


def test_acks_are_those_of_jetstream() -> None:
    assert json.loads(ack("s", 0)) == {"stream": "s", "seq": 1}
    assert json.loads(ack("s", 9, duplicate=True)) == {"stream": "s", "seq": 10, "duplicate": True}


def test_only_the_broker_of_the_partition_refuses() -> None:
    spread = Reader("s", key="header", ack="commit", partitioner="subject", partitions=3)
    home = read(spread).partition
    for broken in ((b"NATS/1.0\r\nbroken\r\n\r\n", b"v"), (b"", sealed(b"x", crc=True)[:-1] + b"y")):
        taken = (lambda index: index == home), (lambda index: index != home)
        with pytest.raises(MessageRefusedError):
            spread.read(b"a.b.c", b"", *broken, takes=taken[0])
        assert spread.read(b"a.b.c", b"", *broken, takes=taken[1]) is None


settings = st.tuples(
    st.sampled_from(["none", "header", "envelope", "subject", "token:2"]),
    st.sampled_from(["key", "subject", "token:1+3", "range:key:g:n", "range:2:b", "round_robin"]),
)
subjects = st.lists(st.sampled_from(["a", "b", "long-token", "ü"]), min_size=1, max_size=4).map(".".join)


@given(settings, subjects, st.sampled_from(["", "r"]), st.binary(max_size=40))
def test_the_short_way_and_the_long_way_read_alike(
    chosen: tuple[str, str], subject: str, reply: str, payload: bytes
) -> None:
    key, partitioner = chosen
    one = Reader("s", key=key, ack="commit", partitioner=partitioner, partitions=3)
    short = one.read(subject.encode(), reply.encode(), b"", payload)
    long = one.read(subject.encode(), reply.encode(), b"NATS/1.0\r\n\r\n", payload)
    assert short == long


@given(settings, subjects, st.lists(st.tuples(st.sampled_from([b"", b"", b"r", b"_INBOX.x"]), st.binary(max_size=20))))
def test_messages_of_one_subject_read_as_each_alone(
    chosen: tuple[str, str], subject: str, messages: list[tuple[bytes, bytes]]
) -> None:
    key, partitioner = chosen
    one = Reader("s", key=key, ack="leader", partitioner=partitioner, partitions=3)
    replies, payloads = [reply for reply, _ in messages], [payload for _, payload in messages]
    together = one.read_alike(subject.encode(), replies, payloads, takes=lambda _: True)
    if any(payload.startswith(MAGIC) for payload in payloads):
        assert together is None
        return
    alone = [one.read(subject.encode(), reply, b"", payload) for reply, payload in messages]
    assert together is not None
    assert together.contents == [each.content for each in alone if each is not None]
    assert list(together.replies) == replies
    assert together.acks == 1
    assert {together.partition} >= {each.partition for each in alone if each is not None}
    elsewhere = one.read_alike(subject.encode(), replies, payloads, takes=lambda index: index != together.partition)
    assert elsewhere is not None
    assert elsewhere.contents == []


@given(
    st.sampled_from(["none", "subject"]),
    st.lists(st.binary(min_size=4, max_size=4), min_size=1, max_size=9),
    st.booleans(),
)
def test_messages_of_one_size_read_as_each_alone(key: str, texts: list[bytes], are_answered: bool) -> None:
    one, subject = Reader("s", key=key, ack="commit"), b"100%.%b.%%"
    replies = [b"%%b.$%d" % (number % 10) if are_answered else b"" for number in range(len(texts))]
    together = one.read_alike(subject, replies, texts, of_one_size=True, takes=lambda _: True)
    if together is not None:  # else one looks like an envelope
        alone = [one.read(subject, reply, b"", text) for reply, text in zip(replies, texts, strict=True)]
        assert list(together.contents) == [each.content for each in alone if each is not None]
        assert list(together.replies) == replies


def test_messages_of_one_subject_are_read_one_by_one_where_one_is_in_an_envelope() -> None:
    one = Reader("s", key="none", ack="commit")
    assert one.read_alike(b"a", [b"", b""], [b"v", sealed(b"x")], takes=lambda _: True) is None


def mutations(original: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with some of them changed, cut or added."""

    def changed(edits: list[tuple[int, bytes]]) -> bytes:
        out = original
        for at, new in edits:
            at %= len(out) + 1
            out = out[:at] + new + out[at + 1 :]
        return out

    return st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=2)), max_size=4).map(changed)


@given(
    mutations(block(("Nats-Msg-Id", "x"), ("Nats-Expected-Last-Sequence", "1"), ("Logboom-Ack", "none"))),
    mutations(sealed(enveloped(b"v", key=b"k", headers={"h": b"1"}, inbox="i", policy=2), crc=True)),
    settings,
)
def test_mutated_messages_raise_nothing_but_a_refusal(header: bytes, payload: bytes, chosen: tuple[str, str]) -> None:
    one = Reader("s", key=chosen[0], ack="commit", partitioner=chosen[1], partitions=3)
    try:
        found = one.read(b"a.b", b"r", header, payload)
    except MessageRefusedError as error:
        json.loads(error_ack("s", error))
    else:
        assert found is not None
        record_of(found)


def model_range(bounds: list[bytes], value: bytes, partitions: int) -> int:
    """A table of ranges, as one looks it up by hand."""
    at = 0
    for bound in bounds:
        if value >= bound:
            at += 1
    return min(at, partitions - 1)


@given(st.sampled_from(["", "a", "g", "ga", "n", "z", "ü"]), subjects)
def test_partitions_by_a_table_of_ranges(key: str, subject: str) -> None:
    ranged = Reader("s", key="header", ack="commit", partitioner="range:key:g:n", partitions=3)
    value = key.encode() if key else subject.encode()
    fields = [("Logboom-Key", key)] if key else []
    assert read(ranged, b"v", *fields, subject=subject).partition == model_range([b"g", b"n"], value, 3)
    by_token = Reader("s", key="none", ack="commit", partitioner="range:2:b", partitions=2)
    tokens = subject.split(".")
    second = tokens[1].encode() if len(tokens) > 1 else b""
    assert read(by_token, subject=subject).partition == model_range([b"b"], second, 2)


@pytest.mark.parametrize(
    ("partitioner", "same", "apart"),
    [
        ("key", [("a", "k"), ("b", "k")], [("a", "k"), ("a", "k2")]),
        ("subject", [("a.b", "k"), ("a.b", "k2")], [("a.b", "k"), ("a.c", "k")]),
        ("token:1+3", [("a.x.c", ""), ("a.y.c", "")], [("a.x.c", ""), ("a.x.d", "")]),
    ],
)
def test_partitions_by_hashes(partitioner: str, same: list[tuple[str, str]], apart: list[tuple[str, str]]) -> None:
    def choose(of: tuple[str, str]) -> int:
        hashed = Reader("s", key="header", ack="commit", partitioner=partitioner, partitions=1_000_003)
        return read(hashed, b"v", *([("Logboom-Key", of[1])] if of[1] else []), subject=of[0]).partition

    assert choose(same[0]) == choose(same[1])
    assert choose(apart[0]) != choose(apart[1])


def test_a_key_goes_to_the_partition_that_clients_of_kafka_choose() -> None:
    keyed = Reader("s", key="header", ack="commit", partitions=12)
    assert read(keyed, b"v", ("Logboom-Key", "21")).partition == 0  # murmur2, as in Kafka's own tests of it


def test_the_partition_of_the_subscription_goes_before() -> None:
    keyed = Reader("s", key="header", ack="commit", partitions=12)

    def takes(index: int) -> bool:
        return index == 7

    found = keyed.read(b"a", b"", block(("Logboom-Key", "21")), b"v", partition=7, takes=takes)
    assert found is not None
    assert found.partition == 7
    assert keyed.read(b"a", b"", b"", b"v", partition=6, takes=takes) is None
