"""Row 4: the Kafka door. It turns frames of the Kafka protocol into calls on the broker and knows nothing of disks."""
