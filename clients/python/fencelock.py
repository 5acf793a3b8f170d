"""Locks that many processes share, for Python 3.9 and newer, on Redis, PostgreSQL, files and more.

    locks = fencelock.Locks("redis://localhost:6379")

    async with locks.lock("invoice:42", wait=5) as lock:   # or, in a thread: with locks.lock(...)
        await charge(42, token=lock.token)                 # is cancelled if the lock is lost

One child process, ``fencelock pipe``, holds all locks of a program, renews them, and waits in their
queues. A loss is told before another holder can enter, also if the child is killed or frozen. A
program that was frozen itself learns it at its next step: call ``lock.check()`` right before a write
that must not happen without the lock, or let the resource compare ``lock.token``.

After a fork, the new process has no lock of its parent, and a child of its own at its first use.
"""
from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import select
import subprocess
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional

__all__ = ["Locks", "Lock", "Taken", "FencelockError", "Held", "Unavailable", "LockLost", "Resigned", "MaxHold",
           "ConfigError", "Invalid", "Unsupported"]

_PROTOCOL = 1
_BEAT = 1.0  # seconds between two signs of life, at most
_STALL = 10.0  # seconds without a line of the child, after which requests fail
_RELEASE = 6.0  # seconds to wait for the answer to a release
_RESIGNED = 1.0  # seconds until a leader that has resigned is a candidate again

if hasattr(time, "CLOCK_BOOTTIME"):
    def _now() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine is suspended
else:  # macOS: time.monotonic stops, and the wall clock may be set
    _begun = time.time() - time.monotonic()

    def _now() -> float:
        return max(time.monotonic(), time.time() - _begun)


class FencelockError(Exception):
    """The base of all errors. held: who has the lock (host, pid, note, owner), if the error is Held."""
    held: Optional[Dict[str, Any]] = None


class Held(FencelockError): """Somebody else has the lock, or is earlier in the queue."""
class Unavailable(FencelockError): """The server or the child process does not answer. A retry may help."""
class LockLost(FencelockError): """The lock ended before it was released. Somebody else may have it soon."""
class Resigned(LockLost): """The leader gives way to another candidate."""
class MaxHold(FencelockError): """The lock was held for max_hold."""
class ConfigError(FencelockError): """The server or its configuration does not allow this. A retry does not help."""
class Invalid(FencelockError): """The arguments are invalid. A retry does not help."""
class Unsupported(FencelockError): """The engine does not have the feature."""


_CLASSES = {"held": Held, "unavailable": Unavailable, "lost": LockLost, "resigned": Resigned, "max_hold": MaxHold,
            "config": ConfigError, "invalid": Invalid, "unsupported": Unsupported, "cancelled": Unavailable}


def _close(*descriptors: int) -> None:
    for fd in descriptors:
        os.close(fd)


def _error(told: Dict[str, Any]) -> FencelockError:
    err = _CLASSES.get(told.get("class", ""), FencelockError)(told.get("text", ""))
    err.held = told.get("held")
    return err


class Taken(NamedTuple):
    """The answer of Locks.limit. retry: seconds until the same request can succeed, if ok is False."""
    ok: bool
    remaining: int
    retry: float


class _Claim:
    """One request. The mutex of the child guards all fields."""

    def __init__(self, child: "_Child", number: int, ttl: float, changed: Callable[[], None]):
        self.child, self.id, self.ttl, self.changed = child, number, ttl, changed
        self.answer: Optional[Dict[str, Any]] = None  # what was asked for
        self.error: Optional[FencelockError] = None  # why there is no answer, or no lock any more
        self.deadline: Optional[float] = None  # None: no lease
        self.most: Optional[float] = None  # the end of the maximum hold
        self.released = self.done = False  # the release was asked for; nothing follows

    def failure(self) -> Optional[FencelockError]:
        """Returns why the lock is not held at this moment. Exact after a pause too."""
        if self.child.pid != os.getpid():
            return LockLost("this process was forked while its parent had the lock")
        if self.error is None:
            now = _now()
            if self.most is not None and now >= self.most:
                self.child.fail(self, MaxHold("the maximum hold is over"))
            elif self.deadline is not None and now >= self.deadline:
                self.child.fail(self, LockLost("not renewed in time: the child or this program was stopped"))
        if self.error is None and (self.answer is None or self.released):
            return LockLost("the lock is not held")
        return self.error


class _Child:
    """A running ``fencelock pipe``. One thread reads its lines, sends signs of life and keeps the
    deadlines; it ends with the child."""

    def __init__(self, command: List[str], env: Dict[str, str]):
        with _starting:
            theirs, self.inp = os.pipe()
            self.out, answers = os.pipe()
            try:  # in a session of its own, since Ctrl-C is for the program, which then ends its locks
                self.proc = subprocess.Popen(command, stdin=theirs, stdout=answers, env=env, start_new_session=True)
            except OSError as err:
                _close(self.inp, self.out)
                raise Unavailable(f"{command[0]} does not start: {err}") from err
            finally:
                _close(theirs, answers)
            self.pid = os.getpid()
            _all.add(self)
        os.set_blocking(self.inp, False)  # a frozen child must not block the program
        self.mutex = threading.RLock()  # guards the fields below
        self.claims: Dict[int, _Claim] = {}
        self.next, self.alive, self.wanted, self.shut, self.backlog = 0, True, True, False, b""
        self.silent = 0.0  # how long the child has not answered, while this program ran
        self.why: FencelockError = Unavailable("the process fencelock pipe has ended")
        self.thread = threading.Thread(target=self.run, name="fencelock", daemon=True)
        self.thread.start()

    def ask(self, op: str, changed: Callable[[], None], ttl: float = 0.0, **fields: Any) -> _Claim:
        with self.mutex:
            if not self.alive:
                raise self.why
            self.next += 1
            claim = self.claims[self.next] = _Claim(self, self.next, ttl, changed)
            self.send(dict(fields, op=op, id=claim.id))
        return claim

    def send(self, request: Dict[str, Any]) -> None:  # under mutex
        request["at"] = _now()  # before the child measures anything
        self.backlog += json.dumps(request, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:  # under mutex
        try:
            while self.backlog and not self.shut:
                self.backlog = self.backlog[os.write(self.inp, self.backlog):]
        except OSError:
            pass  # it is full, until the child reads; or the child has ended, which its output tells

    def release(self, claim: _Claim) -> None:
        if self.pid != os.getpid():
            return
        with self.mutex:
            if not claim.released and not claim.done:
                claim.released = True
                if self.alive:
                    self.send({"op": "release", "id": claim.id})
                else:
                    self.forget(claim)

    def forget(self, claim: _Claim) -> None:  # under mutex
        claim.done = True
        self.claims.pop(claim.id, None)
        if not self.claims and not (self.alive and self.wanted):
            self.close()

    def close(self) -> None:  # under mutex, when no work is left: the guard of file locks may end
        if not self.shut:
            self.shut = True
            _close(self.inp)

    def fail(self, claim: _Claim, error: FencelockError) -> None:
        with self.mutex:
            if claim.error is not None:
                return
            claim.error = error
        claim.changed()

    def run(self) -> None:
        poll, rest, due = select.poll(), b"", 0.0  # due: when the next sign of life is sent
        poll.register(self.out, select.POLLIN)
        while True:
            with self.mutex:
                now, claims = _now(), list(self.claims.values())
                pause = min([_BEAT] + [c.ttl / 6 for c in claims if c.ttl])
                due = min(due, now + pause)
                if now >= due and not self.shut:
                    due = now + pause
                    self.silent += pause
                    if self.backlog:
                        self.flush()
                    else:
                        self.send({"op": "beat"})
            self.look(claims)
            ends = [t for c in claims if c.error is None for t in (c.deadline, c.most) if t is not None]
            if poll.poll(int(max(0.0, min([due] + ends) - _now()) * 1000) + 1):
                data = os.read(self.out, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.hear(json.loads(line))
        self.over()

    def look(self, claims: List[_Claim]) -> None:
        late = self.silent > _STALL
        for c in claims:
            if c.answer is not None:
                c.failure()
            elif late:
                self.fail(c, Unavailable("the process fencelock pipe does not answer"))
        if late and not any(c.answer is not None for c in claims):
            self.proc.kill()

    def over(self) -> None:
        with self.mutex:
            self.alive = False
            claims = list(self.claims.values())
            if not claims:
                self.close()
        for c in claims:
            self.fail(c, self.why if c.answer is None else LockLost(str(self.why)))
            with self.mutex:
                if c.released or c.answer is None:
                    self.forget(c)
        self.proc.wait()
        with self.mutex:
            _close(self.out)
            self.out = -1

    def _forked(self) -> None:  # or the child would not see the end of its program
        _close(*[fd for fd, opened in ((self.inp, not self.shut), (self.out, self.out >= 0)) if opened])
        self.shut, self.alive, self.out = True, False, -1

    def hear(self, told: Dict[str, Any]) -> None:
        with self.mutex:
            self.silent, at = 0.0, told.get("at", 0.0)
            for number, ms in told.get("left", {}).items():
                claim = self.claims.get(int(number))
                if claim is not None and claim.deadline is not None:
                    claim.deadline = at + ms / 1000
            claim = self.claims.get(told.get("id", 0))
            if claim is None:
                if "error" in told:
                    self.why = _error(told["error"])
                return
            error = None
            if "acquired" in told:
                got = told["acquired"]
                claim.deadline = at + got["left_ms"] / 1000 if "left_ms" in got else None
                claim.most = at + got["max_left_ms"] / 1000 if "max_left_ms" in got else None
                claim.answer = got
            elif "lost" in told:
                error = _error(told["lost"])
            elif "waiting" in told:
                return
            else:
                if told.get("ended") == "lost" or "error" in told:
                    error = _error(told.get("error", {"class": "lost", "text": "the lock was lost"}))
                elif "ended" not in told:
                    claim.answer = told
                elif not claim.released:
                    error = LockLost("the process fencelock pipe is ending")
                self.forget(claim)
            if error is not None and claim.error is None:
                claim.error = error
        claim.changed()


class Lock:
    """A lock to enter once, with ``with`` or ``async with``. See Locks.lock. token: the fencing token, greater than that of every earlier holder. Writes carry it, and the
    resource refuses a lower one than it has seen. floor: the lowest token that was still valid at the
    grant. owner: the unique id of this acquisition."""
    token: int
    floor: int
    owner: str

    def __init__(self, locks: "Locks", op: str, name: str, options: Dict[str, Any]):
        self._locks, self._op, self.name, self._options = locks, op, name, options
        self._claim: Any = None
        self._armed = self._fired = False  # in asyncio: a loss cancels the task; it has

    def check(self) -> None:
        """Raises LockLost or MaxHold if the lock is not held at this moment. It asks nobody and takes
        microseconds. Call it right before a write."""
        err = self._claim.failure()
        if err is not None:
            raise err

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment."""
        return self._claim.failure() is None

    def wait_lost(self, timeout: Optional[float] = None) -> bool:
        """Only after ``with``: waits until the lock is lost, for timeout seconds. Returns whether it is."""
        return self._changed.wait(timeout) or not self.held

    def _request(self, changed: Callable[[], None]) -> _Claim:
        if self._claim is not None:
            raise RuntimeError("a Lock can be entered only once")
        fields = dict(self._options, name=self.name)
        for field in ("wait", "ttl", "min_hold", "max_hold"):
            value = fields.pop(field, None)
            if value is not None:
                fields[field + "_ms"] = int(value * 1000)
        ttl = fields.get("ttl_ms", 30_000) / 1000
        self._claim = self._locks._child().ask(self._op, changed, ttl, **fields)
        return self._claim

    def _granted(self) -> None:
        got = self._claim.answer
        if got is None:
            raise self._claim.error or Unavailable("there was no answer")
        self.token, self.floor, self.owner = got["token"], got["floor"], got["owner"]

    @staticmethod
    def _raise(kind: Any, exc: Any, lost: Optional[FencelockError]) -> None:
        if lost is not None and (kind is None or issubclass(kind, Exception)) and exc is not lost:
            raise lost from exc

    def __enter__(self) -> "Lock":
        self._changed = threading.Event()
        claim = self._request(self._changed.set)
        try:
            self._changed.wait()
            self._granted()
        except BaseException:
            claim.child.release(claim)
            raise
        if claim.error is None:
            self._changed.clear()
        return self

    def __exit__(self, kind: Any, exc: Any, tb: Any) -> None:
        claim, lost = self._claim, self._claim.failure()
        if lost is None:
            self._changed.clear()
            claim.child.release(claim)
            self._changed.wait(_RELEASE)
            lost = claim.error
        else:
            claim.child.release(claim)
        self._raise(kind, exc, lost)

    async def __aenter__(self) -> "Lock":
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()

        def changed() -> None:  # in the thread of the child
            try:
                loop.call_soon_threadsafe(self._notice)
            except RuntimeError:
                pass  # the loop is closed

        claim = self._request(changed)
        try:
            await self._future
            self._granted()
        except BaseException:
            claim.child.release(claim)  # also a grant that is on its way
            raise
        self._task: Any = asyncio.current_task()
        self._before = self._task.cancelling() if hasattr(self._task, "cancelling") else 0
        self._armed = True
        if claim.error is not None:  # lost since the grant
            self._notice()
        return self

    def _notice(self) -> None:  # in the loop
        if not self._armed:
            if not self._future.done():
                self._future.set_result(None)
        elif self._claim.error is not None and not self._fired:
            self._fired = True
            self._task.cancel()

    async def __aexit__(self, kind: Any, exc: Any, tb: Any) -> None:
        self._armed = False
        claim, lost = self._claim, self._claim.failure()
        if self._fired:
            claim.child.release(claim)
            foreign = hasattr(self._task, "uncancel") and self._task.uncancel() > self._before
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                try:
                    await asyncio.sleep(0)  # the cancellation may not have reached the body
                except asyncio.CancelledError:
                    if foreign:
                        raise
            elif not foreign:
                raise lost from exc
        elif lost is None:
            self._future = asyncio.get_running_loop().create_future()
            claim.child.release(claim)
            if not claim.done:
                await asyncio.wait([self._future], timeout=_RELEASE)
            lost = claim.error
        else:
            claim.child.release(claim)
        self._raise(kind, exc, lost)


class Locks:
    """The locks of one URL. Use one for the whole program; the child starts with the first lock.
    url: such as redis://host:6379, postgres://user@host/db or file:///var/lib/app/locks. Without it,
    the environment variable FENCELOCK_URL counts, or else a directory of this user. program: the
    path of the command fencelock."""

    def __init__(self, url: Optional[str] = None, program: str = "fencelock"):
        self._command = [program, "pipe", "--protocol", str(_PROTOCOL)]
        self._env = dict(os.environ, **({"FENCELOCK_URL": url} if url else {}))  # an argument would show passwords
        self._mutex = threading.Lock()
        self._running: Optional[_Child] = None
        _all.add(self)

    def lock(self, name: str, wait: Optional[float] = None, **options: Any) -> Lock:
        """Returns a lock to enter. wait: seconds to wait for it; 0 does not wait, None waits as long as
        it takes. Then it raises Held. options: ttl, min_hold, max_hold (seconds), shared, limit (how many may
        hold it together), weight, note (a text for people), kind."""
        if options.get("limit"):
            options["shared"] = True
        return Lock(self, "acquire", name, dict(options, wait=wait))

    def exclusive(self, name: str, wait: Optional[float] = None, **options: Any) -> Callable[[Any], Any]:
        """Decorates a function or coroutine, which then runs under a lock. The name may use its
        arguments: ``@locks.exclusive("invoice:{number}")``."""
        def wrap(fn: Any) -> Any:
            signature = inspect.signature(fn)

            def named(args: Any, kw: Any) -> Lock:
                bound = signature.bind(*args, **kw)
                bound.apply_defaults()
                return self.lock(name.format(**bound.arguments), wait, **options)

            async def run_async(*args: Any, **kw: Any) -> Any:
                async with named(args, kw):
                    return await fn(*args, **kw)

            def run(*args: Any, **kw: Any) -> Any:
                with named(args, kw):
                    return fn(*args, **kw)
            return functools.wraps(fn)(run_async if inspect.iscoroutinefunction(fn) else run)
        return wrap

    def elect(self, name: str, work: Callable[[Lock], Any], value: str = "", rank: int = 0, **options: Any) -> Any:
        """Runs work(term) while this process leads, and again after each loss, until work returns;
        returns its result. If work is a coroutine function, a loss cancels it, and elect must be
        awaited; a function must look at term.held. value is published. rank: 0 is preferred."""
        options.update(note=value, rank=rank)

        def pause(lost: LockLost, term: Lock) -> float:
            if lost is not term._claim.error:
                raise lost  # of another lock
            return _RESIGNED if isinstance(lost, Resigned) else 0.0

        async def run() -> Any:
            while True:
                term = Lock(self, "elect", name, options)
                try:
                    async with term:
                        return await work(term)
                except LockLost as lost:
                    await asyncio.sleep(pause(lost, term))
        if inspect.iscoroutinefunction(work):
            return run()
        while True:
            term = Lock(self, "elect", name, options)
            try:
                with term:
                    return work(term)
            except LockLost as lost:
                time.sleep(pause(lost, term))

    def limit(self, name: str, rate: str, burst: int = 1, count: int = 1) -> Taken:
        """Takes events of a rate such as "100/m", which all processes share, if they are available now.
        In asyncio: ``await asyncio.to_thread(locks.limit, ...)``."""
        t = self._call("take", name=name, rate=rate, burst=burst, count=count)
        return Taken(t["ok"], t["remaining"], t["retry_ms"] / 1000)

    def status(self, name: str) -> Dict[str, Any]:
        """Who holds a lock and who waits, as ``fencelock status --json`` has it."""
        return self._call("status", name=name)

    def close(self) -> None:
        """Releases all locks, ends the child and its thread. The next use starts another child."""
        with self._mutex:
            child, self._running = self._running, None
        if child is not None:
            with child.mutex:
                child.wanted = False
                for claim in list(child.claims.values()):
                    child.fail(claim, LockLost("the locks were closed"))
                child.close()
            child.thread.join()

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def _call(self, op: str, **fields: Any) -> Any:
        done = threading.Event()
        claim = self._child().ask(op, done.set, **fields)
        done.wait()
        if claim.error is not None:
            raise claim.error
        return claim.answer[op] if claim.answer else None

    def _child(self) -> _Child:
        child = self._running
        if child is None or not child.alive:
            with self._mutex:
                child = self._running
                if child is None or not child.alive:
                    child = self._running = _Child(self._command, self._env)
        return child

    def _forked(self) -> None:
        self._running, self._mutex = None, threading.Lock()


_all: "weakref.WeakSet[Any]" = weakref.WeakSet()  # every Locks and _Child
_starting = threading.Lock()  # held while a child starts, and during a fork


def _after_fork() -> None:
    _starting.release()
    for one in list(_all):
        one._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_after_fork)
