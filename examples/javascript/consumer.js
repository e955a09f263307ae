// Consumes orders until none arrive for a while: node examples/javascript/consumer.js
// Several consumers can run. The orders of a customer go to one consumer at a time, in order.

import { Penstock } from "./penstock.js";

const penstock = new Penstock(process.env.PENSTOCK_URL);
const idleMs = Number(process.env.IDLE_MS ?? 5000);

for (;;) {
  const messages = await penstock.pop("shop.orders", { group: "packing", batch: 50, partitions: 3, waitMs: idleMs });
  if (!messages.length) break;
  for (const { partition, data } of messages) console.log(`${partition} order ${data.order}`);
  await penstock.ack(messages);
}
