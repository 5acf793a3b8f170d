"""One beat for many hosts: celery -A tasks beat --scheduler celery_beat.OneBeat

Each host starts a beat. Only the leader sends tasks; if it ends, another one goes on."""
import threading

from celery.beat import PersistentScheduler

import fencelock

locks = fencelock.Locks()  # FENCELOCK_URL


class OneBeat(PersistentScheduler):
    term = None  # the lock of the leader, while this is it

    def setup_schedule(self):
        super().setup_schedule()
        threading.Thread(target=locks.elect, args=("celery-beat", self.lead), daemon=True).start()

    def lead(self, term):
        self.term = term
        term.wait_lost()
        self.term = None
        term.check()  # raises the loss: elect makes this a candidate again

    def tick(self, *args, **kwargs):
        term = self.term
        return super().tick(*args, **kwargs) if term is not None and term.held else 1.0
