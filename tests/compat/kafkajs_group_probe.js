// kafkajs in groups, and its transactions; prints what it finds as JSON.
// Arguments: bootstrap servers, and two topics with four partitions.
const { Kafka, logLevel } = require("kafkajs");

const [servers, source, target] = process.argv.slice(2);
const PARTITIONS = 4;
const RECORDS = 200;
const SECONDS = 90;
const EXPECTED = [
  "The group is rebalancing, so a rejoin is needed",
  "The group coordinator is not available",
  "another concurrent operation on the same transaction was ongoing",
];
const complaints = [];
const kafka = new Kafka({
  clientId: "probe",
  brokers: servers.split(","),
  // One second, if nothing is said, which is not enough for everybody on a busy machine.
  connectionTimeout: 30000,
  logLevel: logLevel.WARN,
  logCreator: () => ({ namespace, log }) => {
    // What every member hears when others come or go is no complaint, nor what the first one of a
    // cluster hears while the topic of groups is made, nor that the last transaction takes longer
    // to complete than a coordinator waits for it.
    const said = `${namespace}: ${log.message} ${log.error}`;
    if (!EXPECTED.some((words) => said.includes(words))) {
      complaints.push(said);
    }
  },
});

async function until(what, condition) {
  const deadline = Date.now() + SECONDS * 1000;
  while (!condition()) {
    if (Date.now() > deadline) {
      throw new Error(`not ${what} in time: ${JSON.stringify(complaints)}`);
    }
    await new Promise((done) => setTimeout(done, 10));
  }
}

// A consumer that commits what it has read when it is told to.
async function join(groupId) {
  const consumer = kafka.consumer({
    groupId,
    // Nobody is lost here, however long one has to wait for the processor.
    sessionTimeout: 60000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 200,
  });
  const member = { consumer, owned: [], read: [], next: {} };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = payload.memberAssignment[source] || [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.read.push(Number(message.value));
      member.next[partition] = String(Number(message.offset) + 1);
    },
  });
  return member;
}

function commit(member) {
  return member.consumer.commitOffsets(
    Object.entries(member.next).map(([partition, offset]) => ({
      topic: source,
      partition: Number(partition),
      offset,
    })),
  );
}

async function fill(first) {
  const producer = kafka.producer();
  await producer.connect();
  const messages = [];
  for (let number = first; number < first + RECORDS; number++) {
    messages.push({ value: String(number), partition: number % PARTITIONS });
  }
  await producer.send({ topic: source, messages });
  await producer.disconnect();
}

async function comeAndGo() {
  const group = `kafkajs-${source}`;
  const first = await join(group);
  await until("alone", () => first.owned.length === PARTITIONS);
  await fill(0);
  await until("read", () => first.read.length >= RECORDS);
  await commit(first);
  const second = await join(group);
  await until("shared", () => first.owned.length === 2 && second.owned.length === 2);
  first.next = {};
  await fill(RECORDS);
  await until("read again", () => first.read.length + second.read.length >= 2 * RECORDS);
  const ofSecond = second.read.length;
  await commit(first);
  await commit(second);
  await second.consumer.disconnect();
  await until("alone again", () => first.owned.length === PARTITIONS);
  await first.consumer.disconnect();
  const read = [...first.read, ...second.read].sort((one, other) => one - other);
  return { ofSecond, eachOnce: read.length === 2 * RECORDS && read.every((n, at) => n === at) };
}

async function transactions() {
  const consumerGroupId = `kafkajs-offsets-${source}`;
  const producer = kafka.producer({
    transactionalId: target,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  for (let number = 0; number < 6; number++) {
    const transaction = await producer.transaction();
    const messages = [];
    for (let partition = 0; partition < PARTITIONS; partition++) {
      messages.push({ value: `${number}-${partition}`, partition });
    }
    await transaction.send({ topic: target, messages });
    const partitions = [{ partition: 0, offset: String(number) }];
    await transaction.sendOffsets({ consumerGroupId, topics: [{ topic: source, partitions }] });
    await (number % 3 === 1 ? transaction.abort() : transaction.commit());
  }
  await producer.disconnect();
}

async function readCommitted(count) {
  const consumer = kafka.consumer({
    groupId: `kafkajs-reads-${target}`,
    readUncommitted: false,
    maxWaitTimeInMs: 200,
  });
  const values = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [target], fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => values.push(String(message.value)) });
  await until("everything", () => values.length >= count);
  await consumer.disconnect();
  return values.sort();
}

async function administration() {
  const groupId = `kafkajs-${source}`;
  const admin = kafka.admin();
  await admin.connect();
  const described = await admin.describeGroups([groupId]);
  // An end is answered before everybody has heard of it.
  const deadline = Date.now() + SECONDS * 1000;
  let committed;
  do {
    const [{ partitions }] = await admin.fetchOffsets({
      groupId: `kafkajs-offsets-${source}`,
      topics: [source],
    });
    committed = partitions.find(({ partition }) => partition === 0).offset;
  } while (committed !== "5" && Date.now() < deadline);
  await admin.resetOffsets({ groupId, topic: source, earliest: true });
  const [reset] = await admin.fetchOffsets({ groupId, topics: [source] });
  const deleted = await admin.deleteGroups([groupId]);
  await admin.disconnect();
  return {
    state: described.groups[0].state,
    committed,
    reset: reset.partitions.map(({ offset }) => offset),
    deleted: deleted.map(({ errorCode }) => errorCode),
  };
}

async function main() {
  const found = await comeAndGo();
  await transactions();
  const whole = await readCommitted(4 * PARTITIONS);
  console.log(JSON.stringify({ ...found, whole, ...(await administration()), complaints }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
