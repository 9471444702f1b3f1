import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer, consumer and admin client against a cluster. Prints what it finds, one
 * "name=value" a line; whoever runs it knows what should be there.
 *
 * <p>Arguments: bootstrap servers, number of replicas, a topic with two partitions.
 */
public class DataProbe {
    static final byte[] LARGE = new byte[10_000_000];
    static Map<String, Object> base = new HashMap<>();

    /** Brokers hear of changes one after the other, and any of them may be asked. */
    static boolean until(Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }

    static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    static KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> config = new HashMap<>(base);
        config.put("max.request.size", 20 << 20);
        for (int at = 0; at < settings.length; at += 2) {
            config.put((String) settings[at], settings[at + 1]);
        }
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> read(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        long end = consumer.endOffsets(Set.of(partition)).get(partition);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        while (consumer.position(partition) < end) {
            consumer.poll(Duration.ofSeconds(1)).forEach(records::add);
        }
        return records;
    }

    static String outcome(KafkaProducer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> record)
            throws InterruptedException {
        try {
            producer.send(record).get();
            return "stored";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    static int produce(String topic, long time) throws Exception {
        int count = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String acks : List.of("0", "1", "all", "idempotent")) {
                boolean idempotent = acks.equals("idempotent");
                try (var producer = producer(
                        "compression.type", codec,
                        "enable.idempotence", idempotent,
                        "acks", idempotent ? "all" : acks,
                        "linger.ms", 5)) {
                    for (int number = 0; number < 5; number++) {
                        byte[] value = (codec + " " + acks + " " + number).repeat(50).getBytes();
                        producer.send(new ProducerRecord<>(topic, 0, time, new byte[] {1}, value));
                        count++;
                    }
                }
            }
        }
        return count;
    }

    static void consume(String topic, long time, int count) {
        Map<String, Object> config = new HashMap<>(base);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", false);
        var partition = new TopicPartition(topic, 0);
        try (var consumer = new KafkaConsumer<>(
                config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(Set.of(partition));
            consumer.seekToBeginning(Set.of(partition));
            var records = read(consumer, partition);
            say("read", records.size());
            say("values", records.stream().limit(count)
                    .map(each -> new String(each.value()).split(" ")[1]).distinct()
                    .collect(Collectors.joining(",")));
            var last = records.get(records.size() - 1);
            say("last", last.key() + " " + last.value() + " " + last.headers());
            consumer.seekToEnd(Set.of(partition));
            say("at-end", read(consumer, partition).size());
            consumer.seek(partition, count - 2);
            say("from-offset", read(consumer, partition).size());
            var found = consumer.offsetsForTimes(Map.of(partition, time + 1)).get(partition);
            say("from-time", found.offset() + " " + (found.timestamp() - time));
            var large = new TopicPartition(topic, 1);
            consumer.assign(Set.of(large));
            consumer.seekToBeginning(Set.of(large));
            say("large", read(consumer, large).stream()
                    .map(each -> Arrays.equals(each.value(), LARGE)).collect(Collectors.toList()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        base.put("bootstrap.servers", arguments[0]);
        short replicas = Short.parseShort(arguments[1]);
        String topic = arguments[2];
        long time = System.currentTimeMillis() - 60_000;
        try (Admin admin = Admin.create(base)) {
            String another = topic + "-another";
            admin.createTopics(Set.of(new NewTopic(another, 2, replicas))).all().get();
            admin.deleteTopics(Set.of(another)).all().get();
            int count = produce(topic, time);
            try (var producer = producer()) {
                var record = new ProducerRecord<byte[], byte[]>(topic, 0, time + 1, null, null);
                record.headers().add(new RecordHeader("a", new byte[] {1}));
                record.headers().add(new RecordHeader("b", (byte[]) null));
                producer.send(record).get();
                var large = new ProducerRecord<byte[], byte[]>(topic, 1, null, LARGE);
                say("too-large", outcome(producer, large));
                var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                var entry = new ConfigEntry("max.message.bytes", String.valueOf(11 << 20));
                admin.incrementalAlterConfigs(Map.of(resource,
                        List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
                var outcomes = new ArrayList<String>();
                until(() -> outcomes.add(outcome(producer, large))
                        && outcomes.contains("stored"));
                say("allowed", outcomes.get(outcomes.size() - 1));
                var found = new ArrayList<String>();
                until(() -> found.add(admin.describeConfigs(Set.of(resource)).all().get()
                                .get(resource).get("max.message.bytes").value())
                        && found.contains(entry.value()));
                say("config", found.get(found.size() - 1));
            }
            consume(topic, time, count);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            List<Integer> factors = new ArrayList<>();
            until(() -> {
                factors.clear();
                admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions()
                        .forEach(each -> factors.add(each.replicas().size()));
                return factors.size() >= 3;
            });
            say("replicas", factors);
            var end = OffsetSpec.latest();
            say("end", admin.listOffsets(Map.of(new TopicPartition(topic, 0), end)).all().get()
                    .values().iterator().next().offset());
            admin.deleteTopics(Set.of(topic)).all().get();
            say("deleted", until(() -> !admin.listTopics().names().get().contains(topic)));
        }
    }
}
