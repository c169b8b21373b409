"""Helps tests of a node that runs in a process of its own."""

import http.client
from contextlib import closing

from tests.support.waiting import WAIT_S

from logboom.base.settings import split_address


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of one GET."""
    with closing(http.client.HTTPConnection(*split_address(address), timeout=WAIT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
