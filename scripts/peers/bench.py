#!/usr/bin/env python3
"""Measures Hourhand beside other queues, in turns in one run: see "Beside other queues" in docs/performance.md.

Every measurement has a Redis server of its own. Writes a table to stdout, and everything that was seen to
target/peers/results.json. What fails is told and left out; then the exit code is 1."""

import argparse
import fcntl
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

import queues
from processes import REDIS_SETTINGS, Failure, Redis, run
from report import Measurement, percentile, summary, table

FULL = {"rounds": 5, "jobs": 200_000, "single": 5_000, "late": 1_000, "spread_ms": 10_000, "far": 250_000}
QUICK = {"rounds": 1, "jobs": 10_000, "single": 500, "late": 100, "spread_ms": 1_000, "far": 10_000}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [peer.name for peer in queues.PEERS]
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of {', '.join(names)} [default: all]")
    parser.add_argument("--rounds", type=number, help=f"how often each is measured [default: {FULL['rounds']}]")
    parser.add_argument("--jobs", type=number,
                        help=f"jobs of a run; slower peers get a part of them [default: {FULL['jobs']}]")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works: no figures to quote")
    parser.add_argument("--out", type=Path, default=queues.HOME / "results.json", help="where everything goes that was seen")
    given = parser.parse_args()
    unknown = sorted(set(given.peers) - set(names))
    if unknown:
        parser.error(f"expected peers of {', '.join(names)}, got {', '.join(unknown)}")
    given.sizes = dict(QUICK if given.quick else FULL)
    given.sizes.update({name: value for name in ("rounds", "jobs") if (value := getattr(given, name))})
    given.peers = [peer for peer in queues.PEERS if not given.peers or peer.name in given.peers]
    return given


def number(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text}")
    return value


class Bench:
    """The measurements, as far as they have come."""

    def __init__(self, sizes: dict):
        self.sizes = sizes
        self.measured: list[Measurement] = []
        self.failed: dict[str, str] = {}

    def failure(self, queue: str, what: str, why: object) -> None:
        """A queue that has failed is not asked again: it might take its whole patience each time."""
        self.failed[queue] = f"{what}: {why}"
        print(f"{queue}: {self.failed[queue]}", flush=True)

    def turn(self, queue, part: str, turn: int, beside: str | None = None) -> None:
        """One part of one queue, on a server of its own."""
        if queue.name in self.failed:
            return
        try:
            with Redis(queues.HOME / "redis") as redis:
                seen = getattr(self, part)(queue, redis)
        except Failure as why:
            self.failure(queue.name, part, why)
            return
        seen = {figure: value for figure, value in seen.items() if value is not None}
        self.measured += [Measurement(figure, queue.name, turn, value, beside) for figure, value in seen.items()]
        told = ", ".join(f"{figure} {value:,.2f}" for figure, value in seen.items())
        print(f"  round {turn}  {queue.name:<14}{told or part + ': not measured'}", flush=True)

    def runs(self, queue, redis: Redis) -> dict:
        count = max(1, round(self.sizes["jobs"] * queue.share))
        bulk = queue.fill(redis, count)
        seen = queue.work(redis, count)
        return {"run_per_second": seen.per_second, "bulk_per_second": bulk, "worker_mib": seen.memory_bytes / 2**20}

    def singles(self, queue, redis: Redis) -> dict:
        return {"single_per_second": queue.single(redis, self.sizes["single"])}

    def lateness(self, queue, redis: Redis) -> dict:
        late = queue.lateness(redis, self.sizes["late"], self.sizes["spread_ms"])
        if len(late) != self.sizes["late"]:
            raise Failure(f"{len(late)} jobs told how late they were, of {self.sizes['late']}")
        early = sum(one < -1 for one in late)
        if early:
            print(f"  {queue.name}: {early} jobs began more than 1 ms before they were due", flush=True)
        return {"late_p50_ms": percentile(late, 50), "late_p99_ms": percentile(late, 99), "late_max_ms": max(late)}

    def memory(self, queue, redis: Redis) -> dict:
        # A queue that takes long for it gets fewer, as in the runs.
        count = max(1, round(self.sizes["far"] * max(queue.share, 0.2)))
        empty = redis.memory_bytes()
        queue.fill_far(redis, count)
        time.sleep(1)
        return {"scheduled_bytes": (redis.memory_bytes() - empty) / count}

    def all(self, hourhand: queues.Hourhand, peers: list[queues.Peer]) -> None:
        for turn in range(1, self.sizes["rounds"] + 1):
            for peer in peers:
                for part in ("runs", "singles"):
                    self.turn(peer, part, turn, peer.name)
                    if peer.name not in self.failed:
                        self.turn(hourhand, part, turn, peer.name)
            for queue in (hourhand, *peers):
                self.turn(queue, "lateness", turn)
        for queue in (hourhand, *peers):
            self.turn(queue, "memory", 1)


def machine() -> dict:
    cpus = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {"cores": len(os.sched_getaffinity(0)), "cpu": cpus[0] if cpus else "unknown", "kernel": platform.release(),
            "redis": run(["redis-server", "--version"], queues.ROOT).split()[2].removeprefix("v="),
            "node": run(["node", "--version"], queues.ROOT).strip(), "python": platform.python_version()}


def explain(sizes: dict, here: dict, hourhand: queues.Hourhand, peers: list[queues.Peer]) -> None:
    print(f"""Machine: {here['cores']} cores, {here['cpu']}, Linux {here['kernel']}; Redis {here['redis']} on the same cores, a new server for
every measurement: {', '.join(f'{name} {value or "off"}' for name, value in REDIS_SETTINGS.items())}. Payload: {len(queues.PAYLOAD)} bytes of JSON.
Run: jobs wait, workers start; from the beginning of the first job until the queue's own keys (Hourhand: its counters) say that all
are settled. For Hourhand the time begins before its paused queue is told to resume, with the runner up. Jobs do nothing; a peer's counts itself.
One at a time: one connection, each job answered before the next. Hourhand: its own bench{'' if hourhand.has_bench else ', which this build does not have'}.
Bulk: the fastest call of a peer's client, 1,000 jobs a call, without its start; Hourhand: hourhand enqueue --ndjson FILE, with it.
Lateness: {sizes['late']:,} jobs due evenly over {sizes['spread_ms'] / 1000:g} s, workers idle; a peer's is taken in the job, Hourhand's is what its runner recorded
when it began the sandbox. Memory: of jobs due in five days, payload and all; the servers' data without buffers.
{sizes['rounds']} rounds of: for each peer, the peer and then Hourhand; ratios are medians over pairs measured one after the other.""")
    for queue in (hourhand, *peers):
        print(f"  {queue.name} {queue.version}: {queue.setting}; {round(sizes['jobs'] * queue.share):,} jobs a run")


def install(bench: Bench, peers: list[queues.Peer]) -> list[queues.Peer]:
    ready = []
    for peer in peers:
        print(f"installing {peer.name} {peer.version}", flush=True)
        try:
            peer.install()
            ready.append(peer)
        except Failure as why:
            bench.failure(peer.name, "not installed", why)
    return ready


def main() -> int:
    given = options()
    # Also where a shell has started it with Ctrl-C ignored, as it does in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(1))
    queues.HOME.mkdir(parents=True, exist_ok=True)
    alone = (queues.HOME / ".lock").open("w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("bench-peers: it runs in this folder already, and two would measure each other", file=sys.stderr)
        return 1
    try:
        binary = Path(os.environ.get("HOURHAND_BIN", queues.ROOT / "target/release/hourhand"))
        hourhand = queues.Hourhand(binary, queues.ROOT / "target/guests")
        here = machine()
    except (Failure, OSError) as why:
        print(f"bench-peers: {why}", file=sys.stderr)
        return 1
    bench = Bench(given.sizes)
    try:
        peers = install(bench, given.peers)
        explain(given.sizes, here, hourhand, peers)
        bench.all(hourhand, peers)
    except KeyboardInterrupt:
        bench.failure("all", "interrupted", "not everything was measured")
    names = [peer.name for peer in given.peers]
    print(table(bench.measured, names))
    given.out.write_text(json.dumps({
        "machine": here, "redis_settings": REDIS_SETTINGS, "sizes": given.sizes, "quick": given.quick, "failed": bench.failed,
        "queues": {queue.name: {"version": queue.version, "setting": queue.setting} for queue in (hourhand, *given.peers)},
        "summary": summary(bench.measured, names), "measurements": [vars(one) for one in bench.measured]}, indent=1) + "\n")
    print(f"\nEverything that was seen: {given.out}")
    for queue, why in bench.failed.items():
        print(f"{queue} failed: {why}", file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
