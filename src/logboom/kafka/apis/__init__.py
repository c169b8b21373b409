"""One file per Kafka API; each exposes HANDLER. `logboom.kafka.registry` collects them."""
