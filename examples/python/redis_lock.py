"""A client of the Redis protocol for exclusive locks, with redis-py: see docs/protocol.md."""

import os, pathlib, random, socket, time, uuid
import redis

LUA = pathlib.Path(__file__).parents[2] / "redislock/lua"
PARTS = {
    "acquire": "head clock token acquire_fast name alive acquire_queue rules queue blocked extend acquire",
    "confirm": "head clock token name rules extend begin confirm",
    "touch": "head clock token name alive rules queue blocked begin touch",
    "renew": "renew",
    "release": "head release_fast clock token name rules queue release",
    "leave": "head clock token name rules queue begin leave",
}
RETENTION = 7 * 24 * 3600 * 1000
SETTINGS = f"{RETENTION} 1 0"


class Held(Exception):
    pass


class Client:
    """One connection and one subscription. It waits for one lock at a time."""

    def __init__(self, url, prefix=""):
        self.r = redis.Redis.from_url(url, decode_responses=True)
        self.id = uuid.uuid4().hex
        self.prefix, self.base = prefix, prefix + "fencelock:2:"
        self.scripts = {
            name: self.r.register_script("".join((LUA / f"{p}.lua").read_text() for p in parts.split()))
            for name, parts in PARTS.items()
        }
        self.messages = self.r.pubsub()
        self.messages.subscribe(self.base + self.id)
        self.messages.get_message(timeout=5)  # the subscription is confirmed

    def call(self, script, lock, *args):
        run = self.scripts[script]
        return run(keys=[lock], args=[self.base, SETTINGS, *args])

    def until(self, ms=2000):
        seconds, micros = self.r.time()
        return seconds * 1_000_000 + micros + ms * 1000

    def acquire(self, name, ttl=30_000, wait=0.0, note=""):
        """Returns (lock, owner, token, deadline); waits for `wait` seconds."""
        lock, owner = f"{self.prefix}lock:{name}", str(uuid.uuid4())
        desc = f"{self.id} x 0 1 {ttl} 0 {os.getpid()} {socket.gethostname()} {note}"
        end, until = time.monotonic() + wait, self.until()
        try:
            sent = time.monotonic()
            word, *rest = self.call("acquire", lock, owner, desc, until, "w" if wait else "-", ttl, RETENTION).split(" ")
            if word in ("taken", "granted"):
                return lock, owner, int(rest[1]), deadline(sent, ttl)
            if word == "queued":
                return self.wait(lock, owner, desc, ttl, rest[1], rest[3:], end)
        except BaseException:
            self.call("leave", lock, owner, desc, until)
            raise
        raise Held(word, *rest)  # held, limit, quarantine, late

    def wait(self, lock, owner, desc, ttl, ticket, blocked, end):
        entry, lost, token = f"{owner} {desc}", False, None
        poll = next_poll(blocked)
        while time.monotonic() < end:
            message = self.messages.get_message(timeout=max(0, min(poll, end) - time.monotonic()))
            if message and message["type"] == "message":
                word, *rest = message["data"].split(" ")
                if word == "grant" and rest[0] == owner:
                    token = rest[1]
                elif word == "advance" and " ".join(rest) == lock:
                    poll = time.monotonic()
            if token is None and time.monotonic() >= poll:
                put_back = [ticket, entry] if lost else []
                known, *rest = self.call("touch", lock, self.id, self.until(), 0, entry, *put_back).split(" ")
                if known == "mine":  # granted, and the message was lost
                    token = rest[2]
                elif known == "late":
                    poll = time.monotonic()
                else:
                    lost = rest[0] == "0"
                    poll = time.monotonic() if lost else next_poll(rest[2:])
            if token is not None:
                sent = time.monotonic()
                if self.call("confirm", lock, owner, token, ttl, 0).startswith("ok"):
                    return lock, owner, int(token), deadline(sent, ttl)
                token, lost, poll = None, True, time.monotonic()  # the grant has expired
        raise Held("timeout")

    def renew(self, lock, owner, token, ttl):
        """Returns the new deadline, or None if the lock is lost. Call it every third of the TTL."""
        sent = time.monotonic()
        run = self.scripts["renew"]
        answer = run(keys=[lock], args=[f"fencelock:2 {owner} {token} ", ttl])
        return deadline(sent, ttl) if answer == "ok" else None

    def release(self, lock, owner, token):
        return self.call("release", lock, owner, token, uuid.uuid4().hex).startswith("ok")


def deadline(sent, ttl):
    return sent + ttl / 1000 * 0.98 - 0.010  # stop work before this


def next_poll(blocked):
    ms, why = int(blocked[0]), blocked[1]
    if why == "f":  # a program that does not publish its release
        return time.monotonic() + random.uniform(0.05, 0.15)
    return time.monotonic() + min(ms + random.uniform(1, 50) if ms >= 0 else 900, 900) / 1000
