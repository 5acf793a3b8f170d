"""Replays docs/vectors/redis.jsonl against the client of redis_lock.py, without a server: each request
must be the recorded one, and is given the recorded answer. See docs/vectors.md."""

import json, pathlib, re, time
from redis_lock import Client, Held

VECTORS = pathlib.Path(__file__).parents[2] / "docs/vectors/redis.jsonl"


def cases():
    """Returns the steps of each case, by its name."""
    all = {}
    for line in VECTORS.read_text().splitlines():
        step = json.loads(line)
        if "case" in step:
            steps = all[step["case"]] = []
        else:
            steps.append(step)
    return all


class Replay(Client):
    """A client with recorded answers. Steps of other clients are those that it skips."""

    def __init__(self, steps, me):
        self.steps, self.me, self.values = list(steps), me, {}
        self.id, self.prefix, self.base, self.messages = self.value(f"$client{me}"), "", "fencelock:2:", self
        names = "acquire confirm touch renew release leave".split()
        self.scripts = {name: lambda keys, args, name=name: self.sent(name, keys, [str(a) for a in args]) for name in names}

    def value(self, name):
        """The value of a placeholder; one that nothing has bound gets the next number."""
        return self.values.setdefault(name, str(1_700_000_000_000_000 + len(self.values)))

    def fill(self, text):
        text = re.sub(r"\$ms<=(\d+)", r"\1", text).replace("$time", "1700000000000000")
        return re.sub(r"\$[a-z]+\d*", lambda m: self.value(m[0]), text)

    def match(self, recorded, sent):
        """Compares a text that the client sent, and binds the placeholders in it."""
        names, pattern = [], ""
        for part in re.split(r"(\$[a-z]+\d*)", recorded):
            if not part.startswith("$"):
                pattern += re.escape(part)
            elif part in self.values and part != "$until":
                pattern += re.escape(self.values[part])
            else:
                names.append(part)
                pattern += r"(\S+)"
        found = re.fullmatch(pattern, sent)
        assert found, f"sent {sent!r}, recorded {recorded!r}"
        self.values.update(zip(names, found.groups()))

    def mine(self, step):
        """Whether this client sends the request: it has the client's id, or an owner of the client."""
        text = " ".join(step.get("args", [])) + step.get("on", "")
        return f"$client{self.me}" in text or f"$owner{self.me}" in text

    def next(self, kind):
        while self.steps and not (kind in self.steps[0] and self.mine(self.steps[0])):
            self.steps.pop(0)
        assert self.steps, f"no {kind} was recorded here"
        return self.steps.pop(0)

    def sent(self, script, keys, args):
        step = self.next("script")
        assert script == step["script"], f"sent {script}, recorded {step}"
        assert len(keys) == len(step["keys"]) and len(args) == len(step["args"]), (keys, args, step)
        for recorded, sent in zip(step["keys"] + step["args"], keys + args):
            self.match(recorded, sent)
        return self.fill(step["answer"])

    def get_message(self, timeout):
        return {"type": "message", "data": self.fill(self.next("on")["message"])}

    def until(self, ms=2000):
        return 1_800_000_000_000_000


def free(c):
    lock = c.acquire("a", note="nightly run")[:3]
    assert c.renew(*lock, 30_000) > time.monotonic()
    c.next("script")  # a renewal that asks for what is left, which this client does not send
    assert c.release(*lock)


def expired(c):
    lock = c.acquire("a", ttl=200, note="nightly run")[:3]
    assert c.renew(*lock, 200) is None and not c.release(*lock)


def held(c):
    try:
        c.acquire("a", note="nightly run")
        raise SystemExit("it has a lock that another client holds")
    except Held:
        pass


def waits(c):
    lock = c.acquire("a", wait=10, note="nightly run")[:3]
    assert lock[2] == int(c.value("$token2"))
    assert c.release(*lock)


def asks_again(c):
    assert c.acquire("a", wait=10, note="nightly run")[2] == int(c.value("$token3"))


for case, me, drive in [
    ("a free lock is acquired, renewed and released", 1, free),
    ("an expired lock is lost, and free for the next one", 1, expired),
    ("a held lock is refused without a wait", 2, held),
    ("a waiter gets the released lock by a message, and confirms it", 2, waits),
    ("a grant that is not confirmed expires, and its waiter asks again", 2, asks_again),
]:
    drive(Replay(cases()[case], me))
    print("ok", case)
