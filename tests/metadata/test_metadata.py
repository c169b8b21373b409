"""Commands, records and the image they make."""

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.errors import (
    FormatVersionError,
    InvalidAssignmentError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidStreamNameError,
    LogboomError,
    PolicyViolationError,
    StorageError,
    StreamExistsError,
    UnknownStreamError,
)
from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId, ProducerId, StreamId, StreamName
from logboom.metadata import (
    CreateStream,
    Flush,
    Image,
    MetadataLimits,
    MetadataRecord,
    ProducerIdsAllocated,
    Stream,
    StreamConfig,
    StreamCreated,
    StreamDeleted,
    add_partitions,
    allocate_producer_ids,
    apply,
    apply_all,
    change_broker_config,
    change_config,
    check_name,
    create_stream,
    decode,
    delete_stream,
    delta_of,
    encode,
)
from logboom.metadata.records import BrokerChanged, BrokerRegistered

LIMITS = MetadataLimits(partitions_max=100, streams_max=50, quotas_max=10)
ORDERS = StreamName("orders")


def stream_id(number: int) -> StreamId:
    return StreamId(UUID(int=number))


def with_stream(
    image: Image, name: str, *, partitions: int = 1, config: dict[str, str | None] | None = None, internal: bool = False
) -> Image:
    command = CreateStream(name, partitions, 1, config or {}, internal)
    (record,) = create_stream(image, command, stream_id(len(image.by_id) + 1), LIMITS)
    return apply(image, record)


def test_a_stream_is_created_with_its_own_settings_over_the_defaults() -> None:
    image = with_stream(Image(), "orders", partitions=3, config={"logboom.flush": "none", "segment.ms": None})
    stream = image.by_name[ORDERS]
    assert image.by_id[stream.id] is stream
    assert (stream.partitions, stream.internal) == (3, False)
    assert stream.overrides == {"logboom.flush": "none"}
    config = stream.config_over(StreamConfig(segment_ms=5))
    assert (config.flush, config.segment_ms) == (Flush.NONE, 5)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "with space", "umlaut-ü", "slash/y", "new\nline", "end\n", "nul\0"]
)
def test_invalid_stream_names(name: str) -> None:
    with pytest.raises(InvalidStreamNameError):
        check_name(name)


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__logboom_x"]
)
def test_names_of_internal_streams_are_not_for_clients(name: str) -> None:
    with pytest.raises(InvalidStreamNameError, match="Logboom's own"):
        check_name(name)
    assert check_name(name, internal=True) == name


def test_an_internal_stream_is_changed_by_the_node_alone() -> None:
    image = with_stream(Image(), "__consumer_offsets", internal=True)
    with pytest.raises(InvalidRequestError):
        delete_stream(image, "__consumer_offsets")
    with pytest.raises(InvalidRequestError):
        add_partitions(image, "__consumer_offsets", 5, LIMITS)


@pytest.mark.parametrize("name", ["a", "a" * 249, "...", "_one", "A.b-c_9", "-", "__debezium-heartbeat.shop", "__x"])
def test_valid_stream_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (CreateStream("orders", 1, 1, {}), StreamExistsError),
        (CreateStream("shop_eu", 1, 1, {}), InvalidStreamNameError),
        (CreateStream("new", 0, 1, {}), InvalidPartitionsError),
        (CreateStream("new", -5, 1, {}), InvalidPartitionsError),
        (CreateStream("new", 1, 3, {}), InvalidReplicationFactorError),
        (CreateStream("new", 1, 0, {}), InvalidReplicationFactorError),
        (CreateStream("new", 99, 1, {}), PolicyViolationError),
        (CreateStream("new", 1, 1, {"segment.byte": "5"}), InvalidConfigError),
        (CreateStream("new", 1, 1, {"segment.bytes": "many"}), InvalidConfigError),
        (CreateStream("new", 1, 1, {"retention.ms": "-2"}), InvalidConfigError),
        (CreateStream("new", 1, 1, {"cleanup.policy": "compress"}), InvalidConfigError),
        (
            CreateStream("new", 1, 1, {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            InvalidConfigError,
        ),
    ],
)
def test_invalid_stream_creations(command: CreateStream, error: type[LogboomError]) -> None:
    image = with_stream(with_stream(Image(), "orders"), "shop.eu")
    with pytest.raises(error):
        create_stream(image, command, stream_id(9), LIMITS)


def test_all_faults_of_a_config_are_told_and_the_nearest_name_is_offered() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        create_stream(
            Image(),
            CreateStream("new", 1, 1, {"segment.byte": None, "max.message.bytes": "-3", "logboom.flush": "maybe"}),
            stream_id(1),
            LIMITS,
        )
    text = str(caught.value)
    assert "did you mean 'segment.bytes'?" in text
    assert "max.message.bytes='-3'" in text
    assert "commit or none" in text


def test_partitions_are_added_and_never_taken() -> None:
    image = with_stream(Image(), "orders", partitions=2)
    image = apply(image, add_partitions(image, "orders", 5, LIMITS)[0])
    assert image.by_name[ORDERS].partitions == 5
    for total in (5, 4, 0, -1):
        with pytest.raises(InvalidPartitionsError):
            add_partitions(image, "orders", total, LIMITS)
    with pytest.raises(PolicyViolationError):
        add_partitions(image, "orders", 101, LIMITS)
    with pytest.raises(UnknownStreamError):
        add_partitions(image, "other", 2, LIMITS)


def test_settings_are_replaced_all_at_once_and_internal_ones_not_at_all() -> None:
    image = with_stream(Image(), "orders", config={"segment.ms": "5000", "retention.ms": "7"})
    (record,) = change_config(image, "orders", {"retention.bytes": "9", "segment.ms": None}, replace_all=True)
    image = apply(image, record)
    stream = image.by_name[ORDERS]
    assert stream.overrides == {"retention.bytes": "9"}
    assert change_config(image, "orders", {"retention.bytes": "9"}, replace_all=True) == ()
    image = with_stream(image, "__own", internal=True)
    with pytest.raises(InvalidRequestError):
        change_config(image, "__own", {"retention.ms": "1"})


def test_a_default_of_retention_is_not_for_the_nodes_own_streams() -> None:
    defaults = StreamConfig(retention_ms=5, retention_bytes=6, retention_messages=7, cleanup_policy="compact")
    image = with_stream(with_stream(Image(), "orders"), "__own", internal=True)
    configs = {name: stream.config_over(defaults) for name, stream in image.by_name.items()}
    retained = {name: (one.retention_ms, one.retention_bytes, one.retention_messages) for name, one in configs.items()}
    assert retained == {"orders": (5, 6, 7), "__own": (-1, -1, -1)}
    assert {name: one.compacts for name, one in configs.items()} == {"orders": True, "__own": False}


def test_the_settings_of_many_streams_that_differ_are_made_once() -> None:
    """As of streams with a subject of NATS each, which a broker that starts looks at several times."""
    stream = with_stream(Image(), "orders").by_name[ORDERS]
    streams = [replace(stream, overrides={"logboom.nats.subjects": f"orders.{number}"}) for number in range(2_000)]
    first = [one.config_over(StreamConfig()) for one in streams]
    again = [one.config_over(StreamConfig()) for one in streams]
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_settings_change_one_by_one_and_go_back_to_the_default() -> None:
    image = with_stream(Image(), "orders", config={"segment.ms": "5000"})
    image = apply(image, change_config(image, "orders", {"max.message.bytes": "100"})[0])
    stream = image.by_name[ORDERS]
    assert stream.overrides == {"segment.ms": "5000", "max.message.bytes": "100"}
    assert change_config(image, "orders", {"segment.ms": "5000"}) == ()
    image = apply(image, change_config(image, "orders", {"segment.ms": None})[0])
    assert image.by_name[ORDERS].overrides == {"max.message.bytes": "100"}


def test_a_deleted_stream_is_gone_from_both_maps() -> None:
    image = with_stream(Image(), "orders")
    image = apply(image, delete_stream(image, "orders")[0])
    assert not image.by_name
    assert not image.by_id
    with pytest.raises(UnknownStreamError):
        delete_stream(image, "orders")


def test_an_older_image_is_untouched() -> None:
    before = with_stream(Image(), "orders")
    with_stream(before, "other")
    assert list(before.by_name) == ["orders"]


def test_a_change_asks_for_the_hash_of_no_other_stream() -> None:
    """Where there are 10,000, that took 2.4 ms of each change, on the loop of each broker."""
    hashed: list[UUID] = []

    class CountedId(UUID):
        def __hash__(self) -> int:
            hashed.append(self)
            return super().__hash__()

    image = Image()
    for number in range(20):
        command = CreateStream(f"s-{number}", 1, 1, {}, internal=False)
        image = apply_all(image, create_stream(image, command, StreamId(CountedId(int=number)), LIMITS))
    hashed.clear()
    after = apply(image, ProducerIdsAllocated(next_id=ProducerId(7)))
    assert hashed == []
    assert after.by_id == image.by_id


def test_producer_ids_are_given_once() -> None:
    image = Image()
    firsts = []
    for _ in range(3):
        firsts.append(image.next_producer_id)
        image = apply(image, allocate_producer_ids(image, 1000)[0])
    assert firsts == [0, 1000, 2000]
    with pytest.raises(PolicyViolationError):
        allocate_producer_ids(Image(next_producer_id=ProducerId(2**63 - 5)), 1000)


def test_newer_records_stop_by_name_and_garbage_is_an_error() -> None:
    with pytest.raises(FormatVersionError, match="newer Logboom"):
        decode(b'{"type":"stream_created","version":9,"wonder":1}')
    with pytest.raises(FormatVersionError, match="'broker_promoted'"):
        decode(b'{"type":"broker_promoted","version":1}')
    for garbage in (b"", b"{}", b"\xff", b'{"type":"stream_created","version":1}'):
        with pytest.raises(StorageError):
            decode(garbage)


NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "__x", "bad name"])
CONFIGS = st.dictionaries(
    st.sampled_from(["segment.ms", "logboom.flush", "nonsense"]), st.sampled_from(["1000", "none", None]), max_size=2
)
Command = Callable[[Image, StreamId], tuple[MetadataRecord, ...]]
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        lambda name, partitions, config: (
            lambda image, id_: create_stream(image, CreateStream(name, partitions, 1, config), id_, LIMITS)
        ),
        NAMES,
        st.integers(0, 60),
        CONFIGS,
    ),
    st.builds(
        lambda name, total: lambda image, _: add_partitions(image, name, total, LIMITS), NAMES, st.integers(0, 60)
    ),
    st.builds(lambda name, config: lambda image, _: change_config(image, name, config), NAMES, CONFIGS),
    st.builds(lambda name: lambda image, _: delete_stream(image, name), NAMES),
    st.builds(
        lambda broker, config: lambda image, _: change_broker_config(image, broker, config),
        st.sampled_from(["", "1"]),
        st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", None]), max_size=2),
    ),
    st.builds(lambda count: lambda image, _: allocate_producer_ids(image, count), st.integers(1, 5000)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMANDS, max_size=25))
def test_replaying_the_bytes_of_all_records_gives_the_same_image(commands: list[Command]) -> None:
    image, written = Image(), list[bytes]()
    for number, command in enumerate(commands):
        try:
            records = command(image, stream_id(number))
        except LogboomError:
            continue
        for record in records:
            written.append(encode(record))
            image = apply(image, record)
        assert sorted(image.by_id) == sorted(stream.id for stream in image)
        assert image.partition_count <= LIMITS.partitions_max
    assert apply_all(Image(), map(decode, written)) == image
    snapshot = [encode(record) for record in image.snapshot()]
    assert apply_all(Image(), map(decode, written + snapshot)) == image
    assert apply_all(Image(), map(decode, snapshot)) == image


def test_settings_of_brokers_are_kept_by_broker_and_nothing_is_left_of_empty_ones() -> None:
    image = apply_all(Image(), change_broker_config(Image(), "1", {"a": "1", "b": "2"}))
    image = apply_all(image, change_broker_config(image, "", {"a": "3"}))
    assert image.broker_configs == {"1": {"a": "1", "b": "2"}, "": {"a": "3"}}
    assert change_broker_config(image, "1", {"a": "1"}) == ()
    image = apply_all(image, change_broker_config(image, "1", {"b": None}, replace_all=True))
    assert image.broker_configs == {"": {"a": "3"}}


def test_the_number_of_streams_is_limited() -> None:
    image = Image()
    for number in range(LIMITS.streams_max):
        image = with_stream(image, f"s-{number}")
    with pytest.raises(PolicyViolationError, match="max_streams is 50") as refused:
        with_stream(image, "one-more")
    assert refused.value.limit == "broker.max_streams"


def test_the_streams_deleted_last_are_remembered_and_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.metadata.image.TOMBSTONES_MAX", 3)
    image = Image()
    for number in range(1, 6):
        created = StreamCreated(name=ORDERS, id=stream_id(number), partitions=1, config={})
        image = apply_all(image, (created, StreamDeleted(id=created.id)))
    assert image.tombstones == (stream_id(3), stream_id(4), stream_id(5))
    assert apply_all(Image(), image.snapshot()).tombstones == image.tombstones


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(COMMANDS, max_size=4), max_size=12))
def test_following_deltas_gives_the_partitions_and_settings_of_the_image(commits: list[list[Command]]) -> None:
    """What a broker does that sees deltas alone: at every step it holds what the image says."""
    image, ids = Image(), map(stream_id, itertools.count(1))
    partitions: dict[tuple[str, int], Mapping[str, str]] = {}
    for commands in commits:
        draft, records = image, list[MetadataRecord]()
        for command in commands:
            with contextlib.suppress(LogboomError):
                made = command(draft, next(ids))
                draft, records = apply_all(draft, made), [*records, *made]
        delta = delta_of(image, records)
        assert delta.before is image
        assert delta.after == draft
        assert delta.broker_configs_changed >= (image.broker_configs != draft.broker_configs)
        for stream in delta.deleted:
            for index in range(stream.partitions):
                del partitions[stream.name, index]
        for stream, indexes in delta.grown:
            for index in indexes:
                assert (stream.name, index) not in partitions
                partitions[stream.name, index] = stream.overrides
        for stream in delta.reconfigured:
            for index in range(stream.partitions):
                partitions[stream.name, index] = stream.overrides
        image = delta.after
        assert partitions == {(stream.name, n): stream.overrides for stream in image for n in range(stream.partitions)}


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMANDS, max_size=25))
def test_equal_versions_mean_equal_contents(commands: list[Command]) -> None:
    """What a cache relies on that compares versions instead of contents."""
    image = Image()
    images, streams = {image.version: image}, dict[tuple[StreamId, int], Stream]()
    for number, command in enumerate(commands):
        with contextlib.suppress(LogboomError):
            for record in command(image, stream_id(number)):
                image = apply(image, record)
                assert image.version not in images
                images[image.version] = image
        for stream in image:
            assert streams.setdefault((stream.id, stream.version), stream) == stream


def with_brokers(*ids: int) -> Image:
    image = Image()
    for number, broker in enumerate(ids):
        record = BrokerRegistered(
            id=BrokerId(broker),
            epoch=BrokerEpoch(number),
            directory_id=DirectoryId(f"directory-{broker}"),
            incarnation=f"process-{broker}",
            listeners={},
        )
        image = apply_all(image, (record, BrokerChanged(id=BrokerId(broker), fenced=False)))
    return image


def create_on(image: Image, replication_factor: int, assignments: Sequence[Sequence[int]] | None = None) -> Image:
    command = CreateStream("orders", 3, replication_factor, {}, assignments=assignments)
    return apply_all(image, create_stream(image, command, stream_id(1), LIMITS))


def test_new_partitions_are_spread_over_the_brokers_there_are() -> None:
    image = create_on(with_brokers(1, 2, 3), 2)
    placed = image.by_name[ORDERS].assignments
    assert sorted(one.leader for one in placed) == [1, 2, 3]
    assert all(len(set(one.replicas)) == 2 and set(one.isr) == set(one.replicas) for one in placed)
    image = apply_all(image, add_partitions(image, "orders", 6, LIMITS))
    grown = image.by_name[ORDERS].assignments
    assert grown[:3] == placed
    assert sorted(one.leader for one in grown) == [1, 1, 2, 2, 3, 3]


def test_replicas_that_are_named_are_taken() -> None:
    image = create_on(with_brokers(1, 2, 3), 1, [[3, 1], [1, 2], [2, 3]])
    assert [one.replicas for one in image.by_name[ORDERS].assignments] == [(3, 1), (1, 2), (2, 3)]
    image = apply_all(image, add_partitions(image, "orders", 4, LIMITS, [[1, 3]]))
    assert image.by_name[ORDERS].assignments[3].replicas == (1, 3)


@pytest.mark.parametrize(
    "assignments", [[[1]], [[1], [2], [9]], [[1], [2], [2, 3]], [[1], [2], [3, 3]], [[], [1], [2]]]
)
def test_replicas_that_cannot_be_are_refused(assignments: list[list[int]]) -> None:
    with pytest.raises(InvalidAssignmentError):
        create_on(with_brokers(1, 2, 3), 1, assignments)


def test_more_replicas_than_brokers_are_refused() -> None:
    why = "replication factor of 4 cannot be had with 3 brokers: ask for 3 at most, or add brokers first"
    with pytest.raises(InvalidReplicationFactorError, match=why):
        create_on(with_brokers(1, 2, 3), 4)


def test_who_names_an_unknown_broker_is_told_which_there_are() -> None:
    with pytest.raises(InvalidAssignmentError, match="no broker is registered as 7, 9; there are 1, 2, 3"):
        create_on(with_brokers(1, 2, 3), 1, [[1, 7, 9], [1], [2]])
