"""What transforms remember, through restarts with other cores, executors, shuffles and partitions of the source.

A router on one core is followed by one on a cluster of two executors, which is killed within a batch, and by one on
four cores, which does that batch again: each begins with what the one before it left, and what comes out is what one
run over all lines would have made.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.pipeline.support import RouterProcess, header, ledger, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.bench.spark_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

PIPELINE = """
name: width
checkpoint: ./checkpoint
batch: {max_records: 60, interval: 100ms}
sources:
  web: {type: stream, stream: width-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  once: {type: dedupe, inputs: [parsed], by: [attributes.id], window: 1d}
  load:
    type: aggregate
    inputs: [once]
    window: 10s
    lateness: 6h
    by: [service]
    metrics: {requests: {type: count}, users: {type: unique, of: attributes.user}}
  split: {type: route, inputs: [once], routes: {errors: severity_number >= 17}}
  both: {type: join, left: [split.unmatched], right: [split.errors], into: error, window: 6h}
  traces: {type: tail_sample, inputs: [once], wait: 1h, keep: {errors: severity_number >= 17}}
  known: {type: patterns, inputs: [once], by: service}
sinks:
  metrics: {type: stream, inputs: [load], stream: width-metrics}
  pairs: {type: stream, inputs: [both], stream: width-pairs}
  lonely: {type: stream, inputs: [both.left, both.right], stream: width-lonely}
  whole: {type: stream, inputs: [traces], stream: width-traces}
  templates: {type: stream, inputs: [known], stream: width-known}
"""
NEW, WINDOWS, SERVICES, BEGIN_S = 120, 6, "abc", 1_700_000_000
LEGS, FIRST_PARTITIONS, PARTITIONS = 3, 2, 5
NARROW = ("--master", "local[1]", "--spark", "spark.sql.shuffle.partitions=1")
WIDER = ("--master", "local[4]", "--spark", "spark.sql.shuffle.partitions=3")
ENDING = PIPELINE.replace("window: 6h", "window: 1s").replace("wait: 1h", "wait: 1s")


def _common(number: int) -> dict[str, Any]:
    time_s, service = BEGIN_S + number // len(SERVICES) % (10 * WINDOWS), SERVICES[number % len(SERVICES)]
    return {"time": time_s, "service": service, "trace_id": f"{number + 1:032x}"}


def _window(number: int) -> tuple[int, str]:
    common = _common(number)
    return common["time"] // 10 * 10, common["service"]


def _line(number: int) -> bytes:
    """The template of all lines of a service is known only to who has seen two of them."""
    text = f"user u{'abcdefghij'[number % 10]}{number} logged in again"
    return json.dumps({**_common(number), "id": number, "user": number, "level": "INFO", "msg": text}).encode()


def _error(number: int) -> bytes:
    text = f"session s{number} was cut off"
    return json.dumps({**_common(number), "id": f"e{number}", "level": "ERROR", "msg": text}).encode()


def _failed(leg: int) -> Iterable[int]:
    """The numbers of a leg whose error comes with the lines of the next one."""
    return range(leg * NEW, (leg + 1) * NEW, 4) if leg < LEGS - 1 else ()


def _lines(leg: int) -> list[bytes]:
    """New lines, the errors of earlier ones, and, moved by one partition, all lines that came before."""
    new = [_line(number) for number in range(leg * NEW, (leg + 1) * NEW)]
    if leg == 0:
        return new
    old = [_line(number) for number in range(leg * NEW)]
    return [*new, *(_error(number) for number in _failed(leg - 1)), *old[1:], old[0]]


def _last_lines() -> list[bytes]:
    """Two for each partition, a day later: behind them every window has ended."""
    late = {"time": BEGIN_S + 86_400, "service": "end", "level": "INFO", "msg": "the end"}
    return [json.dumps({**late, "id": f"end{number}"}).encode() for number in range(2 * PARTITIONS)]


def _ran(file: Path, broker: BrokerProcess, *how: str) -> None:
    with RouterProcess(file, broker.kafka, *how, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]


def _killed_on_a_cluster(file: Path, broker: BrokerProcess) -> None:
    """Some batches on two executors, and the end within another one."""
    directory = file.parent / "cluster"
    directory.mkdir()
    pins = file.parent / "checkpoint" / "pins" / "batches"
    with StandaloneCluster(directory, 2, environment=os.environ) as cluster:
        settings = ("spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.sql.shuffle.partitions=7")
        how = ("--master", cluster.master, *(word for each in settings for word in ("--spark", each)))
        begun = len(list(pins.glob("*.json")))
        with RouterProcess(file, broker.kafka, *how) as router:
            until(lambda: len(list(pins.glob("*.json"))) >= begun + 3 or not router.alive(), "batches begin")
            assert router.alive(), router.log_text()[-3_000:]
            router.kill9(group=True)


def _widen(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept until it has answered
    (done,) = admin.create_partitions([NewPartitions("width-web", PARTITIONS)]).values()
    done.result(WAIT_S)


def _events(broker: BrokerProcess, stream: str) -> dict[str, dict[str, Any]]:
    """By event id; what was written again by the batch that was cut off is the same."""
    found: dict[str, dict[str, Any]] = {}
    for message in records(broker.kafka, stream):
        event = json.loads(message.value())
        assert found.setdefault(str(header(message, "logboom-event-id")), event) == event
    return found


def test_what_is_remembered_goes_on_with_another_width(broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap, file = broker.kafka, tmp_path / "width.yaml"
    make_stream(bootstrap, "width-web", FIRST_PARTITIONS)
    file.write_text(PIPELINE)

    publish(bootstrap, "width-web", _lines(0), FIRST_PARTITIONS)
    _ran(file, broker, *NARROW)
    first = ledger(tmp_path / "checkpoint")["total"]
    assert (first["held"]["traces"], first["remembered"]["once"]) == (NEW, NEW)

    _widen(bootstrap)
    publish(bootstrap, "width-web", _lines(1), PARTITIONS)
    _killed_on_a_cluster(file, broker)
    publish(bootstrap, "width-web", _lines(2), PARTITIONS)
    _ran(file, broker, *WIDER)

    file.write_text(ENDING)  # all that waits, leaves
    publish(bootstrap, "width-web", _last_lines(), PARTITIONS)
    _ran(file, broker)
    _check(broker, ledger(tmp_path / "checkpoint")["total"])


def _check(broker: BrokerProcess, total: dict[str, Any]) -> None:
    numbers, failed = range(LEGS * NEW), [number for leg in range(LEGS) for number in _failed(leg)]
    came = sum(len(_lines(leg)) for leg in range(LEGS)) + 2 * PARTITIONS
    different = len(numbers) + len(failed) + 2 * PARTITIONS
    assert total["records_in"] == {"web": came}
    assert total["dropped"]["once"] == came - different, "each repeat is known, whichever leg its first was in"

    known = _events(broker, "width-known")
    ids = Counter(event["attributes"]["id"] for event in known.values())
    assert ids == Counter([*numbers, *(f"e{number}" for number in failed), *(f"end{n}" for n in range(2 * PARTITIONS))])
    templates: dict[tuple[str, str], set[str]] = {}
    for event in known.values():
        kind = (event["service"], event["body"].split()[0])
        templates.setdefault(kind, set()).add(event["attributes"]["pattern.id"])
    assert all(len(found) == 1 for found in templates.values()), "a template keeps its id over all legs"

    pairs = _events(broker, "width-pairs").values()
    assert Counter(event["attributes"]["id"] for event in pairs) == Counter(failed), "the error came a leg later"
    assert all(event["attributes"]["error"]["attributes"]["id"] == f"e{event['attributes']['id']}" for event in pairs)
    lonely = Counter(event["attributes"]["id"] for event in _events(broker, "width-lonely").values())
    assert {name for name in lonely if not str(name).startswith("end")} == set(numbers) - set(failed)

    kept = Counter(event["trace_id"] for event in _events(broker, "width-traces").values())
    assert kept == {f"{number + 1:032x}": 2 for number in failed}, "both events of a trace that failed a leg later"
    _check_metrics(_events(broker, "width-metrics").values())
    assert not any(total["held"].values())


def _check_metrics(events: Iterable[dict[str, Any]]) -> None:
    users = Counter(_window(number) for number in range(LEGS * NEW))
    requests = users + Counter(_window(number) for leg in range(LEGS) for number in _failed(leg))
    counted: dict[tuple[int, str], float] = {}
    unique: dict[tuple[int, str], float] = {}
    for event in events:
        window = (event["attributes"]["metric.start"] // 1_000_000, event["service"])
        if window[0] < BEGIN_S + 10 * WINDOWS:
            values = counted if event["body"] == "requests" else unique
            assert window not in values, "each window ends once"
            values[window] = event["attributes"]["metric.value"]
    assert counted == requests
    assert all(abs(unique[window] - count) <= 1 for window, count in users.items())
