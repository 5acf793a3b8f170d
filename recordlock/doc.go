// Package recordlock implements fencelock's locks on any store with a conditional write: it is an
// engine over [driver.Records]. Every change of a lock is one Swap of one record.
//
//	records := sqlrecords.New(db, sqlrecords.MySQL, nil) // or the records of another store
//	locks := fencelock.New(recordlock.New(records, nil), nil)
//
// # How leases end
//
// No clock of another machine is trusted alone. A lease is over when the record that an observer
// has read shows the same renewal for a whole TTL, by the observer's monotonic clock, counted from
// the arrival of the answer that showed it first. It is also over when both the store's clock and
// the wall clocks of the holder and the observer say so. If these two disagree, or the store has no
// clock, a death costs up to two TTLs, and a process that asks only once is refused.
//
// # Waiting
//
// Waiters are in the record, at most 128 of them, and are granted in the order in which they
// joined. Further ones wait until a place is free. If the records implement [driver.Awaiter],
// waiters are notified of changes; otherwise they poll, the first in the queue more often than the
// others. The waiters of one process for one name share these reads.
package recordlock
