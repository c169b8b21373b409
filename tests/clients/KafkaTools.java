import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools, many in one JVM: each line of the input is a main class and its arguments, separated
 * by tabs. What a tool prints ends with a line that says so, and the code that it would have ended with.
 */
public class KafkaTools {
    private static Integer code;

    /** Thrown in place of the end of the process; the tools that catch everything then end once more, with 1. */
    private static class Ended extends Error {
        Ended() {
            super("the tool ended", null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            code = code == null ? status : code;
            throw new Ended();
        });
        System.setErr(System.out);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            code = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Ended)) {
                    error.getCause().printStackTrace();
                    code = 1;
                }
            }
            System.out.println();
            System.out.println("end of tool " + (code == null ? 0 : code));
            System.out.flush();
        }
    }
}
