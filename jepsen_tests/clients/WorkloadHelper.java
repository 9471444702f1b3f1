import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients for a workload: one line of JSON asks for a call, one line answers it. Every
 * client has a thread of its own, in which its calls are made in the order in which they came.
 */
public class WorkloadHelper {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            String name = request.get("client").asText();
            if (request.get("call").asText().equals("open")) {
                CLIENTS.put(name, new Client(request));
                answer(request, JSON.createObjectNode());
            } else {
                Client client = CLIENTS.get(name);
                client.thread.submit(() -> client.serve(request));
            }
        }
        System.exit(0);
    }

    static synchronized void answer(JsonNode request, ObjectNode answer) {
        answer.set("id", request.get("id"));
        System.out.println(answer);
        System.out.flush();
    }

    static ObjectNode failure(Throwable error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        ObjectNode told = JSON.createObjectNode();
        told.put("error", cause.getClass().getSimpleName());
        told.put("code", (int) Errors.forException(cause).code());
        told.put("text", String.valueOf(cause.getMessage()));
        return told;
    }

    static class Client {
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        final Map<String, Object> producing;
        final Map<String, Object> consuming;
        KafkaProducer<byte[], byte[]> lazyProducer;
        KafkaConsumer<byte[], byte[]> lazyConsumer;
        boolean isSubscribed = false;
        ArrayNode rebalances = JSON.createArrayNode();

        Client(JsonNode request) {
            producing = settings(request.get("producer"));
            consuming = settings(request.get("consumer"));
        }

        static Map<String, Object> settings(JsonNode given) {
            Map<String, Object> found = new HashMap<>();
            given.fields().forEachRemaining(
                    each -> found.put(each.getKey(), each.getValue().asText()));
            return found;
        }

        KafkaProducer<byte[], byte[]> producer() {
            if (lazyProducer == null) {
                lazyProducer = new KafkaProducer<>(
                        producing, new ByteArraySerializer(), new ByteArraySerializer());
            }
            return lazyProducer;
        }

        KafkaConsumer<byte[], byte[]> consumer() {
            if (lazyConsumer == null) {
                lazyConsumer = new KafkaConsumer<>(
                        consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            }
            return lazyConsumer;
        }

        void serve(JsonNode request) {
            try {
                ObjectNode told = JSON.createObjectNode();
                call(request, told);
                answer(request, told);
            } catch (Exception error) {
                answer(request, failure(error));
            }
        }

        void call(JsonNode request, ObjectNode told) throws Exception {
            switch (request.get("call").asText()) {
                case "send" -> told.set("acks", send(request.get("records")));
                case "init" -> producer().initTransactions();
                case "begin" -> producer().beginTransaction();
                case "send_offsets" -> producer().sendOffsetsToTransaction(
                        offsets(request.get("offsets")), consumer().groupMetadata());
                case "commit_transaction" -> producer().commitTransaction();
                case "abort_transaction" -> producer().abortTransaction();
                case "assign" -> assign(request);
                case "subscribe" -> subscribe(request.get("topics"));
                case "poll" -> told.set("records", poll(request.get("timeout_ms").asLong()));
                case "seek" -> seek(place(request.get("where")), request.get("offset").asLong());
                case "commit" -> consumer().commitSync(offsets(request.get("offsets")));
                case "committed" -> told.set("offsets", committed(request.get("wheres")));
                case "close" -> close(Duration.ofSeconds(5));
                case "abandon" -> close(Duration.ZERO);
                default -> throw new IllegalArgumentException(request.get("call").asText());
            }
            told.set("rebalances", rebalances);
            rebalances = JSON.createArrayNode();
        }

        ArrayNode send(JsonNode records) throws Exception {
            List<Object> sent = new ArrayList<>();
            for (JsonNode each : records) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : each.get("headers")) {
                    headers.add(new RecordHeader(
                            header.get(0).asText(), header.get(1).binaryValue()));
                }
                try {
                    sent.add(producer().send(new ProducerRecord<>(
                            each.get("topic").asText(), each.get("partition").asInt(),
                            each.get("timestamp").asLong(), bytes(each.get("key")),
                            bytes(each.get("value")), headers)));
                } catch (Exception error) {
                    sent.add(error);
                }
            }
            ArrayNode acks = JSON.createArrayNode();
            for (Object each : sent) {
                if (each instanceof Exception error) {
                    acks.add(failure(error));
                    continue;
                }
                try {
                    @SuppressWarnings("unchecked")
                    RecordMetadata found = ((Future<RecordMetadata>) each).get();
                    acks.addObject()
                            .put("partition", found.partition())
                            .put("offset", found.hasOffset() ? found.offset() : -1);
                } catch (ExecutionException error) {
                    acks.add(failure(error));
                }
            }
            return acks;
        }

        void assign(JsonNode request) {
            if (isSubscribed) {
                consumer().unsubscribe();
                isSubscribed = false;
            }
            List<TopicPartition> places = places(request.get("wheres"));
            consumer().assign(places);
            if (request.get("from_beginning").asBoolean()) {
                consumer().seekToBeginning(places);
            }
        }

        void subscribe(JsonNode topics) {
            if (!isSubscribed) {
                consumer().unsubscribe();
                isSubscribed = true;
            }
            List<String> names = new ArrayList<>();
            topics.forEach(each -> names.add(each.asText()));
            consumer().subscribe(names, new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> given) {
                    note("assigned", given);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                    note("revoked", taken);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> lost) {
                    note("lost", lost);
                }
            });
        }

        void note(String kind, Collection<TopicPartition> which) {
            ObjectNode told = rebalances.addObject().put("kind", kind);
            ArrayNode wheres = told.putArray("wheres");
            which.forEach(each -> wheres.addArray().add(each.topic()).add(each.partition()));
        }

        ArrayNode poll(long milliseconds) {
            ArrayNode found = JSON.createArrayNode();
            for (var each : consumer().poll(Duration.ofMillis(milliseconds))) {
                ObjectNode told = found.addObject()
                        .put("topic", each.topic())
                        .put("partition", each.partition())
                        .put("offset", each.offset())
                        .put("key", each.key())
                        .put("value", each.value())
                        .put("timestamp", each.timestamp())
                        .put("epoch", each.leaderEpoch().orElse(-1));
                ArrayNode headers = told.putArray("headers");
                each.headers().forEach(
                        header -> headers.addArray().add(header.key()).add(header.value()));
            }
            return found;
        }

        void seek(TopicPartition where, long offset) {
            if (consumer().assignment().contains(where)) {
                consumer().seek(where, offset);
            }
        }

        ArrayNode committed(JsonNode wheres) {
            ArrayNode told = JSON.createArrayNode();
            consumer().committed(new HashSet<>(places(wheres))).forEach((where, found) -> {
                if (found != null) {
                    told.addArray().add(where.topic()).add(where.partition())
                            .add(found.offset()).add(found.metadata());
                }
            });
            return told;
        }

        void close(Duration patience) {
            CLIENTS.values().remove(this);
            if (lazyProducer != null) {
                lazyProducer.close(patience);
            }
            if (lazyConsumer != null) {
                lazyConsumer.close(
                        org.apache.kafka.clients.consumer.CloseOptions.timeout(patience));
            }
            thread.shutdown();
        }

        static byte[] bytes(JsonNode text) throws Exception {
            return text.isNull() ? null : text.binaryValue();
        }

        static TopicPartition place(JsonNode where) {
            return new TopicPartition(where.get(0).asText(), where.get(1).asInt());
        }

        static List<TopicPartition> places(JsonNode wheres) {
            List<TopicPartition> found = new ArrayList<>();
            wheres.forEach(each -> found.add(place(each)));
            return found;
        }

        static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode given) {
            Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
            given.forEach(each -> found.put(place(each),
                    new OffsetAndMetadata(each.get(2).asLong(), each.get(3).asText())));
            return found;
        }
    }
}
