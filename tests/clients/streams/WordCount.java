import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * WordCount BOOTSTRAP STATE_DIRECTORY: runs until killed. It counts words and joins the counts with a table and a global
 * table; and it joins two streams within windows of time and looks the pairs up in the table.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws InterruptedException {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> colours = builder.table("colours", Materialized.as("colours"));
        GlobalKTable<String, String> names = builder.globalTable("names", Materialized.as("names"));
        KTable<String, Long> counts = builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"));
        counts.join(colours, (count, colour) -> count + " " + colour)
            .toStream()
            .join(names, (word, value) -> word, (value, name) -> value + " " + name)
            .to("counted");
        // Whichever of the two is read first, the other one is never too late.
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofDays(1));
        KStream<String, String> left = builder.stream("left");
        left.join(builder.<String, String>stream("right"), (one, other) -> one + " " + other, windows, StreamJoined.as("pairs"))
            .join(colours, (pair, colour) -> pair + " " + colour)
            .to("paired");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments[0], arguments[1]));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        Thread.currentThread().join();
    }

    private static Properties settings(String bootstrap, String stateDirectory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "words");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // Of the changelogs: small segments, so that there is something to compact within seconds.
        settings.put(StreamsConfig.topicPrefix("segment.bytes"), "16384");
        settings.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.01");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        return settings;
    }
}
