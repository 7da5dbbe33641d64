"""What turns a function into a handler: payloads and results as JSON, exceptions as outcomes."""

import json
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import host
from wit_world.imports.types import Failure_Decode, Failure_Permanent, Failure_Retry, Failure_Snooze, Retry


class Permanent(Exception):
    """Raise it where trying again cannot help: the job goes to the dead letters."""


class RetryAfter(Exception):
    """Raise it to be tried again after so many milliseconds, instead of what the backoff says."""

    def __init__(self, ms, message):
        super().__init__(message)
        self.ms = ms


class Snooze(Exception):
    """Raise it to come back after so many milliseconds (1000 at least); uses no attempt."""

    def __init__(self, ms):
        super().__init__(f"back in {ms} ms")
        self.ms = ms


def log(message, level="info"):
    """A line for the job's log: error, warn, info, debug or trace."""
    host.log(host.Level[level.upper()], str(message))


class Job(exports.Handler):
    """A handler. Its class is called `Handler` and has `run(self, payload, job)`: the job's payload, read as JSON (an empty one is
    None), and what is returned becomes its result: bytes as they are, all else as JSON. Any other exception than those above
    is a retry."""

    def run(self, payload, job):
        raise NotImplementedError("a Handler has a method run(self, payload, job)")

    def handle(self, job):
        try:
            payload = json.loads(job.payload) if job.payload else None
        except ValueError as error:
            raise Err(Failure_Decode(f"the payload is no JSON: {error}")) from None
        try:
            result = self.run(payload, job)
            if result is None:
                return b""
            return result if isinstance(result, bytes) else json.dumps(result).encode()
        except Permanent as error:
            raise Err(Failure_Permanent(str(error))) from None
        except Snooze as error:
            raise Err(Failure_Snooze(error.ms)) from None
        except RetryAfter as error:
            raise Err(Failure_Retry(Retry(str(error), error.ms))) from None
        except Exception as error:
            log(traceback.format_exc(), "error")
            raise Err(Failure_Retry(Retry(f"{type(error).__name__}: {error}", None))) from None
