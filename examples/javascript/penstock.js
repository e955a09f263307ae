// A client with push, pop and ack, using only fetch. It needs Node 18 or later, or a browser.

const encode = (value) => encodeURIComponent(value);

export class Penstock {
  constructor(url = "http://localhost:6632", { token } = {}) {
    this.url = url.replace(/\/$/, "");
    this.headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  }

  // Stores messages and resolves when they are durable. A message with a known id is not stored again.
  // If the queue is full, it waits for the time in the response and retries.
  async push(queue, messages, { partition } = {}) {
    const items = messages.map(({ id = crypto.randomUUID(), data }) => ({
      queue,
      partition,
      payload: data,
      transactionId: id,
    }));
    for (;;) {
      const response = await this.#request("POST", "/api/v1/push", { items });
      if (response.status !== 429) return this.#body(response);
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000 * (0.8 + Math.random() * 0.4)));
    }
  }

  // Returns messages for a group, leased to the caller. Waits up to waitMs; returns [] if there are none.
  async pop(queue, { group, batch = 10, partitions = 1, waitMs = 30_000 } = {}) {
    const query = new URLSearchParams({ batch, partitions, wait: waitMs > 0, timeout: waitMs });
    if (group) query.set("consumerGroup", group);
    const response = await this.#request("GET", `/api/v1/pop/queue/${encode(queue)}?${query}`);
    if (response.status === 204) return [];
    return (await this.#body(response)).messages;
  }

  // Acknowledges messages as completed, failed (retried), retry (retried without counting an attempt) or dlq.
  // Throws if the server refuses, for example because the lease has ended. The message is then delivered again.
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

  async #body(response) {
    const body = await response.json();
    if (!response.ok) throw new Error(body.error ?? `HTTP ${response.status}`);
    return body;
  }
}
