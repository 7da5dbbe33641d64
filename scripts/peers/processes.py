"""What a measurement starts: a Redis server of its own, and processes that end with it, whatever happens."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

# The same for everybody. A rewrite of the log would fall into one run and not into the other.
REDIS_SETTINGS = {"save": "", "appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Failure(Exception):
    """What could not be measured, and why."""


def end_with_parent() -> None:
    """In a child: a script that is killed leaves nothing running either."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A program with a session of its own, so that a terminal's Ctrl-C reaches it through us alone, and a log."""

    def __init__(self, command: list[str], log: Path, cwd: Path, env: dict | None = None):
        self.log = log
        with log.open("ab") as out:
            self.child = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          start_new_session=True, preexec_fn=end_with_parent)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        signal_session(self.child, signal.SIGKILL)
        self.child.wait()

    def check(self) -> None:
        """Fails if it has ended by itself."""
        if self.child.poll() is not None:
            raise Failure(f"a process ended with code {self.child.returncode}; its log ends:\n{tail(self.log)}")

    def end(self, patience_s: float = 30) -> None:
        """Asks it to end, and waits until it has."""
        self.child.terminate()
        try:
            self.child.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"a process did not end within {patience_s:.0f} s of SIGTERM") from None

    def peak_bytes(self) -> int:
        """The most resident memory that it and its children had, each by itself."""
        return sum(peak_bytes(pid) for pid in session(self.child.pid))


def signal_session(child: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended
            continue
        if int(stat.rpartition(")")[2].split()[3]) == leader:
            found.append(int(pid))
    return found


def peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def tail(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def run(command: list[str], cwd: Path, env: dict | None = None, patience_s: float = 300) -> str:
    """Runs a program to its end; what it printed."""
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace", start_new_session=True, preexec_fn=end_with_parent) as child:
        try:
            out, err = child.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{' '.join(command[:4])} took over {patience_s:.0f} s") from None
        finally:
            signal_session(child, signal.SIGKILL)
    if child.returncode:
        raise Failure(f"{' '.join(command[:4])} failed with code {child.returncode}:\n{err[-2000:]}")
    return out


class Redis:
    """A server on a free port with an empty folder, and one connection to it."""

    def __init__(self, folder: Path):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = [word for name, value in REDIS_SETTINGS.items() for word in (f"--{name}", value)]
        self.process = Process(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", *settings],
                               folder / "redis.log", folder)
        try:
            self.connect()
        except BaseException:
            self.process.__exit__()
            raise

    def connect(self) -> None:
        give_up = time.monotonic() + 10
        while True:
            self.process.check()
            try:
                self.wire = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.lines = self.wire.makefile("rb")
                return
            except OSError:
                if time.monotonic() > give_up:
                    raise Failure("redis-server does not answer") from None
                time.sleep(0.02)

    def __enter__(self) -> "Redis":
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.wire.close()
        self.process.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words: str) -> int | str:
        """A command whose answer is a number or a text."""
        parts = [f"*{len(words)}\r\n"] + [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        self.wire.sendall("".join(parts).encode())
        answer = self.lines.readline().decode().rstrip()
        kind, rest = answer[:1], answer[1:]
        if kind == ":":
            return int(rest)
        if kind == "$":
            return self.lines.read(int(rest) + 2)[:-2].decode()
        raise Failure(f"{words[0]} was answered with {answer or 'nothing'}")

    def memory_bytes(self) -> int:
        """What its data takes, without the buffers of its log, which come and go."""
        info = dict(line.split(":", 1) for line in self.ask("INFO", "memory").splitlines() if ":" in line)
        return int(info["used_memory"]) - int(info["mem_aof_buffer"]) - int(info["mem_clients_normal"])
