import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordBatchTooLargeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client against a broker, in three verbs that a test drives:
 * produce BOOTSTRAP TOPIC FROM COUNT CODECS (COUNT records with each), consume BOOTSTRAP TOPIC GROUP COUNT ASSIGNOR,
 * admin BOOTSTRAP TOPIC, flood BOOTSTRAP TOPIC, quotas BOOTSTRAP TOPIC, refused BOOTSTRAP TOPIC, conditions BOOTSTRAP
 * TOPIC.
 * Each prints "ok ..." as its last line, or dies with a stack trace and a non-zero exit.
 */
public final class RoundTrip {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> {
                int from = Integer.parseInt(args[3]);
                int count = Integer.parseInt(args[4]);
                for (String codec : args[5].split(",")) {
                    produce(args[1], args[2], from, count, codec);
                    from += count;
                }
            }
            case "consume" -> consume(args[1], args[2], args[3], Integer.parseInt(args[4]), args[5]);
            case "flood" -> flood(args[1], args[2]);
            case "admin" -> admin(args[1], args[2]);
            case "quotas" -> quotas(args[1], args[2]);
            case "refused" -> refused(args[1], args[2]);
            case "conditions" -> conditions(args[1], args[2]);
            default -> throw new IllegalArgumentException("unknown verb " + args[0]);
        }
    }

    /** Idempotence is the client's own default; it must be able to stay on. */
    private static void produce(String bootstrap, String topic, int from, int count, String codec) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", codec);
        config.put("linger.ms", "2");
        config.put("delivery.timeout.ms", "120000");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = from; i < from + count; i++) {
                var record = new ProducerRecord<>(topic, "key-" + i % 7, "value-" + i);
                record.headers().add("n", Integer.toString(i).getBytes());
                sent.add(producer.send(record));
                if (i % 500 == 0) {
                    System.out.println("sent " + i);
                }
            }
            producer.flush();
            Map<Integer, Long> last = new HashMap<>();
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata meta = one.get();
                Long before = last.put(meta.partition(), meta.offset());
                if (before != null && meta.offset() <= before) {
                    throw new IllegalStateException("offset went back in partition " + meta.partition());
                }
            }
            System.out.println("ok produced " + count);
        }
    }

    /** Sends 0, 1, 2, ... until standard input closes; prints "acked N OFFSET" for each that the broker took. */
    private static void flood(String bootstrap, String topic) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", "1");
        config.put("delivery.timeout.ms", "300000");
        config.put("reconnect.backoff.max.ms", "200");
        var over = new AtomicBoolean();
        var reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException closed) {
                // A closed input is what this thread waits for.
            }
            over.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        int n = 0;
        var inFlight = new Semaphore(2_000);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            while (!over.get()) {
                if (inFlight.tryAcquire(50, TimeUnit.MILLISECONDS)) {
                    int number = n++;
                    producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(number)), (meta, error) -> {
                        System.out.println(error == null ? "acked " + number + " " + meta.offset()
                                : "failed " + number + " " + error);
                        inFlight.release();
                    });
                    Thread.sleep(1);
                }
            }
        }
        System.out.println("ok sent " + n);
    }

    private static void consume(String bootstrap, String topic, String group, int count, String assignor) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        if (assignor.equals("cooperative")) {
            config.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        }
        Map<String, Integer> lastByKey = new TreeMap<>();
        int seen = 0;
        long deadline = System.nanoTime() + Duration.ofSeconds(90).toNanos();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (seen < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("saw only " + seen + " of " + count);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int n = Integer.parseInt(record.value().substring("value-".length()));
                    if (!new String(record.headers().lastHeader("n").value()).equals(Integer.toString(n))) {
                        throw new IllegalStateException("header differs from value at " + record.offset());
                    }
                    Integer before = lastByKey.put(record.key(), n);
                    if (before != null && n <= before) {
                        throw new IllegalStateException("key " + record.key() + ": " + n + " after " + before);
                    }
                    seen++;
                }
                consumer.commitSync();
            }
            System.out.println("ok consumed " + seen);
        }
    }

    private static void admin(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            check(admin.listTopics().names().get().contains(topic), "created topic is listed");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            var description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            check(description.partitions().size() == 4, "four partitions after createPartitions");
            check(!description.topicId().toString().equals("AAAAAAAAAAAAAAAAAAAAAA"), "topic has an id");
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            check(config.get("segment.bytes") != null, "segment.bytes is described");
            check(admin.describeCluster().nodes().get().size() == 1, "one node");
            check(!admin.describeLogDirs(List.of(admin.describeCluster().controller().get().id()))
                    .allDescriptions().get().isEmpty(), "log directories are described");
            var partition = new TopicPartition(topic, 0);
            check(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get().get(partition).offset() == 0,
                    "latest of an empty partition is 0");
            brokerSettings(admin);
            for (var group : admin.listConsumerGroups().all().get()) {
                var offsets = admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get();
                System.out.println("group " + group.groupId() + " " + offsets.size());
                admin.describeConsumerGroups(List.of(group.groupId())).all().get();
            }
            admin.deleteTopics(Set.of(topic)).all().get();
            check(!admin.listTopics().names().get().contains(topic), "deleted topic is gone");
            System.out.println("ok admin " + Arrays.asList(topic));
        }
    }

    /** Quotas are set, told and taken away again; a producer and a consumer that have some are told to wait. */
    private static void quotas(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "admin"))) {
            var held = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "held"));
            var all = new HashMap<String, String>();
            all.put(ClientQuotaEntity.CLIENT_ID, null);
            var byDefault = new ClientQuotaEntity(all);
            var user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "ann"));
            var rate = List.of(
                    new ClientQuotaAlteration.Op("producer_byte_rate", 500_000.0),
                    new ClientQuotaAlteration.Op("consumer_byte_rate", 500_000.0));
            var percent = List.of(new ClientQuotaAlteration.Op("request_percentage", 90.0));
            admin.alterClientQuotas(List.of(
                    new ClientQuotaAlteration(held, rate), new ClientQuotaAlteration(byDefault, percent))).all().get();
            try {
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, rate))).all().get();
                throw new IllegalStateException("a quota for a user was taken");
            } catch (ExecutionException refused) {
                check(refused.getCause() instanceof InvalidRequestException, "users have no quotas: " + refused);
            }
            var told = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
            check(told.equals(Map.of(
                    held, Map.of("producer_byte_rate", 500_000.0, "consumer_byte_rate", 500_000.0),
                    byDefault, Map.of("request_percentage", 90.0))), "the quotas are told: " + told);
            var only = ClientQuotaFilter.containsOnly(
                    List.of(ClientQuotaFilterComponent.ofDefaultEntity(ClientQuotaEntity.CLIENT_ID)));
            check(admin.describeClientQuotas(only).entities().get().keySet().equals(Set.of(byDefault)), "the default");
            heldBack(bootstrap, topic);
            for (var entity : told.keySet()) {
                var removals = told.get(entity).keySet().stream()
                        .map(name -> new ClientQuotaAlteration.Op(name, null)).toList();
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, removals))).all().get();
            }
            check(admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().isEmpty(), "no quotas are left");
            System.out.println("ok quotas");
        }
    }

    private static void heldBack(String bootstrap, String topic) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "held");
        config.put("group.id", "held");
        config.put("auto.offset.reset", "earliest");
        int count = 60;
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, "x".repeat(20_000))));
            }
            for (var one : sent) {
                one.get();
            }
            check(most(producer.metrics(), "produce-throttle-time-max") > 0, "the producer was told to wait");
        }
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            int got = 0;
            while (got < count) {
                got += consumer.poll(Duration.ofSeconds(1)).count();
            }
            check(most(consumer.metrics(), "fetch-throttle-time-max") > 0, "the consumer was told to wait");
        }
    }

    private static double most(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.values().stream().filter(one -> one.metricName().name().equals(name))
                .mapToDouble(one -> (Double) one.metricValue()).filter(value -> !Double.isNaN(value)).max().orElse(0);
    }

    /** What the broker refuses is told by name and not sent again, and the producer, an idempotent one, goes on. */
    private static void refused(String bootstrap, String topic) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var narrow = Map.of("max.message.bytes", "30000", "segment.bytes", "16384");
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(narrow))).all().get();
        }
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("max.block.ms", "3000");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            long late = System.currentTimeMillis() + 7_200_000;
            refuse(producer, new ProducerRecord<>(topic, "x".repeat(40_000)), RecordTooLargeException.class);
            producer.send(new ProducerRecord<>(topic, "one")).get();
            refuse(producer, new ProducerRecord<>(topic, "x".repeat(20_000)), RecordBatchTooLargeException.class);
            refuse(producer, new ProducerRecord<>(topic, 0, late, null, "x"), InvalidTimestampException.class);
            var last = producer.send(new ProducerRecord<>(topic, "two")).get();
            check(last.offset() == 1, "nothing of what was refused is there: " + last.offset());
            refuse(producer, new ProducerRecord<>("no/name", "x"), InvalidTopicException.class);
            check(most(producer.metrics(), "record-retry-total") == 0, "nothing was sent again");
        }
        System.out.println("ok refused");
    }

    /** Records with a condition that does not hold among others: an idempotent producer, batches of one record. */
    private static void conditions(String bootstrap, String topic) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("batch.size", "0");
        int count = 60;
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                // So long that no second one fits into a batch, which has room for one at its largest.
                var record = new ProducerRecord<>(topic, "key", i + "x".repeat(100));
                if (i % 3 == 1) {
                    record.headers().add("logboom-expected-offset", "-1".getBytes());
                }
                sent.add(producer.send(record));
            }
            long next = 0;
            for (int i = 0; i < count; i++) {
                if (i % 3 != 1) {
                    check(sent.get(i).get().offset() == next++, i + " is at its place: " + sent.get(i).get().offset());
                    continue;
                }
                try {
                    sent.get(i).get();
                    check(false, i + " is refused");
                } catch (ExecutionException refused) {
                    check(refused.getCause() instanceof InvalidRecordException, "" + refused.getCause());
                    check(refused.getMessage().contains("The latest record of key 'key' is at offset"),
                            refused.getMessage());
                }
            }
        }
        System.out.println("ok conditions");
    }

    private static void refuse(
            KafkaProducer<String, String> producer, ProducerRecord<String, String> record, Class<?> why) {
        try {
            producer.send(record).get();
        } catch (Exception refused) {
            var cause = refused instanceof ExecutionException ? refused.getCause() : refused;
            check(why.isInstance(cause), why + " and not " + cause);
            return;
        }
        check(false, why + " was to be told");
    }

    /** A broker's own setting over the default of all, with where each comes from and what it means; then none. */
    private static void brokerSettings(Admin admin) throws Exception {
        String id = Integer.toString(admin.describeCluster().controller().get().id());
        var mine = new ConfigResource(ConfigResource.Type.BROKER, id);
        var all = new ConfigResource(ConfigResource.Type.BROKER, "");
        change(admin, all, new ConfigEntry("fetch.max.bytes", "3000000"), AlterConfigOp.OpType.SET);
        change(admin, mine, new ConfigEntry("fetch.max.bytes", "2000000"), AlterConfigOp.OpType.SET);
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        var told = admin.describeConfigs(List.of(mine, all), options).all().get();
        var entry = told.get(mine).get("fetch.max.bytes");
        check(entry.value().equals("2000000") && entry.source() == ConfigSource.DYNAMIC_BROKER_CONFIG, "" + entry);
        check(entry.synonyms().stream().map(ConfigEntry.ConfigSynonym::source).toList().equals(List.of(
                ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                ConfigSource.DEFAULT_CONFIG)), "" + entry.synonyms());
        check(entry.documentation().contains("one fetch response"), entry.documentation());
        check(!entry.isReadOnly() && told.get(mine).get("log.dirs").isReadOnly(), "what changes is told");
        check(told.get(all).entries().size() == 1, "the default of all brokers is told alone");
        try {
            change(admin, mine, new ConfigEntry("log.dirs", "/tmp"), AlterConfigOp.OpType.SET);
            check(false, "log.dirs cannot change");
        } catch (ExecutionException refused) {
            check(refused.getCause() instanceof InvalidConfigurationException, "" + refused.getCause());
            check(refused.getMessage().contains("restart"), refused.getMessage());
        }
        change(admin, all, new ConfigEntry("fetch.max.bytes", ""), AlterConfigOp.OpType.DELETE);
        change(admin, mine, new ConfigEntry("fetch.max.bytes", ""), AlterConfigOp.OpType.DELETE);
        check(admin.describeConfigs(List.of(mine)).all().get().get(mine).get("fetch.max.bytes").isDefault(), "taken back");
    }

    private static void change(Admin admin, ConfigResource where, ConfigEntry entry, AlterConfigOp.OpType operation)
            throws Exception {
        admin.incrementalAlterConfigs(Map.of(where, List.of(new AlterConfigOp(entry, operation)))).all().get();
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("not so: " + what);
        }
    }
}
