"""A small web shop that logs as real services do. It knows nothing of Logboom: it writes files, and publishes on NATS.

shop.log: one JSON object a line. access.log: the combined format. errors.log: stack traces over several lines. With
--nats it tells what becomes of orders on the subjects orders.placed, orders.refused and orders.failed.
"""

import argparse
import asyncio
import concurrent.futures
import json
import logging
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nats.errors
import structlog
from nats.js import JetStreamContext

import nats

PRODUCTS = {
    "tea": {"name": "Green tea, 100 g", "cents": 590, "stock": 10_000},
    "pot": {"name": "Tea pot, iron", "cents": 4900, "stock": 12},
    "cup": {"name": "Cup without a handle", "cents": 1450, "stock": 10_000},
}


class ShopError(Exception):
    """A request that ends in an HTTP error; the text goes to the visitor."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class WarehouseError(RuntimeError):
    """The warehouse did not answer; nothing the visitor did."""


@dataclass
class Shop:
    """What the shop sells and has sold. One lock is enough for a small shop."""

    chance: random.Random
    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    stock: dict[str, int] = field(default_factory=lambda: {name: int(p["stock"]) for name, p in PRODUCTS.items()})  # type: ignore[call-overload]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def order(self, wanted: dict[str, Any]) -> dict[str, Any]:
        for key in ("product", "email", "card"):
            if not isinstance(wanted.get(key), str):
                raise ShopError(HTTPStatus.BAD_REQUEST, f"an order needs {key}")
        product = wanted["product"]
        if product not in PRODUCTS:
            raise ShopError(HTTPStatus.NOT_FOUND, f"no product {product}")
        if wanted["card"].endswith("0002"):
            raise ShopError(HTTPStatus.PAYMENT_REQUIRED, "card declined")
        with self.lock:
            if self.stock[product] == 0:
                raise ShopError(HTTPStatus.CONFLICT, f"{product} is sold out")
            self._ask_warehouse(product)
            self.stock[product] -= 1
            number = f"o-{self.chance.getrandbits(32):08x}"
            self.orders[number] = {"order": number, "product": product, "cents": PRODUCTS[product]["cents"]}
        return self.orders[number]

    def _ask_warehouse(self, product: str) -> None:
        if self.chance.random() < 0.02:
            raise WarehouseError(f"warehouse: no answer for {product} after 3 tries")


class Events:
    """What happens to orders, on NATS, told from any thread. Each event is published until it is acked, with an id, so
    that one whose ack was lost is not there twice."""

    WINDOW = 256
    ACK_S = 5
    ATTEMPTS = 10

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._window = asyncio.Semaphore(self.WINDOW)
        self._waiting: set[concurrent.futures.Future[None]] = set()
        self.acked = 0
        threading.Thread(target=self._loop.run_forever, name="nats", daemon=True).start()
        self._stream = asyncio.run_coroutine_threadsafe(self._connect(url), self._loop).result(30)

    async def _connect(self, url: str) -> JetStreamContext:
        return (await nats.connect(url)).jetstream()

    def tell(self, what: str, traceparent: str, **fields: object) -> None:
        """Publish on the subject orders.`what`; does not wait."""
        event = {"time": datetime.now(UTC).isoformat(), "service": "shop", "event": f"order {what}", **fields}
        headers = {"Nats-Msg-Id": uuid.uuid4().hex, "traceparent": traceparent}
        publishing = self._publish(f"orders.{what}", json.dumps(event).encode(), headers)
        told = asyncio.run_coroutine_threadsafe(publishing, self._loop)
        self._waiting.add(told)
        told.add_done_callback(self._waiting.discard)

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        async with self._window:
            for _ in range(self.ATTEMPTS):
                try:
                    await self._stream.publish(subject, payload, timeout=self.ACK_S, headers=headers)
                except (nats.errors.Error, TimeoutError):
                    await asyncio.sleep(0.5)
                else:
                    self.acked += 1
                    return

    def flush(self) -> int:
        """Wait for the acks; how many came."""
        concurrent.futures.wait(list(self._waiting), timeout=self.ATTEMPTS * self.ACK_S)
        return self.acked


def json_log(path: Path) -> structlog.typing.FilteringBoundLogger:
    """One JSON object a line, time first, as structlog users have it."""
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(path.open("a", buffering=1)),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        service="shop",
    )
    return logger


class Handler(BaseHTTPRequestHandler):
    """One request. The server carries the shop and its logs."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    server: "ShopServer"

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _get(self) -> tuple[HTTPStatus, object]:
        if self.path == "/healthz":
            return HTTPStatus.OK, {"ok": True}
        if self.path == "/products":
            return HTTPStatus.OK, PRODUCTS
        if self.path.startswith("/orders/"):
            order = self.server.shop.orders.get(self.path.removeprefix("/orders/"))
            if order is not None:
                return HTTPStatus.OK, order
        raise ShopError(HTTPStatus.NOT_FOUND, f"nothing at {self.path}")

    def _post(self) -> tuple[HTTPStatus, object]:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path != "/orders":
            raise ShopError(HTTPStatus.NOT_FOUND, f"nothing at {self.path}")
        try:
            wanted = json.loads(body)
        except ValueError:
            raise ShopError(HTTPStatus.BAD_REQUEST, "an order is a JSON object") from None
        log = self.server.log.bind(**self._trace())
        log.info("order received", **{"user.email": wanted.get("email"), "product": wanted.get("product")})
        try:
            order = self.server.shop.order(wanted)
        except (ShopError, WarehouseError) as error:
            self._tell("refused" if isinstance(error, ShopError) else "failed", reason=str(error))
            raise
        log.info(f"charged card {wanted['card']} for {wanted['email']}", **order)
        self._tell("placed", **order)
        return HTTPStatus.CREATED, order

    def _tell(self, what: str, **fields: object) -> None:
        if self.server.events is not None:
            self.server.events.tell(what, self.headers.get("traceparent", ""), **fields)

    def _trace(self) -> dict[str, str]:
        parts = self.headers.get("traceparent", "").split("-")
        return {"trace_id": parts[1], "span_id": parts[2]} if len(parts) == 4 else {}

    def _answer(self, act: Callable[[], tuple[HTTPStatus, object]]) -> None:
        began = time.perf_counter()
        problem = ""
        try:
            status, body = act()
        except ShopError as error:
            status, body, problem = error.status, {"error": str(error)}, str(error)
        except WarehouseError as error:
            self.server.errors.exception("order failed")
            status, body, problem = HTTPStatus.BAD_GATEWAY, {"error": "try again later"}, str(error)
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
        self._log(status, len(payload), (time.perf_counter() - began) * 1000, problem)

    def _log(self, status: HTTPStatus, size: int, took_ms: float, problem: str) -> None:
        fields = {
            "http.request.method": self.command,
            "url.path": self.path,
            "http.response.status_code": int(status),
            "duration_ms": round(took_ms, 3),
            "client.address": self.headers.get("X-Forwarded-For", self.client_address[0]),
            **self._trace(),
        }
        log = self.server.log
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error(f"request failed: {problem}", **fields)
        elif status >= HTTPStatus.BAD_REQUEST:
            log.warning(f"request refused: {problem}", **fields)
        else:
            log.info("request served", **fields)
        when = datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S %z")
        agent = self.headers.get("User-Agent", "-")
        self.server.access.write(
            f'{fields["client.address"]} - - [{when}] "{self.requestline}" {int(status)} {size} "-" "{agent}"\n'
        )

    def log_message(self, format: str, *args: object) -> None:
        """The access log is written by `_log`; the base class would print a second one."""


class ShopServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, logs: Path, seed: int, nats_url: str | None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        logs.mkdir(parents=True, exist_ok=True)
        self.events = None if nats_url is None else Events(nats_url)
        self.shop = Shop(random.Random(seed))
        self.log = json_log(logs / "shop.log")
        self.access = (logs / "access.log").open("a", buffering=1)
        self.errors = logging.getLogger("shop")
        handler = logging.FileHandler(logs / "errors.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        self.errors.addHandler(handler)
        self.errors.propagate = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--logs", type=Path, default=Path("shop-logs"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--nats", help="where to tell what becomes of orders: nats://HOST:PORT")
    options = parser.parse_args()
    server = ShopServer(options.port, options.logs, options.seed, options.nats)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}", "logs": str(options.logs)}), flush=True)
    server.log.info("shop opens", port=server.server_port)
    server.serve_forever()
    events = 0 if server.events is None else server.events.flush()
    server.log.info("shop closes", orders=len(server.shop.orders), events=events)


if __name__ == "__main__":
    main()
