"""Parsing held against what people extracted from real logs (Loghub; see the README beside the files).

Each of the six sets goes through the ready-made format a user of such logs would name. For every line time, level,
component and content equal the truth's columns, but for the lines listed here with the reason why the truth is wrong.
"""

import csv
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.pipeline_core.batches import events, parser, raw

LOGS = Path(__file__).parents[3] / "shared" / "logs"
Line = dict[str, Any]
Truth = dict[str, str]

pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the real logs of ../shared/logs are not here")

# ZooKeeper's layout is %d [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m. The truth cuts [%t:%C{1} at its first colon, also
# where the colon belongs to the name of the thread (`RecvWorker:188978561024`, `/10.10.34.11:3888`, the address in
# `QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181`), and so has half of the thread's name in the component. These are the lines
# whose thread has no colon, and where the truth is right.
ZOOKEEPER_RIGHT = {
    *(542, 550, 552, 563, 564, 567, 568, 581, 582, 598, 608, 625, 626, 638, 639, 753, 1268, 1275, 1277, 1278, 1283),
    *(1289, 1294, 1301, 1315, 1316, 1325, 1329, 1330, 1331, 1349, 1353, 1354, 1358, 1363, 1366, 1371, 1377, 1385),
    *(1386, 1394, 1395, 1396, 1397, 1407, 1408, 1420, 1421, 1425, 1427, 1434, 1435, 1436, 1437, 1438, 1440, 1453),
    *(1454, 1455, 1457, 1462, 1463, 1464, 1922, 1959, 1975, 1989, 1995, 1998, 1999),
}
ZOOKEEPER_WRONG = set(range(1, 2001)) - ZOOKEEPER_RIGHT

# The kernel indents these messages by a blank or two, which the truth cut off.
LINUX_INDENTED = {1913, 1914, 1915, 1916, 1917, 1923, 1924, 1926}

# httpd writes the client as a field of its own (`[client %a]` of ErrorLogFormat); the truth leaves it in the content.
APACHE_CLIENT = {
    *(132, 580, 581, 582, 583, 584, 585, 586, 587, 588, 589, 590, 591, 593, 773, 805, 806, 828, 1052, 1053, 1060),
    *(1080, 1217, 1366, 1421, 1422, 1493, 1772, 1890, 1892, 1989, 1994),
}


class Case(NamedTuple):
    """One set: the format, how its truth writes times, and what else of a line the truth has where."""

    form: str
    time: Callable[[Truth], datetime]
    same: dict[str, Callable[[Line], Any]]
    wrong: Mapping[str, set[int]] = MappingProxyType({})


def _attribute(name: str) -> Callable[[Line], Any]:
    return lambda line: str(line["attributes"].get(name, ""))


def _column(name: str) -> Callable[[Line], Any]:
    return lambda line: line[name]


def _at(text: str, form: str) -> datetime:
    return datetime.strptime(text, form).replace(tzinfo=UTC)


CASES = {
    "HDFS": Case(
        "hdfs",
        lambda truth: _at(f"{truth['Date']} {truth['Time']}", "%y%m%d %H%M%S"),
        {
            "Level": _column("severity_text"),
            "Component": _attribute("component"),
            "Content": _column("body"),
            "Pid": _attribute("process.pid"),
        },
    ),
    "Zookeeper": Case(
        "zookeeper",
        lambda truth: _at(f"{truth['Date']} {truth['Time']}", "%Y-%m-%d %H:%M:%S,%f"),
        {
            "Level": _column("severity_text"),
            "Component": _attribute("component"),
            "Content": _column("body"),
            "Id": _attribute("line"),
        },
        {"Component": ZOOKEEPER_WRONG},
    ),
    "OpenStack": Case(
        "openstack",
        lambda truth: _at(f"{truth['Date']} {truth['Time']}", "%Y-%m-%d %H:%M:%S.%f"),
        {
            "Level": _column("severity_text"),
            "Component": _attribute("component"),
            "Content": _column("body"),
            "Pid": _attribute("process.pid"),
            "ADDR": _attribute("request"),
            "Logrecord": _attribute("log.file.name"),
        },
    ),
    # Classic syslog files have no level; the truth calls the host so, and in OpenSSH the component.
    "Linux": Case(
        "syslog_rfc3164",
        lambda truth: _at(f"2005 {truth['Month']} {truth['Date']} {truth['Time']}", "%Y %b %d %H:%M:%S"),
        {
            "Level": _column("host"),
            "Component": _column("service"),
            "Content": _column("body"),
            "PID": _attribute("process.pid"),
        },
        {"Content": LINUX_INDENTED},
    ),
    "OpenSSH": Case(
        "syslog_rfc3164",
        lambda truth: _at(f"2005 {truth['Date']} {truth['Day']} {truth['Time']}", "%Y %b %d %H:%M:%S"),
        {"Component": _column("host"), "Content": _column("body"), "Pid": _attribute("process.pid")},
    ),
    "Apache": Case(
        "apache_error",
        lambda truth: _at(truth["Time"], "%a %b %d %H:%M:%S %Y"),
        {"Level": _column("severity_text"), "Content": _column("body")},
        {"Content": APACHE_CLIENT},
    ),
}


def _lines(name: str, form: str) -> list[Line]:
    lines = (LOGS / f"{name}.log").read_bytes().removesuffix(b"\n").split(b"\n")
    # The year that two of the sets do not write is the one their records arrived in.
    return events(parser({"format": form}), raw(lines, timestamp=datetime(2005, 12, 31, tzinfo=UTC)))


def _truth(name: str) -> list[Truth]:
    with (LOGS / f"{name}.structured.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", CASES)
def test_every_line_is_read_as_the_truth_says(name: str) -> None:
    case = CASES[name]
    lines, truths = _lines(name, case.form), _truth(name)
    assert len(lines) == len(truths) == 2000
    assert [line["dead_reason"] for line in lines] == [None] * 2000
    assert [line["time"] for line in lines] == [case.time(truth) for truth in truths]
    for column, ours in case.same.items():
        pairs = enumerate(zip(lines, truths, strict=True), 1)
        differs = {at for at, (line, truth) in pairs if ours(line) != truth[column]}
        assert differs == case.wrong.get(column, set()), column


def test_zookeeper_thread_and_component_are_the_truths_two_columns_cut_elsewhere() -> None:
    for line, truth in zip(_lines("Zookeeper", "zookeeper"), _truth("Zookeeper"), strict=True):
        ours = line["attributes"]
        assert f"{ours['thread']}:{ours['component']}" == f"{truth['Node']}:{truth['Component']}"
        assert ":" not in ours["component"]


def test_openssh_lines_are_of_sshd() -> None:
    assert {line["service"] for line in _lines("OpenSSH", "syslog_rfc3164")} == {"sshd"}


def test_listed_contents_differ_only_as_their_reasons_say() -> None:
    linux = list(zip(_lines("Linux", "syslog_rfc3164"), _truth("Linux"), strict=True))
    for at in LINUX_INDENTED:
        line, truth = linux[at - 1]
        assert line["body"].startswith(" ")
        assert line["body"].lstrip(" ") == truth["Content"]
    apache = list(zip(_lines("Apache", "apache_error"), _truth("Apache"), strict=True))
    for at in APACHE_CLIENT:
        line, truth = apache[at - 1]
        assert f"[client {line['attributes']['client.address']}] {line['body']}" == truth["Content"]


def test_severities_have_their_numbers() -> None:
    numbers = {"INFO": 9, "WARN": 13, "WARNING": 13, "ERROR": 17, "notice": 10, "error": 17}
    for name in ("HDFS", "Zookeeper", "OpenStack", "Apache"):
        for line in _lines(name, CASES[name].form):
            assert line["severity_number"] == numbers[line["severity_text"]]
