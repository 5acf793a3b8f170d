local function held(s, left, why, text) return string.format('held %s %d %s %s', stamp, left, why, text) end

local function queueUp(s, r, letters, left, why, text)
  local newest = call('ZREVRANGE', s.queue, 0, 0, 'WITHSCORES')[2]
  local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp
  if call('ZADD', s.queue, 'NX', ticket, r.entry) == 0 then ticket = call('ZSCORE', s.queue, r.entry) end
  speaks(s, r.client, string.match(letters, '%d+') or '0')
  local place = (string.find(letters, 'p') or why == 'f') and call('ZRANK', s.queue, r.entry) + 1 or 0
  return string.format('queued %s %s %d %d %s %s', stamp, ticket, place, left, why, text)
end

local s, r, letters = open(lock, KEYS[2], base, ARGV[2]), read(owner .. ' ' .. ARGV[4]), ARGV[6]
local wait = string.find(letters, 'w')
loadLock(s, call('MGET', lock)[1])
-- While an exclusive holder or another program has the lock, the rest of the script is not needed.
local behind = s.mode == 'foreign' and 'f' or s.mode == 'x' and not starts(s.text, FORMAT .. owner .. ' ') and '-'
if behind and not wait then return held(s, call('PTTL', lock), behind, s.text) end
stays(s)
if call('EXISTS', s.left .. owner) == 1 then return 'ended ' .. stamp end -- broken or withdrawn before this attempt, or a copy, for which nobody waits
if behind then return queueUp(s, r, letters, call('PTTL', lock), behind, s.text) end
