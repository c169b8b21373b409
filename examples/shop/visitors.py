"""Visitors of the shop: they browse, order, mistype, and some pay with cards that are declined."""

import argparse
import http.client
import json
import random
import time
from urllib.parse import urlsplit

NAMES = ("ada", "grace", "linus", "margaret", "ken", "barbara", "edsger", "radia")
HOSTS = ("example.org", "mail.example.com", "tea.example.net")
GOOD_CARDS = ("4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009", "6011000000000004")
DECLINED = "4000000000000002"


class Visitors:
    """One keep-alive connection; every request carries a trace context as a browser's SDK would send it."""

    def __init__(self, url: str, seed: int) -> None:
        self._chance = random.Random(seed)
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self.statuses: dict[int, int] = {}
        self._order = "o-00000000"

    def visit(self) -> None:
        dice = self._chance.random()
        if dice < 0.30:
            self._ask("GET", "/healthz")
        elif dice < 0.55:
            self._ask("GET", "/products")
        elif dice < 0.85:
            self._place_order()
        elif dice < 0.95:
            self._ask("GET", f"/orders/{self._order}")
        else:
            self._ask("GET", self._chance.choice(("/favicon.ico", "/admin.php", "/orders/o-ffffffff")))

    def _place_order(self) -> None:
        chance = self._chance
        wanted = {
            "product": chance.choices(("tea", "cup", "pot", "coffee"), (6, 6, 1, 1))[0],
            "email": f"{chance.choice(NAMES)}.{chance.randrange(100)}@{chance.choice(HOSTS)}",
            "card": DECLINED if chance.random() < 0.05 else chance.choice(GOOD_CARDS),
        }
        answer = self._ask("POST", "/orders", json.dumps(wanted))
        if isinstance(answer, dict) and "order" in answer:
            self._order = answer["order"]

    def _ask(self, method: str, path: str, body: str | None = None) -> object:
        headers = {
            "User-Agent": "visitors/1.0",
            "X-Forwarded-For": f"203.0.113.{self._chance.randrange(1, 255)}",
            "traceparent": f"00-{self._chance.getrandbits(128) | 1:032x}-{self._chance.getrandbits(64) | 1:016x}-01",
        }
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        return json.loads(answer.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    visitors = Visitors(options.url, options.seed)
    began = time.perf_counter()
    for _ in range(options.requests):
        visitors.visit()
    took_s = time.perf_counter() - began
    print(json.dumps({"requests": options.requests, "seconds": round(took_s, 2), "statuses": visitors.statuses}))


if __name__ == "__main__":
    main()
