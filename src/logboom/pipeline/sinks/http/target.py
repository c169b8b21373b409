"""What the targets of all products over HTTP have in common. Knows the client and what a status means."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from logboom.pipeline.sinks.http.answers import REFUSED, HttpAnswer, check_status

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient


class HttpTarget:
    """A server of one product."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client

    @property
    def place(self) -> str:
        """The server, in messages."""
        return f"the server at {self.client.place}"

    def check(self, answer: HttpAnswer, *, refused: Collection[int] = REFUSED) -> HttpAnswer:
        """The answer to a request that was taken; raises what a target raises for any other."""
        check_status(answer, self.place, refused=refused)
        return answer

    def close(self) -> None:
        """Ends the connections."""
        self.client.close()
