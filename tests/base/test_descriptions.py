"""The texts under the fields of settings."""

import types

from pydantic import Field, create_model

from logboom.base.descriptions import descriptions
from logboom.base.settings import Settings


class Limits(Settings):
    """A text of the class is none of a field."""

    records_max: int = 1
    """How many,
    at most."""

    bytes_max: int = 1
    kept: int = 2
    """Stays."""


class TighterLimits(Limits):
    bytes_max: int = 0
    """Less."""

    kept: int = Field(default=3, description="What the field itself says wins.")
    """This does not."""


def test_a_text_under_a_field_describes_it() -> None:
    assert descriptions(Limits) == {"records_max": "How many,\nat most.", "kept": "Stays."}


def test_what_a_class_adds_wins_over_what_it_is_made_of() -> None:
    assert descriptions(TighterLimits) == {
        "records_max": "How many,\nat most.",
        "bytes_max": "Less.",
        "kept": "What the field itself says wins.",
    }


def test_a_model_without_source_has_what_its_fields_say() -> None:
    made = create_model(
        "made", __base__=Settings, __module__=types.__name__, said=(int, Field(default=1, description="x"))
    )
    assert descriptions(made) == {"said": "x"}
    unsourced = create_model("unsourced", __base__=Settings, __module__="sys", silent=(int, 1))
    assert descriptions(unsourced) == {}
