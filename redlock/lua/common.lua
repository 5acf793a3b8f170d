-- Every script of this package begins with this text, after what one deployment
-- always says: RETENTION, CHANNEL, QUARANTINE (the longest TTL, or 0), NODES (which
-- nodes work together), MARKER (the key of the node's last known incarnation), KEEP
-- and REFRESH (for how long that stays, and after how long it is written anew), all
-- times in milliseconds. It runs on one node. KEYS[1] is the lock: who holds a name
-- here, as text, at the key of plain SET NX PX locks. Its companions are:
--   fence   "token granted first notbefore": the last token stored, when that
--           was, who goes first now that the name is free, and the end of a
--           minimum hold; times in microseconds
--   fence/OWNER  exists while a request of that owner may still arrive that
--           nobody wants any more; "freed" if its lock was released
--   shared  owners that share it, scored by when they end (milliseconds)
--   tokens  the same owners, scored by their tokens
--   about   the same owners, and who they are
--   queue   requests that wait, scored by since when
--   callers the same requests, and who they are: "until mode since pid host note"
-- A holder as text is "owner token since pid host note". Times are the node's own.
local lock = KEYS[1]
local fence, shared, tokens = 'fence:{' .. lock .. '}', 'shared:{' .. lock .. '}', 'tokens:{' .. lock .. '}'
local about, queue, callers = 'about:{' .. lock .. '}', 'queue:{' .. lock .. '}', 'callers:{' .. lock .. '}'
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ms = math.floor(now / 1000)
local last, notbefore, first = 0, 0, '-'

-- For how many milliseconds a name that is free is kept for those who waited, and
-- for how long a request waits unless it says so again.
local RESERVE_MS, PATIENCE = 10, 5000

local function int(n) return string.format('%d', n) end

local function starts(text, with) return string.sub(text, 1, #with) == with end

-- loadFence reads what is stored of the name beside its holders.
local function loadFence()
  local token, _, f, nb = string.match(redis.call('GET', fence) or '', '^(%d+) (%d+) (%S+) (%d+)$')
  if token then last, first, notbefore = tonumber(token), f, tonumber(nb) end
end

-- store writes it; it is kept for a while after it was of use.
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

-- addHolder installs a holder with a token.
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

-- ownLease returns the token of an owner's lock here, nil if it has none.
local function ownLease(owner)
  local state, text = look()
  if state == 'x' then return tonumber(string.match(text, '^(%d+) ', starts(text, owner .. ' ') and #owner + 2 or #text + 1)), state end
  if state == 's' then return tonumber(redis.call('ZSCORE', tokens, owner) or nil), state end
  return nil, state
end

-- retoken gives an owner's lock another token.
local function retoken(owner, token, state)
  if state == 's' then
    redis.call('ZADD', tokens, int(token), owner)
    return
  end
  local rest = string.match(redis.call('GET', lock), '^fencelock %S+ %d+ (.*)$')
  redis.call('SET', lock, string.format('fencelock %s %d %s', owner, token, rest), 'KEEPTTL')
end

-- rearm makes an owner's lease begin anew.
local function rearm(owner, ttl, state)
  if state == 'x' then
    redis.call('PEXPIRE', lock, int(ttl))
    return
  end
  redis.call('ZADD', shared, int(ms + ttl), owner)
  for _, key in ipairs({ lock, shared, tokens, about }) do extend(key, ttl) end
end

-- free takes an owner's lock away.
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

-- late reports whether nobody wants a request of an owner any more: its time is
-- over, or it was taken back before it came.
local function late(owner, by)
  return now > by or redis.call('EXISTS', fence .. '/' .. owner) == 1
end

-- join enters a request into the queue, and keeps it there for a while.
local function join(caller, since, mode, desc)
  redis.call('ZADD', queue, int(since), caller)
  redis.call('HSET', callers, caller, string.format('%d %s %d %s', ms + PATIENCE, mode, since, desc))
  for _, key in ipairs({ queue, callers }) do extend(key, PATIENCE) end
end

-- reserveForWaiter keeps a name that has become free for those who wait, and, if this node
-- is to say so, tells the one that has waited longest. Who is told leaves the
-- queue: one that died is told once.
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
  pcall(store, now) -- refused when memory is short; then anybody may come
  if aloud then publish('released ' .. who .. ' ' .. lock) end
end

-- reservedFor returns for how many milliseconds more a free name is kept for others
-- than this request. Those who were told go before those who have just come.
local function reservedFor(caller, mode, call)
  local who, till = string.match(first, '^(.*)/(%d+)$')
  if not who or tonumber(till) <= ms or tonumber(till) > ms + RESERVE_MS or call == 'next' then return 0 end
  if call == 'first' and (who == '*' or who == caller or who == mode) then return 0 end
  return tonumber(till) - ms
end

-- incarnation is what changes whenever the node may have forgotten something: at
-- every start of a master, and at every promotion of a replica.
local function incarnation()
  local info = redis.call('INFO', 'replication')
  local _, at = string.find(info, 'master_replid:', 1, true)
  return string.sub(info, at + 1, at + 40)
end

-- mark writes the marker: "known longest seen since nodes", the incarnation that
-- votes, the longest TTL of any client, the incarnation that was seen last, and
-- since when, or when the marker was written, if that is the one that votes.
local function mark(known, longest, seen, since)
  redis.call('SET', MARKER, known .. ' ' .. int(longest) .. ' ' .. seen .. ' ' .. int(since) .. ' ' .. NODES,
    'PX', int(math.max(KEEP, 2 * longest)))
end

-- votes returns for how many milliseconds more this node does not vote, because
-- it may have forgotten what it granted, and who it is; nil if it works with another
-- set of nodes. Without a quarantine nobody looks at the incarnation, and the
-- node's name is one that it was given.
local function votes(owner)
  local known, longest, seen, since, nodes = string.match(redis.call('GET', MARKER) or '', '^(%S+) (%d+) (%S+) (%d+) (%S+)$')
  if nodes and nodes ~= NODES then return nil end
  if QUARANTINE == 0 then
    if not nodes or known == '-' and seen == '-' then
      known, seen = '-', redis.sha1hex(owner .. int(now) .. tostring({})) -- an address of this process makes it unlike other nodes'
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

-- server returns who this node is, for answers that count, and keeps the marker of
-- one that is used.
local function server()
  local known, longest, seen, since, nodes = string.match(redis.call('GET', MARKER) or '', '^(%S+) (%d+) (%S+) (%d+) (%S+)$')
  if not known then return QUARANTINE > 0 and string.sub(incarnation(), 1, 16) or '-' end
  if nodes == NODES and math.abs(ms - since) >= REFRESH and (QUARANTINE == 0 or known == incarnation()) then
    pcall(mark, known, tonumber(longest), seen, ms)
  end
  return string.sub(known == '-' and seen or known, 1, 16)
end

