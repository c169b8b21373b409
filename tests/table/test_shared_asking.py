"""Callers share an answer that was asked for after they came, and no other."""

import threading

import pytest
from tests.support.waiting import WAIT_S, until

from logboom.table.errors import NoSuchTableError
from logboom.table.stream import Ends, SharedAsking


class Broker:
    """Answers with the number of the question, when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = threading.Semaphore(0)
        self.fails = False

    def ask(self) -> Ends:
        self.asked += 1
        number = self.asked
        assert self.let.acquire(timeout=WAIT_S)
        if self.fails:
            raise NoSuchTableError("it is gone")
        return Ends("id", {0: number}, 0.0, {})


def callers(asking: SharedAsking, count: int, answers: list[int | str]) -> list[threading.Thread]:
    def call() -> None:
        try:
            answers.append(asking.answer().offsets[0])
        except NoSuchTableError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_who_comes_while_a_question_is_under_way_gets_the_answer_to_the_next_one() -> None:
    broker, first, later = Broker(), list[int | str](), list[int | str]()
    asking = SharedAsking(broker.ask)
    threads = callers(asking, 1, first)
    until(lambda: broker.asked == 1)
    threads += callers(asking, 5, later)
    broker.let.release()
    until(lambda: first == [1])
    for _ in range(5):
        broker.let.release()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(later) == 5
    assert 1 not in later, "its answer may be older than the call"


@pytest.mark.parametrize("count", [1, 4])
def test_who_shares_a_question_shares_its_failure(count: int) -> None:
    broker, answers = Broker(), list[int | str]()
    broker.fails = True
    for _ in range(count):
        broker.let.release()
    for thread in callers(SharedAsking(broker.ask), count, answers):
        thread.join(WAIT_S)
    assert answers == ["it is gone"] * count
