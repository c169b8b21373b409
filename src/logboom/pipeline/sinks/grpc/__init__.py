"""Sinks whose servers speak gRPC: the channel, and what the status of a call means.

Messages are bytes here: a sink brings its own, written with `logboom.pipeline.sinks.http.protobuf`, so no generated
classes are needed. This module stays empty, since `pipeline check` imports it: grpcio is imported where a sink is
opened.
"""
