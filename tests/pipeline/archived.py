"""A pipeline whose archive holds what its log has deleted, and replays of it as a person asks for them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.pipeline.support import Said, make_stream, publish
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.archive_loader import ArchiveLoader
from logboom.pipeline.run.replay import Replay, archive_of, directory_of, replay_plan
from logboom.pipeline.run.runner import Runner, RunOptions

FILE = """
name: past
sources:
  web: {type: stream, stream: past-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact}]}
  split: {type: route, inputs: [masked], routes: {errors: "severity_number >= 17"}}
sinks:
  errors: {type: stream, inputs: [split.errors], stream: past-errors}
  archive: {type: parquet, inputs: [masked], path: ./archive}
"""


def line(number: int, more: str = "") -> bytes:
    level = "ERROR" if number % 2 else "INFO"
    service = "shop" if number < 10 else "cart"
    return json.dumps({"level": level, "service": service, "msg": f"{number} of ann@example.com{more}"}).encode()


def run_replay(bootstrap: str, *arguments: str) -> str:
    """Runs a replay, which takes Spark its time; what it says beside its progress."""
    environment = {**os.environ, "LOGBOOM_BOOTSTRAP": bootstrap}
    done = run_logboom((*arguments, "--json", "--master", "local[2]"), timeout_s=WAIT_S, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


class Archived:
    """A pipeline whose archive holds all events, of which its log has deleted so many of each partition."""

    def __init__(
        self, broker: BrokerProcess, directory: Path, name: str, spark: Any, deleted: int = 10, *, count: int = 20
    ) -> None:
        self.bootstrap, self._spark = broker.kafka, spark
        self.file = directory / f"{name}.yaml"
        self.file.write_text(FILE.replace("past", name))
        self.name, stream = name, f"{name}-web"
        make_stream(self.bootstrap, stream, 2)
        self.plan = compile_pipeline(self.file.read_text(), str(self.file))
        publish(self.bootstrap, stream, [line(number) for number in range(count)], 2)
        self.run(self.plan)
        admin = StreamAdmin(self.bootstrap)
        for done in admin.delete_before({(stream, number): deleted for number in range(2)}).values():
            done.result(WAIT_S)

    def run(self, plan: Plan, before: Any = None) -> Said:
        said = Said()
        Runner(plan, RunOptions(bootstrap=self.bootstrap, once=True, before=before), said).run_in(self._spark)
        return said

    def replay(
        self, into: Plan, *, behind_first: Callable[[], None] | None = None, **options: Any
    ) -> tuple[Plan, Said]:
        """Replays the archive as the command does, but in the session of the tests. `behind_first`: is called when the
        first slice has gone through."""
        asked = {"name": "r1", "sink": None, "from_ms": 0, "to_ms": 1 << 42, **options}
        begun = Replay(**asked, archive=archive_of(self.plan, "archive", into, None))
        replayed = replay_plan(into, begun)
        checkpoint = directory_of(Path(into.file).parent / into.checkpoint, begun.name)
        said = Said()
        loader = ArchiveLoader(replayed, begun, checkpoint, StreamAdmin(self.bootstrap), said.notify)
        loader.prepare()
        calls = iter([lambda: None, behind_first or (lambda: None)])

        def load(session: Any, stop: Any) -> bool:
            next(calls, lambda: None)()
            return loader.load(session, stop)

        self.run(replayed, load)
        return replayed, said
