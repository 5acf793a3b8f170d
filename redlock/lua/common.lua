-- The beginning of every script, after the constants of a deployment: RETENTION, CHANNEL,
-- QUARANTINE (the longest TTL, or 0), NODES (the set of nodes), MARKER (the key with the node's
-- last known incarnation), KEEP and REFRESH (how long MARKER is kept, and how often it is
-- rewritten). These times are in milliseconds. The script runs on one node, and all times are by
-- the node's clock.
--
-- KEYS[1] is the lock: the holder on this node, as text, at the key of plain SET NX PX locks. The
-- related keys are:
--   fence   "token granted first notbefore": the last token, when it was stored, for whom a free
--           name is reserved, and the end of a minimum hold; times in microseconds
--   fence/OWNER  exists while a request of that owner may arrive that must not be served any more;
--           "freed" if its lock was released
--   shared  owners that share the lock, scored by the end of their leases (milliseconds)
--   tokens  the same owners, scored by their tokens
--   about   the same owners, with their descriptions
--   queue   waiting requests, scored by when they began to wait
--   callers the same requests, with "until mode since pid host note"
-- A holder as text is "owner token since pid host note".
local lock = KEYS[1]
local fence, shared, tokens = 'fence:{' .. lock .. '}', 'shared:{' .. lock .. '}', 'tokens:{' .. lock .. '}'
local about, queue, callers = 'about:{' .. lock .. '}', 'queue:{' .. lock .. '}', 'callers:{' .. lock .. '}'
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ms = math.floor(now / 1000)
local last, notbefore, first = 0, 0, '-'

-- RESERVE_MS is how long a free name is reserved for waiters. PATIENCE is how long a request stays
-- in the queue unless it asks again. BARRED is longer than a request may be on its way.
local RESERVE_MS, PATIENCE, BARRED = 10, 5000, 5000

local function int(n) return string.format('%d', n) end

local function starts(text, with) return string.sub(text, 1, #with) == with end

-- loadFence reads the fence key.
local function loadFence()
  local token, _, f, nb = string.match(redis.call('GET', fence) or '', '^(%d+) (%d+) (%S+) (%d+)$')
  if token then last, first, notbefore = tonumber(token), f, tonumber(nb) end
end

-- store writes the fence key, and sets how long it is kept.
local function store(granted)
  local life = math.max(math.floor(math.max(0, last - now) / 1000) + RETENTION, math.floor((notbefore - now) / 1000) + 1000)
  redis.call('SET', fence, string.format('%d %d %s %d', last, granted, first, notbefore), 'PX', int(life))
end

local function storeFence(token)
  last, first = math.max(last, token), '-'
  store(now)
end

local function extend(key, life)
  if redis.call('PTTL', key) < life then redis.call('PEXPIRE', key, int(life)) end
end

local function drop(owner)
  redis.call('ZREM', shared, owner)
  redis.call('ZREM', tokens, owner)
  redis.call('HDEL', about, owner)
end

-- look returns 'free', 'x', 's' or 'foreign', and the holder as text.
local function look()
  local text = redis.pcall('GET', lock)
  if not text then return 'free', '' end
  if type(text) == 'table' then return 'foreign', text.err end
  if not starts(text, 'fencelock ') then return 'foreign', string.sub(text, 1, 200) end
  if text ~= 'fencelock shared 0' then return 'x', string.sub(text, 11) end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', shared, '-inf', int(ms))) do drop(owner) end
  local first = redis.call('ZRANGE', tokens, 0, 0, 'WITHSCORES')
  if not first[1] then
    redis.call('DEL', lock, shared, tokens, about)
    return 'free', ''
  end
  return 's', string.format('%s %d %s', first[1], first[2], redis.call('HGET', about, first[1]) or '0 0 - ')
end

-- addHolder stores a holder with a token.
local function addHolder(owner, token, mode, desc, ttl, state)
  local since = int(now) .. ' ' .. desc
  if mode == 'x' then
    return redis.call('SET', lock, string.format('fencelock %s %d %s', owner, token, since), 'PX', int(ttl), 'NX')
  end
  if state == 'free' then
    redis.call('DEL', shared, tokens, about)
    if not redis.call('SET', lock, 'fencelock shared 0', 'PX', int(ttl), 'NX') then return false end
  end
  redis.call('ZADD', shared, int(ms + ttl), owner)
  redis.call('ZADD', tokens, int(token), owner)
  redis.call('HSET', about, owner, since)
  for _, key in ipairs({ lock, shared, tokens, about }) do extend(key, ttl) end
  return true
end

-- ownLease returns the token of an owner's lock on this node, nil if it has none, and the state.
local function ownLease(owner)
  local state, text = look()
  if state == 'x' then return tonumber(string.match(text, '^(%d+) ', starts(text, owner .. ' ') and #owner + 2 or #text + 1)), state end
  if state == 's' then return tonumber(redis.call('ZSCORE', tokens, owner) or nil), state end
  return nil, state
end

-- retoken replaces the token of an owner's lock.
local function retoken(owner, token, state)
  if state == 's' then
    redis.call('ZADD', tokens, int(token), owner)
    return
  end
  local rest = string.match(redis.call('GET', lock), '^fencelock %S+ %d+ (.*)$')
  redis.call('SET', lock, string.format('fencelock %s %d %s', owner, token, rest), 'KEEPTTL')
end

-- rearm restarts an owner's lease.
local function rearm(owner, ttl, state)
  if state == 'x' then
    redis.call('PEXPIRE', lock, int(ttl))
    return
  end
  redis.call('ZADD', shared, int(ms + ttl), owner)
  for _, key in ipairs({ lock, shared, tokens, about }) do extend(key, ttl) end
end

-- free removes an owner's lock.
local function free(owner, state)
  if state == 'x' then
    redis.call('DEL', lock)
    return
  end
  drop(owner)
  local longest = redis.call('ZREVRANGE', shared, 0, 0, 'WITHSCORES')[2]
  if longest then redis.call('PEXPIRE', lock, int(longest - ms)) else redis.call('DEL', lock, shared, tokens, about) end
end

local function publish(text) redis.pcall('PUBLISH', CHANNEL, text) end

local function leave(caller)
  redis.call('ZREM', queue, caller)
  redis.call('HDEL', callers, caller)
end

-- late reports whether a request of an owner must not be served any more: its time is over, or it
-- was released before it arrived.
local function late(owner, by)
  return now > by or redis.call('EXISTS', fence .. '/' .. owner) == 1
end

-- bar makes the node refuse requests of an owner that passed its lock on and that arrive later.
local function bar(owner)
  redis.pcall('SET', fence .. '/' .. owner, '', 'NX', 'PX', 1)
  extend(fence .. '/' .. owner, BARRED)
end

-- join puts a request into the queue for PATIENCE.
local function join(caller, since, mode, desc)
  redis.call('ZADD', queue, int(since), caller)
  redis.call('HSET', callers, caller, string.format('%d %s %d %s', ms + PATIENCE, mode, since, desc))
  for _, key in ipairs({ queue, callers }) do extend(key, PATIENCE) end
end

-- reserveForWaiter reserves a name that has become free for its waiters. If aloud, it also
-- publishes which request has waited longest. That request leaves the queue, so that a dead one is
-- only tried once.
local function reserveForWaiter(aloud)
  if redis.call('EXISTS', queue) == 0 or redis.call('EXISTS', lock) == 1 then return end
  local who = '*'
  while aloud do
    who = redis.call('ZRANGE', queue, 0, 0)[1]
    if not who then return end
    local till, mode = string.match(redis.call('HGET', callers, who) or '', '^(%d+) (%S+)')
    local waits = till and tonumber(till) > ms
    if not waits or mode == 'x' then leave(who) end
    if waits then
      if mode == 's' then who = 's' end
      break
    end
  end
  loadFence()
  first = string.format('%s/%d', who, ms + RESERVE_MS)
  pcall(store, now) -- fails if memory is full; then the name is not reserved
  if aloud then publish('released ' .. who .. ' ' .. lock) end
end

-- reservedFor returns for how many milliseconds a free name is still reserved for requests other
-- than this one. Waiters that were notified precede new requests.
local function reservedFor(caller, mode, call)
  local who, till = string.match(first, '^(.*)/(%d+)$')
  if not who or tonumber(till) <= ms or tonumber(till) > ms + RESERVE_MS or call == 'next' then return 0 end
  if call == 'first' and (who == '*' or who == caller or who == mode) then return 0 end
  return tonumber(till) - ms
end

-- incarnation returns an id that changes whenever the node may have lost data: at every start of a
-- master, and at every promotion of a replica.
local function incarnation()
  local info = redis.call('INFO', 'replication')
  local _, at = string.find(info, 'master_replid:', 1, true)
  return string.sub(info, at + 1, at + 40)
end

-- mark writes the marker: "known longest seen since nodes". known is the incarnation that votes,
-- longest the longest TTL of any client, seen the incarnation that was seen last. since is when
-- seen was first seen or, if it is the one that votes, when the marker was written.
local function mark(known, longest, seen, since)
  redis.call('SET', MARKER, known .. ' ' .. int(longest) .. ' ' .. seen .. ' ' .. int(since) .. ' ' .. NODES,
    'PX', int(math.max(KEEP, 2 * longest)))
end

-- votes returns for how many more milliseconds this node does not vote, because it may have lost
-- its locks, and the node's id; nil if it works with another set of nodes. Without a quarantine the
-- incarnation is not read, and the node's id is one that it was given.
local function votes(owner)
  local known, longest, seen, since, nodes = string.match(redis.call('GET', MARKER) or '', '^(%S+) (%d+) (%S+) (%d+) (%S+)$')
  if nodes and nodes ~= NODES then return nil end
  if QUARANTINE == 0 then
    if not nodes or known == '-' and seen == '-' then
      known, seen = '-', redis.sha1hex(owner .. int(now) .. tostring({})) -- tostring({}) contains an address of this process, which makes the id unique
      mark('-', 0, seen, ms)
    end
    return 0, string.sub(known == '-' and seen or known, 1, 16)
  end
  local me = incarnation()
  longest, since = tonumber(longest) or 0, tonumber(since) or ms
  local life, left, write = math.max(QUARANTINE, longest), 0, longest < QUARANTINE
  if known ~= me then
    if seen ~= me or since > ms then seen, since, write = me, ms, true end
    left = since + life - ms
    if left <= 0 then known, since, left, write = me, ms, 0, true end
  elseif math.abs(ms - since) >= REFRESH then
    since, write = ms, true
  end
  if write then mark(known or '-', life, seen, since) end
  return left, string.sub(me, 1, 16)
end

-- server returns the node's id, for replies of a node that counts, and renews the marker.
local function server()
  local known, longest, seen, since, nodes = string.match(redis.call('GET', MARKER) or '', '^(%S+) (%d+) (%S+) (%d+) (%S+)$')
  if not known then return QUARANTINE > 0 and string.sub(incarnation(), 1, 16) or '-' end
  if nodes == NODES and math.abs(ms - since) >= REFRESH and (QUARANTINE == 0 or known == incarnation()) then
    pcall(mark, known, tonumber(longest), seen, ms)
  end
  return string.sub(known == '-' and seen or known, 1, 16)
end

