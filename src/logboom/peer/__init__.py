"""Row 4: the listener for brokers. It implements `broker.peers` on connections of the event loop; it knows no frame's
meaning, no disk and no clock beside the loop's.

    broker -> server.post, server.call -> link -> connection -> frames, sealed -> socket
    socket -> connection -> handshake, then frames, checked -> inbound -> the broker's handlers -> answer

Each broker dials the ones it has something to say to, once for each lane; answers come back on the same connection. So
between two brokers there are up to four connections, and no question whose it is to connect again.

    key          the cluster's key, in a file
    handshake    pure: both sides prove that they have the key, and who they are
    frames       pure: the form of frames, their seals, bytes -> frames
    failures     errors as bytes, so that a handler's error is raised at the caller
    connection   asyncio's callbacks, the three states, pings and silence
    handlers     the broker's handlers, and requests that wait for one
    link         the way to one broker in one lane: dialling, pauses, requests without an answer yet
    inbound      accepted connections: who may stay, their requests
    server       the whole: listening, addresses, ticks, stop

What is promised: whoever sends is a broker with the cluster's key, and is the broker it says; frames of a connection
arrive whole, unchanged, once and in order, or not at all. What is not: secrecy. Nothing is encrypted; who cannot trust
the network between brokers puts a tunnel under it.

Everything that the other side can make grow has a limit: messages before it has proven itself (1 KiB, 3 s, 64
connections, the oldest of which gives way), bodies (65 MiB), what waits to be sent (16 MiB and one frame, and parts of
answers, which whoever sends them has to bound), requests that run for a connection, requests that wait for answers. A
broker that hangs costs these and no more: posts to it are dropped, requests to it end with their time, and after 2 s of
silence its connections are made again.

A request that runs is not cancelled when its caller has gone: a command that was carried out by half helps nobody. Its
answer is dropped. A connection that comes before this broker knows who it is (`identify`) is answered once it does, or
ends with the deadline of handshakes and is made again.
"""

from logboom.peer.config import PeerConfig
from logboom.peer.key import ClusterKeyError, ClusterKeys, format_cluster_key, read_cluster_keys
from logboom.peer.metrics import LaneMetrics, PeerMetrics
from logboom.peer.server import PeerServer

__all__ = [
    "ClusterKeyError",
    "ClusterKeys",
    "LaneMetrics",
    "PeerConfig",
    "PeerMetrics",
    "PeerServer",
    "format_cluster_key",
    "read_cluster_keys",
]
