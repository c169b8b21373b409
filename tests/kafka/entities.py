"""Random entities of any version, made from kio's schema by a seeded generator (faster than hypothesis')."""

import dataclasses
import random
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import Records

from logboom.kafka.wire.messages import milliseconds

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def random_entity(cls: Any, chance: random.Random) -> Any:
    """Any entity that the schema allows; numbers are small or at an edge, arrays short."""
    return cls(**{field.name: _value(field.type, field, chance) for field in dataclasses.fields(cls)})


def _value(annotation: Any, field: Any, chance: random.Random) -> Any:
    if get_origin(annotation) is UnionType:
        if chance.random() < 0.3:
            return None
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is tuple:
        return tuple(_value(get_args(annotation)[0], field, chance) for _ in range(chance.choice((0, 1, 1, 2, 3))))
    if dataclasses.is_dataclass(annotation):
        return random_entity(annotation, chance)
    return _primitive(annotation, field.metadata["kafka_type"], chance)


def _primitive(annotation: Any, kafka_type: str, chance: random.Random) -> Any:
    if kafka_type in _BITS:
        high = 2 ** (_BITS[kafka_type] - 1)
        return chance.choice((0, 1, -1, chance.randrange(-4, 4), high - 1, -high))
    match kafka_type:
        case "uint16":
            return chance.choice((0, 1, 9092, 2**16 - 1))
        case "bool":
            return chance.random() < 0.5
        case "string":
            return chance.choice(("", "s", "t", "group", "é" * chance.randrange(40), chance.randbytes(6).hex()))
        case "timedelta_i32" | "timedelta_i64":
            return milliseconds(chance.choice((0, 1, 500, -1, 2**31 - 1)))
        case "error_code":
            return chance.choice(list(ErrorCode))
        case "datetime_i64":
            return datetime.fromtimestamp(chance.randrange(2**31), UTC)
        case "float64":
            return chance.choice((0.0, 1.0, -1.5, 1e300, float("inf")))
        case "uuid":
            return UUID(int=chance.randrange(1, 2**128))
    assert kafka_type in ("bytes", "records"), (annotation, Records)
    return chance.randbytes(chance.choice((0, 3, 80)))


def broken(body: bytes, chance: random.Random) -> bytes:
    """A body with one thing wrong: cut, bytes changed, a count blown up, bytes put in, or nothing but noise."""
    out = bytearray(body)
    place = chance.randrange(len(out) + 1)
    match chance.randrange(5):
        case 0:
            del out[place:]
        case 1:
            for _ in range(chance.randint(1, 4)):
                if out:
                    value = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
                    out[chance.randrange(len(out))] = value
        case 2:
            edges = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0", b"\0\xff\xff\xff")
            out[place : place + 4] = chance.choice(edges)
        case 3:
            out[place:place] = chance.randbytes(chance.randint(1, 16))
        case _:
            return chance.randbytes(chance.randrange(200))
    return bytes(out)
