-- ask: the first round of an attempt.
-- ARGV:
--   1 owner
--   2 ttl
--   3 proposed token
--   4 time until which it may be served, in microseconds by this node's clock
--   5 desc
-- and, unless they have their defaults:
--   6 mode
--   7 how long the request has waited, in microseconds; "-1" if it does not wait
--   8 its name in the queue
--   9 "first" if it was told that it is next, "next" if the node that told it so has
--     granted, "break" to take the name from its holders, "adopt" to take it from owner 11
--   10 the reason of the break
--   11 the only owner to break, or the one to adopt from
-- Every reply is a word, this node's clock, this node's id, and then values.
local owner, ttl, proposed, desc = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
local mode, waited, caller, call = ARGV[6] or 'x', tonumber(ARGV[7] or -1), ARGV[8], ARGV[9]
local forced = call == 'break' -- with ARGV 11: and that owner holds here
local me = '-'
local function says(word, rest) return word .. ' ' .. int(now) .. ' ' .. me .. ' ' .. rest end

if late(owner, tonumber(ARGV[4])) then return says('late', '') end
local left
left, me = votes(owner)
if not left then return 'nodes' end
if left > 0 then return says('quarantine', int(left)) end
loadFence()
local state, text = look()
local function waits()
  if waited >= 0 then join(caller, now - waited, mode, desc) end
end
local function granted(token, mode)
  local floor = token
  if mode == 's' then floor = redis.call('ZRANGE', tokens, 0, 0, 'WITHSCORES')[2] end
  return says('granted', int(token) .. ' ' .. int(floor))
end

local own = ownLease(owner)
if own then -- it asks again, or the network delivered the request twice
  rearm(owner, ttl, state)
  return granted(own, state)
end

local only = ARGV[11]
if only then
  forced = ownLease(only) ~= nil
  if call == 'adopt' and not (forced and mode == state) then return says('gone', '') end
  if forced then
    free(only, state)
    if call == 'adopt' then bar(only) else publish('lost ' .. only .. ' ' .. ARGV[10]) end
    state, text = look()
  end
end
if forced and not only and state ~= 'free' then
  local owners = { string.match(text, '^(%S+) ') }
  if state == 's' then owners = redis.call('ZRANGE', tokens, 0, -1) end
  redis.call('DEL', lock, shared, tokens, about)
  for _, o in ipairs(owners) do publish('lost ' .. o .. ' ' .. ARGV[10]) end
  state = 'free'
elseif not forced and notbefore > now then
  waits()
  return says('held', int(math.ceil((notbefore - now) / 1000)) .. ' 0 ')
elseif state == 'free' and not forced then
  local wait = reservedFor(caller, mode, call)
  if wait > 0 then
    waits()
    return says('told', int(wait))
  end
end

if state == 'free' or state == 's' and mode == 's' then
  local token = math.max(last + 1, now, math.min(proposed, now + AHEAD))
  if addHolder(owner, token, mode, desc, ttl, state) then
    storeFence(token)
    if waited >= 0 then leave(caller) end
    return granted(token, mode)
  end
  state, text = 'foreign', ''
end
waits()
return says('held', int(redis.call('PTTL', lock)) .. (state == 'foreign' and ' 1 ' or ' 0 ') .. text)
