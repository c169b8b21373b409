"""Row 4: the Kafka door. It turns frames of the Kafka protocol into calls on the broker and knows nothing of disks.

Follow a request: `connection` -> `frames` -> `reading` -> `apis/NAME` -> the broker -> `connection`.
"""

from logboom.kafka.config import KafkaConfig
from logboom.kafka.metrics import ApiMetrics, KafkaMetrics
from logboom.kafka.server.door import KafkaDoor

__all__ = ["ApiMetrics", "KafkaConfig", "KafkaDoor", "KafkaMetrics"]
