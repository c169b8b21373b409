"""What every kind of transform is made of: the keys it shares with all others, and the parts it registers.

Knows plans and settings. Must not know any particular transform.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from logboom.base.settings import Settings, Texts
from logboom.pipeline.findings import Findings, Part
from logboom.pipeline.plan.nodes import Transform

Model = TypeVar("Model", bound="TransformModel")
Node = TypeVar("Node", bound=Transform)


class TransformModel(Settings):
    """The keys that every transform has in a pipeline's file."""

    inputs: Texts
    """Names of what it reads; `*` stands for any characters."""


class CommonFields(TypedDict):
    """The fields of a `Transform` that do not depend on its kind."""

    name: str
    line: int
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransformType(Generic[Model, Node]):
    """One kind of transform, as its module registers it under the name `TRANSFORM`."""

    name: str
    """The value of the key `type`."""
    model: type[Model]
    """The keys that it takes."""
    node: type[Node]
    """Its node in the plan; its tag, which a pinned plan is read back by, is `name`."""
    compile: Callable[[Model, CommonFields, Part], Node | None]
    """The node of a transform in a pipeline's file, or None once a problem was reported that leaves no node to make."""
    check_inputs: Callable[[Node, Part, Container[str]], None] | None = None
    """Called once the node's inputs are known, with the names of parts of the file that could not be compiled."""
    input_keys: tuple[str, ...] = ("inputs",)
    """The keys that name its inputs."""
    arrange: Callable[[Findings, Sequence[Transform]], list[Transform]] | None = None
    """For a transform that must know of others: gives back all transforms of the graph, which come in an order in which
    inputs come first, with those of its kind changed."""
    decode: Callable[[type[Any], Any], Any] | None = None
    """The `dec_hook` of msgspec for fields of its node that are not plain data."""
    other_nodes: tuple[type[Node], ...] = ()
    """More nodes that its keys may become, with tags of their own."""
    replayed_nodes: tuple[type[Any], ...] = ()
    """Nodes that stand in its place in the plan of a replay; no keys become these."""

    @property
    def nodes(self) -> Mapping[str, type[Node]]:
        """By tag: all nodes that its keys may become, or that may stand in its place."""
        return {str(node.__struct_config__.tag): node for node in (self.node, *self.other_nodes, *self.replayed_nodes)}

    def read(self, tree: Mapping[str, Any]) -> Node:
        """The node from its plain data in a written plan; ValueError (msgspec.ValidationError) for anything else."""
        return msgspec.convert(tree, type=self.nodes[str(tree["type"])], dec_hook=self.decode)
