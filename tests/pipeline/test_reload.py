"""A running pipeline takes its edited file between two batches, and goes on as it was where it cannot."""

import json
import signal
from pathlib import Path

import pytest
from tests.cli.running import ok, refused
from tests.pipeline.support import RouterProcess, archive_ids, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.spark_jvms import SparkJvms
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, needs_java]

FILE = """
name: reloaded
include: [parts/*.yaml]
batch: {interval: 100ms}
sources:
  web: {type: stream, stream: reloaded-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  once: {type: dedupe, inputs: [parsed], by: [event_id], window: 1d}
sinks:
  archive: {type: parquet, inputs: [once], path: ./archive}
"""
PART = """
sinks:
  out: {type: stream, inputs: [parsed], stream: reloaded-STREAM}
"""
MORE = """
sources:
  more: {type: stream, stream: reloaded-more}
transforms:
  again: {type: parse, inputs: [more], rules: [{format: json}]}
sinks:
  out: {type: stream, inputs: [parsed, again], stream: reloaded-two}
"""


def _lines(first: int, behind: int) -> list[bytes]:
    return [json.dumps({"msg": str(number)}).encode() for number in range(first, behind)]


def _bodies(bootstrap: str, stream: str) -> list[str]:
    return sorted(json.loads(message.value())["body"] for message in records(bootstrap, stream))


def _events_in(archive: Path) -> int:
    return sum(archive_ids(archive).values())


def test_an_edited_file_is_taken_between_two_batches(
    broker: BrokerProcess, tmp_path: Path, spark_jvms: SparkJvms
) -> None:
    bootstrap = broker.kafka
    for stream in ("reloaded-web", "reloaded-more"):
        make_stream(bootstrap, stream, 2)
    file, part = tmp_path / "reloaded.yaml", tmp_path / "parts" / "out.yaml"
    part.parent.mkdir()
    file.write_text(FILE)
    part.write_text(PART.replace("STREAM", "one"))
    assert "the pipeline is not running" in refused("pipeline", "reload", str(file), bootstrap=bootstrap)
    publish(bootstrap, "reloaded-web", _lines(0, 10), 2)
    with RouterProcess(file, bootstrap, jvms=spark_jvms) as router:
        until(lambda: len(_bodies(bootstrap, "reloaded-one")) == 10, "the first batch", every_s=1)
        assert "has no changes for the running pipeline" in ok("pipeline", "reload", str(file), bootstrap=bootstrap).out

        part.write_text(PART.replace("STREAM", "one").replace("[parsed]", "[parsd]"))
        assert f"{part}:3: sinks.out.inputs: unknown input 'parsd'" in refused(
            "pipeline", "reload", str(file), bootstrap=bootstrap
        )
        router.process.send_signal(signal.SIGHUP)
        until(lambda: "continues unchanged" in router.log_text(), "the refusal of a file that does not check")
        part.write_text(MORE.replace("reloaded-more", "reloaded-gone"))
        told = refused("pipeline", "reload", str(file), bootstrap=bootstrap)
        assert "continues unchanged: the stream reloaded-gone does not exist" in told
        publish(bootstrap, "reloaded-web", _lines(10, 20), 2)
        until(lambda: len(_bodies(bootstrap, "reloaded-one")) == 20, "a batch as before", every_s=1)

        part.write_text(MORE)
        assert "continues with" in ok("pipeline", "reload", str(file), bootstrap=bootstrap).out
        publish(bootstrap, "reloaded-web", _lines(20, 30), 2)
        publish(bootstrap, "reloaded-more", _lines(30, 40), 2)
        until(lambda: len(_bodies(bootstrap, "reloaded-two")) == 20, "both sources", every_s=1)

        file.write_text(FILE.replace("by: [event_id]", "by: [body]"))
        told = refused("pipeline", "reload", str(file), bootstrap=bootstrap)
        assert "cannot continue with the state of once (30 remembered, 0 events held)" in told
        dropping = ("pipeline", "reload", str(file), "--drop-state", "once")
        assert "continues with" in ok(*dropping, bootstrap=bootstrap).out
        # No batch was done since, so the checkpoint has the state still that was given up: nobody is asked again.
        edited = file.read_text()
        file.write_text(edited.replace("by: [body]", "by: [boddy]"))
        assert "'boddy'" in refused("pipeline", "reload", str(file), bootstrap=bootstrap)
        file.write_text(edited.replace("./archive", "./archive, interval: 1s"))
        assert "continues with" in ok("pipeline", "reload", str(file), bootstrap=bootstrap).out
        publish(bootstrap, "reloaded-web", _lines(20, 30), 2)
        until(lambda: _events_in(tmp_path / "archive") == 40, "what was forgotten", every_s=1)
        publish(bootstrap, "reloaded-web", _lines(20, 40), 2)
        until(lambda: _events_in(tmp_path / "archive") == 50, "what is remembered anew", every_s=1)
        assert router.alive()
        assert router.sigterm() == 0
    assert _bodies(bootstrap, "reloaded-one") == sorted(map(str, range(20)))
    assert set(_bodies(bootstrap, "reloaded-two")) == set(map(str, range(20, 40)))
