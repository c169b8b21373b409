import java.util.Properties;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints every topic setting of this Kafka: name, type and default, separated by tabs. */
public class TopicSettings {
    public static void main(String[] arguments) {
        LogConfig defaults = new LogConfig(new Properties());
        for (String name : LogConfig.configNames()) {
            System.out.println(
                String.join("\t", name, LogConfig.configType(name).get().name(), String.valueOf(defaults.values().get(name))));
        }
    }
}
