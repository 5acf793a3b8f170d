"""A database that refuses the writes of a holder that has lost its lock without knowing it.

The transaction raises the highest token that the table has seen. If that is greater than its own,
somebody else had the lock since, and nothing is written."""
from sqlalchemy import text
from sqlalchemy.engine import Connection

import fencelock

SCHEMA = "CREATE TABLE IF NOT EXISTS fence (name VARCHAR(200) PRIMARY KEY, token BIGINT NOT NULL)"


def fenced(tx: Connection, lock: fencelock.Lock) -> None:
    """Call it in a transaction before the writes. Raises LockLost if a later holder has written."""
    row = {"name": lock.name, "token": lock.token}
    tx.execute(text("INSERT INTO fence (name, token) VALUES (:name, 0) ON CONFLICT (name) DO NOTHING"), row)
    if tx.execute(text("UPDATE fence SET token = :token WHERE name = :name AND token <= :token"), row).rowcount == 0:
        raise fencelock.LockLost(f"a later holder of {lock.name} has written")
