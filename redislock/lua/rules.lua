-- SHARED: the lease of each holder ends by itself; the lock key expires with the last of them.
local function first(s, from, to) return call('ZRANGEBYSCORE', s.lock, from, to, 'WITHSCORES', 'LIMIT', 0, 1) end

local function settle(s)
  local last = call('ZREVRANGEBYSCORE', s.lock, TOKENS, TIMES, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if last then return call('PEXPIREAT', s.lock, last) end
  call('DEL', s.lock)
  s.mode = 'free'
end

local function seatOf(s, token) return call('ZRANGEBYSCORE', s.lock, token, token)[1] or '' end

local function removeHolder(s, token, entry)
  call('ZREM', s.lock, token, entry)
  local r = read(entry)
  s.used = s.used - (r and r.weight or 0)
  call('ZADD', s.lock, s.used, FORMAT .. 'shared ' .. s.limit)
end

-- Removes shared holders whose leases have ended. With a sum of 0 nobody holds: only the member with
-- the limit can be left then, by a script that lacked a permission and failed halfway.
local function purge(s)
  if s.mode ~= 's' then return end
  for i = 3, #s.over, 2 do removeHolder(s, s.over[i], seatOf(s, s.over[i])) end
  if s.over[3] or s.used == 0 then settle(s) end
end

-- FLOOR: the smallest token of all holders. Guards refuse smaller ones.
local function floorOf(s, token) return s.mode == 's' and first(s, TOKENS, '+inf')[2] or token end

-- The token of a request that holds already, or nil.
local function tokenOf(s, owner, entry)
  if s.mode == 's' then return call('ZSCORE', s.lock, entry) end
  return s.mode == 'x' and starts(s.text, FORMAT .. owner .. ' ') and string.match(s.text, '^%S+ %S+ (%d+)')
end

-- LIMIT: all holders of a shared lock have the same limit; one that Resize set replaces theirs.
local function resized(s)
  if s.resized == nil then s.resized = string.match(call('GET', s.resizing) or '', '^%d+') or false end
  return s.resized
end

local function agrees(s, r) return r.limit == s.limit or resized(s) and r.limit ~= '0' and s.limit ~= '0' end

local function fits(s, r)
  if s.mode == 'free' or r.mode == 'x' then return s.mode == 'free' end
  return s.mode == 's' and (r.limit == '0' or s.used + r.weight <= tonumber(resized(s) or r.limit))
end

-- GRANT: makes the request a holder for ttl ms. Returns its token and the floor.
local function addHolder(s, r, ttl)
  local token = mint(s.fence, stamp, s.retention)
  if r.mode == 'x' then
    s.mode, s.text = 'x', FORMAT .. r.owner .. ' ' .. token .. ' ' .. r.desc
    call('SET', s.lock, s.text, 'PX', ttl)
    return token, token
  end
  if s.mode == 'free' then s.mode, s.limit, s.used = 's', r.limit, 0 end
  if s.resized ~= false then call('PEXPIRE', s.resizing, s.retention) end
  s.used = s.used + r.weight
  call('ZADD', s.lock, s.used, FORMAT .. 'shared ' .. s.limit, token, r.entry, s.ms + ttl, token)
  settle(s)
  return token, floorOf(s)
end

-- RELEASE of one acquisition of either mode. Returns whether it was held.
local function release(s, owner, token)
  if s.mode == 'x' then
    if not starts(s.text, FORMAT .. owner .. ' ' .. token .. ' ') then return false end
    call('DEL', s.lock)
    s.mode = 'free'
    return true
  end
  local entry = s.mode == 's' and seatOf(s, token) or ''
  if not starts(entry, owner .. ' ') then return false end
  removeHolder(s, token, entry)
  settle(s)
  return true
end

-- LEFT: remembers that the owner has released, left or lost the lock. Its attempts to acquire that
-- arrive later do nothing, and a release that arrives twice is recognised by its id. An attempt
-- carries a deadline at most GRANT ms after it was sent, so the key need not live longer. late is
-- the deadline of an attempt that has no answer yet: the key then lives GRANT ms beyond it.
local function mark(s, owner, id, late)
  local life = late and math.ceil((late - stamp) / 1000) or 0
  call('SET', s.left .. owner, id, 'PX', math.max(life, 0) + GRANT)
end

-- QUARANTINE: a server that was restarted or promoted may have lost locks, so it grants nothing
-- until every lease from before has ended. Returns for how many ms more. The marker is "KNOWN LONGEST
-- SEEN SINCE": the incarnation that may grant, the longest TTL of all clients in ms, and the
-- incarnation that waits, with the time in ms from which it does.
local function quarantined(s)
  local most = tonumber(s.quarantine)
  if most == 0 then return 0 end
  if s.waits then return s.waits end
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' then error('the quarantine needs the right to INFO: ' .. info.err) end
  info = info .. call('INFO', 'replication')
  local me = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')
  local before = call('GET', s.marker) or ''
  local known, longest, seen, since = string.match(before, '^(%S+) (%d+) (%S+) (%d+)$')
  local life = math.max(most, tonumber(longest) or 0)
  s.waits = 0
  if known ~= me then
    if seen ~= me or tonumber(since) > s.ms then seen, since = me, s.ms end
    s.waits = since + life - s.ms
    if s.waits <= 0 then known, s.waits = me, 0 end
  end
  local text = string.format('%s %d %s %d', known or '-', life, seen, since)
  if text ~= before or call('PTTL', s.marker) < s.retention / 2 then call('SET', s.marker, text, 'PX', math.max(s.retention, 2 * life)) end
  return s.waits
end

-- SHUT: for how many ms nothing may be granted.
local function shut(s) return math.max(quarantined(s), call('PTTL', s.closed), 0) end
