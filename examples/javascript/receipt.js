// Writes a receipt for an order: {"order": 7, "items": [{"name": "tea", "cents": 450, "count": 2}]}
import { handle, logger, Permanent } from "./hourhand.js";

export const handler = handle((order, job) => {
  if (order.items.length === 0) throw new Permanent(`order ${order.order} has no items`);
  logger.info(`attempt ${job.attempt} of job ${job.id}`);
  return {
    order: order.order,
    cents: order.items.reduce((sum, item) => sum + item.cents * item.count, 0),
    receipt: crypto.randomUUID(),
    issued_ms: Date.now(),
  };
});
