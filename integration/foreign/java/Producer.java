import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/** KafkaProducers, transactional or not. */
final class Producer {
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new ConcurrentHashMap<>();

    static void register(Map<String, Driver.Op> ops) {
        ops.put("producer.open", call -> {
            PRODUCERS.put(call.get("on").asText(), new KafkaProducer<>(Driver.config(call), new StringSerializer(), new StringSerializer()));
            return null;
        });
        ops.put("producer.init", call -> run(() -> on(call).initTransactions()));
        ops.put("producer.begin", call -> run(() -> on(call).beginTransaction()));
        ops.put("producer.send", Producer::send);
        ops.put("producer.commit", call -> run(() -> on(call).commitTransaction()));
        ops.put("producer.abort", call -> run(() -> on(call).abortTransaction()));
        ops.put("producer.close", call -> run(() -> on(call).close(Duration.ofSeconds(10))));
        // Takes what a Reader read since its last positions into the transaction.
        ops.put("producer.offsets", call -> {
            Reader r = Reader.named(call.get("of").asText());
            on(call).sendOffsetsToTransaction(r.positions(), r.metadata());
            return null;
        });
    }

    private static KafkaProducer<String, String> on(JsonNode call) {
        return Driver.on(PRODUCERS, call);
    }

    private static Object run(Runnable r) {
        r.run();
        return null;
    }

    /** Sends values to a partition, or where the partitioner says for -1, and waits for all; gives the offsets. */
    private static Object send(JsonNode call) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        int p = call.get("partition").asInt();
        for (String v : Driver.strings(call.get("values"))) {
            sent.add(on(call).send(new ProducerRecord<>(call.get("topic").asText(), p < 0 ? null : p, null, v)));
        }
        on(call).flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> f : sent) {
            try {
                offsets.add(f.get().offset());
            } catch (ExecutionException e) {
                throw (Exception) e.getCause();
            }
        }
        return offsets;
    }
}
