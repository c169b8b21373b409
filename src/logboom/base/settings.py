"""Loads configuration: strict pydantic models, and all errors of a document at once, each with its line.

Knows pydantic and YAML text. Opens no files and reads no environment; the callers do. Knows no particular setting.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from logboom.base.errors import LogboomError
from logboom.base.quantities import (
    BOOTSTRAP_DEFAULT,
    Address,
    Bootstrap,
    DurationMs,
    DurationS,
    SizeBytes,
    format_duration_ms,
    format_size_bytes,
    join_address,
    parse_duration_ms,
    parse_size_bytes,
    split_address,
    split_bootstrap,
)
from logboom.base.yaml import KeyPath, Substitute, read

__all__ = [
    "BOOTSTRAP_DEFAULT",
    "Address",
    "Bootstrap",
    "DurationMs",
    "DurationS",
    "KeyPath",
    "Problem",
    "Settings",
    "SettingsError",
    "SizeBytes",
    "Substitute",
    "YamlDocument",
    "decode_yaml",
    "describe_error",
    "dotted",
    "format_duration_ms",
    "format_size_bytes",
    "join_address",
    "load",
    "nearest",
    "parse_duration_ms",
    "parse_size_bytes",
    "parse_yaml",
    "split_address",
    "split_bootstrap",
    "unknown_key",
]

_ECHO_MAX_CHARS: Final = 60
_PLAIN_WORDS: Final = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "should be a group of keys and values"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "should be a list"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "should be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "should be true or false"),
    "path_type": "should be a path",
}
_BOUNDS: Final = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
_IN_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "duration-ms": lambda bound: format_duration_ms(round(bound)),
    "duration-s": lambda bound: format_duration_ms(round(bound * 1_000)),
    "size-bytes": lambda bound: format_size_bytes(round(bound)),
}
"""By the format of a quantity: how a bound of it is written."""
_SECRET_WORDS: Final = ("password", "secret", "token", "credential", "key")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration."""

    where: str
    """Dotted path of the setting, such as `sinks.archive.path` or `rules[2].format`; empty for the whole document."""

    line: int | None
    """Line in the document, counted from 1; None where the setting did not come from a document."""

    message: str

    file: str | None = None
    """The file, where the document was put together of several and it is not the first."""


class SettingsError(LogboomError):
    """Everything that is wrong with one configuration; its text is one line per problem, `FILE:LINE: path: message`.

    A problem without a line did not come from the file and goes without its name.
    """

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.name = name
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file or "", problem.line or 0)))
        assert self.problems
        super().__init__("\n".join(_problem_line(name, problem) for problem in self.problems))


def _problem_line(name: str, problem: Problem) -> str:
    file = None if problem.line is None else f"{problem.file or name}:{problem.line}"
    line = ": ".join(part for part in (file, problem.where, problem.message) if part)
    # Keys and values come from a file and may hold control characters: escaped, a problem is one harmless line.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed document: plain data, and the line of each value."""

    data: Any
    name: str = ""
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)
    files: Mapping[KeyPath, str] = field(default_factory=dict, repr=False)
    """The file of each part that comes from another one than `name`, and so of all inside it."""

    def line_of(self, path: KeyPath) -> int | None:
        """Line (from 1) of a value, or of the nearest thing around it that stands in the document."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem at a value of this document."""
        return Problem(dotted(path), self.line_of(path), message, self.file_of(path))

    def file_of(self, path: KeyPath) -> str | None:
        """The file in which a value stands; None for the first one."""
        return next((self.files[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.files), None)


class Settings(BaseModel):
    """Base of every group of settings: nested, frozen; an unknown key is an error that names the nearest known one.

    The docstring under a field is its description in the generated reference (`logboom.base.descriptions`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _name_unknown_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Only the model itself knows which keys it has, so the nearest one is named here, on the way out."""
        if value is None and not any(info.is_required() for info in cls.model_fields.values()):
            value = {}  # a YAML key with nothing after it is a group left at its defaults
        known = {info.alias or name: info for name, info in cls.model_fields.items()}
        faults = list(_switches_for_numbers(value, known)) if isinstance(value, Mapping) else []
        try:
            made = handler(value)
        except ValidationError as error:
            faults += [_described(details, known) for details in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(cls.__name__, faults) from None
        if faults:
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return made


def _switches_for_numbers(given: Mapping[str, Any], known: Mapping[str, FieldInfo]) -> Iterator[InitErrorDetails]:
    """The keys that are true or false where a number is wanted, which pydantic takes for 1 and 0: a duration of a
    millisecond, a rate that keeps everything."""
    for key, value in given.items():
        if isinstance(value, bool) and key in known:
            kinds = [part for part in _parts(known[key]) if isinstance(part, type)]
            if bool not in kinds and (int in kinds or float in kinds):
                yield _fault("described", f"should be a number, got {str(value).lower()}", (key,), value)


def _parts(info: FieldInfo) -> Iterator[Any]:
    """The types that the annotation of a field is made of, and what is annotated to them."""
    pending: list[Any] = [info.annotation, *info.metadata]
    while pending:
        part = pending.pop()
        yield part
        pending += get_args(part)


def _described(details: ErrorDetails, known: Mapping[str, FieldInfo]) -> InitErrorDetails:
    """The error with our message. Nested models are validated first, so theirs may be described already."""
    kind, message = details["type"], details["msg"]
    if kind == "extra_forbidden":
        kind, message = "described", unknown_key(str(details["loc"][-1]), known)
    elif kind not in ("described", "missing"):
        info = known.get(str(details["loc"][0])) if details["loc"] else None
        kind, message = "described", describe_error(_with_unit(details, info))
    return _fault(kind, message, details["loc"], details["input"])


def _fault(kind: str, message: str, location: tuple[int | str, ...], given: Any) -> InitErrorDetails:
    described = PydanticCustomError(kind, "{message}", {"message": message})
    return InitErrorDetails(type=described, loc=location, input=given)


def _with_unit(details: ErrorDetails, info: FieldInfo | None) -> ErrorDetails:
    """The error of a duration or a size that is out of bounds says these as they are written in a file: of `at least
    1000`, nobody knows of what."""
    bounds = [(word, details["ctx"][sign]) for sign, word in _BOUNDS.items() if sign in details.get("ctx", {})]
    schemas = [part.json_schema or {} for part in _parts(info) if isinstance(part, WithJsonSchema)] if info else []
    units = [write for schema in schemas if (write := _IN_UNITS.get(str(schema.get("format")))) is not None]
    if not bounds or not units:
        return details
    ((word, bound),) = bounds
    return {**details, "msg": f"should be {word} {units[0](bound)}"}


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The message for an unknown key: the nearest known one, or all known ones."""
    known = list(known)
    close = nearest(key, known)
    hint = f"did you mean {close!r}?" if close else f"known here: {', '.join(sorted(known)) or 'no key'}"
    return f"unknown key {key!r} ({hint})"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like `word`, if any looks like it at all.

    >>> nearest("portt", ["host", "port"])
    'port'
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def describe_error(details: ErrorDetails) -> str:
    """pydantic's message as the end of a sentence, with the value that was given if it is short and no secret."""
    kind, message, value = details["type"], details["msg"], details["input"]
    context = details.get("ctx", {})
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "union_tag_invalid":
        return _unknown_member(context)
    if kind == "union_tag_not_found":
        return f"key {context.get('discriminator', 'type')} is missing"
    if kind == "string_type":
        message = "should be text (put it in quotes)" if isinstance(value, int | float) else "should be text"
    elif kind in ("too_short", "too_long"):
        return _length_message(context)
    elif kind in ("string_too_short", "string_too_long", "string_pattern_mismatch"):
        message = _text_message(context, is_empty=not value)
    else:
        message = _PLAIN_WORDS.get(kind, message)
    message = message.removeprefix("Input ")
    name = str(details["loc"][-1]).lower() if details["loc"] else ""
    plain = value is None or isinstance(value, str | int | float)
    if not plain or len(str(value)) > _ECHO_MAX_CHARS or any(word in name for word in _SECRET_WORDS):
        return message
    return f"{message}, got {'nothing' if value is None else repr(value)}"


def _length_message(context: Mapping[str, Any]) -> str:
    """The message for a list or a group with too few or too many members."""
    found = context["actual_length"]
    if "min_length" in context:
        return "is empty; give it at least one" if not found else f"needs {context['min_length']} or more, has {found}"
    return f"takes {context['max_length']} at most, has {found if found is not None else 'more'}"


def _text_message(context: Mapping[str, Any], *, is_empty: bool) -> str:
    """The message for a text that is too short, too long, or not of the form that it should have."""
    if "pattern" in context:
        return f"should be of the form {context['pattern']}"
    if "max_length" in context:
        return f"should have at most {context['max_length']:,} characters"
    return "should not be empty" if is_empty else f"should have at least {context['min_length']:,} characters"


def _unknown_member(context: Mapping[str, str]) -> str:
    known = [tag.strip().strip("'") for tag in context["expected_tags"].split(",")]
    close = nearest(context["tag"], known)
    hint = f"did you mean {close!r}?" if close else f"known here: {', '.join(known)}"
    return f"unknown {context['discriminator'].strip(chr(39))} {context['tag']!r} ({hint})"


def decode_yaml(raw: bytes, name: str) -> str:
    """The text of a file; SettingsError with the line and the byte where it is not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A byte order mark of UTF-16 is the first thing such a file holds: the whole file is to be saved anew.
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            message = "the file is UTF-16; save it as UTF-8"
        else:
            column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
            message = f"byte {column} of this line (0x{raw[error.start]:02x}) is not UTF-8; save the file as UTF-8"
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(name, [Problem("", line, message)]) from None


def parse_yaml(text: str, name: str, substitute: Substitute | None = None) -> YamlDocument:
    """The document in `text`; `name` stands for it in messages. Raises SettingsError with every fault found.

    `substitute` may change the texts of values before they are read."""
    reading = read(text, substitute)
    if reading.faults:
        raise SettingsError(name, [Problem(dotted(fault.path), fault.line, fault.message) for fault in reading.faults])
    return YamlDocument(reading.data, name, reading.lines or {(): 1})


Model = TypeVar("Model", bound=BaseModel)


def load(model: type[Model], document: YamlDocument | Mapping[str, Any]) -> Model:
    """The settings a document describes. Raises SettingsError with all that is wrong with it."""
    if not isinstance(document, YamlDocument):
        document = YamlDocument(document)
    data = {} if document.data is None else document.data
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = [_problem(document, details) for details in error.errors(include_url=False)]
        # pydantic reports the same problem once for each member of a union.
        raise SettingsError(document.name, dict.fromkeys(problems)) from None


def _problem(document: YamlDocument, details: ErrorDetails) -> Problem:
    missing = details["type"] == "missing"
    path = _document_path(document.data, details["loc"][:-1] if missing else details["loc"])
    if missing:
        return Problem(dotted(path), document.line_of(path), f"key {str(details['loc'][-1])!r} is missing")
    message = details["msg"] if details["type"] == "described" else describe_error(details)
    return Problem(dotted(path), document.line_of(path), message)


def _document_path(data: Any, location: tuple[str | int, ...]) -> KeyPath:
    """Location of an error without the names that pydantic adds for members of unions and for validators."""
    path: list[str | int] = []
    is_added = False
    for step in location:
        # For a member of a tagged union pydantic puts its tag into the location, where the document has no such level.
        is_tag = isinstance(data, dict) and data.get("type") == step and not is_added
        is_added = is_tag or not _has(data, step)
        if not is_added:
            data = data[step]
            path.append(step)
    return tuple(path)


def _has(data: Any, step: str | int) -> bool:
    if isinstance(data, list | tuple):
        return isinstance(step, int) and step < len(data)
    return isinstance(data, dict) and step in data


def dotted(path: KeyPath) -> str:
    """A path as people write it.

    >>> dotted(("rules", 2, "format"))
    'rules[2].format'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_listed)]
"""A list of texts; one text stands for a list of one."""
