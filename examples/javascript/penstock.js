// The message plane with nothing but fetch: push, pop, ack. Node 18 or later, or any browser.

const text = (value) => encodeURIComponent(value);

export class Penstock {
  constructor(url = "http://localhost:6632", { token } = {}) {
    this.url = url.replace(/\/$/, "");
    this.headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  }

  // Store messages; resolves when they are durable. A message that is sent again under its id is stored once.
  // When the queue is full, the server says how long to wait.
  async push(queue, messages, { partition } = {}) {
    const items = messages.map(({ id = crypto.randomUUID(), data }) => ({
      queue,
      partition,
      payload: data,
      transactionId: id,
    }));
    for (;;) {
      const answer = await this.#request("POST", "/api/v1/push", { items });
      if (answer.status !== 429) return this.#body(answer);
      const seconds = Number(answer.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000 * (0.8 + Math.random() * 0.4)));
    }
  }

  // Messages for a group, leased to the caller; waits for some for so long. Nothing: [].
  async pop(queue, { group, batch = 10, partitions = 1, waitMs = 30_000 } = {}) {
    const query = new URLSearchParams({ batch, partitions, wait: waitMs > 0, timeout: waitMs });
    if (group) query.set("consumerGroup", group);
    const answer = await this.#request("GET", `/api/v1/pop/queue/${text(queue)}?${query}`);
    if (answer.status === 204) return [];
    return (await this.#body(answer)).messages;
  }

  // Say what became of messages: completed, failed (it is tried again), retry (and that costs nothing) or dlq.
  // Throws if the server refuses, as it does when a lease has ended: the message is then delivered again.
  async ack(messages, status = "completed", error = null) {
    if (!messages.length) return;
    const acknowledgments = messages.map(({ transactionId, partitionId, leaseId }) => ({
      transactionId,
      partitionId,
      leaseId,
      status,
      error,
    }));
    const body = { acknowledgments, consumerGroup: messages[0].consumerGroup };
    const results = await this.#body(await this.#request("POST", "/api/v1/ack/batch", body));
    const refused = results.find((result) => !result.success);
    if (refused) throw new Error(`${refused.transactionId}: ${refused.error}`);
  }

  #request(method, path, body) {
    return fetch(this.url + path, { method, headers: this.headers, body: body && JSON.stringify(body) });
  }

  async #body(answer) {
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error ?? `HTTP ${answer.status}`);
    return body;
  }
}
