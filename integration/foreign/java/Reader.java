import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** KafkaConsumers, of either group protocol. */
final class Reader {
    private static final Map<String, Reader> READERS = new ConcurrentHashMap<>();

    private final KafkaConsumer<String, String> consumer;

    static Reader named(String name) {
        return READERS.get(name);
    }

    static void register(Map<String, Driver.Op> ops) {
        ops.put("reader.open", call -> {
            READERS.put(call.get("on").asText(), new Reader(call));
            return null;
        });
        ops.put("reader.poll", call -> Driver.on(READERS, call).poll(call));
        ops.put("reader.commit", call -> {
            Driver.on(READERS, call).consumer.commitSync(Duration.ofSeconds(10));
            return null;
        });
        ops.put("reader.close", call -> {
            Driver.on(READERS, call).consumer.close();
            return null;
        });
    }

    private Reader(JsonNode call) {
        consumer = new KafkaConsumer<>(Driver.config(call), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(Driver.strings(call.get("topics")));
    }

    /** Polls until at least so many records came in all, or the time is over. */
    private Object poll(JsonNode call) {
        long end = System.nanoTime() + call.get("millis").asLong() * 1_000_000;
        List<String> got = new ArrayList<>();
        do {
            for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(100))) {
                got.add(r.value());
            }
        } while (got.size() < call.get("atLeast").asInt() && System.nanoTime() < end);
        return got;
    }

    ConsumerGroupMetadata metadata() {
        return consumer.groupMetadata();
    }

    Map<TopicPartition, OffsetAndMetadata> positions() {
        Map<TopicPartition, OffsetAndMetadata> out = new HashMap<>();
        for (TopicPartition p : consumer.assignment()) {
            out.put(p, new OffsetAndMetadata(consumer.position(p)));
        }
        return out;
    }
}
