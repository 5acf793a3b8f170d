-- acquire: takes the lock, or joins the queue, or says who is in the way.
-- It asks for w to wait, and for a if an earlier try may have worked.
-- ARGV: 2 owner, 3 desc.
local owner, desc, wait, again = ARGV[2], ARGV[3], string.find(asks, 'w'), string.find(asks, 'a')
local client, mode, word, ttl, atleast = string.match(desc, '^(%S+) (%a) (%S+) (%d+) (%d+) ')
local limit, weight = share(word)
ttl, atleast = tonumber(ttl), tonumber(atleast)
if replaced == '' then
  redis.call('DEL', fence)
elseif replaced then
  recall(replaced)
  remember()
end
local both = redis.call('MGET', lock, fence)
recall(both[2])

local state, cap, text = 'free', nil, ''
if both[1] or redis.call('EXISTS', queue) == 1 then
  if wait then
    redis.call('ZADD', alive, int(now), client)
    extend(alive, PATIENCE * ttl)
  end
  advance()
  state, cap, text = look()
end

-- Our own earlier try worked, or was granted just now, and we have not heard of
-- it: the lease begins anew.
local token, floor
if again then token, floor = mine(state, text, owner, mode, ttl) end
if token then
  if atleast > 0 then
    notbefore = math.max(notbefore, now + atleast * 1000)
    remember()
  end
  return string.format('granted %d %s %s', now, token, floor)
end

if state == 's' and mode == 's' and not agree(cap, limit) then
  return string.format('limit %d %s', now, cap)
end
local room = state == 'free' or state == 's' and mode == 's' and (limit == '0' or fits(limit, weight, taken()))
if room and notbefore <= now and redis.call('EXISTS', queue) == 0 then
  local left = quarantined()
  if left > 0 and not wait then return string.format('quarantine %d %d', now, left) end
  if left == 0 then
    if atleast > 0 then notbefore = now + atleast * 1000 end
    token, floor = seat(owner, desc, ttl, state == 'free')
    if token then return string.format('granted %d %d %d', now, token, floor) end
    notbefore = 0
  end
end
if not wait then return string.format('held %d %s', now, outlook(look())) end

local entry = owner .. ' ' .. desc
local ticket = redis.call('ZSCORE', queue, entry)
if not ticket then
  local newest = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  ticket = int(math.max(now, (tonumber(newest) or 0) + 1))
  redis.call('ZADD', alive, int(now), client)
  redis.call('ZADD', queue, ticket, entry)
  extend(queue, PATIENCE * ttl)
  extend(alive, PATIENCE * ttl)
  if not lined then remember() end
end
return string.format('queued %d %s %d %s', now, ticket, redis.call('ZRANK', queue, entry) + 1, outlook(look()))
