"""Sinks for metrics: what `aggregate` makes becomes samples and lines, and an event that is not a metric dies alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline_sinks.contracts.remote_write import KEYS, RemoteWrite
from tests.pipeline_sinks.harness import delivering, edge_batch, event, pipeline_of, sink_of
from tests.pipeline_sinks.server import IN_DOUBT, NOT_TAKEN, InDoubt, NotTaken, Reply, Request, Server
from tests.support.waiting import WAIT_S

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.record import read_event

END_US = 1_795_435_200_000_000
QUICK = "timeout: 2s, retry_for: 20s"


def metric(number: int, kind: str, value: float, *, name: str = "load.requests", **more: Any) -> dict[str, Any]:
    """The event of one metric; `number` is also the window's."""
    labels = more.pop("labels", {"service": "cart", "http.status": "200"})
    attributes = {
        "metric.name": name,
        "metric.type": kind,
        "metric.start": END_US + (number - 1) * 60_000_000,
        "metric.end": END_US + number * 60_000_000,
        "metric.labels": labels,
        "metric.value": value,
        **{f"metric.{key}": part for key, part in more.items()},
    }
    return event(number, body=name, attributes=attributes)


HISTOGRAM = metric(3, "histogram", 6.0, name="ms", sum=70.5, bounds=[10, 20.5], buckets=[1, 2, 3])
QUANTILES = metric(4, "quantiles", 4.0, name="size", sum=10, quantiles={"0.5": 2.0, "0.99": -4})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(RemoteWrite()) as running:
        yield running


def test_metrics_are_samples_of_series(server: Server) -> None:
    batch = delivering(
        sink_of(f"{KEYS.format(url=server.url)}, {QUICK}, prefix: shop_, labels: {{env: prod}}"), RemoteWrite.secret
    )
    events = [metric(1, "count", 5), metric(2, "count", 7.5), HISTOGRAM, QUANTILES, event(9)]
    report = batch.attempt([edge_batch(events)])
    assert report.error is None
    contract = server.contract
    assert isinstance(contract, RemoteWrite)
    labels = {"service": "cart", "http_status": "200", "env": "prod"}
    first = END_US // 1_000
    assert contract.value(name="shop_load_requests", **labels) == {first + 60_000: 5.0, first + 120_000: 7.5}
    buckets = [contract.value(name="shop_ms_bucket", le=le, **labels) for le in ("10", "20.5", "+Inf")]
    assert [list(each.values()) for each in buckets] == [[1.0], [3.0], [6.0]]
    assert contract.value(name="shop_ms_sum", **labels) == {first + 180_000: 70.5}
    assert contract.value(name="shop_ms_count", **labels) == {first + 180_000: 6.0}
    assert contract.value(name="shop_size", quantile="0.99", **labels) == {first + 240_000: -4.0}
    (letter,) = batch.letters.refused
    assert letter.offset == 4
    assert "is not a metric" in letter.reason


def test_a_write_whose_answer_was_lost_is_one_sample_and_order_holds(server: Server) -> None:
    server.faults.next += ["lost_answer", "503", "half"]
    batch = delivering(sink_of(f"{KEYS.format(url=server.url)}, {QUICK}"), RemoteWrite.secret)
    batch.until_done([edge_batch([metric(number, "sum", number) for number in range(200)])])
    contract = server.contract
    assert isinstance(contract, RemoteWrite)
    samples = contract.value(name="load_requests", service="cart", http_status="200")
    assert list(samples.values()) == [float(number) for number in range(200)]
    assert not batch.letters.refused


@pytest.mark.parametrize("retry_for", ["20s", "0"], ids=["same_attempt", "next_attempt"])
@pytest.mark.parametrize("fault", IN_DOUBT)
def test_a_write_that_was_carried_out_without_an_answer_is_one_sample(
    server: Server, fault: InDoubt, retry_for: str
) -> None:
    """The next attempt goes on with the window in doubt: those behind it have not been sent."""
    keys = f"{KEYS.format(url=server.url)}, timeout: 1s, retry_for: {retry_for}"
    server.faults.next += [None, None, fault]
    batch = delivering(sink_of(keys), RemoteWrite.secret)
    events = edge_batch([metric(number, "sum", number) for number in range(20)])
    batch.attempt([events])
    batch.until_done([events])
    contract = server.contract
    assert isinstance(contract, RemoteWrite)
    samples = contract.value(name="load_requests", service="cart", http_status="200")
    assert list(samples.values()) == [float(number) for number in range(20)]
    assert (batch.rows, batch.letters.refused) == (20, [])


@pytest.mark.parametrize("fault", NOT_TAKEN)
def test_a_server_that_takes_no_writes_for_a_while_gets_each_sample_once(server: Server, fault: NotTaken) -> None:
    server.faults.next += [None, fault, fault]
    batch = delivering(sink_of(f"{KEYS.format(url=server.url)}, timeout: 400ms, retry_for: 20s"), RemoteWrite.secret)
    batch.until_done([edge_batch([metric(number, "sum", number) for number in range(20)])])
    assert server.faults.applied[fault] == 2
    assert_samples(server, 20)
    assert (batch.rows, batch.letters.refused) == (20, [])


@pytest.mark.slow
def test_windows_that_take_longer_than_a_request_may_are_written_one_after_the_other() -> None:
    class Slow(RemoteWrite):
        def handle(self, request: Request) -> Reply:
            time.sleep(0.3)
            return super().handle(request)

    with Server(Slow()) as server:
        batch = delivering(sink_of(f"{KEYS.format(url=server.url)}, timeout: 1s, retry_for: 0"), RemoteWrite.secret)
        assert batch.attempt([edge_batch([metric(number, "sum", number) for number in range(20)])]).error is None
        assert_samples(server, 20)
    assert (batch.rows, batch.letters.refused) == (20, [])


def test_a_server_that_is_killed_and_comes_back_has_each_sample_once(server: Server) -> None:
    batch = delivering(sink_of(f"{KEYS.format(url=server.url)}, timeout: 1s, retry_for: 0"), RemoteWrite.secret)
    events = edge_batch([metric(number, "sum", number) for number in range(20)])
    server.faults.next += [None, None, "lost_answer"]
    assert batch.attempt([events]).error is not None
    server.kill()
    assert batch.attempt([events]).error is not None
    server.start()
    batch.until_done([events])
    assert_samples(server, 20)
    assert (batch.rows, batch.letters.refused) == (20, [])


def test_an_expired_credential_keeps_samples_back_and_is_not_told(server: Server) -> None:
    batch = delivering(sink_of(f"{KEYS.format(url=server.url)}, {QUICK}"), "expired-credential")
    events = edge_batch([metric(number, "sum", number) for number in range(20)])
    report = batch.attempt([events])
    assert report.error is not None
    assert "401" in report.error
    assert "expired-credential" not in report.error
    batch.secrets = dict.fromkeys(batch.secrets, RemoteWrite.secret)
    batch.until_done([events])
    assert_samples(server, 20)
    assert (batch.rows, batch.letters.refused) == (20, [])


def assert_samples(server: Server, count: int) -> None:
    """The series has a sample of each window."""
    assert isinstance(server.contract, RemoteWrite)
    samples = server.contract.value(name="load_requests", service="cart", http_status="200")
    assert list(samples.values()) == [float(number) for number in range(count)]


def test_a_batch_that_is_sent_again_from_its_start_leaves_each_sample_once(server: Server) -> None:
    """Nobody noted what a killed router has sent: the newest sample is taken again, older ones are refused though the
    server has them, and are told as dead letters."""
    sink = sink_of(f"{KEYS.format(url=server.url)}, {QUICK}")
    events = edge_batch([metric(number, "sum", number) for number in range(20)])
    assert delivering(sink, RemoteWrite.secret).attempt([events]).error is None
    again = delivering(sink, RemoteWrite.secret)
    assert again.attempt([events]).error is None
    contract = server.contract
    assert isinstance(contract, RemoteWrite)
    samples = contract.value(name="load_requests", service="cart", http_status="200")
    assert list(samples.values()) == [float(number) for number in range(20)]
    assert {letter.offset for letter in again.letters.refused} == set(range(19))
    assert (again.rows, again.dead) == (1, 19)
    assert all("out of order sample" in letter.reason for letter in again.letters.refused)


def test_a_sample_that_the_server_refuses_dies_alone(server: Server) -> None:
    batch = delivering(sink_of(f"{KEYS.format(url=server.url)}, {QUICK}"), RemoteWrite.secret)
    assert batch.attempt([edge_batch([metric(50, "sum", 1)])]).error is None
    windows = enumerate((51, 7, 52))
    late = edge_batch([{**metric(window, "sum", window), "offset": 60 + at} for at, window in windows])
    again = delivering(batch.sink, RemoteWrite.secret)
    assert again.attempt([late]).error is None
    (letter,) = again.letters.refused
    assert (letter.offset, "out of order sample" in letter.reason) == (1, True)


class Receiver:
    """Collects lines of statsd."""

    def __init__(self, kind: socket.SocketKind) -> None:
        self.packets: list[bytes] = []
        self._socket = socket.socket(socket.AF_INET, kind)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._is_udp = kind == socket.SOCK_DGRAM
        if not self._is_udp:
            self._socket.listen(1)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def lines(self) -> list[str]:
        """All, once the metric `end` has come."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), self.packets
        self._socket.close()
        return b"".join(self.packets).decode().splitlines()

    def _run(self) -> None:
        own = self._socket if self._is_udp else self._socket.accept()[0]
        with own:
            while True:
                packet = own.recv(65_536)
                if not packet:
                    return
                self.packets.append(packet)
                if b"end:" in packet:
                    return


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_metrics_are_lines_of_statsd(protocol: str) -> None:
    receiver = Receiver(socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM)
    keys = f"type: statsd, address: '{receiver.address}', protocol: {protocol}, prefix: 'shop.', packet_bytes: 64"
    labels = {"service": "a|b,c:d", "x": "y"}
    events = [
        metric(1, "count", 5, labels=labels),
        metric(2, "min", -2.5, name="low", labels={}),
        HISTOGRAM,
        QUANTILES,
        metric(5, "sum", 1e20, name="end", labels={}),
    ]
    batch = delivering(sink_of(f"{keys}, {QUICK}"), "")
    assert batch.attempt([edge_batch(events)]).error is None
    found = receiver.lines()
    assert "shop.load.requests:5|c|#service:a_b_c:d,x:y" in found
    assert found.index("shop.low:0|g") + 1 == found.index("shop.low:-2.5|g")
    assert "shop.ms.bucket:3|c|#http.status:200,le:20.5,service:cart" in found
    assert "shop.size.p99:-4|g|#http.status:200,service:cart" in found
    assert "shop.end:100000000000000000000|c" in found
    if protocol == "udp":
        assert all(len(packet) <= 64 or packet.count(b"\n") == 1 for packet in receiver.packets)


def test_labels_become_parts_of_the_name_where_there_are_no_tags() -> None:
    target = sink_of("type: statsd, address: 'h:8125', tags: none").open_target({})
    value = json.dumps(metric(1, "unique", 3)).encode()
    assert target.encode(read_event(value), value).payload == b"load.requests.200.cart:3|g\n"


def test_what_is_wrong_with_their_keys_is_told_at_once() -> None:
    text = pipeline_of("type: prometheus_remote_write, url: 'h:1', labels: {a-b: c}, compression: gzip, concurrency: 3")
    text += "  two: {inputs: [parsed], type: statsd, address: nowhere, prefix: 'a b'}\n"
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text, "p.yaml")
    for words in (
        "is not an address such as https://",
        "'a-b' is not a valid name of a label; 'a_b' would be one",
        "always compressed with snappy",
        "has to be 1",
        "'nowhere' is not an address",
    ):
        assert words in str(caught.value)
