"""A client of a cluster: each request goes to the broker that Metadata or FindCoordinator name for it.

A route is asked for when it is first needed and kept as long as the client lives; an error ends the client
(`session.Session`), so the next one asks anew, perhaps another broker.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from logboom.client.messages import Api
from logboom.sim.client import SimClient, TopicPartition, check

Address = tuple[str, int]

_METADATA: Final[Api] = (3, 8)
_FIND_COORDINATOR: Final[Api] = (10, 2)
_PRODUCE, _FETCH, _LIST_OFFSETS, _DELETE_RECORDS = 0, 1, 2, 21
_OF_GROUPS: Final = frozenset((8, 9, 11, 12, 13, 14))
"""Requests that the coordinator of their group answers: commits, their reading, and membership."""
_GROUP_KEY: Final = 0


class RoutedClient(SimClient):
    """Life: that of a SimClient; its own connection is the one to the broker that tells it the routes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        super().__init__(reader, writer, client_id)
        self._own: Address = writer.get_extra_info("peername")
        self._others: dict[Address, SimClient] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._coordinators: dict[str, Address] = {}

    def close(self) -> None:
        """Close all connections."""
        super().close()
        for other in self._others.values():
            other.close()

    async def ask(self, api: Api, **fields: Any) -> Any:
        """As SimClient's, of the broker that the request is for."""
        address = await self._route(api[0], fields)
        if address == self._own:
            return await super().ask(api, **fields)
        other = self._others.get(address)
        if other is None:
            other = self._others[address] = await SimClient.connect(address, self._client_id)
        return await other.ask(api, **fields)

    async def _route(self, key: int, fields: Mapping[str, Any]) -> Address:
        if key in _OF_GROUPS:
            return await self._coordinator(fields["group_id"])
        where = _partition(key, fields)
        return self._own if where is None else await self.leader(where)

    async def leader(self, where: TopicPartition) -> Address:
        """As SimClient's. Where there is no leader, or none that this broker knows, the broker itself says so best."""
        if where not in self._leaders:
            answer = await super().ask(
                _METADATA,
                topics=[{"name": where.stream}],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for partition in answer.topics[0].partitions:
                if partition.leader_id in brokers:
                    found = TopicPartition(where.stream, partition.partition_index)
                    self._leaders[found] = brokers[partition.leader_id]
        return self._leaders.get(where, self._own)

    async def _coordinator(self, group: str) -> Address:
        if group not in self._coordinators:
            answer = await super().ask(_FIND_COORDINATOR, key=group, key_type=_GROUP_KEY)
            check(answer.error_code)
            self._coordinators[group] = (answer.host, answer.port)
        return self._coordinators[group]


def _partition(key: int, fields: Mapping[str, Any]) -> TopicPartition | None:
    """The partition that a request is about: requests of a SimClient name one."""
    if key == _PRODUCE:
        topic = fields["topic_data"][0]
        return TopicPartition(topic["name"], topic["partition_data"][0]["index"])
    if key == _FETCH:
        topic = fields["topics"][0]
        return TopicPartition(topic["topic"], topic["partitions"][0]["partition"])
    if key in (_LIST_OFFSETS, _DELETE_RECORDS):
        topic = fields["topics"][0]
        return TopicPartition(topic["name"], topic["partitions"][0]["partition_index"])
    return None
