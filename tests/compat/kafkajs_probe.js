// kafkajs produces and administers; prints what it finds as JSON. Its consumer knows groups only.
// Arguments: bootstrap servers, number of replicas, a topic with one partition, another's name.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [servers, replicas, topic, another] = process.argv.slice(2);
const complaints = [];

async function main() {
  const kafka = new Kafka({
    clientId: "probe",
    brokers: servers.split(","),
    // One second, if nothing is said, which is not enough for everybody on a busy machine.
    connectionTimeout: 30000,
    logLevel: logLevel.WARN,
    logCreator: () => ({ namespace, log }) => complaints.push(`${namespace}: ${log.message}`),
  });
  let sent = 0;
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    for (const [acks, idempotent] of [[0, false], [1, false], [-1, false], [-1, true]]) {
      const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 });
      await producer.connect();
      const messages = [];
      for (let number = 0; number < 5; number++) {
        messages.push({ key: "k", value: `${compression} ${acks} ${number}`, partition: 0 });
      }
      messages.push({ key: null, value: null, partition: 0, headers: { a: "1" } });
      await producer.send({ topic, acks, compression, messages });
      await producer.disconnect();
      sent += messages.length;
    }
  }
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({
    topics: [{ topic: another, numPartitions: 2, replicationFactor: Number(replicas) }],
  });
  await admin.createPartitions({ topicPartitions: [{ topic: another, count: 3 }] });
  let offsets = await admin.fetchTopicOffsets(topic);
  while (Number(offsets[0].high) < sent) {
    offsets = await admin.fetchTopicOffsets(topic);
  }
  await admin.deleteTopics({ topics: [another] });
  await admin.disconnect();
  console.log(JSON.stringify({ sent, offsets, complaints }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
