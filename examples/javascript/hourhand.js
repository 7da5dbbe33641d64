// What turns a function into a handler: payloads and results as JSON, errors as outcomes.
import { log } from "hourhand:job/host@0.1.0";

/** Throw it where trying again cannot help: the job goes to the dead letters. */
export class Permanent extends Error {}

/** Throw it to be tried again after so many milliseconds, instead of what the backoff says. */
export class RetryAfter extends Error {
  constructor(ms, message) {
    super(message);
    this.ms = ms;
  }
}

/** Throw it to come back after so many milliseconds (1000 at least); uses no attempt. */
export class Snooze extends Error {
  constructor(ms) {
    super(`back in ${ms} ms`);
    this.ms = ms;
  }
}

/** Lines for the job's log. */
export const logger = Object.fromEntries(
  ["error", "warn", "info", "debug", "trace"].map((level) => [level, (message) => log(level, String(message))]),
);

/**
 * The handler that runs `run(payload, job)` for each job. It may be async. The payload is the job's, read as JSON; an empty
 * one is null. What is returned becomes the job's result: bytes as they are, all else as JSON. Any other error than
 * those above is a retry.
 */
export function handle(run) {
  return {
    async handle(job) {
      let payload = null;
      try {
        if (job.payload.length > 0) payload = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(job.payload));
      } catch (error) {
        throw { tag: "decode", val: `the payload is no JSON: ${error.message}` };
      }
      try {
        return toBytes(await run(payload, job));
      } catch (error) {
        throw toFailure(error);
      }
    },
  };
}

function toBytes(result) {
  if (result === undefined) return new Uint8Array();
  return result instanceof Uint8Array ? result : new TextEncoder().encode(JSON.stringify(result));
}

function toFailure(error) {
  if (error instanceof Permanent) return { tag: "permanent", val: error.message };
  if (error instanceof Snooze) return { tag: "snooze", val: BigInt(error.ms) };
  if (error instanceof RetryAfter) return { tag: "retry", val: { message: error.message, afterMs: BigInt(error.ms) } };
  if (error?.stack) logger.error(error.stack);
  return { tag: "retry", val: { message: String(error), afterMs: undefined } };
}
