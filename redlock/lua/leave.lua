-- leave: a request waits no more. If it was to go first, the next one does.
-- ARGV: 5 its name in the queue.
leave(ARGV[5])
recall()
if starts(first, ARGV[5] .. '/') then invite(true) end
return 'ok'
