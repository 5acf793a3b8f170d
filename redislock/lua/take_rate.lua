-- take_rate: grants events of a key, or says that they would be too far ahead of the
-- clock. KEYS: the key, which has the time of its last change and how far ahead of that
-- the granted events were, both in microseconds. ARGV: 1 the cost, 2 how far ahead they
-- may be. A number below 10^14 is written whole; the time is text from the start.
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
local total = ahead + ARGV[1]
local ok = total <= tonumber(ARGV[2])
if ok then ahead = total end
if ok or back then
  redis.call('SET', KEYS[1], stamp .. ' ' .. ahead, 'PX', math.ceil(ahead / 1000))
end
return (ok and 'taken ' or 'refused ') .. stamp .. ' ' .. ahead
