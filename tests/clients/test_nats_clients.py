"""Unmodified clients of NATS publish, and a consumer of Kafka reads; what each client says of acks and refusals."""

from collections.abc import Iterator

import pytest
from tests.clients.nats_drivers import NATS_DRIVERS, DriverMissingError, NatsDriver, order
from tests.nats.servers import Stored, alter, attach, end, needs_nats_server, on_a_loop, stored, taken
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on

import nats

# One group: the drivers are built once, and not by two workers at the same time.
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients"), needs_nats_server]

SLOW = {"nats-py", "jnats", "nats-go", "nats-go-jetstream"}
"""Of the quick suite is one: Maven and Go take long the first time, and tests/nats publishes with nats-py."""
WINDOW = 1_000
MESSAGE_BYTES_MAX = 2_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a nats-server of its own."""
    settings = ("--nats", "embedded", "--set", "nats.embedded_listen=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("clients") / "data", *settings) as process:
        yield process


@pytest.fixture(
    params=[
        pytest.param(driver, marks=pytest.mark.slow if driver.name in SLOW else (), id=driver.name)
        for driver in NATS_DRIVERS
    ]
)
def driver(request: pytest.FixtureRequest) -> NatsDriver:
    chosen: NatsDriver = request.param
    with skipped_on(DriverMissingError):
        chosen.command()
    return chosen


def url(broker: BrokerProcess) -> str:
    """Where publishers connect."""
    return str(broker.ready["nats"])


def attached(broker: BrokerProcess, stream: str, **settings: str) -> None:
    """Create a stream of the subjects below its own name; its first record is `probe`."""
    attach(broker.kafka, stream, f"{stream}.>")
    for name, value in settings.items():
        alter(broker.kafka, stream, name.replace("_", "."), value)

    @on_a_loop
    async def wait() -> None:
        async with await nats.connect(url(broker)) as client:
            await taken(client, f"{stream}.probe")

    wait()


def test_what_is_published_is_stored_as_it_is(driver: NatsDriver, broker: BrokerProcess) -> None:
    """Plain and acked: any bytes, 1 MB, headers and their order, long subjects, many tokens, other scripts."""
    stream = f"kept-{driver.name}"
    attached(broker, stream)
    headers = [["Trace", "t-1"], ["Note", "grün 日本" if driver.headers_in_any_script else "green"], ["Empty", ""]]
    if driver.repeats_headers:
        headers[1:1] = [["Trace", "t-2"]]
    longest = f"{stream}.{'x' * 900}"
    subjects = [f"{stream}.grün.日本", longest, f"{stream}.{'.'.join('t' * 120)}", f"{stream}.a=b&c/d|e"]
    orders = [
        order("plain", f"{stream}.plain", bytes(range(256)), headers=headers),
        order("plain", f"{stream}.empty"),
        *(order("ack", subject, subject.encode()) for subject in subjects),
        order("ack", f"{stream}.long", bytes(1_000_000), headers=[["Logboom-Key", "k"]]),
    ]
    told = driver.publish(url(broker), orders)
    assert told == [{}, {}, *({"stream": stream, "seq": 4 + place} for place in range(len(subjects) + 1))]
    first, second, *named, long = stored(broker.kafka, stream, 1 + len(orders))[1:]
    assert first.value == bytes(range(256))
    published = [(name, value.encode()) for name, value in headers]
    assert sorted(headers_of(first)) == sorted(published), "this client writes its headers in an order of its own"
    assert first.header("Trace") == [value for name, value in published if name == "Trace"]
    assert (second.value, second.header("logboom-subject")) == (b"", [f"{stream}.empty".encode()])
    assert [one.header("logboom-subject") for one in named] == [[subject.encode()] for subject in subjects]
    assert [one.value for one in named] == [subject.encode() for subject in subjects]
    assert (long.key, long.value) == (b"k", bytes(1_000_000))


def headers_of(record: Stored) -> list[tuple[str, bytes]]:
    """Those of the publisher."""
    return [(name, value) for name, value in record.headers if not name.startswith("logboom-")]


def test_acks_retries_and_expectations(driver: NatsDriver, broker: BrokerProcess) -> None:
    """As JetStream answers them: duplicates by id, and what was expected and is not so, by its numbers."""
    stream = f"asked-{driver.name}"
    subject = f"{stream}.s"
    attached(broker, stream)
    told = driver.publish(
        url(broker),
        [
            order("ack", subject, b"a", id="one", stream=stream),
            order("ack", subject, b"a", id="one"),
            order("ack", subject, b"b", last_seq=77),
            order("ack", subject, b"b", last_id="two"),
            order("ack", subject, b"b", stream="other"),
            order("ack", subject, b"b", last_seq=2, last_id="one", id="two"),
            order("window", subject, b"b", id="two"),
            order("window" if driver.tells_async_refusals else "ack", subject, b"c", last_seq=2),
            order("window", subject, b"c", last_seq=3),
        ],
    )
    assert [one.get("err_code") for one in told] == [None, None, 10071, 10070, 10060, None, None, 10071, None]
    assert told[2]["failed"] == "wrong last sequence: 2"
    assert [(one["seq"], one.get("duplicate", False)) for one in told if "seq" in one] == [
        (2, False),
        (2, True),
        (3, False),
        (3, True),
        (4, False),
    ]
    assert [one.value for one in stored(broker.kafka, stream, 4)] == [b"probe", b"a", b"b", b"c"]
    assert end(broker.kafka, stream) == 4


def test_a_window_is_acked_and_stored_in_order(driver: NatsDriver, broker: BrokerProcess) -> None:
    stream = f"window-{driver.name}"
    attached(broker, stream)
    told = driver.publish(url(broker), [order("window", f"{stream}.s", b"%d" % number) for number in range(WINDOW)])
    assert told == [{"stream": stream, "seq": 2 + number} for number in range(WINDOW)]
    assert [one.value for one in stored(broker.kafka, stream, 1 + WINDOW)][1:] == [
        b"%d" % number for number in range(WINDOW)
    ]


def test_what_cannot_be_published_is_told(driver: NatsDriver, broker: BrokerProcess) -> None:
    """Above the stream's limit, above the server's, on a subject of no stream, and questions to JetStream itself."""
    stream = f"limits-{driver.name}"
    attached(broker, stream, max_message_bytes="1000")
    too_long, above_server, nowhere, info, fits = driver.publish(
        url(broker),
        [
            order("ack", f"{stream}.s", bytes(2_000)),
            order("ack", f"{stream}.s", bytes(MESSAGE_BYTES_MAX)),
            order("ack", f"nowhere-{driver.name}", b"a"),
            order("info", stream=stream),
            order("ack", f"{stream}.s", b"fits"),
        ],
    )
    assert too_long["err_code"] == 10054
    assert "payload" in above_server["failed"].lower()
    assert nowhere["failed"], "it would have to wait for an ack that nobody sends"
    assert info["failed"], "there is no JetStream that knows of the stream"
    assert fits == {"stream": stream, "seq": 2}
    assert end(broker.kafka, stream) == 2
