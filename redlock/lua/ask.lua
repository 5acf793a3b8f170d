-- ask: the first round of a take.
-- ARGV: 5 owner, 6 mode, 7 ttl, 8 proposed token, 9 "1" to take the name away
-- from its holders, 10 why, 11 desc, 12 since when the request has waited, in
-- microseconds, "0" if it does not wait, 13 its name in the queue, 14 "first" if
-- it was told to go first, "next" if it has the vote of the node that told it.
local owner, mode, ttl, proposed, forced, desc = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1', ARGV[11]
local since, caller, call = tonumber(ARGV[12]), ARGV[13], ARGV[14]
local left = quarantined()
if not left then return 'nodes' end
if left > 0 then return 'quarantine ' .. int(left) end
recall()
local state, text = look()
if forced and state ~= 'free' then
  local owners = { string.match(text, '^(%S+) ') }
  if state == 's' then owners = redis.call('ZRANGE', tokens, 0, -1) end
  redis.call('DEL', lock, shared, tokens, about)
  for _, o in ipairs(owners) do tell(string.format('lost %s %s', o, ARGV[10])) end
  state = 'free'
elseif not forced and notbefore > now then
  return string.format('held %d 0 ', math.ceil((notbefore - now) / 1000))
elseif state == 'free' and not forced then
  local wait = turn(caller, mode, call)
  if wait > 0 then
    if since > 0 then join(caller, since, mode, desc) end
    return 'told ' .. int(wait)
  end
end
local function granted(token, mode)
  local floor = token
  if mode == 's' then floor = redis.call('ZRANGE', tokens, 0, 0, 'WITHSCORES')[2] end
  return string.format('granted %d %d', token, floor)
end

if state == 'free' or state == 's' and mode == 's' and not redis.call('ZSCORE', shared, owner) then
  local token = math.max(last + 1, now, math.min(proposed, now + AHEAD))
  if seat(owner, token, mode, desc, ttl, state) then
    remember(token)
    if since > 0 then leave(caller) end
    return granted(token, mode)
  end
  state, text = 'foreign', ''
end
local own = mine(owner)
if own then -- it asks again
  rearm(owner, ttl, state)
  return granted(own, state)
end
local pttl = redis.call('PTTL', lock)
if since > 0 then join(caller, since, mode, desc) end
return string.format('held %d %d %s', pttl, state == 'foreign' and 1 or 0, text)
