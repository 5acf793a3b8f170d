-- leave: a request no longer waits. If the name is reserved for it, the next waiter gets the
-- reservation.
-- ARGV: 1 its name in the queue.
leave(ARGV[1])
loadFence()
if starts(first, ARGV[1] .. '/') then reserveForWaiter(true) end
return 'ok'
