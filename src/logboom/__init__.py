"""Logboom: a durable log that speaks the Kafka protocol, with a collector and a pipeline on Spark."""

from logboom.base import build

build.check()
