import io.nats.client.Connection;
import io.nats.client.JetStream;
import io.nats.client.JetStreamApiException;
import io.nats.client.JetStreamOptions;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PublishOptions;
import io.nats.client.api.PublishAck;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import io.nats.client.support.JsonValueUtils;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Publishes on NATS what it is told on its standard input, with jnats; see tests/clients/nats_drivers.py. */
public final class Publish {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final int WINDOW = 256;

    private final Connection connection;
    private final JetStream stream;
    private final List<CompletableFuture<PublishAck>> begun = new ArrayList<>();

    private Publish(Connection connection) throws Exception {
        this.connection = connection;
        this.stream = connection.jetStream(JetStreamOptions.builder().requestTimeout(WAIT).build());
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options.Builder().server(args[0]).supportUTF8Subjects().build();
        try (Connection connection = Nats.connect(options)) {
            Publish publish = new Publish(connection);
            for (JsonValue order : JsonParser.parse(System.in.readAllBytes()).array) {
                publish.carryOut(order);
            }
            publish.finish();
            connection.flush(WAIT);
        }
    }

    private void carryOut(JsonValue order) throws Exception {
        String via = JsonValueUtils.readString(order, "via");
        if (!via.equals("window") || begun.size() == WINDOW) {
            finish();
        }
        try {
            switch (via) {
                case "plain" -> {
                    connection.publish(message(order));
                    System.out.println("{}");
                }
                case "info" -> {
                    connection.jetStreamManagement().getStreamInfo(JsonValueUtils.readString(order, "stream"));
                    System.out.println("{}");
                }
                case "window" -> begun.add(stream.publishAsync(message(order), options(order)));
                default -> System.out.println(told(stream.publish(message(order), options(order))));
            }
        } catch (Exception error) {
            System.out.println(refused(error));
        }
    }

    private void finish() throws Exception {
        for (CompletableFuture<PublishAck> future : begun) {
            try {
                System.out.println(told(future.get(WAIT.toSeconds(), TimeUnit.SECONDS)));
            } catch (ExecutionException error) {
                System.out.println(refused(error.getCause()));
            }
        }
        begun.clear();
    }

    private static Message message(JsonValue order) {
        Headers headers = new Headers();
        List<JsonValue> given = JsonValueUtils.readArray(order, "headers");
        if (given != null) {
            for (JsonValue header : given) {
                headers.add(header.array.get(0).string, header.array.get(1).string);
            }
        }
        String payload = JsonValueUtils.readString(order, "payload", "");
        return NatsMessage.builder()
                .subject(JsonValueUtils.readString(order, "subject"))
                .headers(headers)
                .data(Base64.getDecoder().decode(payload))
                .build();
    }

    private static PublishOptions options(JsonValue order) {
        PublishOptions.Builder options = PublishOptions.builder().streamTimeout(WAIT);
        if (order.map.containsKey("id")) {
            options.messageId(JsonValueUtils.readString(order, "id"));
        }
        if (order.map.containsKey("stream")) {
            options.expectedStream(JsonValueUtils.readString(order, "stream"));
        }
        if (order.map.containsKey("last_seq")) {
            options.expectedLastSequence(JsonValueUtils.readLong(order, "last_seq", 0));
        }
        if (order.map.containsKey("last_id")) {
            options.expectedLastMsgId(JsonValueUtils.readString(order, "last_id"));
        }
        return options.build();
    }

    private static String told(PublishAck ack) {
        String duplicate = ack.isDuplicate() ? ", \"duplicate\": true" : "";
        return "{\"stream\": \"%s\", \"seq\": %d%s}".formatted(ack.getStream(), ack.getSeqno(), duplicate);
    }

    private static String refused(Throwable error) {
        if (error instanceof RuntimeException && error.getCause() != null) {
            error = error.getCause(); // futures of jnats wrap what went wrong
        }
        if (error instanceof JetStreamApiException api) {
            return "{\"err_code\": %d, \"failed\": %s}".formatted(api.getApiErrorCode(), quoted(api.getErrorDescription()));
        }
        return "{\"failed\": %s}".formatted(quoted(String.valueOf(error)));
    }

    private static String quoted(String text) {
        return new JsonValue(text).toJson();
    }
}
