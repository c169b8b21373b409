"""The transform `route`: one output for each condition, and one for events that no condition takes."""

from typing import Final, Literal, Self

import msgspec
from pydantic import Field

from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.names import NODE_NAME
from logboom.pipeline.plan.nodes import RoutingTransform
from logboom.pipeline.plan.outcomes import Branches, LayerScope, Outcome
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

UNMATCHED: Final = "unmatched"
"""The output for events that no condition took."""


class RouteModel(TransformModel):
    """One output for each condition, and `unmatched`."""

    type: Literal["route"]
    routes: dict[str, str] = Field(min_length=1)
    """Name of an output, and the SQL condition that takes events to it."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a route and its condition."""

    name: str
    line: int
    condition: str


class RouteTransform(RoutingTransform, frozen=True, kw_only=True, tag="route"):
    """Sends an event to every route whose condition is true, or to `NAME.unmatched` where none is."""

    routes: tuple[Route, ...]
    off: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Routes that no event takes, until their dials are on again."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        return tuple(
            Dial(setting=route.name, name=edge, kind="switch", value=route.name not in (self.off or ()))
            for route, edge in zip(self.routes, self.outputs[:-1], strict=True)
        )

    def turned(self, values: DialValues) -> Self:
        off = {*(self.off or ()), *(name for name, on in values.items() if not on)}
        off -= {name for name, on in values.items() if on}
        return msgspec.structs.replace(self, off=tuple(route.name for route in self.routes if route.name in off))

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*(f"{self.name}.{route.name}" for route in self.routes), f"{self.name}.{UNMATCHED}")

    @property
    def drop_rules(self) -> tuple[str, ...]:
        return ()

    def outcome(self, layer: LayerScope) -> Outcome:
        # A plan has the same places, and so the same streams, however its dials stand.
        branches = tuple(
            (layer.condition("false" if route.name in (self.off or ()) else route.condition), layer.follow(edge))
            for route, edge in zip(self.routes, self.outputs[:-1], strict=True)
        )
        failed = tuple(
            layer.failed(edge, route.condition) for route, edge in zip(self.routes, self.outputs[:-1], strict=True)
        )
        return Branches(branches, layer.follow(self.outputs[-1]), failed)


def _compile(model: RouteModel, common: CommonFields, part: Part) -> RouteTransform:
    routes: list[Route] = []
    for name, condition in model.routes.items():
        at = part.at("routes", name)
        if name == UNMATCHED:
            at.problem((), f"{name!r} is the output for events without a matching route; choose another name")
        elif not NODE_NAME.fullmatch(name):
            at.problem((), f"{name!r} is not a valid name (letters, digits, '_' and '-', starting with a letter)")
        routes.append(Route(name=name, line=at.expression((), condition), condition=condition))
    return RouteTransform(**common, routes=tuple(routes))


TRANSFORM: Final = TransformType("route", RouteModel, RouteTransform, _compile)
