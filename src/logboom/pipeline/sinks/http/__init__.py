"""Sinks whose servers speak HTTP: the client, what its answers mean, and what such sinks share in a pipeline's file.

`model` has the keys and the node (addresses, TLS, compression), `authorization` those of products that take a user or a
token, `google` those of Google Cloud. `client` sends one request with bounds on time and size, `answers` says what a
status means, `templates` puts fields of events into names, `protobuf` writes messages of Protocol Buffers. One file of
`logboom.pipeline.sinks` for each product builds on them.

This module stays empty, since `pipeline check` imports it: urllib3 is imported where a sink is opened.
"""
