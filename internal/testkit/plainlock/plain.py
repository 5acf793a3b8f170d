"""Locks on Redis as programs without a library write them. The standard library only.

plain.py KIND KEY TTL ADDRESS...: reads commands from standard input, a word or more per line, and
answers each with a line: yes, no, or the error of the server. TTL is in milliseconds.
"""
import os
import socket
import sys
import time

COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
COMPARE_AND_EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"


class Refused(Exception):
    """An error that the server answered with."""


class Redis:
    """A connection; RESP2."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.file = socket.create_connection((host, int(port)), timeout=60).makefile("rwb")

    def __call__(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            data = str(word).encode()
            self.file.write(b"$%d\r\n%s\r\n" % (len(data), data))
        self.file.flush()
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        if kind != b"$":
            raise ConnectionError(f"an answer of another kind: {line!r}")
        if rest == b"-1":
            return None
        return self.file.read(int(rest) + 2)[:-2].decode()


class Plain:
    """SET NX PX. Renews with EXPIRE, whoever holds the key. Releases with GET, then DEL."""

    def __init__(self, key, ttl, nodes):
        self.key, self.ttl, self.redis = key, ttl, nodes[0]
        self.value = None

    def acquire(self):
        self.value = os.urandom(16).hex()
        return self.redis("SET", self.key, self.value, "NX", "PX", self.ttl) == "OK"

    def renew(self):
        return self.redis("EXPIRE", self.key, max(self.ttl // 1000, 1)) == 1

    def look(self):
        """The first half of a release."""
        return self.redis("GET", self.key) == self.value

    def delete(self):
        """The second half of a release."""
        return self.redis("DEL", self.key) == 1

    def release(self):
        return self.look() and self.delete()


class RedisPy(Plain):
    """As the Lock of redis-py: renewals and releases are scripts that compare the value."""

    def renew(self):
        return self.redis("EVAL", COMPARE_AND_EXTEND, 1, self.key, self.value, self.ttl) == 1

    def release(self):
        return self.redis("EVAL", COMPARE_AND_DELETE, 1, self.key, self.value) == 1


class Redlock:
    """The textbook algorithm on several masters."""

    def __init__(self, key, ttl, nodes):
        self.key, self.ttl, self.nodes = key, ttl, nodes
        self.value = None

    def majority(self, ask):
        """Whether a majority says yes, before the lock would have expired."""
        begun = time.monotonic()
        votes = sum(1 for node in self.nodes if ask(node))
        left = self.ttl / 1000 - (time.monotonic() - begun) - (self.ttl / 1000 * 0.01 + 0.002)
        return votes > len(self.nodes) // 2 and left > 0

    def acquire(self):
        self.value = os.urandom(16).hex()
        if self.majority(lambda node: node("SET", self.key, self.value, "NX", "PX", self.ttl) == "OK"):
            return True
        self.release()
        return False

    def renew(self):
        return self.majority(lambda node: node("EVAL", COMPARE_AND_EXTEND, 1, self.key, self.value, self.ttl) == 1)

    def release(self):
        freed = [node("EVAL", COMPARE_AND_DELETE, 1, self.key, self.value) for node in self.nodes]
        return sum(freed) > len(self.nodes) // 2


def work(lock, node, times, counter):
    """Adds to a counter under the lock, so that an addition is lost if two hold it at a time."""
    for _ in range(int(times)):
        while not lock.acquire():
            time.sleep(0.005 + os.urandom(1)[0] / 20_000)
        count = int(node("GET", counter) or 0)
        if not lock.renew():
            return False
        node("SET", counter, count + 1)
        if not lock.release():
            return False
    return True


def main():
    kind, key, ttl = sys.argv[1], sys.argv[2], int(sys.argv[3])
    nodes = [Redis(address) for address in sys.argv[4:]]
    lock = {"plain": Plain, "redis-py": RedisPy, "redlock": Redlock}[kind](key, ttl, nodes)
    for line in sys.stdin:
        command, *words = line.split()
        try:
            done = work(lock, nodes[0], *words) if command == "work" else getattr(lock, command)()
            print("yes" if done else "no", flush=True)
        except Refused as error:
            print(error, flush=True)


main()
