// Delivers an event to a URL: {"url": "https://api.example.com/hooks", "event": {...}, "then": "delivered"}, and enqueues a job of the kind
// `then` when it has arrived. The manifest grants all that it reaches:
//   [allow]
//   http = ["https://api.example.com"]
//   state = true
//   enqueue = ["delivered"]
import { handle, Permanent, RetryAfter } from "./hourhand.js";
import { progress } from "hourhand:job/host@0.1.0";
import { enqueue } from "hourhand:job/jobs@0.1.0";
import { increment } from "hourhand:job/state@0.1.0";

export const handler = handle(async ({ url, event, then }, job) => {
  progress(10, `asking ${url}`);
  const answer = await fetch(url, {
    method: "POST",
    // The same for every attempt, so that the other side can tell a repeat.
    headers: { "content-type": "application/json", "idempotency-key": job.id },
    body: JSON.stringify(event),
  });
  if (answer.status === 429) throw new RetryAfter("too many requests", 60_000);
  if (answer.status >= 400 && answer.status < 500) throw new Permanent(`${url} says ${answer.status}`);
  if (!answer.ok) throw new Error(`${url} says ${answer.status}`);
  // Both become true together with this job's completion, or not at all.
  const deliveries = increment("deliveries", 1n);
  enqueue({
    kind: then,
    priority: "normal",
    due: { tag: "in", val: 0n },
    meta: [["of", job.id]],
    payload: new TextEncoder().encode(JSON.stringify({ url })),
  });
  return { status: answer.status, deliveries: Number(deliveries) };
});
