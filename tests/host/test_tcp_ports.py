"""Ports that are held for servers which are yet to listen."""

import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from logboom.host.tcp_ports import hold_free_port, hold_port, port_of

HOST = "127.0.0.1"
MANY = 2_000
HOLD_MANY = f"""
from logboom.host.tcp_ports import hold_free_port, port_of

held = [hold_free_port({HOST!r}) for _ in range({MANY})]
print(*map(port_of, held), flush=True)
input()
"""


def test_processes_that_look_at_the_same_time_get_different_ports() -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLD_MANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(3)
        ]
        given = [process.stdout.readline().split() for process in processes if process.stdout is not None]
        ports = {port for each in given for port in each}
        assert [len(each) for each in given] == [MANY] * 3
        assert len(ports) == 3 * MANY
        for process in processes:
            process.communicate("\n")


def test_a_server_listens_on_a_held_port_in_each_of_its_lives_and_nobody_else_finds_it_free() -> None:
    with hold_free_port(HOST) as held:
        address = HOST, port_of(held)
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            with ExitStack() as life:
                server = life.enter_context(socket.create_server(address))
                life.enter_context(socket.create_connection(address))
                life.enter_context(server.accept()[0])
                with pytest.raises(OSError, match="in use"):
                    hold_port(*address)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(address)
    with hold_port(*address), hold_port(*address):  # two who know it
        pass


def test_all_interfaces_and_ipv6() -> None:
    with hold_free_port("") as everywhere, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, port_of(everywhere)))
    if socket.has_ipv6:
        with hold_free_port("::1") as held:
            assert held.getsockname()[0] == "::1"


def test_no_free_port_is_an_error() -> None:
    with pytest.raises(OSError, match="Cannot assign"):
        hold_free_port("192.0.2.1")  # for documentation, RFC 5737: no machine has it
