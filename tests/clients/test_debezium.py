"""Debezium writes the rows of PostgreSQL's tables into compacted streams, which make exactly these tables.

The worker's settings and the connector's are those of docs/kafka-ecosystem.md.
"""

import json
import random
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.clients.connect_worker import ConnectWorker, properties
from tests.clients.drivers import DriverMissingError, debezium
from tests.clients.reading import ends, is_compacted, read, table
from tests.docs.blocks import blocks_of
from tests.support.postgres import PostgresError, PostgresMissingError, PostgresServer, Session
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "kafka-ecosystem.md"
CONNECTOR: Final = "shop"
ACCOUNTS, LEDGER = "accounts", "ledger"
IDS: Final = 400
PROGRESS: Final = 1_500
"""Records that come between two kills."""

QUICKLY: Final = {
    # The shortest times in which the loss of a worker is noticed and its task begins anew.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "2000",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "service_load",
}
SMALL_SEGMENTS: Final = {"segment.bytes": "65536", "segment.ms": "2000", "min.cleanable.dirty.ratio": "0.01"}

SCHEMA: Final = """
CREATE TABLE accounts (
    id integer PRIMARY KEY,
    owner text,
    balance numeric(20, 4) NOT NULL,
    visits integer NOT NULL DEFAULT 0,
    rate double precision,
    active boolean,
    seen timestamptz,
    born date,
    settings jsonb,
    tag uuid,
    photo bytea,
    words text[],
    note text,
    document text
);
-- Without it, an update does not tell a long text that it leaves as it is.
ALTER TABLE accounts REPLICA IDENTITY FULL;
CREATE TABLE ledger (account integer, number bigint, amount numeric(20, 4) NOT NULL, PRIMARY KEY (account, number));
CREATE ROLE debezium REPLICATION LOGIN PASSWORD 'secret';
GRANT SELECT ON accounts, ledger TO debezium;
CREATE PUBLICATION shop FOR TABLE accounts, ledger;
"""

Row = dict[str, Any]
Rows = dict[str, Row]


@pytest.fixture(scope="module")
def command() -> list[str]:
    with skipped_on(DriverMissingError):
        return debezium()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with skipped_on(PostgresMissingError):
        server = PostgresServer()
    with server:
        yield server


def test_streams_make_the_tables_over_killed_workers_and_brokers(
    command: list[str], postgres: PostgresServer, tmp_path: Path
) -> None:
    with (
        BrokerProcess(tmp_path / "data", "--set", "broker.cleaner.backoff_ms=20ms") as broker,
        postgres.session() as session,
        ConnectWorker(command, worker_settings(broker.kafka), tmp_path) as worker,
    ):
        session.run(SCHEMA)
        load = Load(postgres)
        load.insert_accounts(session)
        worker.configure(CONNECTOR, connector_settings(postgres))
        until(lambda: changes(broker.kafka) >= IDS, "the snapshot")
        load.deletes = True
        with load.running():
            for victims, change in ROUNDS:
                wait_for_changes(broker.kafka, PROGRESS)
                if "worker" in victims:
                    worker.kill9()
                if "broker" in victims:
                    broker.kill9()
                if change:
                    load.change_schema(change)
                if "broker" in victims:
                    broker.start()
                if "worker" in victims:
                    worker.start()
                wait_until_running(worker)
        wait_until_captured(session)
        assert_same(broker.kafka, session)

        for stream in (stream_of(ACCOUNTS), "connect-offsets"):
            until(partial(is_compacted, broker.kafka, stream), f"a compaction of {stream}")
        assert_same(broker.kafka, session)

        # A worker and a broker that know nothing but what is in the data directory go on where they were.
        worker.kill9()
        broker.restart()
        worker.start()
        wait_until_running(worker)
        session.run("DELETE FROM accounts WHERE id % 2 = 0; UPDATE accounts SET visits = visits + 1")
        wait_until_captured(session)
        assert_same(broker.kafka, session)


ROUNDS: Final = (
    (("worker",), "ALTER TABLE accounts ADD COLUMN region text"),
    (("broker",), "ALTER TABLE accounts ALTER COLUMN visits TYPE bigint"),
    (("worker", "broker"), ""),
    (("broker",), "ALTER TABLE accounts DROP COLUMN note"),
    (("worker",), ""),
    (("broker", "worker"), "ALTER TABLE accounts RENAME COLUMN owner TO holder; UPDATE accounts SET id = id"),
)


def worker_settings(bootstrap: str) -> dict[str, str]:
    settings = properties(block("connect.properties").replace("127.0.0.1:9092", bootstrap))
    del settings["plugin.path"]  # the connector is on the class path here
    for storage in ("config", "offset", "status"):
        settings.update({f"{storage}.storage.{name}": value for name, value in SMALL_SEGMENTS.items()})
    return {**settings, **QUICKLY}


def connector_settings(postgres: PostgresServer) -> dict[str, str]:
    settings: dict[str, str] = json.loads(block("shop.json"))
    small = {f"topic.creation.default.{name}": value for name, value in SMALL_SEGMENTS.items()}
    return {**settings, "database.port": str(postgres.port), **small}


def block(name: str) -> str:
    return next(block.text for block in blocks_of(PAGE) if block.file == name)


class Load:
    """Transactions that change both tables, one after the other, some of them rolled back."""

    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres
        self._random = random.Random(3)
        self._lock = threading.Lock()
        self._columns = ["owner", "balance", "visits", "rate", "active", "seen", "born", "settings", "tag"]
        self._columns += ["photo", "words", "note", "document"]
        self._ledger = 0
        self.deletes = False

    def insert_accounts(self, session: Session) -> None:
        session.run(";\n".join(self._insert(number) for number in range(IDS)))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Under way on a thread while the block runs; what went wrong there is raised at its end."""
        stop, failed = threading.Event(), list[PostgresError]()

        def run() -> None:
            try:
                with self._postgres.session() as session:
                    while not stop.wait(0.005):
                        with self._lock:
                            session.run(self._transaction())
            except PostgresError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(WAIT_S)
        assert not failed, failed

    def change_schema(self, statement: str) -> None:
        """Between two transactions; what follows uses the new columns."""
        with self._lock, self._postgres.session() as session:
            session.run(statement)
            told = session.run(f"SELECT column_name FROM information_schema.columns WHERE table_name = '{ACCOUNTS}'")
            self._columns = [name for name in told.split() if name != "id"]

    def _transaction(self) -> str:
        end = "ROLLBACK" if self._random.random() < 0.1 else "COMMIT"
        return ";\n".join(["BEGIN", *(self._statement() for _ in range(self._random.randrange(1, 8))), end])

    def _statement(self) -> str:
        number, chance = self._random.randrange(IDS), self._random.random()
        if chance < 0.3:
            self._ledger += 1
            return f"INSERT INTO ledger VALUES ({number}, {self._ledger}, {self._random.randrange(10**9)}.5)"
        if chance < 0.4 and self.deletes:
            return f"DELETE FROM accounts WHERE id = {number}"
        if chance < 0.45:
            # A new primary key: the old row's tombstone and the new row.
            free = f"NOT EXISTS (SELECT FROM accounts WHERE id = {number + IDS})"
            return f"UPDATE accounts SET id = id + {IDS} WHERE id = {number} AND {free}"
        if chance < 0.6:
            return self._insert(number)
        column = self._random.choice(self._columns)
        return f"UPDATE accounts SET {column} = {self._value(column)} WHERE id = {number}"

    def _insert(self, number: int) -> str:
        values = ", ".join(self._value(column) for column in self._columns)
        updates = ", ".join(f"{column} = excluded.{column}" for column in self._columns)
        names = ", ".join(self._columns)
        return (
            f"INSERT INTO accounts (id, {names}) VALUES ({number}, {values}) ON CONFLICT (id) DO UPDATE SET {updates}"
        )

    def _value(self, column: str) -> str:
        number = self._random.randrange(-(10**6), 10**6)
        if column not in ("balance", "visits") and self._random.random() < 0.1:
            return "NULL"
        values = {
            "balance": f"{number}.{abs(number) % 10_000:04}",
            "visits": str(number),
            "rate": repr(number / 7),
            "active": "true" if number % 2 else "false",
            "seen": f"timestamptz '2026-01-01 00:00:00.000001+00' + interval '{number} seconds'",
            "born": f"date '2000-01-01' + {number % 9_000}",
            "settings": json_literal({"depth": {"of": number}, "words": ["ä", "'", '"', "\\"]}),
            "tag": f"md5('{number}')::uuid",
            "photo": f"decode(md5('{number}'), 'hex')",
            "words": f"ARRAY['{number}', NULL, 'a,b', '']",
            "document": f"repeat(md5('{number}'), 200)",  # longer than a page: stored beside the row
        }
        return values.get(column, f"'{column} of {number}, größer ≥ 🪵'")


def json_literal(value: object) -> str:
    return "'" + json.dumps(value).replace("'", "''") + "'"


def wait_until_running(worker: ConnectWorker) -> None:
    until(lambda: worker.tasks(CONNECTOR, 1) == {worker.id}, "the connector runs")


def wait_until_captured(session: Session) -> None:
    """Returns once the connector has told the database that it has stored all that was committed so far."""
    end = session.run("SELECT pg_current_wal_lsn()")
    # What it tells is the end of the transaction before the last one. These two leave the table as it is.
    for _ in range(2):
        session.run("UPDATE accounts SET visits = visits WHERE id = (SELECT min(id) FROM accounts)")
    stored = f"SELECT confirmed_flush_lsn > '{end}' FROM pg_replication_slots"
    until(lambda: session.run(stored) == "t", "all changes stored")


def assert_same(bootstrap: str, session: Session) -> None:
    for name, key in ((ACCOUNTS, ("id",)), (LEDGER, ("account", "number"))):
        wanted, found = rows_of_table(session, name, key), rows_of_stream(bootstrap, stream_of(name))
        assert len(wanted) > IDS / 4
        assert found.keys() == wanted.keys()
        # A column that was dropped or renamed stays in the records of rows that were not changed since.
        columns = next(iter(wanted.values())).keys()
        places = [(row, column) for row in wanted for column in columns]
        different = [place for place in places if found[place[0]].get(place[1]) != wanted[place[0]][place[1]]]
        assert not different, [(*at, found[at[0]].get(at[1]), wanted[at[0]][at[1]]) for at in different[:5]]


def stream_of(name: str) -> str:
    return f"{CONNECTOR}.public.{name}"


def rows_of_table(session: Session, name: str, key: tuple[str, ...]) -> Rows:
    printed = session.run(f"SELECT to_json({name}) FROM {name}").splitlines()
    rows = [json.loads(line, parse_float=Decimal) for line in printed]
    return {json.dumps([row[name] for name in key]): values(row, FROM_TABLE) for row in rows}


def rows_of_stream(bootstrap: str, stream: str) -> Rows:
    rows = table(read(bootstrap, stream)).items()
    return {json.dumps([*json.loads(key).values()]): values(json.loads(value), FROM_STREAM) for key, value in rows}


def values(row: Row, read: Mapping[str, Callable[[Any], Any]]) -> Row:
    return {name: value if value is None else read.get(name, str)(value) for name, value in row.items()}


FROM_BOTH: Final[Mapping[str, Callable[[Any], Any]]] = {
    "balance": Decimal,
    "amount": Decimal,
    "rate": float,
    "seen": datetime.fromisoformat,
    "words": list,
}
FROM_TABLE: Final = {**FROM_BOTH, "photo": lambda value: bytes.fromhex(value[2:]), "settings": dict}
FROM_STREAM: Final = {
    **FROM_BOTH,
    "photo": b64decode,
    "settings": json.loads,
    "born": lambda value: value.removesuffix("Z"),
}


def wait_for_changes(bootstrap: str, count: int) -> None:
    goal = changes(bootstrap) + count
    until(lambda: changes(bootstrap) >= goal, f"{count} more changes")


def changes(bootstrap: str) -> int:
    """How many records the connector has written."""
    return ends(bootstrap, *map(stream_of, (ACCOUNTS, LEDGER)))
