"""Writes a receipt for an order: {"order": 7, "items": [{"name": "tea", "cents": 450, "count": 2}]}"""

import time
import uuid

from hourhand import Job, Permanent, log


class Handler(Job):
    def run(self, order, job):
        if not order["items"]:
            raise Permanent(f"order {order['order']} has no items")
        log(f"attempt {job.attempt} of job {job.id}")
        return {
            "order": order["order"],
            "cents": sum(item["cents"] * item["count"] for item in order["items"]),
            "receipt": str(uuid.uuid4()),
            "issued_ms": time.time_ns() // 1_000_000,
        }
