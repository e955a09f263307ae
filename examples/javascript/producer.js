// Pushes orders with the customer as key: node examples/javascript/producer.js [count]

import { Penstock } from "./penstock.js";

const penstock = new Penstock(process.env.PENSTOCK_URL);
const count = Number(process.argv[2] ?? 100);

for (let n = 0; n < count; n += 10) {
  const customer = `customer-${(n / 10) % 3}`;
  const orders = Array.from({ length: Math.min(10, count - n) }, (_, i) => ({
    id: `order-${n + i}`,
    data: { order: n + i, customer },
  }));
  const results = await penstock.push("shop.orders", orders, { partition: customer });
  const stored = results.filter((result) => result.status === "queued").length;
  console.log(`${customer}: ${stored} stored, ${results.length - stored} known already`);
}
