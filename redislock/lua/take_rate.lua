-- take_rate: grants events of a rate limit (generic cell rate algorithm). Each event costs time, and
-- granted events may run ahead of the clock by at most ARGV[2]. KEYS 1 the key, "TIME AHEAD": the
-- time of the last grant and how far ahead the events were then, both in microseconds.
-- ARGV 1 cost of the request, 2 the most that events may be ahead, 3 cost of one event: the grant
-- is a multiple of it. Returns the cost granted, the time, and how far ahead events are now. A
-- request with cost 0 changes nothing. .. writes numbers below 10^14 with all digits; the time,
-- which is greater, is text from the start.
local clock = redis.call('TIME')
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
local had = redis.call('GET', KEYS[1])
local ahead, back = 0, false
if had then
  local last, was = string.match(had, '^(%d+) (%d+)$')
  if not last then return 'foreign' end
  local passed = stamp - last
  was = tonumber(was)
  back = passed < 0 -- the clock was set back: count from the new time
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
