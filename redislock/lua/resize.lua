-- resize: sets the limit for everybody and lets in whoever fits now. It may run
-- again. ARGV: 2 limit.
recall(redis.call('GET', fence))
if last == 0 then last = now end -- nobody remembers a token: the next one is greater than now
resized = ARGV[2]
remember()
advance()
return 'ok ' .. failure
