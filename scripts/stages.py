#!/usr/bin/env python3
"""Where the time of a job goes: core time a job of each part, beside what the machine's cores had in all. `make bench-stages`.

A Redis of its own (append-only file every second, no rewrites), a runner of the release build, JOBS jobs of the `noop` example, all
waiting before the runner may claim. Threads are read from /proc while between a tenth and nine tenths of the jobs are done. Linux.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
BINARY = TOP / "target" / "release" / "hourhand"
JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
CONCURRENCY = sys.argv[2] if len(sys.argv) > 2 else "128"
PAYLOAD = '{"n":1,"text":"' + "x" * 133 + '"}'


class Redis:
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", folder, "--save", "", "--appendonly", "yes"]
            + ["--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0", "--loglevel", "warning"],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(100):
            try:
                self.link = socket.create_connection(("127.0.0.1", self.port))
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("redis-server does not answer")

    def ask(self, *words):
        self.link.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
        reply = self.link.makefile("rb")
        size = int(reply.readline()[1:])
        return reply.read(size + 2)[:-2].decode() if size >= 0 else ""

    def completed(self):
        return int(self.ask("HGET", "hourhand:{0}:totals", "noop:completed") or 0)

    def script_us(self):
        lines = self.ask("INFO", "commandstats").splitlines()
        return sum(int(line.split("usec=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_evalsha:"))


def threads_us(pid):
    """Core time of each group of threads, in microseconds."""
    groups = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        group = name if name in ("guest", "io") else "rest"
        groups[group] = groups.get(group, 0) + int((task / "schedstat").read_text().split()[0]) / 1_000
    return groups


def idle_us():
    idle, waiting = map(int, pathlib.Path("/proc/stat").read_text().split()[4:6])
    return (idle + waiting) * 1e6 / os.sysconf("SC_CLK_TCK")


def look(redis, runner):
    done = redis.completed()
    parts = {f"runner, {group} threads": us for group, us in threads_us(runner.pid).items()}
    of_redis = sum(threads_us(redis.process.pid).values())
    scripts = redis.script_us()
    parts |= {"Redis, in scripts": scripts, "Redis, the rest": of_redis - scripts, "idle": idle_us()}
    return time.monotonic(), done, parts


def measure(folder):
    redis = Redis(folder)
    runner = None
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOURHAND_") and key != "REDIS_URL"}
    env["HOURHAND_STORE"] = f"redis://127.0.0.1:{redis.port}"

    def hourhand(*words):
        subprocess.run([BINARY, *words], env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    try:
        handlers = pathlib.Path(folder, "handlers")
        handlers.mkdir()
        shutil.copy(TOP / "target" / "guests" / "noop.wasm", handlers)
        jobs = pathlib.Path(folder, "jobs.ndjson")
        jobs.write_text(f'{{"kind":"noop","payload":{PAYLOAD}}}\n' * JOBS)
        hourhand("queue", "pause", "noop")
        hourhand("enqueue", "--ndjson", str(jobs))
        command = [BINARY, "run", "--handlers", handlers, "--concurrency", CONCURRENCY, "--state-dir", folder]
        runner = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        hourhand("queue", "resume", "noop")
        while redis.completed() < JOBS / 10:
            time.sleep(0.02)
        start = look(redis, runner)
        while redis.completed() < JOBS * 9 / 10:
            time.sleep(0.05)
        return start, look(redis, runner)
    finally:
        for process in filter(None, (runner, redis.process)):
            process.send_signal(signal.SIGKILL)
            process.wait()


def main():
    with tempfile.TemporaryDirectory(dir=TOP / "target") as folder:
        (began, done_before, before), (ended, done, after) = measure(folder)
    jobs, cores = done - done_before, os.cpu_count()
    wall = (ended - began) * 1e6 / jobs
    each = {part: (us - before.get(part, 0)) / jobs for part, us in after.items()}
    print(f"{1e6 / wall:.0f} jobs a second, concurrency {CONCURRENCY}: {wall:.1f} us a job, {wall * cores:.1f} us of {cores} cores")
    for part, us in sorted(each.items(), key=lambda item: -item[1]):
        print(f"  {part:24} {us:6.1f} us  {100 * us / wall / cores:5.1f} %")
    print(f"  {'in all':24} {sum(each.values()):6.1f} us  {100 * sum(each.values()) / wall / cores:5.1f} %")
    print(json.dumps({"wall_us": wall, "cores": cores} | each))


main()
