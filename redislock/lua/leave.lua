-- leave: a request stops waiting; a grant that it did not take is given back, with the
-- minimum hold that began with it. KEYS as acquire. ARGV 1 base, 2 settings, 3 owner,
-- 4 description, 5 until when a late try of it must not be served, if one may come
local owner, entry, late = ARGV[3], ARGV[3] .. ' ' .. ARGV[4], ARGV[5]
local token = tokenOf(s, owner, entry)
local done = token and release(s, owner, token) and 'released' or 'gone'
stays(s)
if call('ZREM', s.queue, entry) == 1 and done == 'gone' then done = 'left' end
if call('GET', s.closed) == owner then call('DEL', s.closed) end
if late then mark(s, owner, '', late) end
advance(s, done == 'released')
return done
