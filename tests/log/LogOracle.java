// Apache Kafka's own log classes, asked the questions that tests/log/test_log_oracle.py puts.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class LogOracle {
    static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(10);

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("files"))
            files(new File(arguments[1]));
        else
            new LogOracle(Path.of(arguments[1])).script();
    }

    // Read every file with the class that owns its format, and print what it says.
    static void files(File folder) throws Exception {
        new OffsetCheckpointFile(new File(folder, "replication-offset-checkpoint"), FAILURES).read()
            .forEach((partition, offset) -> System.out.println("offset " + partition + " " + offset));
        new LeaderEpochCheckpointFile(new File(folder, "leader-epoch-checkpoint"), FAILURES).read()
            .forEach(entry -> System.out.println("epoch " + entry.epoch() + " " + entry.startOffset()));
        System.out.println("topic " + new PartitionMetadataFile(
            new File(folder, "partition.metadata"), FAILURES).read().topicId());
        MetaProperties meta = new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(
            new File(folder, "meta.properties").toString())).build();
        System.out.println("meta " + meta.version().number() + " " + meta.clusterId().get() + " "
            + meta.nodeId().getAsInt() + " " + meta.directoryId().get());
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(new File(folder, "00000000000000000042.snapshot")))
            System.out.println("producer " + describe(entry));
        OffsetIndex offsets = new OffsetIndex(new File(folder, "00000000000000000100.index"), 100L, 1024, false);
        offsets.sanityCheck();
        for (int slot = 0; slot < offsets.entries(); slot++)
            System.out.println("position " + offsets.entry(slot).offset() + " " + offsets.entry(slot).position());
        TimeIndex times = new TimeIndex(new File(folder, "00000000000000000100.timeindex"), 100L, 1024, false);
        times.sanityCheck();
        for (int slot = 0; slot < times.entries(); slot++)
            System.out.println("time " + times.entry(slot).timestamp() + " " + times.entry(slot).offset());
        TransactionIndex aborted = new TransactionIndex(100L, new File(folder, "00000000000000000100.txnindex"));
        aborted.sanityCheck();
        for (AbortedTxn txn : aborted.allAbortedTxns())
            System.out.println("aborted " + txn.producerId() + " " + txn.firstOffset() + " " + txn.lastOffset()
                + " " + txn.lastStableOffset());
    }

    static String describe(ProducerStateEntry entry) {
        StringBuilder text = new StringBuilder();
        text.append(entry.producerId()).append(' ').append(entry.producerEpoch()).append(' ')
            .append(entry.coordinatorEpoch()).append(' ').append(entry.lastTimestamp()).append(' ')
            .append(entry.currentTxnFirstOffset().orElse(-1L));
        for (BatchMetadata batch : entry.batchMetadata())
            text.append(' ').append(batch.lastSeq()).append(',').append(batch.lastOffset()).append(',')
                .append(batch.offsetDelta()).append(',').append(batch.timestamp());
        return text.toString();
    }

    final Path folder;
    final KafkaScheduler scheduler = new KafkaScheduler(1);
    final BrokerTopicStats stats = new BrokerTopicStats();
    final List<VerificationGuard> guards = new ArrayList<>();
    int logs = 0;
    UnifiedLog log;

    LogOracle(Path folder) {
        this.folder = folder;
        scheduler.startup();
    }

    // One command a line; after each, what it answered and the whole state of the producers.
    void script() throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            String answer;
            try {
                answer = perform(line.split(" "));
            } catch (Exception error) {
                answer = "error " + Errors.forException(error).name();
            }
            output.append(answer).append(" | ").append(log.firstUnstableOffset().orElse(-1L));
            new TreeMap<>(log.producerStateManager().activeProducers())
                .forEach((id, entry) -> output.append(" | ").append(describe(entry)));
            output.append('\n');
        }
        System.out.print(output);
        System.out.flush();
        System.exit(0);
    }

    String perform(String[] words) throws Exception {
        switch (words[0]) {
            case "log":
                File directory = Files.createDirectory(folder.resolve("t-" + logs++)).toFile();
                guards.clear();
                log = UnifiedLog.create(directory, new LogConfig(Map.of()), 0L, 0L, scheduler, stats, Time.SYSTEM,
                    900000, new ProducerStateManagerConfig(86400000, words[1].equals("1")), 600000, FAILURES, true,
                    Optional.of(Uuid.randomUuid()));
                return "ok";
            case "write":
                return appended(words[1], data(words), guard(words[7]), (short) 1);
            case "mark":
                return appended(words[1], marker(words), VerificationGuard.SENTINEL, Short.parseShort(words[6]));
            case "verify":
                VerificationGuard given = log.maybeStartTransactionVerification(Long.parseLong(words[1]),
                    Integer.parseInt(words[3]), Short.parseShort(words[2]), words[4].equals("1"));
                if (given == VerificationGuard.SENTINEL)
                    return "guard -1";
                if (!guards.contains(given))
                    guards.add(given);
                return "guard " + guards.indexOf(given);
            case "watermark":
                log.updateHighWatermark(Long.parseLong(words[1]));
                return "ok";
            case "expire":
                log.removeExpiredProducers(Long.parseLong(words[1]));
                return "ok";
            default:
                throw new IllegalStateException(words[0]);
        }
    }

    VerificationGuard guard(String number) {
        return number.equals("-1") ? VerificationGuard.SENTINEL : guards.get(Integer.parseInt(number));
    }

    // write <origin> <producer> <epoch> <sequence> <count> <transactional> <guard>
    MemoryRecords data(String[] words) {
        SimpleRecord[] records = new SimpleRecord[Integer.parseInt(words[5])];
        for (int number = 0; number < records.length; number++)
            records[number] = new SimpleRecord(1000L + log.logEndOffset(), "value".getBytes());
        long first = words[1].equals("R") ? log.logEndOffset() : 0L;
        long producer = Long.parseLong(words[2]);
        short epoch = Short.parseShort(words[3]);
        int sequence = Integer.parseInt(words[4]);
        return words[6].equals("1")
            ? MemoryRecords.withTransactionalRecords(first, Compression.NONE, producer, epoch, sequence, 0, records)
            : MemoryRecords.withIdempotentRecords(first, Compression.NONE, producer, epoch, sequence, 0, records);
    }

    // mark <origin> <producer> <epoch> <coordinator epoch> <abort> <version>
    MemoryRecords marker(String[] words) {
        EndTransactionMarker marker = new EndTransactionMarker(
            words[5].equals("1") ? ControlRecordType.ABORT : ControlRecordType.COMMIT, Integer.parseInt(words[4]));
        long first = words[1].equals("R") ? log.logEndOffset() : 0L;
        return MemoryRecords.withEndTransactionMarker(first, 1000L + log.logEndOffset(), 0, Long.parseLong(words[2]),
            Short.parseShort(words[3]), marker);
    }

    String appended(String origin, MemoryRecords records, VerificationGuard guard, short version) {
        LogAppendInfo info = origin.equals("R")
            ? log.appendAsFollower(records, 0)
            : log.appendAsLeader(records, 0, origin.equals("C") ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR,
                RequestLocal.noCaching(), guard, version);
        return "ok " + info.firstOffset() + " " + info.lastOffset();
    }
}
