import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own consumers in groups, and its transactional producer. Prints what it finds, one
 * "name=value" a line; whoever runs it knows what should be there.
 *
 * <p>Arguments: bootstrap servers, classic or consumer, and three topics with four partitions. With
 * "member" in front and a group instead of the topics after the first, it is a member until killed.
 */
public class GroupProbe {
    static final int PARTITIONS = 4;
    static final int RECORDS = 200;
    static final long SECONDS = 90;
    static String servers;
    static String protocol;
    static String topic;

    static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    static Map<String, Object> base(Object... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        for (int at = 0; at < settings.length; at += 2) {
            config.put((String) settings[at], settings[at + 1]);
        }
        return config;
    }

    static KafkaProducer<String, String> producer(Object... settings) {
        return new KafkaProducer<>(base(settings), new StringSerializer(), new StringSerializer());
    }

    static final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final List<Integer> read = new ArrayList<>();
        final Set<Integer> lost = new TreeSet<>();
        // What the listener was told: assignment() is ahead of it by what the consumer's own thread
        // has yet to announce, and a consumer that is closed in between logs an error.
        final Set<Integer> owned = new TreeSet<>();

        Member(String group, Object... settings) {
            Map<String, Object> config = base(
                    "group.id", group, "group.protocol", protocol,
                    "auto.offset.reset", "earliest", "enable.auto.commit", false);
            if (protocol.equals("classic")) {
                // Nobody is lost because the machine does other work.
                config.put("session.timeout.ms", 60_000);
                config.put("heartbeat.interval.ms", 500);
            }
            config.putAll(base(settings));
            consumer = new KafkaConsumer<>(
                    config, new StringDeserializer(), new StringDeserializer());
        }

        Member subscribed(String name) {
            consumer.subscribe(List.of(name), this);
            return this;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                lost.add(each.partition());
                owned.remove(each.partition());
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> owned.add(each.partition()));
        }

        Set<Integer> owned() {
            return new TreeSet<>(owned);
        }

        void poll() {
            consumer.poll(Duration.ofMillis(20))
                    .forEach(each -> read.add(Integer.valueOf(each.value())));
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static void until(BooleanSupplier condition, Member... polled) {
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(java.util.Arrays.stream(polled)
                        .map(each -> each.owned() + " " + each.read.size()).toList().toString());
            }
            for (Member member : polled) {
                member.poll();
            }
        }
    }

    static Set<Integer> everything() {
        return IntStream.range(0, PARTITIONS).boxed().collect(Collectors.toSet());
    }

    static void fill(int first) {
        try (var producer = producer()) {
            for (int number = first; number < first + RECORDS; number++) {
                producer.send(new ProducerRecord<>(
                        topic, number % PARTITIONS, null, String.valueOf(number)));
            }
        }
    }

    static boolean isShared(Member first, Member second) {
        return first.owned().size() == 2 && second.owned().size() == 2;
    }

    /**
     * One after the other. A consumer that is given the other's partitions and is closed before it
     * was polled again logs an error, and with reason.
     */
    static void close(Member first, Member second) {
        second.close();
        until(() -> first.owned().equals(everything()), first);
        first.close();
    }

    static void comeAndGo() {
        String group = "java-come-and-go-" + topic;
        try (Member first = new Member(group).subscribed(topic); Member second = new Member(group)) {
            until(() -> first.owned().equals(everything()), first);
            fill(0);
            until(() -> first.read.size() >= RECORDS, first);
            first.consumer.commitSync();
            second.subscribed(topic);
            until(() -> isShared(first, second), first, second);
            fill(RECORDS);
            until(() -> first.read.size() + second.read.size() >= 2 * RECORDS, first, second);
            say("of-second", second.read.size());
            first.consumer.commitSync();
            second.consumer.commitSync();
            second.consumer.unsubscribe();
            until(() -> first.owned().equals(everything()), first);
            var read = new ArrayList<>(first.read);
            read.addAll(second.read);
            say("each-once", read.stream().sorted().toList()
                    .equals(IntStream.range(0, 2 * RECORDS).boxed().toList()));
        }
    }

    static void whatNeedNotMoveStays() {
        String group = "java-stays-" + topic;
        Object[] settings = protocol.equals("classic")
                ? new Object[] {"partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}
                : new Object[] {"group.remote.assignor", "uniform"};
        try (Member first = new Member(group, settings).subscribed(topic);
                Member second = new Member(group, settings)) {
            until(() -> first.owned().equals(everything()), first);
            second.subscribed(topic);
            until(() -> isShared(first, second), first, second);
            say("moved-only", first.lost.equals(second.owned()));
            close(first, second);
        }
    }

    static void staticRestart() {
        String group = "java-static-" + topic;
        try (Member first = new Member(group, "group.instance.id", "one").subscribed(topic)) {
            Member second = new Member(group, "group.instance.id", "two").subscribed(topic);
            until(() -> isShared(first, second), first, second);
            var theirs = second.owned();
            first.lost.clear();
            second.close();
            try (Member again = new Member(group, "group.instance.id", "two").subscribed(topic)) {
                until(() -> again.owned().equals(theirs), first, again);
                say("unnoticed", first.lost.isEmpty() && isShared(first, again));
            }
        }
    }

    static void pauses() {
        String group = "java-pauses-" + topic;
        try (Member first = new Member(group).subscribed(topic);
                Member second = new Member(group, "max.poll.interval.ms", 6000).subscribed(topic)) {
            until(() -> isShared(first, second), first, second);
            until(() -> first.owned().equals(everything()), first);
            say("replaced", true);
            until(() -> isShared(first, second), first, second);
            say("back", true);
            close(first, second);
        }
    }

    static void offsets() throws Exception {
        String group = "java-offsets-" + topic;
        var partition = new TopicPartition(topic, 0);
        try (Member lost = new Member(group, "auto.offset.reset", "none").subscribed(topic)) {
            until(() -> false, lost);
        } catch (NoOffsetForPartitionException error) {
            say("without", error.partitions().size());
        }
        try (Member member = new Member(group)) {
            member.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(40, "a note")));
            say("committed", member.consumer.committed(Set.of(partition)).get(partition));
        }
        try (Member member = new Member(group).subscribed(topic)) {
            until(() -> member.read.size() >= 2 * RECORDS - 40, member);
            say("from-committed", member.read.size());
        }
        try (Admin admin = Admin.create(base())) {
            admin.alterConsumerGroupOffsets(
                    group, Map.of(partition, new OffsetAndMetadata(90))).all().get();
            // Beyond the end: the consumer begins as it was told to.
            var third = new TopicPartition(topic, 3);
            admin.alterConsumerGroupOffsets(
                    group, Map.of(third, new OffsetAndMetadata(10_000))).all().get();
        }
        try (Member member = new Member(group).subscribed(topic)) {
            int expected = 2 * RECORDS - 90;
            until(() -> member.read.size() >= expected, member);
            say("after-alteration", member.read.size() - expected);
        }
        try (Admin admin = Admin.create(base())) {
            admin.deleteConsumerGroups(Set.of(group)).all().get();
        }
    }

    static List<String> readCommitted(String name, int count) {
        Map<String, Object> config = base(
                "group.id", "java-reads-" + name, "isolation.level", "read_committed",
                "auto.offset.reset", "earliest", "group.protocol", protocol);
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        try (var consumer = new KafkaConsumer<>(
                config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(name));
            while (values.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(50)).forEach(each -> values.add(each.value()));
            }
        }
        return values.stream().sorted().toList();
    }

    static void transactions(String target) throws Exception {
        List<String> expected = new ArrayList<>();
        try (var producer = producer("transactional.id", target)) {
            producer.initTransactions();
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    String value = number + "-" + partition;
                    producer.send(new ProducerRecord<>(target, partition, null, value));
                    if (number % 3 != 1) {
                        expected.add(value);
                    }
                }
                if (number % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(target, 0, null, "from the dead")).get();
            try (var successor = producer("transactional.id", target)) {
                successor.initTransactions();
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(target, 0, null, "alive"));
                successor.commitTransaction();
                expected.add("alive");
                producer.commitTransaction();
            }
        } catch (ProducerFencedException error) {
            say("fenced", true);
        }
        say("whole", readCommitted(target, expected.size())
                .equals(expected.stream().sorted().toList()));
    }

    static void transform(String target) {
        String group = "java-transform-" + topic;
        try (var producer = producer("transactional.id", group);
                Member member = new Member(group).subscribed(topic)) {
            producer.initTransactions();
            int done = 0;
            for (int round = 0; done < 2 * RECORDS; round++) {
                until(() -> member.read.size() > 0, member);
                producer.beginTransaction();
                for (int value : member.read) {
                    producer.send(new ProducerRecord<>(
                            target, value % PARTITIONS, null, String.valueOf(value)));
                }
                Map<TopicPartition, OffsetAndMetadata> moved = new HashMap<>();
                for (var partition : member.consumer.assignment()) {
                    long position = member.consumer.position(partition);
                    moved.put(partition, new OffsetAndMetadata(position));
                }
                producer.sendOffsetsToTransaction(moved, member.consumer.groupMetadata());
                if (round == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    var committed = member.consumer.committed(member.consumer.assignment());
                    for (var each : committed.entrySet()) {
                        member.consumer.seek(each.getKey(),
                                each.getValue() == null ? 0 : each.getValue().offset());
                    }
                } else {
                    producer.commitTransaction();
                    done += member.read.size();
                }
                member.read.clear();
            }
        }
        var values = readCommitted(target, 2 * RECORDS);
        say("transformed", values.equals(IntStream.range(0, 2 * RECORDS)
                .mapToObj(String::valueOf).sorted().toList()));
    }

    public static void main(String[] arguments) throws Exception {
        boolean isMember = arguments[0].equals("member");
        int at = isMember ? 1 : 0;
        servers = arguments[at];
        protocol = arguments[at + 1];
        topic = arguments[at + 2];
        if (isMember) {
            // It will be killed, and missed soon. Only the old protocol lets a member say when.
            Object[] settings = protocol.equals("classic")
                    ? new Object[] {"session.timeout.ms", 6000} : new Object[] {};
            try (Member member = new Member(arguments[at + 3], settings).subscribed(topic)) {
                while (true) {
                    member.poll();
                }
            }
        }
        comeAndGo();
        whatNeedNotMoveStays();
        staticRestart();
        pauses();
        offsets();
        transactions(arguments[3]);
        transform(arguments[4]);
    }
}
