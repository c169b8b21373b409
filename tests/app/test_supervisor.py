"""The supervisor of several processes: starts, ends, crashes, and what other processes may ask of it.

The processes here are small programs that keep the contract of `logboom serve --json`: a line of JSON when ready, a log
on standard error, an orderly end at SIGTERM.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.app.node_programs import FAILS, NODE, STUBBORN
from tests.support.waiting import WAIT_S

from logboom.app.supervisor.child import Child, NodeStartError
from logboom.app.supervisor.folder import Folder, FolderError, Listeners, read_list
from logboom.app.supervisor.remote import answering, ask_supervisor
from logboom.app.supervisor.supervisor import NodeState, Reports, Supervisor, SupervisorError
from logboom.base.errors import LogboomError
from logboom.base.settings import split_address


class Seen:
    """What the supervisor reported."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.events: list[tuple[int, str]] = []
        self._more = asyncio.Event()
        self.reports = Reports(self._line, self._event, self._more.set)

    def _line(self, node_id: int, line: str) -> None:
        self.lines.append((node_id, line))
        self._more.set()

    def _event(self, node_id: int, words: str) -> None:
        self.events.append((node_id, words))
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._more.clear()
                await self._more.wait()


@contextlib.asynccontextmanager
async def supervised(programs: dict[int, str], *, restarts: bool = False) -> AsyncIterator[tuple[Supervisor, Seen]]:
    """A supervisor of some programs, all ended afterwards."""
    seen = Seen()
    supervisor = Supervisor(
        programs,
        lambda node_id: [sys.executable, "-c", programs[node_id]],
        seen.reports,
        restarts=restarts,
        ready_max_s=WAIT_S,
    )
    try:
        yield supervisor, seen
    finally:
        await supervisor.kill_all()


def alive(pid: int) -> bool:
    """Whether there is such a process, not counting one that has ended and was not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_node_starts_logs_pauses_and_stops() -> None:
    async def check() -> None:
        async with supervised({1: NODE}) as (supervisor, seen):
            member = supervisor.member(1)
            said = await supervisor.start(1)
            assert (said, member.state) == ({"pid": member.pid}, NodeState.UP)
            supervisor.pause(1)
            assert member.state is NodeState.PAUSED
            with pytest.raises(SupervisorError, match="node 1 is paused"):
                supervisor.pause(1)
            supervisor.resume(1)
            with pytest.raises(SupervisorError, match="not paused"):
                supervisor.resume(1)
            assert await supervisor.stop(1) == 0
            assert (member.state, member.pid) == (NodeState.DOWN, None)
            assert seen.lines == [(1, "comes"), (1, "goes")]
            with pytest.raises(SupervisorError, match="node 1 is down"):
                await supervisor.kill(1)
            await supervisor.start(1)
            with pytest.raises(SupervisorError, match="node 1 is up already"):
                await supervisor.start(1)
            with pytest.raises(SupervisorError, match="no node 7 here; there are 1"):
                await supervisor.start(7)

    asyncio.run(check())


def test_paused_node_can_be_stopped_and_killed() -> None:
    async def check() -> None:
        async with supervised({1: NODE}) as (supervisor, _):
            for end in (supervisor.stop, supervisor.kill):
                await supervisor.start(1)
                supervisor.pause(1)
                await end(1)
                assert supervisor.member(1).state is NodeState.DOWN

    asyncio.run(check())


def test_node_that_fails_to_start_says_why() -> None:
    async def check() -> None:
        async with supervised({2: FAILS}, restarts=True) as (supervisor, seen):
            with pytest.raises(NodeStartError) as raised:
                await supervisor.start(2)
            assert str(raised.value) == "node 2: it ended with exit code 3 before it was ready: no room"
            assert supervisor.member(2).state is NodeState.DOWN
            assert seen.events == []

    asyncio.run(check())


def test_crashed_node_is_started_again_where_that_is_wanted() -> None:
    async def check() -> None:
        async with supervised({1: NODE}, restarts=True) as (supervisor, seen):
            pid = (await supervisor.start(1))["pid"]
            for said in (["was ended by SIGKILL", "is started again"], ["was ended by SIGKILL"]):
                os.kill(pid, signal.SIGKILL)
                await seen.until(lambda: any("is up again" in words for _, words in seen.events))
                assert [words for _, words in seen.events][: len(said)] == said
                seen.events.clear()
                pid = supervisor.member(1).pid
            await supervisor.kill(1)
            assert supervisor.member(1).state is NodeState.DOWN
            assert seen.events == [], "one that is killed on purpose stays down"

    asyncio.run(check())


def test_crashed_node_stays_down_where_nobody_wants_it_back() -> None:
    async def check() -> None:
        async with supervised({1: NODE}) as (supervisor, seen):
            pid = (await supervisor.start(1))["pid"]
            os.kill(pid, signal.SIGKILL)
            await seen.until(lambda: supervisor.member(1).state is NodeState.DOWN)
            assert seen.events == [(1, "was ended by SIGKILL")]

    asyncio.run(check())


def test_all_stop_with_one_of_them_last() -> None:
    async def check() -> None:
        async with supervised({1: NODE, 2: NODE, 3: NODE}) as (supervisor, seen):
            await asyncio.gather(*map(supervisor.start, (1, 2, 3)))
            seen.lines.clear()
            await supervisor.stop_all(last=2)
            assert [line for _, line in seen.lines] == ["goes"] * 3
            assert seen.lines[-1] == (2, "goes")
            with pytest.raises(SupervisorError, match="everything is being stopped"):
                await supervisor.start(1)

    asyncio.run(check())


def test_node_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.app.supervisor.supervisor.STOP_MAX_S", 0.1)
    monkeypatch.setattr("logboom.app.supervisor.supervisor._STOP_GRACE_S", 0.0)

    async def check() -> None:
        async with supervised({1: STUBBORN}) as (supervisor, seen):
            await supervisor.start(1)
            assert await supervisor.stop(1) == -signal.SIGKILL
            assert seen.events == [(1, "does not stop and is killed")]

    asyncio.run(check())


def test_long_lines_and_unfinished_ones_are_passed_on() -> None:
    program = f"import sys; print('x' * 3_000_000 + 'y', file=sys.stderr); print({json.dumps({})!r}, flush=True); "
    program += "sys.stderr.write('end')"

    async def check() -> None:
        lines: list[str] = []
        child = Child.start([sys.executable, "-c", program], lines.append)
        assert await child.ready(WAIT_S) == {}
        assert await child.ended == 0
        assert "".join(lines) == "x" * 3_000_000 + "y" + "end"
        assert lines[-1] == "end"

    asyncio.run(check())


def test_nodes_die_with_their_supervisor(tmp_path: Path) -> None:
    """Killed, it can stop nobody; a paused node has to go too."""
    program = f"""
import asyncio, sys
from logboom.app.supervisor.supervisor import Reports, Supervisor
async def main():
    reports = Reports(lambda *_: None, lambda *_: None, lambda: None)
    command = [sys.executable, "-c", {NODE!r}]
    supervisor = Supervisor((1, 2), lambda node_id: command, reports, restarts=True, ready_max_s=None)
    pids = [(await supervisor.start(each))["pid"] for each in (1, 2)]
    supervisor.pause(2)
    print(*pids, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        files = [os.pidfd_open(pid) for pid in pids]
        process.kill()
        process.wait(WAIT_S)
        for pid, file in zip(pids, files, strict=True):
            assert wait_readable(file), f"process {pid} lives on"
            os.close(file)
            assert not alive(pid)


def wait_readable(file: int) -> bool:
    """Whether a process has ended, in time."""
    return bool(select.select([file], [], [], WAIT_S)[0])


# --- the folder -------------------------------------------------------------------------------------------------------

FREE = Listeners("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
USUAL = Listeners("127.0.0.1:9092", "127.0.0.1:9192", None)


def test_folder_keeps_places_and_belongs_to_one(tmp_path: Path) -> None:
    folder = Folder.open(tmp_path / "a")
    folder.lay_out((1, 2), FREE, keep=True)
    places = list(folder.places)
    ports = [split_address(each)[1] for place in places for each in (place.kafka, place.peer, str(place.http))]
    assert len(set(ports)) == 6
    with pytest.raises(FolderError, match="is in use"):
        Folder.open(tmp_path / "a")
    folder.founded = True
    folder.write({1: (77, "up")})
    folder.close()

    nodes = read_list(tmp_path / "a")["nodes"]
    assert [(node["id"], node["pid"], node["state"]) for node in nodes] == [(1, 77, "up"), (2, None, "down")]
    again = Folder.open(tmp_path / "a")
    assert (again.places, again.founded) == (places, True)
    again.lay_out((1, 2, 3), FREE, keep=False)
    assert again.places[:2] == places, "a free port is kept"
    again.lay_out((1, 2, 3), USUAL, keep=True)
    assert again.places[:2] == places
    again.lay_out((1, 2, 3), USUAL, keep=False)
    assert [place.kafka for place in again.places] == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
    assert {place.http for place in again.places} == {None}
    again.close()


def test_ports_are_held_for_the_nodes_until_they_listen_and_while_they_are_down(tmp_path: Path) -> None:
    folder = Folder.open(tmp_path / "a")
    folder.lay_out((1,), FREE, keep=True)
    (place,) = folder.places
    kafka = split_address(place.kafka)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(kafka)
    for _ in range(2):  # lives of the node
        with socket.create_server(kafka), socket.create_connection(kafka):
            pass
    folder.close()

    again = Folder.open(tmp_path / "a")
    again.places = [place]
    with socket.create_server(kafka):
        assert not again.hold(place.kafka), "another program listens there"
    assert again.hold(place.kafka)
    again.close()


def test_key_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    folder = Folder.open(tmp_path)
    key = folder.key_file().read_bytes()
    assert len(bytes.fromhex(key.decode())) == 32
    assert folder.key_file().stat().st_mode & 0o777 == 0o600
    assert folder.key_file().read_bytes() == key
    folder.close()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nodes": [{"id": 1}], "founded": true}'])
def test_list_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(FolderError, match="not a list of nodes"):
        Folder.open(tmp_path)
    with pytest.raises(FolderError, match="there is no cluster in"):
        read_list(tmp_path / "elsewhere")


# --- asking a supervisor ----------------------------------------------------------------------------------------------


def test_supervisor_is_asked_over_its_socket(tmp_path: Path) -> None:
    async def ask(what: str, node_id: int | None) -> dict[str, Any]:
        if what == "kill":
            raise SupervisorError("node 2 is down")
        return {"did": [what, node_id]}

    async def check(folder: Path) -> None:
        folder.mkdir()
        (folder / "control.sock").touch()  # of one that was killed
        async with answering(folder, ask):
            assert (folder / "control.sock").stat().st_mode & 0o777 == 0o600
            assert await asyncio.to_thread(ask_supervisor, folder, "start", 2, WAIT_S) == {"did": ["start", 2]}
            with pytest.raises(LogboomError, match="node 2 is down"):
                await asyncio.to_thread(ask_supervisor, folder, "kill", 2, WAIT_S)
        with pytest.raises(FolderError, match="no cluster runs in"):
            await asyncio.to_thread(ask_supervisor, folder, "start", 2, WAIT_S)

    asyncio.run(check(tmp_path / "short"))
    asyncio.run(check(tmp_path / ("long" * 40)))


@pytest.mark.parametrize("request_line", [b"\n", b"[]\n", b"nonsense\n", b"x" * 100_000, b"{}\n"])
def test_bad_requests_end_nothing(tmp_path: Path, request_line: bytes) -> None:
    async def ask(what: str, node_id: int | None) -> dict[str, Any]:
        return {"did": what}

    async def check() -> None:
        async with answering(tmp_path, ask):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "control.sock")
            with contextlib.suppress(ConnectionError):
                writer.write(request_line)
                await writer.drain()
                answer = await asyncio.wait_for(reader.read(), WAIT_S)
                assert not answer or "error" in json.loads(answer)
            writer.close()
            assert await asyncio.to_thread(ask_supervisor, tmp_path, "pause", 1, WAIT_S) == {"did": "pause"}

    asyncio.run(check())
