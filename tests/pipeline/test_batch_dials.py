"""A control stream that is deleted while a pipeline runs is made anew, and a start reads only what it has not read."""

from pathlib import Path
from typing import Any

from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.dials.changes import Change, change_record
from logboom.pipeline.dials.control import ControlStream
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.names import DIALS_STREAM
from logboom.pipeline.run.batch_dials import BatchDials

FILE = """
name: deleted
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  sampled: {type: sample, inputs: [parsed], rate: 10}
sinks:
  out: {type: stream, inputs: [sampled], stream: out}
"""


def test_a_control_stream_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    told: list[str] = []
    with BrokerProcess(tmp_path / "data") as broker:
        admin = StreamAdmin(broker.kafka)
        dials = BatchDials(compile_pipeline(FILE, "deleted.yaml"), admin, tmp_path, told.append)
        assert dials.values() == {}
        dials.declare()
        control = ControlStream(admin, "deleted", ["sampled"], told.append)
        change = Change(dial="sampled", value=50, by="ann", at_ms=1)
        control.write(dict([change_record("deleted", change, 0)]))
        assert dials.values() == {"sampled": 50}
        admin.delete([DIALS_STREAM])
        assert dials.values() == {}
        assert control.refresh().declared is not None
    assert told == [
        "the dial sampled is now 50 (before: 10)",
        "the dial sampled is now 10 (before: 50)",
    ]


class _Control:
    """A pipeline with one dial, `sampled`, and its control stream."""

    def __init__(self, broker: BrokerProcess, checkpoint: Path) -> None:
        self.admin, self.checkpoint = StreamAdmin(broker.kafka), checkpoint
        self.told: list[str] = []

    def started(self, file: str = FILE) -> BatchDials:
        """As the router does it at its start."""
        dials = BatchDials(compile_pipeline(file, "deleted.yaml"), self.admin, self.checkpoint, self.told.append)
        dials.declare()
        return dials

    def stream(self) -> ControlStream:
        return ControlStream(self.admin, "deleted", ["sampled"], self.told.append)

    def turn(self, value: float, number: int) -> None:
        change = Change(dial="sampled", value=value, by="ann", at_ms=number)
        self.stream().write(dict([change_record("deleted", change, number)]))

    def forget_records(self) -> None:
        """Nobody can read again what was in the stream."""
        end = self.admin.ends({DIALS_STREAM: 1})[DIALS_STREAM]["0"]
        for done in self.admin.delete_before({(DIALS_STREAM, 0): end}).values():
            done.result(WAIT_S)


def test_a_start_reads_on_where_the_last_run_ended(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        control = _Control(broker, tmp_path)
        running = control.started()
        control.turn(50, 1)
        assert running.values() == {"sampled": 50}
        control.forget_records()
        again = control.started()
        assert again.values() == {"sampled": 50}, "the records are gone, so they were not read again"
        control.turn(60, 2)
        assert control.started().values() == {"sampled": 60}
        kept = tmp_path / "dials.json"
        kept.write_bytes(kept.read_bytes().replace(b"60", b"61"))
        assert control.started().values() == {"sampled": 60}, "a damaged file is read from the stream"


def test_what_was_kept_counts_for_the_same_dials_and_the_same_stream_alone(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        control = _Control(broker, tmp_path)
        running = control.started()
        control.turn(50, 1)
        assert running.values() == {"sampled": 50}
        stream = control.stream()
        stream.resume(None, 0)
        stream.refresh()
        snapshot, end = stream.snapshot(0), stream.read_to
        stream.resume(snapshot, 1 << 50)
        assert stream.read_to == end, "nothing came since, however long that is"
        control.turn(60, 2)
        assert _read_to(stream, snapshot, 1_000) == end
        assert _read_to(stream, snapshot, 24 * 3_600_000) == 0, "what says that a change is gone may be gone too"
        dials_of_another_file = FILE.replace(
            "  sampled:", "  parted: {type: sample, inputs: [parsed], rate: 7}\n  sampled:"
        )
        control.forget_records()
        assert control.started(dials_of_another_file).values() == {}, "read from the start, where nothing is left"
        control.started()
        control.turn(70, 3)
        assert control.started().values() == {"sampled": 70}
        control.admin.delete([DIALS_STREAM])
        for number in range(10):
            control.stream().ensure()
            control.turn(80, number)
        assert control.started().values() == {"sampled": 80}, "of the stream that was made anew"


def _read_to(stream: ControlStream, snapshot: Any, now_ms: int) -> int:
    stream.resume(snapshot, now_ms)
    return stream.read_to
