-- Every script that may grant begins with this text. It works on the keys of one
-- name, all in one slot; KEYS are the first two and the marker, since each one
-- that is passed costs as much as a third of a command:
--   lock    who holds it, as text, or "fencelock shared limit", and " w" if a
--           weight must be counted; the key of plain SET NX PX locks
--   fence   "token granted client notbefore": the last grant, in microseconds;
--           " l" with the limit for everybody if there is one; and " q" if there
--           may be a queue, which saves most scripts a look
--   queue   waiting requests, scored by ticket, the smallest is next
--   alive   waiting clients, scored by when they were last heard of
--   shared  tokens of shared holders, scored by when they end (milliseconds)
--   meta    shared holders as text, scored by token
--   marker  (quarantine only) the server's last known incarnation
-- A holder as text is "owner token since client mode limit ttl atleast pid host
-- note"; a waiting request the same without token and since. The limit is "5",
-- or "5/2" with a weight of 2. Times are the server's. Integers are formatted
-- with %d: tostring loses digits.
-- ARGV[1], since each argument costs too, says several things at once: what is
-- asked for (- in most scripts), how long a fence is kept, whether PUBLISH counts
-- all subscribers, for how long the quarantine lasts and what the channels' names
-- begin with.
local lock, fence, marker = unpack(KEYS)
local tag = string.sub(fence, 7)
local queue, alive, shared, meta = 'queue:' .. tag, 'alive:' .. tag, 'shared:' .. tag, 'meta:' .. tag
local asks, retention, counts, quarantine, channel = string.match(ARGV[1], '^(%S+) (%d+) (%d) (%d+) (.*)$')
retention, counts, quarantine = tonumber(retention), counts == '1', tonumber(quarantine)
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ms = math.floor(now / 1000)
local int = function(n) return string.format('%d', n) end
local last, granted, grantee, notbefore, lined = 0, 0, '-', 0, false
local resized          -- the limit for everybody; nil if requests say it
local weighted = false -- one of the shared holders may weigh more than 1
local failure = '' -- why a message could not be published

-- The waiters of a client that was not heard of for so many TTLs are dead.
local PATIENCE = 3
-- How long a granted waiter may take to say that it knows, in milliseconds.
local GRANT = 2000
-- How many waiters one script lets in, so that it does not block the server.
local BATCH = 64

local function recall(text)
  local a, b, c, d, rest = string.match(text or '', '^(%d+) (%d+) (%S+) (%d+)(.*)$')
  if not a then return end
  last, granted, grantee, notbefore = tonumber(a), tonumber(b), c, tonumber(d)
  resized, lined = string.match(rest, '^ l(%d+)'), string.sub(rest, -2) == ' q'
end

local function remember()
  if notbefore <= now then notbefore = 0 end
  local till = math.max(math.floor(math.max(now, last) / 1000) + retention, math.floor(notbefore / 1000) + 1000)
  lined = redis.call('EXISTS', queue) == 1
  local text = string.format('%d %d %s %d', last, granted, grantee, notbefore)
  if resized then text = text .. ' l' .. resized end
  redis.call('SET', fence, text .. (lined and ' q' or ''), 'PXAT', int(till))
end

-- extend makes a key live for at least so long.
local function extend(key, life)
  if redis.call('PTTL', key) < life then redis.call('PEXPIRE', key, int(life)) end
end

local function starts(text, with) return string.sub(text, 1, #with) == with end

-- share reads "limit" or "limit/weight".
local function share(word)
  local limit, weight = string.match(word, '^(%d+)/?(%d*)$')
  return limit, tonumber(weight) or 1
end

-- agree reports whether two shared requests may have these limits.
local function agree(a, b) return a == b or resized and a ~= '0' and b ~= '0' end

-- fits reports whether a shared request could join holders of so much weight. A
-- name that nobody holds takes whoever is next, however heavy.
local function fits(limit, weight, used)
  return limit == '0' or used + weight <= tonumber(resized or limit)
end

-- suspend takes a client whose grant ran out unanswered off the list of the
-- living, unless it was heard of since. Its next word brings it back.
local function suspend(client, since)
  local heard = redis.call('ZSCORE', alive, client)
  if heard and since <= now and tonumber(heard) < since then redis.call('ZREM', alive, client) end
end

-- prolong extends one shared holder. What a full memory refuses does not come
-- first.
local function prolong(token, ttl)
  redis.call('PEXPIRE', meta, int(math.max(redis.call('PTTL', meta), ttl)))
  redis.call('ZADD', shared, int(ms + ttl), token)
  extend(lock, ttl)
  extend(shared, ttl)
end

local function drop(token)
  redis.call('ZREMRANGEBYSCORE', meta, token, token)
  redis.call('ZREM', shared, token)
end

-- purge ends the shared holders whose lease is over.
local function purge()
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', shared, '-inf', int(ms))) do
    local who = redis.call('ZRANGEBYSCORE', meta, token, token)[1]
    local since, client = string.match(who or '', '^%S+ %d+ (%d+) (%S+) ')
    drop(token)
    if client then suspend(client, tonumber(since)) end
  end
end

-- look returns 'free', 'x', 's' with its limit, or 'foreign', and the text.
local function look()
  local text = redis.pcall('GET', lock)
  if not text then return 'free', nil, '' end
  if type(text) == 'table' then return 'foreign', nil, text.err end
  if not starts(text, 'fencelock ') then return 'foreign', nil, string.sub(text, 1, 200) end
  local limit, w = string.match(text, '^fencelock shared (%d+)(.*)$')
  if not limit then return 'x', nil, text end
  weighted = w == ' w'
  purge()
  if redis.call('EXISTS', shared) == 0 then
    redis.call('DEL', lock, meta)
    return 'free', nil, ''
  end
  return 's', limit, 'fencelock ' .. (redis.call('ZRANGE', meta, 0, 0)[1] or '')
end

-- taken is the weight of the shared holders together.
local function taken()
  if not weighted then return redis.call('ZCARD', shared) end
  local sum = 0
  for _, who in ipairs(redis.call('ZRANGE', meta, 0, -1)) do
    sum = sum + (tonumber(string.match(who, '^%S+ %d+ %d+ %S+ %a %d+/(%d+)')) or 1)
  end
  return sum
end

-- open makes the key that shared holders share, or extends it.
local function open(word, ttl, free)
  local limit, weight = share(word)
  local w = weight > 1 and ' w' or ''
  if free then
    if not redis.call('SET', lock, 'fencelock shared ' .. limit .. w, 'PX', int(ttl), 'NX') then return false end
    redis.call('DEL', shared, meta) -- holders of a lock that was taken away
    weighted = weight > 1
    return true
  end
  extend(lock, ttl)
  if weight > 1 and not weighted then
    redis.call('SET', lock, redis.call('GET', lock) .. w, 'KEEPTTL')
    weighted = true
  end
  return true
end

-- seat makes a request a holder for ttl. It returns nothing if a key of another
-- type is in the way, which GET and MGET do not show.
local function seat(owner, desc, ttl, free)
  local client, mode, word = string.match(desc, '^(%S+) (%a) (%S+) ')
  local token = math.max(last + 1, now)
  local floor = token
  local who = string.format('%s %d %d %s', owner, token, now, desc)
  if mode == 'x' then
    if not redis.call('SET', lock, 'fencelock ' .. who, 'PX', int(ttl), 'NX') then return end
  else
    if not open(word, ttl, free) then return end
    redis.call('ZADD', shared, int(ms + ttl), int(token))
    redis.call('ZADD', meta, int(token), who)
    extend(shared, ttl)
    extend(meta, ttl)
    floor = tonumber(redis.call('ZRANGE', meta, 0, 0, 'WITHSCORES')[2])
  end
  last, granted, grantee = token, now, client
  remember()
  return token, floor
end

-- unseat ends one shared holder, and the lock with the last of them.
local function unseat(token)
  drop(token)
  local longest = redis.call('ZREVRANGE', shared, 0, 0, 'WITHSCORES')[2]
  if longest then redis.call('PEXPIREAT', lock, longest) else redis.call('DEL', lock) end
end

-- tell publishes to a client and returns false if surely nobody listens.
local function tell(client, text)
  local n = redis.pcall('PUBLISH', channel .. client, text)
  if type(n) == 'table' then
    failure = n.err
    return true
  end
  return n > 0 or not counts
end

local function live(client, ttl)
  local heard = redis.call('ZSCORE', alive, client)
  return heard and tonumber(heard) + PATIENCE * ttl * 1000 > now
end

-- hail asks two waiting clients other than the grantee's to look after a while:
-- the next in line, and the one last heard of.
local function hail(after, except)
  local text, told = string.format('advance %d %s', after, lock), nil
  for _, entry in ipairs(redis.call('ZRANGE', queue, 0, 3)) do
    local client, ttl = string.match(entry, '^%S+ (%S+) %a %S+ (%d+) ')
    if client ~= except and live(client, tonumber(ttl)) then
      if tell(client, text) then
        told = client
        break
      end
      redis.call('ZREM', alive, client)
    end
  end
  for _, client in ipairs(redis.call('ZREVRANGE', alive, 0, 3)) do
    if client ~= except and client ~= told then
      if tell(client, text) then return end
      redis.call('ZREM', alive, client)
    end
  end
end

-- hand lets a waiting request in and tells its client.
local function hand(owner, desc, client, ttl, free)
  local life = math.min(ttl, GRANT)
  local token, floor = seat(owner, desc, life, free)
  if not token then return false end
  local mode = string.match(desc, '^%S+ (%a) ')
  if tell(client, string.format('grant %s %d %d %d %d %s %s', owner, token, floor, now, life, mode, lock)) then return true end
  if mode == 'x' then redis.call('DEL', lock) else unseat(int(token)) end
  redis.call('ZREM', alive, client)
  return false
end

-- quarantined returns for how many milliseconds more nothing may be granted,
-- because the server may have forgotten who holds what. See docs/design.md.
local function quarantined()
  if quarantine == 0 then return 0 end
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' then error('the quarantine needs the right to INFO: ' .. info.err) end
  info = info .. redis.call('INFO', 'replication')
  local me = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')
  local known, longest, seen, since = string.match(redis.call('GET', marker) or '', '^(%S+) (%d+) (%S+) (%d+)$')
  local life = math.max(quarantine, tonumber(longest) or 0)
  local left = 0
  if known ~= me then
    if seen ~= me or tonumber(since) > ms then seen, since = me, ms end
    left = tonumber(since) + life - ms
    if left <= 0 then known, left = me, 0 end
  end
  local text = string.format('%s %d %s %d', known or '-', life, seen or me, since or ms)
  if text ~= redis.call('GET', marker) or redis.call('PTTL', marker) < retention / 2 then
    redis.call('SET', marker, text, 'PX', int(math.max(retention, 2 * life)))
  end
  return left
end

-- advance lets in whoever is next, as many as fit. orderly says that the last
-- holder let go by itself.
local function advance(orderly)
  local state, limit = look()
  if state == 'x' or state == 'foreign' or redis.call('EXISTS', queue) == 0 then return end
  if state == 'free' and not orderly then suspend(grantee, granted) end
  local left = math.max(quarantined(), math.ceil((notbefore - now) / 1000))
  if left > 0 then
    if orderly and grantee ~= '-' then
      grantee = '-' -- who let go need not be suspended later
      remember()
    end
    return hail(left, '')
  end
  local seated, life, used = 0, 0, state == 's' and limit ~= '0' and taken() or 0
  for _ = 1, 16 * BATCH do
    local entry = redis.call('ZRANGE', queue, 0, 0)[1]
    if not entry or seated == BATCH then break end
    local owner, desc = string.match(entry, '^(%S+) (.*)$')
    local client, mode, word, ttl = string.match(desc, '^(%S+) (%a) (%S+) (%d+) ')
    local cap, weight = share(word)
    ttl = tonumber(ttl)
    if not live(client, ttl) then
      redis.call('ZREM', queue, entry)
    elseif state == 's' and (mode == 'x' or agree(cap, limit) and not fits(cap, weight, used)) then
      break
    else
      redis.call('ZREM', queue, entry)
      if state == 's' and not agree(cap, limit) then
        tell(client, string.format('refuse %s %s', owner, limit))
      elseif hand(owner, desc, client, ttl, state == 'free') then
        seated, life = seated + 1, math.min(ttl, GRANT)
        if mode == 'x' then break end
        state, limit = 's', cap
        used = used + weight
      end
    end
  end
  if seated == BATCH then return hail(0, '') end
  if seated > 0 then hail(life, grantee) end
end

-- mine extends what owner holds already, and returns its token and its floor.
local function mine(state, text, owner, mode, ttl)
  local own = 'fencelock ' .. owner .. ' '
  if state == 'x' and starts(text, own) then
    redis.call('PEXPIRE', lock, int(ttl))
    local token = string.match(text, '^(%d+)', #own + 1)
    return token, token
  end
  if state ~= 's' or mode ~= 's' then return end
  for _, who in ipairs(redis.call('ZRANGE', meta, 0, -1)) do
    if starts(who, owner .. ' ') then
      local token = string.match(who, '^%S+ (%d+)')
      prolong(token, ttl)
      return token, redis.call('ZRANGE', meta, 0, 0, 'WITHSCORES')[2]
    end
  end
end

-- outlook says in how many milliseconds time alone may change something, why if
-- it is not one of our holders that is in the way (f: a foreign one, q: the
-- quarantine, m: a minimum hold), and who holds the lock.
local function outlook(state, _, text)
  local left, why = 0, '-'
  if state == 's' then
    left = tonumber(redis.call('ZRANGE', shared, 0, 0, 'WITHSCORES')[2]) - ms
  elseif state == 'free' then
    local rest = math.ceil((notbefore - now) / 1000)
    left = quarantined()
    if left > 0 then why = 'q' elseif rest > 0 then why = 'm' end
    left = math.max(left, rest, 0)
  else
    left = redis.call('PTTL', lock)
    if state == 'foreign' then why = 'f' end
  end
  return string.format('%d %s %s', left, why, text)
end

