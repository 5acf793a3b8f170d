"""A client of the protocol of files: see docs/protocol-files.md."""

import contextlib, fcntl, hashlib, json, os, pathlib, re, socket, time, uuid
from datetime import datetime, timezone

TICKET = re.compile(r"(\d{20})\.(x|s\d*(?:w\d+)?)\.([wh])\.([^.]+)")
PLAIN = b"abcdefghijklmnopqrstuvwxyz0123456789-_"


class Held(Exception):
    pass


def encode(name):
    raw = name.encode()
    text = "".join(chr(c) if c in PLAIN or c == 0x2E and i > 0 else f"%{c:02x}" for i, c in enumerate(raw))
    return text if len(text) <= 200 else f"{text[:100]}~{hashlib.sha256(raw).hexdigest()}"


def flock(fd, how):
    """Reports whether the flock could be taken."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def same(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


class Name:
    """An exclusive lock on one name of a directory that only this user uses."""

    def __init__(self, root, name):
        self.root, self.name, self.dir = pathlib.Path(root), name, pathlib.Path(root) / encode(name)

    @contextlib.contextmanager
    def directory_lock(self):
        while True:
            for path in (self.root, self.root / ".used", self.dir):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if same(fd, self.dir):  # else it was removed as idle meanwhile
                    if not (self.dir / "name").exists():
                        self.write_new("name", self.name)
                    yield
                    return
            finally:
                os.close(fd)

    def write_new(self, base, text):
        fd = os.open(self.dir / "new.file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, text.encode())
        os.fsync(fd)
        os.close(fd)
        os.rename(self.dir / "new.file", self.dir / base)

    def number(self, path):
        try:
            return int(path.read_text())
        except FileNotFoundError:
            return None

    def tickets(self):
        return sorted(t for t in os.listdir(self.dir) if TICKET.fullmatch(t))

    def in_the_way(self, ticket, mine):
        """A live holder, or a live waiter in front of me that is not frozen."""
        if ticket == mine or TICKET.fullmatch(ticket)[3] == "w" and mine and ticket > mine:
            return False
        try:
            fd = os.open(self.dir / ticket, os.O_RDONLY)
        except FileNotFoundError:  # it was released in the meantime
            return False
        try:
            if flock(fd, fcntl.LOCK_SH):  # its process is dead, or has just released it
                (self.dir / ticket).unlink(missing_ok=True)
                return False
            return TICKET.fullmatch(ticket)[3] == "h" or time.time() - os.fstat(fd).st_mtime < 5
        finally:
            os.close(fd)

    def acquire(self, wait=0.0, note=""):
        end, owner, self.ticket, self.file = time.monotonic() + wait, str(uuid.uuid4()), None, None
        record = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "note": note,
                  "since": datetime.now(timezone.utc).isoformat(), "mode": "exclusive",
                  "machine": socket.gethostname(), "process": os.getpid()}
        try:
            while True:
                with self.directory_lock():
                    if self.try_hold(owner, record):
                        break
                    if wait and not self.ticket:
                        self.make_ticket("w", owner, record)
                if time.monotonic() >= end:
                    raise Held(self.name)
                time.sleep(0.1)
                os.utime(self.file)  # still awake: stamp it at least once a second
        except BaseException:
            if self.ticket:
                os.remove(self.dir / self.ticket)
                os.close(self.file)
            raise
        fd = os.open(self.dir / "token", os.O_RDONLY)
        os.fsync(fd)  # before anybody sees the token
        os.close(fd)
        return self.token

    def try_hold(self, owner, record):
        if (self.number(self.dir / "not-before") or 0) > time.time() * 1e6:
            return False
        if any(self.in_the_way(t, self.ticket) for t in self.tickets()):
            return False
        self.lock = os.open(self.dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not flock(self.lock, fcntl.LOCK_EX):  # flock(1), or a child that outlived its parent
            os.close(self.lock)
            return False
        last = self.number(self.dir / "token")
        floor = last if last is not None else self.number(self.root / ".floor") or 0
        self.token = record["token"] = max(floor + 1, time.time_ns() // 1000)
        if last is None:
            self.write_new("token", f"{self.token:020d}")
        else:
            fd = os.open(self.dir / "token", os.O_WRONLY)
            os.pwrite(fd, f"{self.token:020d}".encode(), 0)
            os.close(fd)
        self.make_ticket("h", owner, record)
        return True

    def make_ticket(self, state, owner, record):
        text = json.dumps(record).encode()
        if self.ticket:  # it waits; its file must stay the same, and so its flock
            os.pwrite(self.file, text.ljust(os.fstat(self.file).st_size), 0)
            new = self.ticket.replace(".w.", ".h.")
            os.rename(self.dir / self.ticket, self.dir / new)
            self.ticket = new
            return
        (self.root / ".used" / self.dir.name).touch(mode=0o600)
        place = max((int(t[:20]) for t in self.tickets()), default=0) + 1
        temp = self.dir / f"new.{owner}"
        self.file = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        os.write(self.file, text)
        self.ticket = f"{place:020d}.x.{state}.{owner}"
        os.rename(temp, self.dir / self.ticket)  # it appears complete and locked

    def lost(self):
        return not (same(self.file, self.dir / self.ticket) and same(self.lock, self.dir / "lock"))

    def release(self):
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        if same(self.file, self.dir / self.ticket):
            os.remove(self.dir / self.ticket)
        os.close(self.lock)
        os.close(self.file)
        for ticket in self.tickets():  # wake the first waiter; it would notice within a second
            with contextlib.suppress(OSError):
                fd = os.open(self.dir / f"bell.{TICKET.fullmatch(ticket)[4]}", os.O_WRONLY | os.O_NONBLOCK)
                os.write(fd, b"\0")
                os.close(fd)
                break
