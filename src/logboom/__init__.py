"""Logboom: a durable log that speaks the Kafka protocol, with a collector and a pipeline on Spark."""
