// What the two queues for Node.js share: what is enqueued, what a job does, and what is told to the harness.
// A program is called with MODE COUNT [SPREAD_MS]; the modes are those of ../queues.py.
'use strict';
const fs = require('fs');

const [mode, count, spread] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const connection = { host: '127.0.0.1', port: Number(process.env.BENCH_PORT) };
const payload = JSON.parse(process.env.BENCH_PAYLOAD);
const FAR_MS = 5 * 86400 * 1000;
const LEAD_MS = 3000;

const now = () => performance.timeOrigin + performance.now();

/** The jobs of a mode, in arrays of at most `size`: payload, and when it is due or null. */
function* jobs(size) {
  const begun = Math.round(now());
  let batch = [];
  for (let n = 0; n < count; n++) {
    let due = null;
    if (mode === 'far') due = begun + FAR_MS + n;
    if (mode === 'delayed') due = begun + LEAD_MS + Math.round((spread * n) / count);
    batch.push({ due, data: mode === 'delayed' ? { ...payload, due } : payload });
    if (batch.length === size || n === count - 1) {
      yield batch;
      batch = [];
    }
  }
}

const seen = { count: 0, first: 0, last: 0, late: [] };

/** The job: it is counted, and when it began is noted. */
function job(data) {
  const at = now();
  if (seen.count++ === 0) seen.first = at;
  seen.last = at;
  if (data.due !== payload.due) seen.late.push(at - data.due);
}

/** A worker tells what it has run when it is asked to end. */
function tellAtEnd() {
  process.on('SIGTERM', () => {
    fs.writeFileSync(`${process.env.BENCH_OUT}/${process.pid}.json`, JSON.stringify(seen));
    process.exit(0);
  });
}

/** Enqueues all jobs, and prints how long that took. */
async function enqueue(size, save) {
  const begun = now();
  for (const batch of jobs(size)) await save(batch);
  console.log(JSON.stringify({ seconds: (now() - begun) / 1000 }));
}

module.exports = { mode, count, connection, enqueue, job, tellAtEnd };
