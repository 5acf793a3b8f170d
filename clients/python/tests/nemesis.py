#!/usr/bin/env python3
"""Holders that lose their locks: nemesis.py URL FAULT N [SERVERPID] prints one JSON object.

N programs hold N locks. Each "writes" every millisecond after lock.check(). At a random moment each
program, its child, the pipe between them, or the server is killed or frozen, while somebody else
waits for the lock. Margins are the entry of the next holder minus the end of the work, in ms."""
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import fencelock  # noqa: E402

PROGRAM = os.environ.get("FENCELOCK_TEST_PROGRAM", "fencelock")
TTL = 2.0
PATIENCE = 60.0
now = fencelock._now


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def holder(url, name, program):
    """Holds a lock, and says when it wrote last, when its body ended, and why."""
    locks = fencelock.Locks(url, program=program)
    last = stopped = 0.0

    async def work():
        nonlocal last, stopped
        async with locks.lock(name, ttl=TTL) as lock:
            say("held", locks._running.proc.pid, lock.token)
            try:
                while True:
                    lock.check()
                    last = now()
                    await asyncio.sleep(0.001)
            finally:
                stopped = now()
    try:
        asyncio.run(work())
    except fencelock.LockLost:
        say("lost", last, stopped)
    sys.stdin.read()


def relay(args):
    """Is the child, and can be frozen as the pipe to it."""
    p = subprocess.Popen([PROGRAM] + args, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def pump(source, to):
        for data in iter(lambda: os.read(source, 65536), b""):
            os.write(to, data)
        os.close(to)
    threading.Thread(target=pump, args=(0, p.stdin.fileno()), daemon=True).start()
    pump(p.stdout.fileno(), 1)


def kill(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


class Run:
    def __init__(self, url, fault, n, server):
        self.url, self.fault, self.server = url, fault, server
        self.names = [f"{fault}-{os.getpid()}-{i}" for i in range(n)]
        self.holders, self.said, self.entered, self.hurt_at = {}, {x: {} for x in self.names}, {}, {}

    def wait(self, what, cond, limit=PATIENCE):
        end = time.monotonic() + limit
        while not cond() and time.monotonic() < end:
            time.sleep(0.01)
        if not cond():
            raise SystemExit(f"{self.fault}: not within {limit} s: {what}: {self.said} {self.entered}")

    def start(self):
        mode = "relayed" if self.fault == "stop-pipe" else "holder"
        for x in self.names:
            p = self.holders[x] = subprocess.Popen([sys.executable, __file__, mode, self.url, x],
                                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

            def listen(x=x, p=p):
                for line in p.stdout:
                    word, *rest = line.split()
                    self.said[x][word] = rest
            threading.Thread(target=listen, daemon=True).start()
        self.wait("all hold", lambda: all("held" in s for s in self.said.values()))

    async def follow(self, locks):
        async def one(x):
            async with locks.lock(x, ttl=30) as lock:
                self.entered[x] = (now(), lock.token)
        await asyncio.gather(*map(one, self.names))

    def hurt(self, x):
        time.sleep(random.random() * TTL)
        child, program = int(self.said[x]["held"][0]), self.holders[x].pid
        sig = signal.SIGKILL if self.fault.startswith("kill") else signal.SIGSTOP
        self.hurt_at[x] = now()
        if self.fault.endswith("program") or self.fault.endswith("both"):
            kill(program, sig)
        if not self.fault.endswith("program"):
            kill(child, sig)

    def run(self):
        self.start()
        with fencelock.Locks(self.url, program=PROGRAM) as locks:
            follower = threading.Thread(target=lambda: asyncio.run(self.follow(locks)), daemon=True)
            follower.start()
            self.wait("all wait", lambda: all(locks.status(x)["waiters"] for x in self.names))
            if self.fault == "stop-server":
                self.hurt_at = {x: now() for x in self.names}
                kill(self.server, signal.SIGSTOP)
                time.sleep(TTL * 2)
                kill(self.server, signal.SIGCONT)
            else:
                threads = [threading.Thread(target=self.hurt, args=(x,)) for x in self.names]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            frozen_files = self.url.startswith("file:") and self.fault.startswith("stop")
            if frozen_files:
                time.sleep(TTL)  # nobody may enter
            else:
                self.wait("all enter", lambda: len(self.entered) == len(self.names))
            early = len(self.entered)
            for x in self.names:
                kill(int(self.said[x]["held"][0]), signal.SIGCONT)
                kill(self.holders[x].pid, signal.SIGCONT)
            if not frozen_files and "kill-program" != self.fault:
                self.wait("all learn it", lambda: all("lost" in s for s in self.said.values()))
            for p in self.holders.values():
                p.kill()
                p.wait()
            follower.join(PATIENCE)
        return self.verdict(early)

    def verdict(self, early):
        def of(values):
            v = sorted(values)
            return [round(v[0], 1), round(v[len(v) // 2], 1), round(v[-1], 1)] if v else None
        lost = {x: [float(t) for t in s["lost"]] for x, s in self.said.items() if "lost" in s}
        both = [x for x in lost if x in self.entered]
        return {
            "fault": self.fault, "engine": self.url.split(":")[0], "runs": len(self.names), "entered": early, "lost": len(lost),
            "next": of((self.entered[x][0] - self.hurt_at[x]) * 1e3 for x in self.entered) if early else None,
            "margin": of((self.entered[x][0] - lost[x][1]) * 1e3 for x in both),
            "check": of((self.entered[x][0] - lost[x][0]) * 1e3 for x in both),
            "tokens": all(self.entered[x][1] > int(self.said[x]["held"][1]) for x in self.entered),
        }


if __name__ == "__main__":
    if sys.argv[1] == "pipe":  # this file is the program of a relayed holder
        relay(sys.argv[1:])
    elif sys.argv[1] == "holder":
        holder(sys.argv[2], sys.argv[3], PROGRAM)
    elif sys.argv[1] == "relayed":
        holder(sys.argv[2], sys.argv[3], os.path.abspath(__file__))
    else:
        print(json.dumps(Run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int((sys.argv[4:] or ["0"])[0])).run()))
