"""Sinks whose servers speak HTTP: the client, the meaning of its answers, and the keys that such sinks share.

`model` has the keys and the node (addresses, TLS, compression), `authorization` those of products with a user or a
token, `google` those of Google Cloud. `client` sends one request with limits on time and size, `answers` interprets a
status, `templates` inserts fields of events into names, `protobuf` encodes Protocol Buffers. Each product has one file
in `logboom.pipeline.sinks` that uses these.

This module must stay empty, because `pipeline check` imports it: urllib3 is imported when a sink is opened.
"""
