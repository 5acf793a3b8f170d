-- leave: withdraws a request. It leaves the queue; a grant that its client has not used is
-- released, with its minimum hold. KEYS as acquire. ARGV 1 base, 2 settings, 3 owner,
-- 4 description, 5 server time until which an attempt of this request may still arrive, if one may
local owner, entry, late = ARGV[3], ARGV[3] .. ' ' .. ARGV[4], ARGV[5]
local token = tokenOf(s, owner, entry)
local done = token and release(s, owner, token) and 'released' or 'gone'
stays(s)
if call('ZREM', s.queue, entry) == 1 and done == 'gone' then done = 'left' end
if call('GET', s.closed) == owner then call('DEL', s.closed) end
mark(s, owner, '', late)
serve(s)
return done .. ' ' .. s.failure
