import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs several of Kafka's tools, one after the other: each argument is a class below
 * org.apache.kafka.tools and what follows it on its command line. A line that begins with "$" stands
 * before what each of them prints.
 */
public class ToolRunner {
    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("exit " + code);
        });
        for (String line : arguments) {
            System.out.println("$ " + line);
            String[] words = line.split(" ");
            var tool = Class.forName("org.apache.kafka.tools." + words[0]);
            Object rest = Arrays.copyOfRange(words, 1, words.length);
            try {
                tool.getMethod("main", String[].class).invoke(null, rest);
            } catch (InvocationTargetException error) {
                System.out.println(error.getCause().getMessage());
            }
        }
    }
}
