'use strict';
const Queue = require('bee-queue');
const { mode, count, connection, enqueue, job, tellAtEnd } = require('./common');

// No events and no jobs kept in memory, which cost it a third of its rate. delayedDebounce: its default lets
// delayed jobs wait up to a second for each other.
const lean = { redis: connection, getEvents: false, sendEvents: false, storeJobs: false };
const worker = { ...lean, removeOnSuccess: true, activateDelayedJobs: true, delayedDebounce: 1 };

async function main() {
  if (mode === 'worker') {
    tellAtEnd();
    const queue = new Queue('bench', worker);
    queue.on('error', (error) => console.error(error));
    queue.process(count, async ({ data }) => job(data));
    return;
  }
  const queue = new Queue('bench', { ...lean, isWorker: false });
  await queue.ready();
  const made = ({ data, due }) => (due ? queue.createJob(data).delayUntil(due) : queue.createJob(data));
  if (mode === 'single' || mode === 'delayed') await enqueue(1, ([one]) => made(one).save());
  else await enqueue(1000, (batch) => queue.saveAll(batch.map(made)));
  await queue.close();
}
main();
