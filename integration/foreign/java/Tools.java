import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Kafka's command line tools, run in this JVM: a JVM of its own for each would
 * cost a second or two. One at a time, since they share System.out.
 */
final class Tools {
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;

        Exited() {
            super("the tool exits", null, false, false);
        }

        @Override
        public void printStackTrace() { } // some tools catch and print all that is thrown
    }

    private static Integer status; // of the tool that runs; the first one counts
    private static final List<Runnable> HOOKS = new ArrayList<>(); // of the tool that runs

    static void register(Map<String, Driver.Op> ops) {
        Exit.Procedure end = (code, message) -> {
            if (status == null) {
                status = code;
            }
            throw new Exited();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        ops.put("tool", Tools::run);
    }

    private static synchronized Object run(JsonNode call) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream outBytes = new ByteArrayOutputStream();
        ByteArrayOutputStream errBytes = new ByteArrayOutputStream();
        System.setOut(new PrintStream(outBytes, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errBytes, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(call.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        status = null;
        HOOKS.clear();
        try {
            Class.forName(call.get("tool").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) Driver.strings(call.get("args")).toArray(new String[0]));
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace();
                status = 1;
            }
        } finally {
            HOOKS.forEach(Runnable::run);
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("exit", status == null ? 0 : status);
        result.put("out", outBytes.toString(StandardCharsets.UTF_8));
        result.put("err", errBytes.toString(StandardCharsets.UTF_8));
        return result;
    }
}
