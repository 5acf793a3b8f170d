"""The client of redis_lock.py as a program that `lab/foreign` checks: see docs/vectors.md."""

import sys, threading, time
from redis_lock import Client, Held


class Holder:
    """One lock, renewed by a thread. It says `lost` once, when the lock is lost."""

    def __init__(self, client):
        self.client, self.mutex, self.held = client, threading.Lock(), None

    def acquire(self, name, ttl, wait):
        try:
            lock, owner, token, end = self.client.acquire(name, ttl=ttl, wait=wait / 1000)
        except Held:
            return "held"
        with self.mutex:
            self.held = (lock, owner, token)
        threading.Thread(target=self.keep, args=(self.held, ttl, end), daemon=True).start()
        return f"granted {token}"

    def keep(self, held, ttl, end):
        """Renews until the lock is released or lost."""
        while True:
            time.sleep(max(0, min(ttl / 3000, end - time.monotonic())))
            with self.mutex:
                if self.held is not held:
                    return
                new = self.client.renew(*held, ttl) if time.monotonic() < end else None
                if new is None:
                    self.held = None
                    print("lost", flush=True)
                    return
                end = new

    def release(self):
        with self.mutex:
            held, self.held = self.held, None
            return "released" if held and self.client.release(*held) else "lost"


holder = Holder(Client(sys.argv[1]))
for line in sys.stdin:
    order, *args = line.split()
    answer = holder.acquire(args[0], int(args[1]), int(args[2])) if order == "acquire" else holder.release()
    print(answer, flush=True)
