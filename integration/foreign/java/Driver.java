import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs Kafka's own clients and command line tools for a test in another
 * process: one JSON object a line in, {"id", "op", "on", ...}, and one a line
 * out, {"id", "result"} or {"id", "error"}. Each call has its own thread, so
 * that one that blocks holds up nobody; the test makes one call at a time on
 * an object, which is named by "on". Ends with its standard input.
 */
public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What can be called on an object or, when it makes one, on a new name. */
    interface Op {
        Object call(JsonNode args) throws Exception;
    }

    static final Map<String, Op> OPS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream replies = System.out; // tools get others
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Tools.register(OPS);
        ShareMember.register(OPS);
        Producer.register(OPS);
        Reader.register(OPS);
        ExecutorService threads = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        for (String line; (line = calls.readLine()) != null; ) {
            JsonNode call = JSON.readTree(line);
            threads.submit(() -> {
                ObjectNode reply = JSON.createObjectNode();
                reply.set("id", call.get("id"));
                try {
                    Op op = OPS.get(call.get("op").asText());
                    if (op == null) {
                        throw new IllegalArgumentException("no such operation");
                    }
                    reply.set("result", JSON.valueToTree(op.call(call)));
                } catch (Throwable e) {
                    reply.put("error", e.toString());
                }
                synchronized (replies) {
                    replies.println(reply);
                    replies.flush();
                }
            });
        }
        Runtime.getRuntime().halt(0); // objects that are still open die as in a crash
    }

    /** The object a call is on. */
    static <T> T on(Map<String, T> objects, JsonNode call) {
        T o = objects.get(call.get("on").asText());
        if (o == null) {
            throw new IllegalArgumentException("no object " + call.get("on"));
        }
        return o;
    }

    static java.util.Properties config(JsonNode call) {
        java.util.Properties p = new java.util.Properties();
        call.path("config").properties().forEach(e -> p.put(e.getKey(), e.getValue().asText()));
        return p;
    }

    static java.util.List<String> strings(JsonNode list) {
        java.util.List<String> out = new java.util.ArrayList<>();
        list.forEach(s -> out.add(s.asText()));
        return out;
    }
}
