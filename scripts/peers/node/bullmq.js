'use strict';
const { Queue, Worker } = require('bullmq');
const { mode, count, connection, enqueue, job, tellAtEnd } = require('./common');

async function main() {
  if (mode === 'worker') {
    tellAtEnd();
    const worker = new Worker('bench', async ({ data }) => job(data), {
      connection: { ...connection, maxRetriesPerRequest: null },
      concurrency: count,
    });
    worker.on('error', (error) => console.error(error));
    return;
  }
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  // A job is due at its timestamp plus its delay.
  const options = (due, timestamp = Date.now()) =>
    due ? { removeOnComplete: true, timestamp, delay: due - timestamp } : { removeOnComplete: true };
  const made = ({ data, due }) => ({ name: 'job', data, opts: options(due) });
  if (mode === 'single' || mode === 'delayed') await enqueue(1, ([{ data, due }]) => queue.add('job', data, options(due)));
  else await enqueue(1000, (batch) => queue.addBulk(batch.map(made)));
  await queue.close();
}
main();
