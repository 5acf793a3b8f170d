-- leave: a request waits no more. If it was to go first, the next one does.
-- ARGV: 1 its name in the queue.
leave(ARGV[1])
recall()
if starts(first, ARGV[1] .. '/') then invite(true) end
return 'ok'
