// Asks Apache Kafka about record data. One question a line on stdin, one answer a line on stdout:
//   read HEX                  -> valid or invalid, then records as offset:timestamp:key:value:headers
//   judge TYPE COMPACTED HEX  -> LogValidator's error with the indices of refused records,
//                                or ok with the batch as it would be stored

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class JudgeBatches {
    static final long NOW_MS = 1700000000000L;
    static final long BEFORE_MAX_MS = 1000;
    static final long AFTER_MAX_MS = 600;

    public static void main(String[] arguments) {
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            System.out.println(words[0].equals("read") ? read(words[1]) : judge(words));
        }
    }

    static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    static String read(String hex) {
        StringBuilder answer = new StringBuilder();
        for (MutableRecordBatch batch : records(hex).batches()) {
            answer.append(batch.isValid() ? "valid" : "invalid");
            for (Record record : batch) {
                answer.append(' ').append(record.offset()).append(':').append(record.timestamp());
                answer.append(':').append(hex(record.key())).append(':').append(hex(record.value()));
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    answer.append(':').append(
                        hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
                    answer.append('=').append(hex(value == null ? null : ByteBuffer.wrap(value)));
                }
            }
        }
        return answer.toString();
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static <T> T standIn(Class<T> type, Object answer) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (proxy, method, values) -> method.getReturnType() == void.class ? null : answer));
    }

    static String judge(String[] words) {
        MemoryRecords records = records(words[3]);
        try {
            CompressionType codec = records.batches().iterator().next().compressionType();
            LogValidator validator = new LogValidator(
                records, new TopicPartition("topic", 0), standIn(Time.class, NOW_MS), codec,
                Compression.of(codec).build(), Boolean.parseBoolean(words[2]), (byte) 2,
                TimestampType.forName(words[1]), BEFORE_MAX_MS, AFTER_MAX_MS, 7, AppendOrigin.CLIENT);
            LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(5000), standIn(LogValidator.MetricsRecorder.class, null),
                BufferSupplier.NO_CACHING);
            return "ok " + hex(result.validatedRecords().buffer());
        } catch (RecordValidationException refused) {
            return Errors.forException(refused.invalidException()).name() + refused.recordErrors()
                .stream().map(error -> " " + error.batchIndex).collect(Collectors.joining());
        } catch (Exception error) {
            return Errors.forException(error).name();
        }
    }
}
