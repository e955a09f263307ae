// Sends what Queen's JavaScript client sends for two recipes, with fetch: a rate limit, and aggregates per customer.
// Arguments: the URL of the server, and a prefix for names.

import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";

const [url, name] = process.argv.slice(2);
const SEPARATOR = "\u001f";

async function send(method, path, body) {
  const response = await fetch(url + path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

const post = (path, body) => send("POST", path, body);

const createQueue = (queue, options) => post("/api/v1/configure", { queue, namespace: null, task: null, options });

const push = (queue, partition, payloads) =>
  post("/api/v1/push", {
    items: payloads.map((payload) => ({ queue, partition, payload, transactionId: randomUUID(), traceId: undefined })),
  });

async function pop(queue, group, batch, { partitions = 1, timeout = 500 } = {}) {
  const query = new URLSearchParams({ batch, wait: true, timeout, consumerGroup: group, partitions, autoAck: false });
  const answer = await send("GET", `/api/v1/pop/queue/${encodeURIComponent(queue)}?${query}`);
  return answer?.messages ?? [];
}

const ack = (messages, consumerGroup) =>
  post("/api/v1/ack/batch", {
    acknowledgments: messages.map(({ transactionId, partitionId, leaseId }) => ({
      transactionId,
      partitionId,
      leaseId,
      status: "completed",
      error: null,
    })),
    consumerGroup,
  });

async function register(queryId, source, sink, operators) {
  const hash = createHash("sha256").update(JSON.stringify(operators)).digest("hex");
  const body = { name: queryId, source_queue: source, sink_queue: sink, config_hash: hash, reset: true };
  return (await post("/streams/v1/queries", body)).query_id;
}

async function readState(query_id, partition_id, more = {}) {
  const { rows } = await post("/streams/v1/state/get", { query_id, partition_id, keys: [], ...more });
  return new Map(rows.map(({ key, value }) => [key, value]));
}

function byPartition(messages) {
  const groups = new Map();
  for (const message of messages) {
    groups.set(message.partitionId, [...(groups.get(message.partitionId) ?? []), message]);
  }
  return groups;
}

const lastAck = (messages) => ({
  transactionId: messages.at(-1).transactionId,
  leaseId: messages.at(-1).leaseId,
  status: "completed",
  count: messages.length,
});

// A burst of 30 requests passes a bucket of 10 tokens in order. Denied requests come back when the lease ends.
async function rateLimit() {
  const [source, sink, queryId] = [`${name}.requests`, `${name}.approved`, `${name}-limiter`];
  await createQueue(source, { leaseTime: 1, retryLimit: 1000 });
  await createQueue(sink, {});
  await push(source, "tenant-A", Array.from({ length: 30 }, (_, seq) => ({ seq })));
  const query = await register(queryId, source, sink, [{ kind: "gate" }, { kind: "sink" }]);
  const arrived = [];
  while (arrived.length < 30) {
    for (const [partitionId, messages] of byPartition(await pop(source, `streams.${queryId}`, 10))) {
      const now = Date.now();
      const state = (await readState(query, partitionId)).get(partitionId) ?? { tokens: 10, lastRefillAt: now };
      state.tokens = Math.min(10, state.tokens + (Math.max(0, now - state.lastRefillAt) / 1000) * 20);
      state.lastRefillAt = now;
      const allowed = messages.slice(0, Math.floor(state.tokens));
      if (!allowed.length) continue;
      state.tokens -= allowed.length;
      state.allowedTotal = (state.allowedTotal ?? 0) + allowed.length;
      state.consumedTotal = (state.consumedTotal ?? 0) + allowed.length;
      const done = await post("/streams/v1/cycle", {
        query_id: query,
        partition_id: partitionId,
        consumer_group: `streams.${queryId}`,
        state_ops: [{ type: "upsert", key: partitionId, value: state }],
        push_items: allowed.map(({ data, partition }) => ({ queue: sink, partition, payload: data })),
        ack: lastAck(allowed),
        release_lease: allowed.length === messages.length,
      });
      assert.equal(done.success, true, done.error);
      assert.equal(typeof done.server_time_ms, "number");
    }
    const batch = await pop(sink, "caller", 10, { timeout: 50 });
    arrived.push(...batch.map((message) => message.data.seq));
    if (batch.length) await ack(batch, "caller");
  }
  assert.deepEqual(arrived, Array.from({ length: 30 }, (_, seq) => seq));
}

// Count, sum and maximum of each customer in windows of a second. Windows of quiet customers are closed without a lease.
async function aggregates() {
  const [source, sink, queryId] = [`${name}.events`, `${name}.totals`, `${name}-totals`];
  await createQueue(source, { leaseTime: 30 });
  await createQueue(sink, { leaseTime: 30 });
  const query = await register(queryId, source, sink, [{ kind: "window-tumbling", seconds: 1 }, { kind: "aggregate" }]);
  const pushed = Array.from({ length: 60 }, (_, n) => ({ customer: `cust-${n % 6}`, amount: (n * 37) % 100 }));
  for (const event of pushed) await push(source, event.customer, [event]);
  const partitions = new Map();
  const closed = [];

  const emit = (partitionId, windows) =>
    windows.map(({ acc, windowStart }) => ({
      queue: sink,
      partition: partitions.get(partitionId),
      payload: { ...acc, windowStart },
    }));

  const commit = (partition_id, more) =>
    post("/streams/v1/cycle", {
      query_id: query,
      partition_id,
      consumer_group: `streams.${queryId}`,
      state_ops: [],
      push_items: [],
      ack: null,
      release_lease: true,
      ...more,
    });

  while (closed.reduce((total, window) => total + window.count, 0) < pushed.length) {
    const popped = await pop(source, `streams.${queryId}`, 200, { partitions: 4, timeout: 100 });
    for (const [partitionId, messages] of byPartition(popped)) {
      partitions.set(partitionId, messages[0].partition);
      const state = await readState(query, partitionId);
      const touched = new Map();
      for (const { data, createdAt } of messages) {
        const windowStart = Math.floor(Date.parse(createdAt) / 1000) * 1000;
        const key = ["tumb:1", new Date(windowStart).toISOString(), partitionId].join(SEPARATOR);
        const window = state.get(key) ?? { acc: { count: 0, sum: 0, max: 0 }, windowStart, windowEnd: windowStart + 1000 };
        window.acc.count += 1;
        window.acc.sum += data.amount;
        window.acc.max = Math.max(window.acc.max, data.amount);
        state.set(key, window);
        touched.set(key, window);
      }
      const state_ops = [...touched].map(([key, value]) => ({ type: "upsert", key, value }));
      const done = await commit(partitionId, { state_ops, ack: lastAck(messages) });
      assert.equal(done.success, true, done.error);
    }
    for (const partitionId of partitions.keys()) {
      const ripe = await readState(query, partitionId, {
        key_prefix: `tumb:1${SEPARATOR}`,
        ripe_at_or_before: Date.now(),
      });
      if (!ripe.size) continue;
      const state_ops = [...ripe.keys()].map((key) => ({ type: "delete", key }));
      // A partition that has got messages meanwhile is not idle: the next turn closes its windows.
      await commit(partitionId, { state_ops, push_items: emit(partitionId, [...ripe.values()]) });
    }
    const batch = await pop(sink, "billing", 100, { partitions: 10, timeout: 50 });
    closed.push(...batch.map((message) => ({ ...message.data, customer: message.partition })));
    if (batch.length) await ack(batch, "billing");
  }
  for (const customer of new Set(pushed.map((event) => event.customer))) {
    const amounts = pushed.filter((event) => event.customer === customer).map((event) => event.amount);
    const windows = closed.filter((window) => window.customer === customer);
    const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
    assert.equal(sum(windows.map((window) => window.count)), amounts.length);
    assert.equal(sum(windows.map((window) => window.sum)), sum(amounts));
    assert.equal(Math.max(...windows.map((window) => window.max)), Math.max(...amounts));
  }
}

await Promise.all([rateLimit(), aggregates()]);
