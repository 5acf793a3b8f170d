-- take_rate: grants events of a key as far as they are not too far ahead of the clock
-- then. KEYS: the key, which has the time of its last change and how far ahead of that
-- the granted events were, both in microseconds. ARGV: 1 the cost, 2 how far ahead they
-- may be, 3 what is granted a multiple of. It answers what was granted, the time, and how
-- far ahead they are. A cost of 0 only looks. A number below 10^14 is written whole; the
-- time is text from the start.
local clock = redis.call('TIME')
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
local had = redis.call('GET', KEYS[1])
local ahead, back = 0, false
if had then
  local last, was = string.match(had, '^(%d+) (%d+)$')
  if not last then return 'foreign' end
  local passed = stamp - last
  was = tonumber(was)
  back = passed < 0 -- the clock was set back: it counts from here
  if back then
    ahead = was
  elseif passed < was then
    ahead = was - passed
  end
end
local cost, most, each = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local got = 0
if cost > 0 then
  if ahead < most then
    got = math.min(cost, math.floor((most - ahead) / each) * each)
    ahead = ahead + got
  end
  if got > 0 or back then
    redis.call('SET', KEYS[1], stamp .. ' ' .. ahead, 'PX', math.ceil(ahead / 1000))
  end
end
return got .. ' ' .. stamp .. ' ' .. ahead
