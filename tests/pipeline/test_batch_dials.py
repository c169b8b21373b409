"""A control stream that is deleted while a pipeline runs is made anew."""

from pathlib import Path

from tests.support.server import BrokerProcess

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
        dials = BatchDials(compile_pipeline(FILE, "deleted.yaml"), admin, told.append)
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
        "the dial sampled stands at 50 (before: 10)",
        "the dial sampled stands at 10 (before: 50)",
    ]
