// Apache Kafka's own record classes, asked what tests/protocol/test_protocol_coordinator_records.py puts.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class RecordOracle {
    static final String[] PACKAGES = {
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
    };

    // For each line of class name, version and bytes: the bytes as Kafka writes them, and its JSON.
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words.length > 2 ? words[2] : ""));
            Class<?> messageClass = find(words[0]);
            Message message = (Message) messageClass.getConstructor().newInstance();
            message.read(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining())
                throw new IllegalStateException(line + ": " + bytes.remaining() + " bytes are left");
            JsonNode json = (JsonNode) Class.forName(messageClass.getName() + "JsonConverter")
                .getMethod("write", messageClass, short.class).invoke(null, message, version);
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] result = new byte[written.remaining()];
            written.get(result);
            System.out.println(HexFormat.of().formatHex(result) + " " + json);
        }
    }

    static Class<?> find(String name) throws ClassNotFoundException {
        for (String each : PACKAGES) {
            try {
                return Class.forName(each + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
