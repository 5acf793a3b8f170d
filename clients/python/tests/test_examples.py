"""Tests of the examples. FENCELOCK_URL is a server; the command is in PATH."""
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import fencelock

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples")
PATIENCE = 60.0


def has(module):
    return importlib.util.find_spec(module) is not None


class TestExamples(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.dir = home.name
        self.env = dict(os.environ, DATA=self.dir, PYTHONPATH=os.pathsep.join(map(os.path.abspath, (EXAMPLES, os.path.dirname(fencelock.__file__)))))

    def start(self, *args):
        p = subprocess.Popen([sys.executable, "-m", *args], env=self.env, cwd=self.dir, start_new_session=True, stderr=subprocess.DEVNULL)

        def end():
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        self.addCleanup(end)
        return p

    @unittest.skipUnless(has("fastapi") and has("uvicorn"), "fastapi and uvicorn are not installed")
    def test_fastapi(self):
        port = random.randint(20000, 30000)
        self.start("uvicorn", "--workers", "4", "--port", str(port), "--log-level", "error", "fastapi_app:app")
        paid = []

        end = time.monotonic() + 2 * PATIENCE

        def pay():
            while len(paid) < 200 and time.monotonic() < end:
                try:
                    with urllib.request.urlopen(urllib.request.Request(
                            f"http://127.0.0.1:{port}/invoices/{random.randrange(3)}/pay", method="POST"), timeout=PATIENCE) as r:
                        r.read()
                        paid.append(r.status)
                except urllib.error.HTTPError as err:
                    paid.append(err.code)
                    err.close()
                except OSError:
                    time.sleep(0.05)  # it is starting
        threads = [threading.Thread(target=pay) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        total = 0
        for i in range(3):
            with open(os.path.join(self.dir, str(i))) as f:
                total += int(f.read())
        self.assertEqual(set(paid), {200})
        self.assertEqual(total, len(paid))

    @unittest.skipUnless(has("sqlalchemy"), "sqlalchemy is not installed")
    def test_sqlalchemy(self):
        sys.path.insert(0, EXAMPLES)
        import sqlalchemy
        import sqlalchemy_token
        db = sqlalchemy.create_engine(f"sqlite:///{self.dir}/db")
        with db.begin() as tx:
            tx.execute(sqlalchemy.text(sqlalchemy_token.SCHEMA))
        with fencelock.Locks() as locks:
            late = locks.lock("account")
            with late, db.begin() as tx:
                sqlalchemy_token.fenced(tx, late)
            with locks.lock("account") as lock, db.begin() as tx:
                sqlalchemy_token.fenced(tx, lock)
            with self.assertRaises(fencelock.LockLost), db.begin() as tx:
                sqlalchemy_token.fenced(tx, late)
        db.dispose()

    @unittest.skipUnless(has("celery") and has("redis"), "celery is not installed")
    def test_celery_beat(self):
        import redis
        url = os.environ["FENCELOCK_URL"]
        with open(os.path.join(self.dir, "tasks.py"), "w") as f:
            f.write(f"import celery\napp = celery.Celery('tasks', broker={url!r})\n"
                    "app.conf.beat_schedule = {'a': {'task': 'a', 'schedule': 0.3}}\n"
                    "app.conf.beat_max_loop_interval = 0.3\n")
        broker = redis.Redis.from_url(url)
        self.addCleanup(broker.close)
        beats = [self.start("celery", "-A", "tasks", "beat", "--scheduler", "celery_beat.OneBeat", "-s", f"schedule{i}", "--pidfile=")
                 for i in range(2)]

        def sent(n):
            end = time.monotonic() + PATIENCE
            while broker.llen("celery") < n:
                self.assertLess(time.monotonic(), end, "tasks are sent")
                time.sleep(0.05)
        sent(5)
        with fencelock.Locks() as locks:
            while not (len(locks.status("celery-beat")["holders"]) == 1 and locks.status("celery-beat")["waiters"]):
                time.sleep(0.05)
            # The holder is the child of one of the two. The other one goes on when that one is killed.
            leader = self.parent(locks.status("celery-beat")["holders"][0]["pid"])
        self.assertIn(leader, [b.pid for b in beats])
        begun, first = time.monotonic(), broker.llen("celery")
        sent(first + 5)
        self.assertLessEqual(broker.llen("celery") - first, (time.monotonic() - begun) / 0.3 + 2, "one beat sends tasks")
        os.kill(leader, signal.SIGKILL)
        sent(broker.llen("celery") + 3)

    def parent(self, pid):
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])


if __name__ == "__main__":
    unittest.main()
