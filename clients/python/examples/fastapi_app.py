"""One invoice is paid by one worker at a time: uvicorn --workers 4 fastapi_app:app

FENCELOCK_URL says where the locks are, and DATA where the counters are."""
import asyncio
import os
import pathlib

from fastapi import FastAPI, HTTPException

import fencelock

app = FastAPI()
locks = fencelock.Locks()  # each worker starts a child of its own at its first lock
data = pathlib.Path(os.environ.get("DATA", "."))


@app.post("/invoices/{number}/pay")
async def pay(number: int):
    try:
        async with locks.lock(f"invoice:{number}", wait=20, ttl=10) as lock:
            return {"payments": await charge(number, lock), "token": lock.token}
    except fencelock.Held as err:
        raise HTTPException(409, f"busy: {err.held}")
    except (fencelock.LockLost, fencelock.Unavailable) as err:
        raise HTTPException(503, str(err))


async def charge(number: int, lock: fencelock.Lock) -> int:
    """Reads, waits and writes: two workers at once would lose a payment."""
    file = data / str(number)
    payments = int(file.read_text()) + 1 if file.exists() else 1
    await asyncio.sleep(0.001)
    lock.check()
    file.write_text(str(payments))
    return payments
