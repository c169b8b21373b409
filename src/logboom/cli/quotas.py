"""`logboom quotas`: list, set and remove what clients may use."""

from typing import Annotated, Any, Final

import typer

from logboom.base.quantities import parse_size_bytes
from logboom.cli.asking import ask, check
from logboom.cli.common import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, fail, human_bytes, note, print_json, print_table
from logboom.kafka.wire.messages import make, nested, request_class
from logboom.metadata import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

_DESCRIBE: Final = 48
_ALTER: Final = 49
_VERSION: Final = 1
_BYTE_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
_OF_CLIENTS: Final = (*_BYTE_RATES, REQUEST_PERCENTAGE)
_DEFAULT: Final = "(default)"

Whose = tuple[str, str | None]
Client = Annotated[str | None, typer.Option("--client", metavar="ID", help="The client with this client.id.")]
Address = Annotated[str | None, typer.Option("--address", metavar="IP", help="All connections from this address.")]
Default = Annotated[
    bool, typer.Option("--default", help="Each client without a quota of its own; with --addresses, each address.")
]
Addresses = Annotated[bool, typer.Option("--addresses", help="With --default: addresses, not clients.")]

quotas = typer.Typer(no_args_is_help=True, help="List, set and remove the quotas of clients.")


@quotas.command("list")
def list_(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """Show all quotas that were set."""
    request = make(request_class(_DESCRIBE, _VERSION), components=(), strict=False)
    reply = ask(bootstrap, _DESCRIBE, _VERSION, request)
    check(reply.error_code, reply.error_message, "cannot list quotas")
    rows = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in reply.entries or ()
    ]
    rows.sort(key=lambda row: [(kind, name is not None, name or "") for kind, name in row[0].items()])
    if as_json:
        print_json([{"entity": entity, "quotas": values} for entity, values in rows])
    elif rows:
        print_table(
            ("whose", "produce", "fetch", "requests", "connections"),
            [_shown(entity, values) for entity, values in rows],
        )
    else:
        note("there are no quotas: no client is limited")


def _shown(entity: dict[str, str | None], values: dict[str, float]) -> tuple[str | None, ...]:
    percent, connections = values.get(REQUEST_PERCENTAGE), values.get(CONNECTION_CREATION_RATE)
    whose = ", ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in entity.items())
    rates = [f"{human_bytes(values[name])}/s" if name in values else None for name in _BYTE_RATES]
    return (
        whose,
        *rates,
        None if percent is None else f"{percent:g} %",
        None if connections is None else f"{connections:g}/s",
    )


@quotas.command("set")
def set_(
    client: Client = None,
    address: Address = None,
    default: Default = False,
    addresses: Addresses = False,
    produce: Annotated[
        str | None, typer.Option("--produce", metavar="SIZE", help="Bytes it may send in a second, such as 10MiB.")
    ] = None,
    fetch: Annotated[
        str | None, typer.Option("--fetch", metavar="SIZE", help="Bytes it may read in a second, such as 10MiB.")
    ] = None,
    requests: Annotated[
        float | None, typer.Option("--requests", metavar="PERCENT", help="Its share of the broker's protocol thread.")
    ] = None,
    connections: Annotated[
        int | None, typer.Option("--connections", metavar="COUNT", help="Connections in a second from an address.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker check it, and change nothing.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Set quotas; the others stay as they are."""
    values = {
        PRODUCER_BYTE_RATE: _bytes("--produce", produce),
        CONSUMER_BYTE_RATE: _bytes("--fetch", fetch),
        REQUEST_PERCENTAGE: requests,
        CONNECTION_CREATION_RATE: connections,
    }
    changes: dict[str, float | None] = {name: value for name, value in values.items() if value is not None}
    if not changes:
        fail("name what to set: --produce, --fetch, --requests or --connections")
    whose = _whose(client, address, default, addresses)
    _alter(bootstrap, whose, changes, dry_run)
    _print_changes(whose, changes, "would be set" if dry_run else "set", as_json)


@quotas.command("remove")
def remove(
    client: Client = None,
    address: Address = None,
    default: Default = False,
    addresses: Addresses = False,
    produce: Annotated[bool, typer.Option("--produce", help="This one.")] = False,
    fetch: Annotated[bool, typer.Option("--fetch", help="This one.")] = False,
    requests: Annotated[bool, typer.Option("--requests", help="This one.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Remove quotas: the named ones, or all."""
    whose = _whose(client, address, default, addresses)
    named = [name for name, wanted in zip(_OF_CLIENTS, (produce, fetch, requests), strict=True) if wanted]
    every = _OF_CLIENTS if whose[0] == CLIENT_ID else (CONNECTION_CREATION_RATE,)
    changes: dict[str, float | None] = dict.fromkeys(named or every)
    _alter(bootstrap, whose, changes, False)
    _print_changes(whose, changes, "removed", as_json)


def _bytes(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        fail(f"{option} {text}: {error}")


def _whose(client: str | None, address: str | None, default: bool, addresses: bool) -> Whose:
    if [client is not None, address is not None, default].count(True) != 1:
        fail("name who it is for: --client ID, --address IP or --default")
    if addresses and not default:
        fail("--addresses goes with --default")
    if default:
        return (IP, None) if addresses else (CLIENT_ID, None)
    return (CLIENT_ID, client) if address is None else (IP, address)


def _alter(bootstrap: str, whose: Whose, changes: dict[str, float | None], validate_only: bool) -> None:
    cls: Any = request_class(_ALTER, _VERSION)
    one = nested(cls, "entries")
    entity = make(nested(one, "entity"), entity_type=whose[0], entity_name=whose[1])
    ops = tuple(
        make(nested(one, "ops"), key=name, value=float(value or 0), remove=value is None)
        for name, value in changes.items()
    )
    entry = make(one, entity=(entity,), ops=ops)
    reply = ask(bootstrap, _ALTER, _VERSION, make(cls, entries=(entry,), validate_only=validate_only))
    for result in reply.entries:
        check(result.error_code, result.error_message, "the broker refuses it")


def _print_changes(whose: Whose, changes: dict[str, float | None], what: str, as_json: bool) -> None:
    if as_json:
        print_json({"entity": dict([whose]), "quotas": changes})
    else:
        typer.echo(f"{what} for {whose[0]} {_DEFAULT if whose[1] is None else whose[1]}: {', '.join(changes)}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(quotas, name="quotas")
