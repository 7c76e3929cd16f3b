import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own share consumer as a contender: see package contender for jobs and reports. */
public final class Contender {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] args) throws Exception {
        BlockingQueue<String> jobs = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(jobs));
        reader.setDaemon(true);
        reader.start();
        while (true) {
            JsonNode job = JSON.readTree(jobs.take());
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("report", work(job));
            } catch (Exception e) {
                answer.removeAll();
                answer.put("error", e.toString());
            }
            say(answer);
        }
    }

    /** Ends the process with its input, also in the middle of a job: nobody waits for it any more. */
    private static void read(BlockingQueue<String> jobs) {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                jobs.add(line);
            }
        } catch (Exception e) {
            System.err.println(e);
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode work(JsonNode job) {
        int fetch = job.get("fetch").asInt();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("seeds").asText());
        settings.put("group.id", job.get("group").asText());
        if (fetch > 0) {
            settings.put("max.poll.records", fetch);
        }
        int wanted = job.get("records").asInt();
        int records = 0;
        int atFirst = 0;
        long bytes = 0;
        long first = 0;
        long last = 0;
        long cpu = 0;
        long began = System.nanoTime();
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(job.get("topic").asText()));
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofSeconds(1));
                if (got.isEmpty()) {
                    continue;
                }
                last = System.nanoTime();
                if (records == 0) {
                    first = last;
                    cpu = SYSTEM.getProcessCpuTime();
                    atFirst = got.count();
                    say(JSON.createObjectNode().put("first", true));
                }
                for (ConsumerRecord<byte[], byte[]> r : got) {
                    bytes += r.value().length;
                }
                records += got.count();
            }
            // Each poll accepted what the one before gave; this does so for the last.
            for (Map.Entry<TopicIdPartition, Optional<KafkaException>> e : consumer.commitSync().entrySet()) {
                e.getValue().ifPresent(refused -> {
                    throw refused;
                });
            }
            return JSON.createObjectNode()
                .put("records", records)
                .put("bytes", bytes)
                .put("first", atFirst)
                .put("start", first - began)
                .put("read", last - first)
                .put("acked", System.nanoTime() - first)
                .put("cpu", SYSTEM.getProcessCpuTime() - cpu);
        }
    }

    private static void say(ObjectNode message) {
        System.out.println(message);
        System.out.flush();
    }
}
