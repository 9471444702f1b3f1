// Prints kafka_batches.json: record data of every format and codec, and control batches, as Apache
// Kafka writes them. Names and hexadecimal bytes; the tests know what is in them.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public class KafkaBatches {
    static final long NOW_MS = 1700000000000L;
    static final int EPOCH = 9;
    static final int ROOM = 1 << 20;
    static final Header[] NO_HEADERS = {};
    static final List<String> LINES = new ArrayList<>();

    public static void main(String[] arguments) {
        compressed();
        plain();
        withTimestamps();
        ofTransactions();
        ofTheMetadataLog();
        System.out.println("{\n" + String.join(",\n", LINES) + "\n}");
    }

    static void put(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        LINES.add("  \"" + name + "\": \"" + HexFormat.of().formatHex(bytes) + "\"");
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static MemoryRecordsBuilder builder(
        int magic, CompressionType codec, TimestampType type, long offset, long appendTime, int epoch,
        long horizon
    ) {
        return new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1024), (byte) magic, Compression.of(codec).build(), type, offset,
            appendTime, -1L, (short) -1, -1, false, false, epoch, ROOM, horizon);
    }

    static void compressed() {
        for (int magic = 0; magic <= 2; magic++)
            for (CompressionType codec : CompressionType.values()) {
                if (codec == CompressionType.NONE) continue;
                if (codec == CompressionType.ZSTD && magic < 2) continue;
                MemoryRecordsBuilder builder =
                    builder(magic, codec, TimestampType.CREATE_TIME, 100L, -1L, -1, -1L);
                Header[] headers = magic < 2 ? NO_HEADERS : new Header[] {
                    new RecordHeader("trace", bytes("1")), new RecordHeader("ü", null)};
                builder.append(NOW_MS, bytes("key"), bytes("value"), NO_HEADERS);
                builder.append(NOW_MS + 500, null, bytes("no key"), headers);
                builder.append(NOW_MS - 1, bytes("tombstone"), null, NO_HEADERS);
                builder.append(NOW_MS + 100, bytes("long"), bytes("x".repeat(70000)), NO_HEADERS);
                put("v" + magic + "_" + codec.name, builder.build().buffer());
            }
    }

    static void plain() {
        for (int magic = 0; magic <= 2; magic++)
            put("v" + magic + "_none", MemoryRecords.withRecords(
                (byte) magic, 7L, Compression.NONE, TimestampType.CREATE_TIME, -1L, (short) -1, -1, 5,
                false, new SimpleRecord(NOW_MS, bytes("key"), bytes("value")),
                new SimpleRecord(NOW_MS + 1, null, bytes("v2")),
                new SimpleRecord(NOW_MS - 1, bytes("k3"), (byte[]) null)).buffer());
    }

    static void withTimestamps() {
        MemoryRecordsBuilder builder = builder(
            2, CompressionType.NONE, TimestampType.LOG_APPEND_TIME, 5L, NOW_MS + 9999, 2, -1L);
        builder.append(1L, bytes("k"), bytes("v"));
        builder.append(2L, bytes("k"), bytes("v"));
        put("log_append_time", builder.build().buffer());

        builder = builder(
            2, CompressionType.NONE, TimestampType.CREATE_TIME, 5L, -1L, 2, NOW_MS + 5000);
        builder.appendWithOffset(6L, NOW_MS, bytes("k"), (byte[]) null);
        builder.appendWithOffset(9L, NOW_MS + 7, bytes("k2"), bytes("v"));
        builder.overrideLastOffset(12L);
        put("delete_horizon", builder.build().buffer());
    }

    static void ofTransactions() {
        put("transactional", MemoryRecords.withTransactionalRecords(
            (byte) 2, 40L, Compression.NONE, 77L, (short) 3, 12, EPOCH,
            new SimpleRecord(NOW_MS, bytes("k"), bytes("v"))).buffer());
        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            empty, (byte) 2, 77L, (short) 3, 15, 20L, 24L, 4, TimestampType.CREATE_TIME, NOW_MS, true,
            false);
        put("empty", empty.flip());
        for (ControlRecordType type : List.of(ControlRecordType.COMMIT, ControlRecordType.ABORT))
            put(type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(
                50L, NOW_MS, EPOCH, 77L, (short) 3, new EndTransactionMarker(type, 6)).buffer());
    }

    static void ofTheMetadataLog() {
        put("leader_change", MemoryRecords.withLeaderChangeMessage(
            60L, NOW_MS, EPOCH, ByteBuffer.allocate(512), new LeaderChangeMessage().setLeaderId(1)
                .setVoters(List.of(voter(1), voter(2))).setGrantingVoters(List.of(voter(2)))).buffer());
        put("snapshot_header", MemoryRecords.withSnapshotHeaderRecord(
            0L, NOW_MS, EPOCH, ByteBuffer.allocate(512),
            new SnapshotHeaderRecord().setLastContainedLogTimestamp(NOW_MS - 1000)).buffer());
        put("snapshot_footer", MemoryRecords.withSnapshotFooterRecord(
            8L, NOW_MS, EPOCH, ByteBuffer.allocate(512), new SnapshotFooterRecord()).buffer());
        put("kraft_version", MemoryRecords.withKRaftVersionRecord(
            1L, NOW_MS, EPOCH, ByteBuffer.allocate(512),
            new KRaftVersionRecord().setKRaftVersion((short) 1)).buffer());
        VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
        endpoints.add(
            new VotersRecord.Endpoint().setName("CONTROLLER").setHost("localhost").setPort(9093));
        put("voters", MemoryRecords.withVotersRecord(
            2L, NOW_MS, EPOCH, ByteBuffer.allocate(512), new VotersRecord().setVoters(List.of(
                new VotersRecord.Voter().setVoterId(1).setVoterDirectoryId(new Uuid(1L, 2L))
                    .setEndpoints(endpoints).setKRaftVersionFeature(
                        new VotersRecord.KRaftVersionFeature().setMaxSupportedVersion((short) 1))))
        ).buffer());
    }

    static LeaderChangeMessage.Voter voter(int id) {
        return new LeaderChangeMessage.Voter().setVoterId(id);
    }
}
