-- A read that locks sees what is committed, and not an older snapshot. The third column says
-- whether there is a transaction: 1 for MySQL, which does not know.
SELECT floor, floor > ?, 1 /*M! * @@in_transaction */ FROM fence_floor WHERE resource = UNHEX(?) FOR UPDATE
