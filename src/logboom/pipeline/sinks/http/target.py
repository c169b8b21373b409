"""The common part of all targets over HTTP. Knows the client and the meaning of a status."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from logboom.pipeline.sinks.http.answers import REFUSED, HttpAnswer, check_status

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient


class HttpTarget:
    """A server of one product."""

    may_be_page: ClassVar[bool] = False
    """Whether it may answer an accepted request with a page of HTML."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client

    @property
    def place(self) -> str:
        """The server's name for messages."""
        return f"the server at {self.client.place}"

    def check(self, answer: HttpAnswer, *, refused: Collection[int] = REFUSED) -> HttpAnswer:
        """The answer to an accepted request; raises the target's errors for any other."""
        check_status(answer, self.place, refused=refused, may_be_page=self.may_be_page)
        return answer

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
