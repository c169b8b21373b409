"""logboom services: what real services were asked is shown, and asked once more."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import nats.errors
import nats.micro
import pytest
from confluent_kafka import Producer
from nats.aio.client import Client
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, ServiceConfig
from tests.cli.running import logboom, ok, refused
from tests.nats.servers import end, needs_nats_server, stored
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = [
    needs_nats_server,
    # The services of nats-py note when they began with what Python 3.12 deprecates.
    pytest.mark.filterwarnings(r"ignore:datetime\.datetime\.utcnow:DeprecationWarning:nats\.micro\.service"),
]

PRICES = {b"tea": 590, b"cup": 1450, b"pot": 4900}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ("--nats", "embedded", "--set", "nats.embedded_listen=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("services") / "data", *settings) as process:
        yield process


def url(broker: BrokerProcess) -> str:
    return str(broker.ready["nats"])


async def service(client: Client, name: str, subject: str, plus: int = 0) -> None:
    """A service made with the library of the NATS project, that tells prices."""

    async def price(request: Request) -> None:
        found = PRICES.get(request.data)
        if found is None:
            await request.respond_error("404", "no such product")
        else:
            shop = (request.headers or {}).get("Shop", "-")
            await request.respond(json.dumps({"cents": found + plus, "shop": shop}).encode())

    made = await nats.micro.add_service(client, ServiceConfig(name=name, version="1.2.0"))
    await made.add_endpoint(EndpointConfig(name="price", subject=subject, handler=price))
    await client.flush()


def records(broker: BrokerProcess, stream: str) -> int:
    return end(broker.kafka, stream)


async def ask(broker: BrokerProcess, stream: str, subject: str) -> None:
    """Ask for three prices, for one that there is none of, and nobody, once the stream records; then wait until all is
    recorded."""
    async with await nats.connect(url(broker)) as client:
        await service(client, "prices", subject)
        async with asyncio.timeout(WAIT_S):
            while not await asyncio.to_thread(records, broker, stream):
                await client.request(subject, b"cup", timeout=WAIT_S)
        for product in (*PRICES, b"beer"):
            await client.request(subject, product, timeout=WAIT_S, headers={"Shop": "eu"})
        await client.publish(subject, b"tea")
        with pytest.raises(nats.errors.TimeoutError):
            await client.request(f"{subject}.history", b"tea", timeout=0.1)  # the broker listens, and does not answer
        async with asyncio.timeout(WAIT_S):
            while True:  # the last request is behind all that came before it
                held = await asyncio.to_thread(records, broker, stream)
                *_, last = await asyncio.to_thread(stored, broker.kafka, stream, held)
                if last.header("logboom-subject") == [f"{subject}.history".encode()]:
                    break


def test_what_was_asked_is_listed_shown_and_asked_again(broker: BrokerProcess) -> None:
    subject = "shop.price"
    ok("streams", "create", "asked", "--service", "shop.>", bootstrap=broker.kafka)
    asyncio.run(ask(broker, "asked", subject))

    listed = {row["subject"]: row for row in ok("services", "list", "asked", "--json", bootstrap=broker.kafka).json}
    price = listed[subject]
    assert (price["unanswered"], price["one_way"], price["errors"]) == (0, 1, 1)
    assert price["requests"] >= 6
    assert 0 <= price["p50_ms"] <= price["p99_ms"] <= price["max_ms"]
    history = listed[f"{subject}.history"]
    assert (history["requests"], history["unanswered"], history["p99_ms"]) == (1, 1, None)
    assert "one way" in ok("services", "list", "asked", bootstrap=broker.kafka).out.lower()

    shown = ok("services", "tail", "asked", "--subject", subject, "--json", bootstrap=broker.kafka).json_lines
    *_, tea, cup, pot, beer, alone = shown
    assert [one["request"] for one in (tea, cup, pot, beer, alone)] == ["tea", "cup", "pot", "beer", "tea"]
    assert json.loads(cup["reply"]) == {"cents": 1450, "shop": "eu"}
    assert beer["error"] == "404 no such product"
    assert "reply_subject" not in alone
    lines = ok("services", "tail", "asked", bootstrap=broker.kafka).out.splitlines()
    assert any("error 404 no such product  beer" in line for line in lines)
    assert lines[-1].endswith("shop.price.history  no reply  tea")


async def replayed(broker: BrokerProcess, plus: int, *options: str, fails: bool = False) -> str:
    """Replay to a service whose prices are so much higher; what the command says."""
    words = ["services", "replay", "again", "--to", "next.price", "--nats", url(broker), *options]
    async with await nats.connect(url(broker)) as client:
        await service(client, "next-prices", "next.price", plus)
        if fails:
            return await asyncio.to_thread(refused, *words, bootstrap=broker.kafka)
        return (await asyncio.to_thread(ok, *words, bootstrap=broker.kafka)).out


def test_requests_are_replayed_to_another_subject(broker: BrokerProcess) -> None:
    ok("streams", "create", "again", "--service", "old.>", bootstrap=broker.kafka)
    asyncio.run(ask(broker, "again", "old.price"))
    asked = records(broker, "again")

    told = json.loads(asyncio.run(replayed(broker, 0, "--json", "--subject", "old.price")))
    assert (told["unanswered"], told["one_way"], told["errors"]) == (0, 1, 1)
    assert told["answered"] == told["sent"] - 1
    same = json.loads(
        asyncio.run(replayed(broker, 0, "--json", "--subject", "old.price", "--compare", "--rate", "500"))
    )
    assert (same["same"], same["different"]) == (told["answered"], 0)
    few = json.loads(asyncio.run(replayed(broker, 0, "--json", "--count", "2")))
    assert few["sent"] == 2
    said = asyncio.run(replayed(broker, 1, "--compare", fails=True))
    assert f"{told['answered'] - 1} of {told['answered']} replies differ from the recorded ones" in said
    assert '"cents": 1450' in said
    assert '"cents": 1451' in said
    assert records(broker, "again") == asked, "what is replayed elsewhere is not recorded"


@contextlib.contextmanager
def nats_that_dies(after: int, *, comes_back: bool) -> Iterator[str]:
    """A server of NATS that ends its connection after so many messages, and takes another one or none."""

    def serve() -> None:
        for life in range(1 + comes_back):
            client, _ = listener.accept()
            client.sendall(b'INFO {"server_id":"mortal"}\r\n')
            heard, left = client.makefile("rb"), after
            while left and (line := heard.readline()):
                if line == b"PING\r\n":
                    client.sendall(b"PONG\r\n")
                if line.startswith((b"PUB", b"HPUB")):
                    heard.read(int(line.split()[-1]) + 2)
                    left -= 0 if life else 1
            heard.close()
            client.close()
        listener.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(WAIT_S)


@pytest.mark.parametrize("comes_back", [False, True])
def test_requests_that_are_lost_on_their_way_are_told_of(broker: BrokerProcess, comes_back: bool) -> None:
    """Those that want no reply counted as sent, without an error, while there was no connection."""
    stream = f"told-{comes_back}".lower()
    ok("streams", "create", stream, bootstrap=broker.kafka)
    producer = Producer({"bootstrap.servers": broker.kafka})
    for number in range(40):
        producer.produce(stream, b"%d" % number, headers=[("logboom-kind", b"request"), ("logboom-subject", b"a")])
    assert producer.flush(WAIT_S) == 0
    with nats_that_dies(3, comes_back=comes_back) as address:
        words = ["services", "replay", stream, "--to", "b", "--nats", address, "--rate", "50", "--json"]
        ran = logboom(*words, "--timeout", "60s" if comes_back else "200ms", bootstrap=broker.kafka)
    assert ran.code == 1
    assert ran.json["lost"] >= 1
    if comes_back:
        assert ran.json["sent"] == 40
        assert "may not have been sent" in ran.err
    else:
        assert 3 <= ran.json["sent"] < 40
        assert f"nothing was sent after these {ran.json['sent']} requests" in ran.err


def test_who_answers_is_asked_of_the_services(broker: BrokerProcess) -> None:
    ok("streams", "create", "named", "--service", "named.>", bootstrap=broker.kafka)

    async def main() -> str:
        await ask(broker, "named", "named.price")
        words = ["services", "list", "named", "--nats", url(broker)]
        async with await nats.connect(url(broker)) as one, await nats.connect(url(broker)) as other:
            for client in (one, other):
                await service(client, "prices", "named.price")
            return (await asyncio.to_thread(ok, *words, bootstrap=broker.kafka)).out

    lines = asyncio.run(main()).splitlines()
    assert lines[1].startswith("named.price ")
    assert lines[1].endswith("prices 1.2.0 (2)")
    assert lines[2].endswith("-")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "nowhere", "--to", "a.*"], "has a wildcard"),
        (["tail", "nowhere", "--subject", "a b"], "has a blank"),
        (["list", "nowhere"], "there is no stream 'nowhere'"),
        (["replay", "nowhere", "--to", "a", "--nats", "nats://127.0.0.1:1"], "no NATS at nats://127.0.0.1:1: Conn"),
        (["replay", "nowhere", "--to", "a", "--nats", "http://x"], "should be addresses such as nats://"),
    ],
)
def test_what_cannot_be_done_is_told(broker: BrokerProcess, words: list[str], said: str) -> None:
    assert said in refused("services", *words, bootstrap=broker.kafka)


def test_an_error_without_a_body_is_shown_by_its_headers(broker: BrokerProcess) -> None:
    ok("streams", "create", "failing", "--service", "failing.>", bootstrap=broker.kafka)
    asyncio.run(ask(broker, "failing", "failing.price"))
    lines = ok("services", "tail", "failing", bootstrap=broker.kafka).out.splitlines()
    (beer,) = [line for line in lines if "  beer  " in line]
    assert beer.endswith("beer  ->  Nats-Service-Error: no such product, Nats-Service-Error-Code: 404")
