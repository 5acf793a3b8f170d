"""Tests of fencelock.py on real servers: FENCELOCK_TEST_URLS is a list of URLs, FENCELOCK_TEST_PROGRAM the command."""
import asyncio
import os
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import fencelock  # noqa: E402

PROGRAM = os.environ.get("FENCELOCK_TEST_PROGRAM", "fencelock")
URLS = os.environ.get("FENCELOCK_TEST_URLS", "").split()
PATIENCE = 60.0


def eventually(what, cond):
    end = time.monotonic() + PATIENCE
    while not cond():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.01)


class Suite:
    """The tests of one URL."""

    url = ""

    def setUp(self):
        self.locks = fencelock.Locks(self.url, program=PROGRAM)
        self.addCleanup(self.locks.close)
        self.name = f"{self.id()}-{os.getpid()}-{random.getrandbits(32)}"

    def child(self):
        return self.locks._running.proc.pid

    def other(self):
        locks = fencelock.Locks(self.url, program=PROGRAM)
        self.addCleanup(locks.close)
        return locks

    def needs_limits(self):
        if self.url.startswith("redlock:"):
            with self.assertRaises(fencelock.Unsupported), self.locks.lock(self.name, limit=2):
                pass
            with self.assertRaises(fencelock.Unsupported):
                self.locks.limit(self.name, "100/m")
            self.skipTest("Redlock has no limits and no rates")

    def test_threads(self):
        with self.locks.lock(self.name, note="mine") as lock:
            self.assertTrue(lock.held)
            lock.check()
            self.assertEqual(lock.floor, lock.token)
            with self.assertRaises(fencelock.Held) as err:
                with self.other().lock(self.name, wait=0):
                    pass
            self.assertEqual((err.exception.held["pid"], err.exception.held["note"]), (self.child(), "mine"))
            self.assertEqual(self.locks.status(self.name)["holders"][0]["owner"], lock.owner)
        self.assertFalse(lock.held)
        with self.assertRaises(fencelock.LockLost):
            lock.check()
        with self.other().lock(self.name, wait=PATIENCE) as later:
            self.assertGreater(later.token, lock.token)
        with self.assertRaises(RuntimeError):
            with lock:
                pass
        with self.assertRaises(fencelock.Invalid):
            with self.locks.lock(""):
                pass

    def test_threads_wait(self):
        order = []

        def work(i):
            with self.locks.lock(self.name):
                order.append(i)
                order.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(order), sorted(list(range(8)) * 2))
        self.assertTrue(all(order[i] == order[i + 1] for i in range(0, 16, 2)))

    def test_semaphore(self):
        self.needs_limits()
        with self.locks.lock(self.name, limit=2), self.locks.lock(self.name, limit=2, wait=PATIENCE):
            with self.assertRaises(fencelock.Held):
                with self.locks.lock(self.name, limit=2, wait=0):
                    pass

    def test_thread_learns_of_loss(self):
        with self.assertRaises(fencelock.LockLost):
            with self.locks.lock(self.name, ttl=2) as lock:
                os.kill(self.child(), signal.SIGKILL)
                self.assertTrue(lock.wait_lost(PATIENCE))
                with self.assertRaises(fencelock.LockLost):
                    lock.check()
        with self.locks.lock(self.name, ttl=2, wait=PATIENCE):
            pass  # with a new child

    def test_error_of_the_body(self):
        with self.assertRaises(KeyError):
            with self.locks.lock(self.name):
                raise KeyError("x")
        with self.assertRaises(fencelock.LockLost) as err:
            with self.locks.lock(self.name, wait=PATIENCE) as lock:
                os.kill(self.child(), signal.SIGKILL)
                lock.wait_lost(PATIENCE)
                raise KeyError("x")
        self.assertIsInstance(err.exception.__cause__, KeyError)

    def test_max_hold(self):
        with self.assertRaises(fencelock.MaxHold):
            with self.locks.lock(self.name, max_hold=0.3) as lock:
                self.assertTrue(lock.wait_lost(PATIENCE))
        with self.other().lock(self.name, wait=PATIENCE):
            pass

    def test_decorator(self):
        seen = []

        @self.locks.exclusive(self.name + "{number}")
        def pay(number):
            seen.append(number)
            return number

        @self.locks.exclusive(self.name + "{number}")
        async def pay_async(number=7):
            return pay.__wrapped__(number)
        self.assertEqual((pay(3), asyncio.run(pay_async()), seen), (3, 7, [3, 7]))

    def test_limit(self):
        self.needs_limits()
        first, second = (self.locks.limit(self.name, "1/h") for _ in range(2))
        self.assertTrue(first.ok and not second.ok and second.retry > 60)
        with self.assertRaises(fencelock.Invalid):
            self.locks.limit(self.name, "often")

    def test_elect(self):
        terms = []

        async def work(term):
            terms.append(term.token)
            self.assertEqual((await asyncio.to_thread(self.locks.status, self.name))["holders"][0]["note"], "here")
            if len(terms) == 1:
                os.kill(self.child(), signal.SIGKILL)
                await asyncio.sleep(PATIENCE)
            return "done"
        self.assertEqual(asyncio.run(self.locks.elect(self.name, work, value="here", ttl=2)), "done")
        self.assertEqual(terms, sorted(set(terms)))
        self.assertEqual(self.locks.elect(self.name, lambda term: term.held), True)

    def test_no_thread_and_no_descriptor_stays(self):
        def descriptors():
            return len(os.listdir("/dev/fd"))
        threads, before = threading.active_count(), descriptors()
        with self.other() as locks:
            with locks.lock(self.name):
                pass
            with locks.lock(self.name):
                os.kill(locks._running.proc.pid, signal.SIGSTOP)
                os.kill(locks._running.proc.pid, signal.SIGCONT)
        with self.other() as locks:
            with self.assertRaises(fencelock.LockLost):
                with locks.lock(self.name, wait=PATIENCE) as lock:
                    os.kill(locks._running.proc.pid, signal.SIGKILL)
                    lock.wait_lost(PATIENCE)
        eventually("threads end", lambda: threading.active_count() <= threads)
        eventually("descriptors are closed", lambda: descriptors() <= before)

    def test_close_ends_locks(self):
        with self.assertRaises(fencelock.LockLost):
            with self.locks.lock(self.name) as lock:
                self.locks.close()
                self.assertFalse(lock.held)
        with self.locks.lock(self.name, wait=PATIENCE):
            pass  # with a new child

    def test_no_such_program(self):
        with self.assertRaises(fencelock.Unavailable):
            with fencelock.Locks(self.url, program="/no/such/program").lock(self.name):
                pass

    def test_no_such_server(self):
        with self.assertRaises(fencelock.Unavailable):
            with fencelock.Locks("redis://127.0.0.1:1", program=PROGRAM).lock(self.name):
                pass

    def test_fork(self):
        with self.locks.lock(self.name) as lock:
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                said = b""
                try:
                    said += b"lost " if not lock.held else b"HELD "
                    try:
                        with self.locks.lock(self.name, wait=0):
                            said += b"GOT "
                    except fencelock.Held:
                        said += b"held "
                    with self.locks.lock(self.name + "2"):
                        said += b"other"
                finally:
                    os.write(w, said)
                    os._exit(0)
            os.close(w)
            said = b"".join(iter(lambda: os.read(r, 100), b""))
            os.waitpid(pid, 0)
            os.close(r)
            self.assertEqual(said, b"lost held other")
            lock.check()

    def test_program_ends_while_a_forked_process_lives(self):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            mine = fencelock.Locks(self.url, program=PROGRAM)
            mine.lock(self.name, ttl=600).__enter__()
            if os.fork() == 0:
                os.read(r, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        with self.locks.lock(self.name, wait=PATIENCE):
            pass
        os.write(w, b".")
        os.close(r)
        os.close(w)

    # asyncio

    def lose(self, body, **options):
        """Runs body(lock) under a lock whose child is killed. Returns its result or error."""
        async def main():
            async with self.locks.lock(self.name, ttl=2, wait=PATIENCE, **options) as lock:
                os.kill(self.child(), signal.SIGKILL)
                return await body(lock)

        async def task():
            t = asyncio.ensure_future(main())
            try:
                return await t
            except BaseException as err:
                if hasattr(t, "cancelling"):
                    self.assertEqual(t.cancelling(), 1 if isinstance(err, asyncio.CancelledError) else 0)
                return err
        return asyncio.run(task())

    def test_loss_cancels_the_body(self):
        stopped = []

        async def body(lock):
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                stopped.append(lock.held)
                raise
        err = self.lose(body)
        self.assertIsInstance(err, fencelock.LockLost)
        self.assertEqual(stopped, [False])

    def test_body_swallows_the_cancellation(self):
        async def body(lock):
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                return 1
        self.assertIsInstance(self.lose(body), fencelock.LockLost)

    def test_body_without_await(self):
        async def main():
            try:
                async with self.locks.lock(self.name, ttl=2):
                    os.kill(self.child(), signal.SIGKILL)
                    end = time.monotonic() + PATIENCE
                    while self.locks._running.alive and time.monotonic() < end:
                        time.sleep(0.01)
                    time.sleep(0.05)  # the loss has been posted to the loop
            except fencelock.LockLost:
                pass
            else:
                raise AssertionError("no loss")
            await asyncio.sleep(0)  # no cancellation is left over
            await asyncio.sleep(0.01)
        asyncio.run(main())

    def test_body_fails_after_the_loss(self):
        async def body(lock):
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                raise KeyError("x")
        err = self.lose(body)
        self.assertIsInstance(err, fencelock.LockLost)
        self.assertIsInstance(err.__cause__, KeyError)

    def test_loss_and_cancellation(self):
        async def body(lock):
            task = asyncio.current_task()
            end = time.monotonic() + PATIENCE
            while lock.held and time.monotonic() < end:
                time.sleep(0.01)
            asyncio.get_running_loop().call_soon(task.cancel)
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                try:
                    await asyncio.sleep(0.05)  # both have arrived
                except asyncio.CancelledError:
                    pass
        err = self.lose(body)
        want = asyncio.CancelledError if hasattr(asyncio.Task, "uncancel") else (asyncio.CancelledError, fencelock.LockLost)
        self.assertIsInstance(err, want)

    def test_timeout_inside(self):
        async def main():
            with self.assertRaises(asyncio.TimeoutError):
                async with self.locks.lock(self.name):
                    await asyncio.wait_for(asyncio.sleep(PATIENCE), 0.01)
            async with self.locks.lock(self.name, wait=0) as lock:
                lock.check()
        asyncio.run(main())

    def test_cancelled_waits(self):
        inside, most = [0], [0]

        async def one():
            async with self.locks.lock(self.name):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                try:
                    await asyncio.sleep(random.random() * 0.002)
                finally:
                    inside[0] -= 1

        async def main():
            tasks = [asyncio.ensure_future(one()) for _ in range(100)]
            for t in tasks:
                asyncio.get_running_loop().call_later(random.random() * 0.1, t.cancel)
            await asyncio.gather(*tasks, return_exceptions=True)
            async with self.locks.lock(self.name, wait=PATIENCE):
                pass
        with self.locks.lock(self.name):
            pass  # the child runs
        asyncio.run(main())
        self.assertLessEqual(most[0], 1)
        eventually("no claim is left", lambda: not self.locks._running.claims)
        self.assertEqual(self.locks.status(self.name)["mode"], "free")

    def test_waits_end_with_the_child(self):
        async def main():
            async with self.locks.lock(self.name, ttl=2):
                waits = asyncio.ensure_future(self.locks.lock(self.name).__aenter__())
                while not self.locks.status(self.name)["waiters"]:
                    await asyncio.sleep(0.01)
                os.kill(self.child(), signal.SIGKILL)
                with self.assertRaises(fencelock.Unavailable):
                    await waits
        with self.assertRaises(fencelock.LockLost):
            asyncio.run(main())


class Leased:
    """Tests of engines with leases."""

    def test_frozen_child(self):
        with self.assertRaises(fencelock.LockLost):
            with self.locks.lock(self.name, ttl=2) as lock:
                child = self.child()
                os.kill(child, signal.SIGSTOP)
                self.assertTrue(lock.wait_lost(PATIENCE))
                lost = time.monotonic()
                with self.other().lock(self.name, wait=PATIENCE):
                    self.assertGreater(time.monotonic(), lost)
                os.kill(child, signal.SIGCONT)

    def test_broken(self):
        with self.assertRaises(fencelock.LockLost):
            with self.locks.lock(self.name) as lock:
                self.assertEqual(os.spawnle(os.P_WAIT, PROGRAM, "fencelock", "break", self.name, "--reason", "test",
                                            dict(os.environ, FENCELOCK_URL=self.url)), 0)
                self.assertTrue(lock.wait_lost(PATIENCE))


class OnFiles:
    """Tests of the guard."""

    def guard(self):
        for pid in os.listdir("/proc"):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == self.child():
                        return int(pid)
            except (OSError, ValueError):
                pass
        return 0

    def test_lock_stays_until_the_work_ends(self):
        with self.assertRaises(fencelock.LockLost):
            with self.locks.lock(self.name) as lock:
                eventually("there is a guard", self.guard)
                for _ in range(2):
                    guard = self.guard()
                    os.kill(guard, signal.SIGKILL)
                    eventually("another guard", lambda: self.guard() not in (0, guard))
                with self.locks.lock(self.name + "2"):
                    pass  # the new guard answers, so it has all descriptors
                os.kill(self.child(), signal.SIGKILL)
                self.assertTrue(lock.wait_lost(PATIENCE))
                with self.assertRaises(fencelock.Held):
                    with self.other().lock(self.name, wait=0.2):
                        pass
        with self.other().lock(self.name, wait=PATIENCE):
            pass


for _url in URLS:
    _kind = _url.split(":")[0]
    _more = OnFiles if _kind == "file" else Leased
    globals()["Test" + _kind.capitalize()] = type("Test" + _kind.capitalize(), (Suite, _more, unittest.TestCase), {"url": _url})

if __name__ == "__main__":
    unittest.main()
