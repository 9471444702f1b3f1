import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.compress.*;
import org.apache.kafka.common.header.*;
import org.apache.kafka.common.header.internals.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*;
import java.nio.ByteBuffer;
import java.util.*;

public class KafkaBatches {
    static List<String> lines = new ArrayList<>();
    static void put(String name, ByteBuffer b) {
        ByteBuffer d = b.duplicate();
        StringBuilder s = new StringBuilder();
        while (d.hasRemaining()) s.append(String.format("%02x", d.get()));
        lines.add("  \"" + name + "\": \"" + s + "\"");
    }
    static Compression codec(String n) {
        switch (n) {
            case "gzip": return Compression.gzip().build();
            case "snappy": return Compression.snappy().build();
            case "lz4": return Compression.lz4().build();
            case "zstd": return Compression.zstd().build();
            default: return Compression.NONE;
        }
    }
    static byte[] b(String s) { return s == null ? null : s.getBytes(java.nio.charset.StandardCharsets.UTF_8); }
    static String repeat(char c, int n) { char[] a = new char[n]; Arrays.fill(a, c); return new String(a); }
    static MemoryRecords batch(byte magic, String name) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(1024);
        MemoryRecordsBuilder m = new MemoryRecordsBuilder(out, magic, codec(name), TimestampType.CREATE_TIME,
            100L, RecordBatch.NO_TIMESTAMP, -1L, (short) -1, -1, false, false, -1, 1 << 20);
        Header[] hs = magic == 2 ? new Header[]{new RecordHeader("trace", b("1")), new RecordHeader("ü", null)} : Record.EMPTY_HEADERS;
        m.append(1700000000000L, b("key"), b("value"), Record.EMPTY_HEADERS);
        m.append(1700000000500L, null, b("no key"), hs);
        m.append(1699999999999L, b("tombstone"), null, Record.EMPTY_HEADERS);
        m.append(1700000000100L, b("long"), b(repeat('x', 70000)), Record.EMPTY_HEADERS);
        return m.build();
    }
    public static void main(String[] a) {
        for (byte magic : new byte[]{0, 1, 2})
            for (String c : new String[]{"none", "gzip", "snappy", "lz4", "zstd"}) {
                if (magic < 2 && c.equals("zstd")) continue;
                if (c.equals("none")) continue;
                put("v" + magic + "_" + c, batch(magic, c).buffer());
            }
        for (byte magic : new byte[]{0, 1, 2})
            put("v" + magic + "_none", MemoryRecords.withRecords(magic, 7L, Compression.NONE, TimestampType.CREATE_TIME,
                -1L, (short) -1, -1, 5, false,
                new SimpleRecord(1700000000000L, b("key"), b("value")), new SimpleRecord(1700000000001L, null, b("v2")),
                new SimpleRecord(1699999999999L, b("k3"), (byte[]) null)).buffer());
        put("transactional", MemoryRecords.withTransactionalRecords((byte) 2, 40L, Compression.NONE, 77L, (short) 3, 12, 9,
            new SimpleRecord(1700000000000L, b("k"), b("v"))).buffer());
        ByteBufferOutputStream out = new ByteBufferOutputStream(1024);
        MemoryRecordsBuilder m = new MemoryRecordsBuilder(out, (byte) 2, Compression.NONE, TimestampType.LOG_APPEND_TIME,
            5L, 1700000009999L, -1L, (short) -1, -1, false, false, 2, 1 << 20);
        m.append(1L, b("k"), b("v")); m.append(2L, b("k"), b("v"));
        put("log_append_time", m.build().buffer());
        out = new ByteBufferOutputStream(1024);
        m = new MemoryRecordsBuilder(out, (byte) 2, Compression.NONE, TimestampType.CREATE_TIME,
            5L, -1L, -1L, (short) -1, -1, false, false, 2, 1 << 20, 1700000005000L);
        m.appendWithOffset(6L, 1700000000000L, b("k"), (byte[]) null);
        m.appendWithOffset(9L, 1700000000007L, b("k2"), b("v"));
        m.overrideLastOffset(12L);
        put("delete_horizon", m.build().buffer());
        ByteBuffer empty = ByteBuffer.allocate(61);
        DefaultRecordBatch.writeEmptyHeader(empty, (byte) 2, 77L, (short) 3, 15, 20L, 24L, 4, TimestampType.CREATE_TIME, 1700000000000L, true, false);
        empty.flip();
        put("empty", empty);
        put("commit", MemoryRecords.withEndTransactionMarker(50L, 1700000000000L, 9, 77L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 6)).buffer());
        put("abort", MemoryRecords.withEndTransactionMarker(50L, 1700000000000L, 9, 77L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 6)).buffer());
        Uuid u = new Uuid(1L, 2L);
        put("leader_change", MemoryRecords.withLeaderChangeMessage(60L, 1700000000000L, 9, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1).setVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(1), new LeaderChangeMessage.Voter().setVoterId(2)))
            .setGrantingVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(2)))).buffer());
        try { put("leader_change_v1", MemoryRecords.withLeaderChangeMessage(60L, 1700000000000L, 9, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setVersion((short) 1).setLeaderId(1).setVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(1).setVoterDirectoryId(u)))
            .setGrantingVoters(List.of())).buffer()); } catch (Throwable t) { System.err.println(t); }
        put("snapshot_header", MemoryRecords.withSnapshotHeaderRecord(0L, 1700000000000L, 9, ByteBuffer.allocate(512),
            new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(1699999999000L)).buffer());
        put("snapshot_footer", MemoryRecords.withSnapshotFooterRecord(8L, 1700000000000L, 9, ByteBuffer.allocate(512),
            new SnapshotFooterRecord().setVersion((short) 0)).buffer());
        put("kraft_version", MemoryRecords.withKRaftVersionRecord(1L, 1700000000000L, 9, ByteBuffer.allocate(512),
            new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) 1)).buffer());
        VotersRecord.EndpointCollection es = new VotersRecord.EndpointCollection();
        es.add(new VotersRecord.Endpoint().setName("CONTROLLER").setHost("localhost").setPort(9093));
        put("voters", MemoryRecords.withVotersRecord(2L, 1700000000000L, 9, ByteBuffer.allocate(512),
            new VotersRecord().setVersion((short) 0).setVoters(List.of(new VotersRecord.Voter().setVoterId(1).setVoterDirectoryId(u).setEndpoints(es)
            .setKRaftVersionFeature(new VotersRecord.KRaftVersionFeature().setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) 1))))).buffer());
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }
}
