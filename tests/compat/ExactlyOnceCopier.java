import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic to another, exactly once, until its input ends. What a transaction fails with is
 * told on standard output; what the client can't recover from ends this with an error.
 *
 * <p>Arguments: bootstrap servers, classic or consumer, source, target, group.
 */
public class ExactlyOnceCopier {
    static volatile boolean isDone = false;

    static void untilInTime(Runnable operation) {
        while (true) {
            try {
                operation.run();
                return;
            } catch (TimeoutException error) {
                System.out.println("again");
            }
        }
    }

    static void rewind(KafkaConsumer<String, String> consumer) {
        for (var each : consumer.committed(consumer.assignment()).entrySet()) {
            long offset = each.getValue() == null ? 0 : each.getValue().offset();
            consumer.seek(each.getKey(), offset);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String source = arguments[2];
        String target = arguments[3];
        String group = arguments[4];
        Map<String, Object> consuming = new HashMap<>(Map.of(
                "bootstrap.servers", arguments[0], "group.id", group,
                "group.protocol", arguments[1], "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "isolation.level", "read_committed"));
        if (arguments[1].equals("classic")) {
            consuming.put("session.timeout.ms", 6000);
        }
        Map<String, Object> producing = Map.of(
                "bootstrap.servers", arguments[0], "transactional.id", group);
        Thread reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
            isDone = true;
        });
        reader.setDaemon(true);
        reader.start();
        try (var consumer = new KafkaConsumer<>(
                        consuming, new StringDeserializer(), new StringDeserializer());
                var producer = new KafkaProducer<>(
                        producing, new StringSerializer(), new StringSerializer())) {
            untilInTime(producer::initTransactions);
            consumer.subscribe(List.of(source));
            while (!isDone) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> moved = new HashMap<>();
                    for (var record : records) {
                        producer.send(new ProducerRecord<>(
                                target, record.partition(), null, record.value()));
                        moved.put(new TopicPartition(source, record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                    }
                    untilInTime(() -> producer.sendOffsetsToTransaction(
                            moved, consumer.groupMetadata()));
                    untilInTime(producer::commitTransaction);
                } catch (ProducerFencedException | InvalidProducerEpochException error) {
                    throw error;
                } catch (KafkaException error) {
                    System.out.println(error.getClass().getSimpleName());
                    untilInTime(producer::abortTransaction);
                    rewind(consumer);
                }
            }
        }
    }
}
