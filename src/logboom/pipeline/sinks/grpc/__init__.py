"""Sinks whose servers speak gRPC: the channel, and what the status of a call means.

Messages are bytes here. A sink encodes its own with `logboom.pipeline.sinks.http.protobuf`, so no generated classes are
needed. This module must stay empty, because `pipeline check` imports it: grpcio is imported when a sink is opened.
"""
