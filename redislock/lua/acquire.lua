local function held(s, left, why, text) return string.format('held %s %d %s %s', stamp, left, why, text) end

local function queueUp(s, r, letters, left, why, text)
  local newest = call('ZREVRANGE', s.queue, 0, 0, 'WITHSCORES')[2]
  local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp
  if call('ZADD', s.queue, 'NX', ticket, r.entry) == 0 then ticket = call('ZSCORE', s.queue, r.entry) end
  if not newest then call('PEXPIRE', s.queue, 2 * ALIVE) end
  speaks(s, r.client)
  local place = (string.find(letters, 'p') or why == 'f') and call('ZRANK', s.queue, r.entry) + 1 or 0
  return string.format('queued %s %s %d %s', stamp, ticket, place, told(s, left, why, text))
end

local s, r, letters = open(lock, KEYS[2], base, ARGV[2]), read(owner .. ' ' .. ARGV[4]), ARGV[6]
local wait = string.find(letters, 'w')
loadLock(s, call('MGET', lock)[1])
-- Behind an exclusive holder, or another program, there is nothing more to look at.
local behind = s.mode == 'foreign' or s.mode == 'x' and not tokenOf(s, owner)
if behind and not wait then return held(s, blocked(s)) end
stays(s)
if call('EXISTS', s.left .. owner) == 1 then return 'late ' .. stamp end
if behind then return queueUp(s, r, letters, blocked(s)) end
purge(s)
advance(s)

-- An earlier try may have worked, or the same one come before: its lease begins anew.
local token, floor = tokenOf(s, owner, r.entry)
if token then
  extend(s, owner, token, r.ttl)
  floor = floorOf(s, token)
elseif s.mode == 's' and r.mode == 's' and not agrees(s, r) then
  return 'limit ' .. stamp .. ' ' .. s.limit
elseif fits(s, r) and not s.lined then
  local left = quarantined(s)
  if left > 0 and not wait then return string.format('quarantine %s %d', stamp, left) end
  if shut(s) == 0 then token, floor = addHolder(s, r, r.ttl) end
end
if token then
  if r.minhold > 0 then close(s, owner, r.minhold) end
  return 'granted ' .. stamp .. ' ' .. token .. ' ' .. floor
end
if wait then return queueUp(s, r, letters, blocked(s)) end
return held(s, blocked(s))
