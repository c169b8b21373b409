"""One file per Kafka API; each exposes HANDLER. `logboom.kafka.handlers.route` collects them."""
