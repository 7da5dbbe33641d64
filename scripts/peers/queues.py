"""The queues that are measured: how each is installed, filled and run, and how one sees that all of its jobs are settled.

Every peer has a program of its own in node, celery or apalis, which takes a mode, how many jobs, and for `delayed` over how many milliseconds:
  worker    runs jobs, the number at once; at SIGTERM it writes how many it has run, when the first and the last began, and how late
  single    enqueues jobs one at a time, each awaited before the next
  bulk      enqueues jobs by the fastest call that the peer has
  far       the same, due in five days
  delayed   jobs due evenly over that time, from three seconds on
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from processes import Failure, Process, Redis, run

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = ROOT / "target" / "peers"
LEAD_S = 3
SETTLE_S = 3


def payload() -> str:
    """150 bytes of JSON, which the handler noop decodes too; its due time, an instant of 2001, stands for none."""
    fields = {"due": 1_000_000_000_000, "n": 0, "text": ""}
    fields["text"] = "x" * (150 - len(json.dumps(fields, separators=(",", ":"))))
    return json.dumps(fields, separators=(",", ":"))


PAYLOAD = payload()


@dataclass
class Run:
    """A run of waiting jobs."""

    per_second: float
    memory_bytes: int


@dataclass
class Peer:
    """A queue beside which Hourhand is measured."""

    name: str
    version: str
    setting: str
    # The part of the jobs that it gets, so that all runs take about as long.
    share: float
    # What install.sh is to install, which is also its folder.
    part: str
    program: list[str]
    workers: list[list[str]]
    # The keys that hold jobs which are not settled, and the command that counts them.
    unsettled: list[tuple[str, str]]
    has_bulk: bool = True

    def install(self) -> None:
        run([str(ROOT / "scripts/peers/install.sh"), self.part], ROOT, patience_s=1800)

    def env(self, redis: Redis) -> dict:
        out = redis.folder / "out"
        out.mkdir(exist_ok=True)
        return dict(os.environ, BENCH_PORT=str(redis.port), BENCH_PAYLOAD=PAYLOAD, BENCH_OUT=str(out))

    def enqueue(self, redis: Redis, mode: str, count: int, *more: str) -> float:
        """Enqueues jobs; seconds."""
        command = [*self.program, mode, str(count), *more]
        return json.loads(run(command, HOME / self.part, self.env(redis)).splitlines()[-1])["seconds"]

    def single(self, redis: Redis, count: int) -> float | None:
        return count / self.enqueue(redis, "single", count)

    def fill(self, redis: Redis, count: int) -> float | None:
        """Lets jobs wait; a second, if that was a bulk call."""
        seconds = self.enqueue(redis, "bulk", count)
        return count / seconds if self.has_bulk else None

    def fill_far(self, redis: Redis, count: int) -> None:
        self.enqueue(redis, "far", count)

    def left(self, redis: Redis) -> int:
        return sum(redis.ask(command, key) for command, key in self.unsettled)

    def start(self, redis: Redis) -> list[Process]:
        env = self.env(redis)
        return [Process(command, redis.folder / f"worker{n}.log", HOME / self.part, env)
                for n, command in enumerate(self.workers)]

    def until_settled(self, redis: Redis, workers: list[Process], patience_s: float, every_s: float) -> float:
        """When nothing was left, in milliseconds since 1970."""
        give_up = time.monotonic() + patience_s
        while self.left(redis):
            for worker in workers:
                worker.check()
            if time.monotonic() > give_up:
                raise Failure(f"{self.left(redis)} jobs were left after {patience_s:.0f} s")
            time.sleep(every_s)
        return time.time() * 1000

    def ended(self, redis: Redis, workers: list[Process], count: int) -> list[dict]:
        """Ends the workers; what each has run, together exactly so many jobs."""
        for worker in workers:
            worker.end()
        told = [json.loads(file.read_text()) for file in (redis.folder / "out").glob("*.json")]
        ran = sum(one["count"] for one in told)
        if ran != count:
            raise Failure(f"{ran} jobs ran of {count}")
        return [one for one in told if one["count"]]

    def work(self, redis: Redis, count: int) -> Run:
        """From the beginning of the first job until all are settled."""
        workers = self.start(redis)
        try:
            settled = self.until_settled(redis, workers, 180, 0.01)
            memory = sum(worker.peak_bytes() for worker in workers)
            told = self.ended(redis, workers, count)
        finally:
            stop(workers)
        first, last = min(one["first"] for one in told), max(one["last"] for one in told)
        return Run(count * 1000 / (max(settled, last) - first), memory)

    def lateness(self, redis: Redis, count: int, spread_ms: int) -> list[float]:
        """How long after their due times jobs began on idle workers, in milliseconds."""
        workers = self.start(redis)
        try:
            time.sleep(SETTLE_S)
            self.enqueue(redis, "delayed", count, str(spread_ms))
            time.sleep(spread_ms / 1000)
            self.until_settled(redis, workers, 60, 0.2)
            told = self.ended(redis, workers, count)
        finally:
            stop(workers)
        return [late for one in told for late in one["late"]]


class Hourhand:
    """The runner of this tree, driven by its own command line."""

    name = "hourhand"
    share = 1.0

    def __init__(self, binary: Path, guests: Path):
        self.binary = binary
        self.module = guests / "noop.wasm"
        if not self.module.exists() or not binary.exists():
            raise Failure(f"expected {binary} and {self.module}: make bench-peers builds them")
        self.kind = self.module.stem
        self.has_bench = "\n  bench " in run([str(binary), "--help"], ROOT)
        self.version = run([str(binary), "--version"], ROOT).split()[-1]
        self.setting = f"1 process, concurrency 128, handler {self.kind}, default retention; a fresh sandbox for each job"

    def home(self, redis: Redis) -> Path:
        home = redis.folder / "hourhand"
        if not home.exists():
            (home / "handlers").mkdir(parents=True)
            (home / "handlers" / self.module.name).write_bytes(self.module.read_bytes())
        return home

    def env(self, redis: Redis) -> dict:
        ours = {name: value for name, value in os.environ.items()
                if not name.startswith("HOURHAND_") and name != "REDIS_URL"}
        home = self.home(redis)
        return dict(ours, HOURHAND_STORE=f"redis://127.0.0.1:{redis.port}", HOURHAND_STATE_DIR=str(home / "state"),
                    HOURHAND_CACHE_DIR=str(HOME / "cache"))

    def ask(self, redis: Redis, *words: str) -> str:
        return run([str(self.binary), *words], self.home(redis), self.env(redis))

    def enqueue(self, redis: Redis, count: int, delay_ms: callable) -> float:
        """Enqueues jobs from a file; a second, the program's start and the reading of the file included."""
        lines = self.home(redis) / "jobs.ndjson"
        with lines.open("w") as out:
            for n in range(count):
                out.write(f'{{"kind":"{self.kind}","delay":"{delay_ms(n)}ms","payload":{PAYLOAD}}}\n')
        begun = time.monotonic()
        self.ask(redis, "enqueue", "--ndjson", str(lines))
        return count / (time.monotonic() - begun)

    def single(self, redis: Redis, count: int) -> float | None:
        """By `hourhand bench`, which enqueues a tenth of its jobs one at a time. None in a build without it."""
        if not self.has_bench:
            return None
        told = self.ask(redis, "bench", "throughput", "--jobs", str(10 * count), "--payload", str(len(PAYLOAD)),
                        "--rounds", "1", "--json")
        return json.loads(told)["throughput"]["enqueue_single_per_second"]

    def fill(self, redis: Redis, count: int) -> float | None:
        self.ask(redis, "queue", "pause", self.kind)
        return self.enqueue(redis, count, lambda _: 0)

    def fill_far(self, redis: Redis, count: int) -> None:
        self.enqueue(redis, count, lambda n: 5 * 86_400_000 + n)

    def start(self, redis: Redis) -> Process:
        runner = Process([str(self.binary), "run"], redis.folder / "runner.log", self.home(redis), self.env(redis))
        give_up = time.monotonic() + 60
        while "the runner serves" not in runner.log.read_text():
            runner.check()
            if time.monotonic() > give_up:
                raise Failure(f"the runner does not start:\n{runner.log.read_text()}")
            time.sleep(0.05)
        return runner

    def until_settled(self, redis: Redis, runner: Process, count: int, patience_s: float) -> None:
        """Looks ever more often as the end comes near: each look is a process that takes time from the runner."""
        begun = time.monotonic()
        while True:
            queue, = json.loads(self.ask(redis, "queue", "list", "--json"))["items"]
            done, took = queue["completed_total"], time.monotonic() - begun
            if queue["failed_total"]:
                raise Failure(f"jobs failed: {self.ask(redis, 'job', 'list', '--limit', '1')}")
            if done == count:
                break
            runner.check()
            if took > patience_s:
                raise Failure(f"{count - done} jobs were left after {patience_s:.0f} s")
            rest_s = (count - done) * took / done if done else 0.1
            time.sleep(min(max(rest_s / 2, 0.005), 1))
        if queue["ready"] or queue["running"]:
            raise Failure(f"expected {count} completed jobs and nothing else, got {queue}")

    def work(self, redis: Redis, count: int) -> Run:
        """From before the paused queue is told to resume, which is before the first job, until all are settled."""
        runner = self.start(redis)
        try:
            begun = time.monotonic()
            self.ask(redis, "queue", "resume", self.kind)
            self.until_settled(redis, runner, count, 180)
            took = time.monotonic() - begun
            memory = runner.peak_bytes()
            runner.end()
        finally:
            stop([runner])
        return Run(count / took, memory)

    def lateness(self, redis: Redis, count: int, spread_ms: int) -> list[float]:
        """As the runner has recorded it for each job: from its due time until its sandbox was begun."""
        runner = self.start(redis)
        try:
            time.sleep(SETTLE_S)
            self.enqueue(redis, count, lambda n: LEAD_S * 1000 + round(spread_ms * n / count))
            time.sleep(LEAD_S + spread_ms / 1000)
            self.until_settled(redis, runner, count, 60)
            jobs, more = [], []
            while more is not None:
                page = json.loads(self.ask(redis, "job", "list", "--json", "--limit", "1000", *more))
                jobs += page["items"]
                more = ["--cursor", page["cursor"]] if page["cursor"] else None
            runner.end()
        finally:
            stop([runner])
        return [job["lateness_ms"] for job in jobs]


def stop(processes: list[Process]) -> None:
    for process in processes:
        process.__exit__()


def celery_worker(number: int) -> list[str]:
    return [str(HOME / "celery/venv/bin/celery"), "--app", "app", "worker", "--pool", "threads", "--concurrency", "8",
            "--prefetch-multiplier", "64", "--without-gossip", "--without-mingle", "--loglevel", "error",
            "--hostname", f"w{number}@%h"]


APALIS = str(HOME / "apalis/release/apalis-peer")

PEERS = [
    Peer("bee-queue", "2.0.0", "2 processes, concurrency 50, events off, delayedDebounce 1 ms", 0.8, "node",
         ["node", "bee.js"], [["node", "bee.js", "worker", "50"]] * 2,
         [("LLEN", "bq:bench:waiting"), ("LLEN", "bq:bench:active"), ("ZCARD", "bq:bench:delayed")]),
    Peer("bullmq", "6.7.0", "1 process, concurrency 100, removeOnComplete", 0.5, "node",
         ["node", "bullmq.js"], [["node", "bullmq.js", "worker", "100"]],
         [("LLEN", "bull:bench:wait"), ("LLEN", "bull:bench:active"), ("ZCARD", "bull:bench:delayed")]),
    Peer("celery", "5.7.0", "2 processes, 8 threads each, prefetch 64, results ignored", 0.05, "celery",
         [str(HOME / "celery/venv/bin/python"), "app.py"], [celery_worker(1), celery_worker(2)],
         [("LLEN", "celery"), ("HLEN", "unacked")], has_bulk=False),
    Peer("apalis-redis", "1.0.0", "1 process, concurrency 100, batches of 100, locks and events off, heartbeat 1 s; "
         "let wait in steps of 5,000", 1.0, "apalis",
         [APALIS], [[APALIS, "worker", "100"]],
         [("LLEN", "bench:active"), ("ZCARD", "bench:scheduled"), ("SCARD", "bench:inflight:peer")]),
]
