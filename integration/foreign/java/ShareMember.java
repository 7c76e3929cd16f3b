import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** KafkaShareConsumers, each with what it was delivered last. */
final class ShareMember {
    private static final Map<String, ShareMember> MEMBERS = new ConcurrentHashMap<>();

    private final KafkaShareConsumer<String, String> consumer;
    private final Map<String, ConsumerRecord<String, String>> held = new LinkedHashMap<>();
    private final List<Map<String, Object>> callbacks = new ArrayList<>();
    private Thread loop;
    private volatile boolean stop;
    private Throwable failure;
    private final List<Map<String, Object>> taken = new ArrayList<>(); // by the loop, in order

    static void register(Map<String, Driver.Op> ops) {
        ops.put("share.open", call -> {
            MEMBERS.put(call.get("on").asText(), new ShareMember(call));
            return null;
        });
        ops.put("share.poll", call -> Driver.on(MEMBERS, call).poll(call));
        ops.put("share.acknowledge", call -> Driver.on(MEMBERS, call).acknowledge(call));
        ops.put("share.commitSync", call -> Driver.on(MEMBERS, call).commitSync());
        ops.put("share.commitAsync", call -> Driver.on(MEMBERS, call).commitAsync());
        ops.put("share.callbacks", call -> Driver.on(MEMBERS, call).callbacks());
        ops.put("share.lockTimeout", call -> Driver.on(MEMBERS, call).consumer.acquisitionLockTimeoutMs().orElse(-1));
        ops.put("share.start", call -> Driver.on(MEMBERS, call).start(call));
        ops.put("share.stop", call -> Driver.on(MEMBERS, call).stop());
        ops.put("share.close", call -> {
            Driver.on(MEMBERS, call).consumer.close(Duration.ofSeconds(10));
            return null;
        });
    }

    private ShareMember(JsonNode call) {
        consumer = new KafkaShareConsumer<>(Driver.config(call), new StringDeserializer(), new StringDeserializer());
        consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((at, set) -> {
            Map<String, Object> c = new LinkedHashMap<>();
            c.put("topic", at.topic());
            c.put("partition", at.partition());
            c.put("offsets", new ArrayList<>(set));
            c.put("error", error == null ? "" : error.getClass().getSimpleName());
            synchronized (callbacks) {
                callbacks.add(c);
            }
        }));
        consumer.subscribe(Driver.strings(call.get("topics")));
    }

    private static String place(String topic, int partition, long offset) {
        return topic + "/" + partition + "/" + offset;
    }

    private static Map<String, Object> show(ConsumerRecord<String, String> r) {
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("topic", r.topic());
        m.put("partition", r.partition());
        m.put("offset", r.offset());
        m.put("value", r.value());
        m.put("deliveries", r.deliveryCount().map(Short::intValue).orElse(-1));
        return m;
    }

    /** Polls until at least so many records came in all, or the time is over. */
    private Object poll(JsonNode call) {
        long end = System.nanoTime() + call.get("millis").asLong() * 1_000_000;
        List<Map<String, Object>> got = new ArrayList<>();
        do {
            for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                held.put(place(r.topic(), r.partition(), r.offset()), r);
                got.add(show(r));
            }
        } while (got.size() < call.get("atLeast").asInt() && System.nanoTime() < end);
        return got;
    }

    private Object acknowledge(JsonNode call) {
        for (JsonNode a : call.get("acks")) {
            AcknowledgeType type = AcknowledgeType.valueOf(a.get("type").asText());
            String at = place(a.get("topic").asText(), a.get("partition").asInt(), a.get("offset").asLong());
            ConsumerRecord<String, String> r = held.get(at);
            if (r == null) {
                throw new IllegalArgumentException("not delivered: " + at);
            }
            consumer.acknowledge(r, type);
        }
        return null;
    }

    private Map<String, String> commitSync() {
        Map<String, String> out = new TreeMap<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> e : consumer.commitSync(Duration.ofSeconds(10)).entrySet()) {
            out.put(e.getKey().topic() + "/" + e.getKey().partition(), e.getValue().map(x -> x.getClass().getSimpleName()).orElse(""));
        }
        return out;
    }

    private Object commitAsync() {
        consumer.commitAsync();
        return null;
    }

    private Object callbacks() {
        synchronized (callbacks) {
            List<Map<String, Object>> out = new ArrayList<>(callbacks);
            callbacks.clear();
            return out;
        }
    }

    /**
     * Consumes on its own until stopped, accepting all: explicitly with a commit
     * for each poll, or implicitly. Only records whose acknowledgement was
     * answered well are taken.
     */
    private Object start(JsonNode call) {
        boolean explicit = call.get("explicit").asBoolean();
        loop = new Thread(() -> {
            try {
                while (!stop) {
                    List<Map<String, Object>> got = new ArrayList<>();
                    for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(100))) {
                        got.add(show(r));
                        if (explicit) {
                            consumer.acknowledge(r, AcknowledgeType.ACCEPT);
                        }
                    }
                    Map<String, String> answers = commitSync();
                    for (Map<String, Object> r : got) {
                        String answer = answers.get(r.get("topic") + "/" + r.get("partition"));
                        if (!"".equals(answer)) {
                            throw new IllegalStateException("acknowledgement of " + r + ": " + answer);
                        }
                        taken.add(r);
                    }
                }
            } catch (Throwable e) {
                failure = e;
            }
        });
        loop.start();
        return null;
    }

    private Object stop() throws Exception {
        stop = true;
        loop.join();
        if (failure != null) {
            throw new Exception(failure);
        }
        return taken;
    }
}
