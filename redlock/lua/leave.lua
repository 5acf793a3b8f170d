-- leave: a request waits no more. If it was to go first, the next one does.
-- ARGV: 1 its name in the queue.
leave(ARGV[1])
loadFence()
if starts(first, ARGV[1] .. '/') then reserveForWaiter(true) end
return 'ok'
