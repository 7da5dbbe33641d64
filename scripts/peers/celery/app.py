"""Celery: its worker is started with `celery --app app worker`; this file enqueues when it is run, MODE COUNT [SPREAD_MS]."""

import datetime
import itertools
import json
import os
import sys
import time

from celery import Celery
from celery.signals import worker_shutdown

FAR_SECONDS, LEAD_SECONDS = 5 * 86400, 3
PAYLOAD = json.loads(os.environ["BENCH_PAYLOAD"])

app = Celery("bench", broker=f"redis://127.0.0.1:{os.environ['BENCH_PORT']}/0")
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)

# Each is one step for threads that share an interpreter.
counter = itertools.count(1)
seen = {"count": 0, "first": 0, "last": 0, "late": []}


@app.task(name="job")
def job(payload: dict) -> None:
    """The job: it is counted, and when it began is noted."""
    now = time.time() * 1000
    seen["first"] = seen["first"] or now
    seen["last"] = now
    next(counter)
    if payload["due"] != PAYLOAD["due"]:
        seen["late"].append(now - payload["due"])


@worker_shutdown.connect
def tell(**_: object) -> None:
    """A worker tells what it has run when it ends."""
    seen["count"] = next(counter) - 1
    with open(f"{os.environ['BENCH_OUT']}/{os.getpid()}.json", "w") as out:
        json.dump(seen, out)


def main() -> None:
    mode, count = sys.argv[1], int(sys.argv[2])
    app.connection_for_write().ensure_connection()
    begun = time.time()
    for n in range(count):
        payload, due = PAYLOAD, None
        if mode == "far":
            due = begun + FAR_SECONDS + n / 1000
        elif mode == "delayed":
            due = round(begun + LEAD_SECONDS + int(sys.argv[3]) / 1000 * n / count, 3)
            payload = dict(PAYLOAD, due=round(due * 1000))
        eta = due and datetime.datetime.fromtimestamp(due, datetime.timezone.utc)
        job.apply_async((payload,), eta=eta)
    print(json.dumps({"seconds": time.time() - begun}))


if __name__ == "__main__":
    main()
