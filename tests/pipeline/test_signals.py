"""SIGTERM as service managers send it: to the process group, or to every process of the service at once."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.support import RouterProcess, all_ended, descendants, make_stream, needs_java, publish, wait_until
from tests.support.server import BrokerProcess

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.timeout(300)]

EVENTS = 2_000
PIPELINE = """
name: NAME
sources:
  web: {type: stream, stream: NAME-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email}, {kind: card}, {kind: token}]}
sinks:
  out: {type: stream, inputs: [masked], stream: NAME-out}
"""


def _to_group(pid: int) -> None:
    os.killpg(pid, signal.SIGTERM)


def _to_each(pid: int) -> None:
    for one in descendants(pid):
        os.kill(one, signal.SIGTERM)


def _interrupt_group(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


@pytest.mark.parametrize(("name", "send"), [("group", _to_group), ("each", _to_each), ("interrupt", _interrupt_group)])
def test_the_running_batch_comes_to_its_end(
    broker: BrokerProcess, tmp_path: Path, name: str, send: Callable[[int], None]
) -> None:
    file = tmp_path / f"{name}.yaml"
    file.write_text(PIPELINE.replace("NAME", f"signal-{name}"))
    checkpoint = tmp_path / "checkpoints" / f"signal-{name}"
    make_stream(broker.kafka, f"signal-{name}-web", 1)
    line = json.dumps({"level": "INFO", "msg": "mail to ann@example.com, card 4111 1111 1111 1111"}).encode()
    publish(broker.kafka, f"signal-{name}-web", [line] * EVENTS, 1)
    with RouterProcess(file, broker.kafka) as router:
        pinned = checkpoint / "pins" / "batches" / "0.json"
        wait_until(lambda: pinned.exists() or not router.alive(), "a batch begins")
        started = descendants(router.process.pid)
        assert len(started) >= 2, "the driver and its JVM"
        send(router.process.pid)
        assert router.wait() == 0, router.log_text()[-2_000:]
        assert " INFO " not in router.log_text(), "Spark is silent where its log was not asked for"
        assert (checkpoint / "router" / "commits" / "0").exists(), router.log_text()[-2_000:]
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in started - {router.process.pid}), "all ended"
        )


def test_a_killed_jvm_ends_the_run_with_a_sentence(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "jvm.yaml"
    file.write_text(PIPELINE.replace("NAME", "signal-jvm"))
    make_stream(broker.kafka, "signal-jvm-web", 1)
    publish(broker.kafka, "signal-jvm-web", [b'{"msg": "one"}'], 1)
    committed = tmp_path / "checkpoints" / "signal-jvm" / "router" / "commits" / "0"
    with RouterProcess(file, broker.kafka) as router:
        wait_until(lambda: committed.exists() or not router.alive(), "a batch")
        started = descendants(router.process.pid)
        (jvm,) = (pid for pid in started if Path(f"/proc/{pid}/comm").read_text() == "java\n")
        os.kill(jvm, signal.SIGKILL)
        assert router.wait() == 1, router.log_text()[-2_000:]
        assert router.log_text().splitlines()[-1] == (
            "logboom: Spark's JVM was killed (the kernel does so where memory runs out); "
            "nothing is lost: the next start goes on with the same batch"
        )
        wait_until(lambda: all_ended(started - {router.process.pid}), "all ended")
