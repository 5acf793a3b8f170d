-- Every script that may grant goes on with this text, once it knows the time
-- (clock) and has read lock and fence (both). KEYS are the first two and the marker,
-- since each one that is passed costs as much as a third of a command:
--   lock    who holds it, as text, or "fencelock shared limit", and " w" if a
--           weight must be counted; the key of plain SET NX PX locks
--   fence   "token granted client notbefore": the last grant, in microseconds, and
--           whom it was handed to; " l" with the limit for everybody if there is
--           one, " v" with its version; " w" with the weight of so many holders;
--           " b" with the time until which alive says who is barred; and if there
--           may be a queue " u" with a time until which it lives, " m" with the
--           client that was told of a lease longer than a short one (* for
--           several) and " q". Times after the first four are milliseconds.
--   queue   waiting requests, scored by ticket, the smallest is next; a ticket is
--           when the request joined, and says that its client lived then
--   alive   waiting clients, scored by when they were last heard of if their
--           tickets do not say it; with a minus those that are suspended, and
--           owners of which no late try may be served, scored by until when
--   shared  tokens of shared holders, scored by when they end (milliseconds)
--   meta    shared holders as text, scored by token
--   marker  (quarantine only) the server's last known incarnation
-- A holder as text is "owner token since client mode limit ttl minhold pid host
-- note"; a waiting request the same without token and since. The limit is "5", or
-- "5/2" with a weight of 2. Integers are formatted with %d: tostring loses digits.
-- ARGV[1] says what is asked for (- in most scripts), how long a fence is kept,
-- whether PUBLISH counts all subscribers, for how long the quarantine lasts and what
-- the channels' names begin with. The fence is written last, by end.lua.
local lock, fence, marker = unpack(KEYS)
local tag = string.sub(fence, 7)
local queue, alive, shared, meta = 'queue:' .. tag, 'alive:' .. tag, 'shared:' .. tag, 'meta:' .. tag
local flags, retention, counts, quarantine, channel = string.match(ARGV[1], '^(%S+) (%d+) (%d) (%d+) (.*)$')
retention, counts, quarantine = tonumber(retention), counts == '1', tonumber(quarantine)
local call = redis.call
local now = clock[1] * 1000000 + clock[2]
local ms = math.floor(now / 1000)

-- The waiters of a client that was not heard of for PATIENCE TTLs are dead; it
-- speaks every TOUCH ms at least. GRANT is how many ms a granted waiter may take to
-- say that it knows. One script lets BATCH waiters in and ends PURGE leases at most,
-- so that it does not block the server. Whoever shares is looked for among the SEATS
-- newest holders.
local PATIENCE, TOUCH, GRANT, BATCH, PURGE, SEATS = 3, 20000, 2000, 64, 256, 8

-- What the script knows and will write, and all functions, are in one table: each
-- local that a function refers to costs every call of the script some time. A fence
-- that cannot be read says nothing, so there may be a queue.
local a, b, c, d, rest = string.match(both[2] or '', '^(%d+) (%d+) (%S+) (%d+)(.*)$')
local function field(pattern) return rest and rest ~= '' and string.match(rest, pattern) end
local lined = not rest or string.sub(rest, -2) == ' q'
local S = {
  last = tonumber(a or 0), granted = tonumber(b or 0), grantee = c or '-', notbefore = tonumber(d or 0),
  resized = field(' l(%d+)'), version = tonumber(field(' v(%d+)') or 0), -- the limit for everybody, if there is one
  sum = tonumber(field(' w(%d+)') or 0), summed = tonumber(field(' w%d+/(%d+)') or 0), -- the weight of so many shared holders
  barred = tonumber(field(' b(%d+)') or 0),
  lined = lined, lasts = tonumber(field(' u(%d+)') or 0), told = lined and (field(' m(%S+)') or '*') or '-',
  dirty = false,                -- the fence has to be written
  state = 'free', holder = '',  -- free, x, s with its limit (cap), or foreign; and the text
  stands = false,               -- the lock key is there, whether it counts or not
  weighted = false,             -- one of the shared holders may weigh more than 1
  failure = '',                 -- why a message could not be published
}

-- Functions inside of a function find the locals above faster, as each call makes them.
(function()
function S.int(n) return string.format('%d', n) end

-- commit writes what the script has found out, and takes a lock away that nobody
-- has any more.
function S.commit(must)
  if S.state == 'free' and S.stands then call('DEL', lock) end
  if not S.dirty and not must then return end
  if S.notbefore <= now then S.notbefore = 0 end
  if S.barred <= ms then S.barred = 0 end
  local till = math.max(math.floor(math.max(now, S.last) / 1000) + retention, math.floor(S.notbefore / 1000) + 1000, S.barred)
  local text = string.format('%d %d %s %d', S.last, S.granted, S.grantee, S.notbefore)
  if S.resized then text = string.format('%s l%s v%d', text, S.resized, S.version) end
  if S.weighted and S.summed > 0 then text = string.format('%s w%d/%d', text, S.sum, S.summed) end
  if S.barred > 0 then text = string.format('%s b%d', text, S.barred) end
  if S.lined then
    text = string.format('%s u%d m%s q', text, S.lasts, S.told)
    till = math.max(till, S.lasts)
  end
  call('SET', fence, text, 'PXAT', S.int(till))
end

function S.starts(text, with) return string.sub(text, 1, #with) == with end

-- patience is for how long a client of a request is believed to live after its last
-- word, in milliseconds.
function S.patience(ttl) return PATIENCE * math.min(ttl, TOUCH) end

-- note scores a member of alive, and makes the key live for long enough.
function S.note(member, score, till)
  call('ZADD', alive, S.int(score), member)
  call('PEXPIREAT', alive, S.int(math.max(till, ms + 2 * S.patience(TOUCH))))
end

-- noteAlive notes that a client lives. Tokens do not go back when a clock does, so that
-- what comes after a grant is not older than its token.
function S.noteAlive(client) S.note(client, math.max(now, S.last), 0) end

-- bar notes that a client or an owner counts for nothing until so many microseconds. It is
-- looked for until then and for after milliseconds more.
function S.bar(member, till, after)
  till = math.floor(till / 1000)
  S.barred = math.max(S.barred, till + after)
  S.note(member, -1000 * till, S.barred)
  S.dirty = true
end

-- barClient suspends a client until its next word, and what it has in the queue, which
-- else would live for as long as its ticket is young.
function S.barClient(client) S.bar(client, now, S.patience(TOUCH)) end

-- barOwner refuses an owner's late tries. What may come until then keeps all others from
-- the short way, so the time that a clock may be set back meanwhile is short.
function S.barOwner(owner, till) S.bar(owner, till, GRANT) end

-- suspend bars a client whose grant ran out unanswered, unless it was heard of
-- since, by a clock that was not set back meanwhile.
function S.suspend(client, token)
  if client == '-' then return end
  local newest, heard = math.max(now, S.last), tonumber(call('ZSCORE', alive, client) or 0)
  if heard >= token and heard <= newest then return end
  local joined = call('ZREVRANGE', queue, 0, PURGE, 'WITHSCORES')
  for i = 1, #joined, 2 do
    local ticket = tonumber(joined[i + 1])
    if ticket < token then break end
    if ticket <= newest and string.match(joined[i], '^%S+ (%S+) ') == client then return end
  end
  S.barClient(client)
end

-- lives reports whether the client of a waiting request is believed to live.
function S.lives(client, ttl, ticket)
  local since = now - 1000 * S.patience(ttl)
  if S.barred <= ms and ticket > since then return true end
  local heard = tonumber(call('ZSCORE', alive, client) or 0)
  return heard >= 0 and math.max(heard, ticket) > since
end

-- lasting makes the queue live for long enough; a new one has no expiry yet.
function S.lasting(ttl, new)
  local life = S.patience(ttl)
  if S.lasts < ms + life then
    S.lasts, S.dirty, new = ms + 2 * life, true, true
  end
  if new then call('PEXPIREAT', queue, S.int(S.lasts)) end
  if not S.lined then S.lined, S.told, S.dirty = true, '-', true end
end

-- share reads "limit" or "limit/weight".
function S.share(word)
  local limit, weight = string.match(word, '^(%d+)/?(%d*)$')
  return limit, tonumber(weight) or 1
end

-- agree reports whether two shared requests may have these limits.
function S.agree(a, b) return a == b or S.resized and a ~= '0' and b ~= '0' end

function S.weigh(who) return tonumber(string.match(who, '^%S+ %d+ %d+ %S+ %a %d+/(%d+)')) or 1 end

-- taken is the weight of the shared holders, counted anew if the sum was not kept.
function S.taken()
  local n = call('ZCARD', shared)
  if not S.weighted or n == 0 then return n end
  if n ~= S.summed then
    S.sum, S.summed, S.dirty = 0, n, true
    for _, who in ipairs(call('ZRANGE', meta, 0, -1)) do S.sum = S.sum + S.weigh(who) end
  end
  return S.sum
end

-- fits reports whether a shared request could join; a free name takes the heaviest.
function S.fits(limit, weight)
  return S.state == 'free' or limit == '0' or S.taken() + weight <= tonumber(S.resized or limit)
end

-- counted keeps the sum of the weights, if there is one.
function S.counted(n, weight)
  if S.weighted and S.summed > 0 then S.sum, S.summed, S.dirty = S.sum + weight, S.summed + n, true end
end

-- drop takes a shared holder away.
function S.drop(token, who)
  call('ZREMRANGEBYSCORE', meta, token, token)
  call('ZREM', shared, token)
  if who then S.counted(-1, -S.weigh(who)) end
end

-- seated returns a shared holder as text.
function S.seated(token) return call('ZRANGEBYSCORE', meta, token, token)[1] end

-- loadLock finds out who holds the lock, and ends shared leases that are over.
function S.loadLock()
  local text = both[1]
  if not text then return end
  S.stands = true
  local limit, w = string.match(text, '^fencelock shared (%d+)(.*)$')
  if not limit then
    local ours = S.starts(text, 'fencelock ')
    S.state, S.holder = ours and 'x' or 'foreign', string.sub(text, 1, ours and -1 or 200)
    return
  end
  S.state, S.cap, S.weighted = 's', limit, w == ' w'
  -- A node of a Cluster refuses this while a slot moves and one of them has not come yet.
  if not counts then call('EXISTS', shared, meta) end
  local over = call('ZRANGEBYSCORE', shared, '-inf', S.int(ms), 'LIMIT', 0, PURGE)
  for _, token in ipairs(over) do
    local who = S.seated(token)
    S.drop(token, who)
    local client = string.match(who or '', '^%S+ %d+ %d+ (%S+) ')
    if client and S.lined then S.suspend(client, tonumber(token)) end
  end
  if #over > 0 and call('ZCARD', shared) == 0 then S.state = 'free' end
end

-- put writes the lock key, unless a key of another type is there, which MGET hides.
function S.put(text, ttl)
  if S.stands then
    call('SET', lock, text, 'PX', S.int(ttl))
  elseif not call('SET', lock, text, 'PX', S.int(ttl), 'NX') then
    local kind = redis.pcall('GET', lock)
    S.state, S.holder = 'foreign', type(kind) == 'table' and kind.err or ''
    return false
  end
  S.stands = true
  return true
end

-- prolong makes the keys that shared holders share live for so long. What a full
-- memory refuses does not come first.
function S.prolong(ttl)
  local life = S.int(math.max(call('PTTL', lock), ttl))
  for _, key in ipairs({ lock, shared, meta }) do call('PEXPIRE', key, life) end
end

-- addHolder makes a request a holder for ttl, and returns its token and the floor.
function S.addHolder(owner, desc, ttl)
  local mode, word = string.match(desc, '^%S+ (%a) (%S+) ')
  local token = math.max(S.last + 1, now)
  local floor = token
  local who = string.format('%s %d %d %s', owner, token, now, desc)
  if mode == 'x' then
    if not S.put('fencelock ' .. who, ttl) then return end
    S.state, S.holder = 'x', 'fencelock ' .. who
  else
    local limit, weight = S.share(word)
    local first = S.state == 'free'
    if first then
      if not S.put('fencelock shared ' .. limit .. (weight > 1 and ' w' or ''), ttl) then return end
      call('DEL', shared, meta) -- holders of a lock that was taken away
      S.state, S.cap, S.weighted = 's', limit, weight > 1
    elseif weight > 1 and not S.weighted then
      call('SET', lock, 'fencelock shared ' .. S.cap .. ' w', 'KEEPTTL')
      S.summed = call('ZCARD', shared)
      S.weighted, S.sum = true, S.summed
    end
    call('ZADD', shared, S.int(ms + ttl), S.int(token))
    call('ZADD', meta, S.int(token), who)
    if first then S.sum, S.summed = weight, 1 else S.counted(1, weight) end
    S.prolong(ttl)
    floor = tonumber(call('ZRANGE', meta, 0, 0, 'WITHSCORES')[2])
  end
  S.last, S.granted, S.grantee, S.dirty = token, now, '-', true
  return token, floor
end

-- removeHolder ends one shared holder, and the lock with the last of them.
function S.removeHolder(token, who)
  S.drop(token, who)
  local longest = call('ZREVRANGE', shared, 0, 0, 'WITHSCORES')[2]
  if longest then call('PEXPIREAT', lock, longest) else S.state = 'free' end
end

-- publish publishes to a client and returns false if surely nobody listens: replicas,
-- whose listeners are not counted, do not pass the message on.
function S.publish(client, text)
  redis.set_repl(redis.REPL_NONE)
  local n = redis.pcall('PUBLISH', channel .. client, text)
  redis.set_repl(redis.REPL_ALL)
  if type(n) == 'table' then
    S.failure = n.err
    return true
  end
  return n > 0 or not counts
end

-- notifyNextClients asks those to look after a while who were told of more than a short lease.
function S.notifyNextClients(after, except)
  local text = string.format('advance %d %s', after, lock)
  if S.told == '*' then
    local list = call('ZREVRANGE', alive, 0, BATCH - 1, 'WITHSCORES')
    for i = 1, #list, 2 do
      if tonumber(list[i + 1]) < 0 then break end
      if list[i] ~= except and not S.publish(list[i], text) then call('ZREM', alive, list[i]) end
    end
  elseif S.told ~= '-' and S.told ~= except then
    S.publish(S.told, text)
  end
  if after <= GRANT and S.told ~= '-' then S.told, S.dirty = '-', true end
end

-- handOff lets a waiting request in and tells its client. A grant that nobody hears of
-- is taken back, and the key is left for the next one.
function S.handOff(owner, desc, client, mode, ttl)
  local life = math.min(ttl, GRANT)
  local token, floor = S.addHolder(owner, desc, life)
  if not token then return false end
  S.grantee = client
  if S.publish(client, string.format('grant %s %d %d %d %d %s %s', owner, token, floor, now, life, mode, lock)) then return true end
  if mode == 'x' then S.state = 'free' else S.removeHolder(S.int(token), S.seated(S.int(token))) end
  S.grantee = '-'
  S.barClient(client)
  return false
end

-- quarantined returns for how many milliseconds more nothing may be granted,
-- because the server may have forgotten who holds what. See docs/design.md.
function S.quarantined()
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
    redis.call('SET', marker, text, 'PX', S.int(math.max(retention, 2 * life)))
  end
  return left
end

-- advance lets in whoever is next, as many as fit. orderly says that the last
-- holder let go by itself.
function S.advance(orderly)
  if S.state == 'x' or S.state == 'foreign' or not S.lined then return end
  local head = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if not head[1] then
    S.lined, S.dirty = false, S.dirty or both[2]
    return
  end
  if S.state == 'free' and S.grantee ~= '-' then
    if not orderly then S.suspend(S.grantee, S.last) end
    S.grantee, S.dirty = '-', true -- once is enough
  end
  local left = math.max(S.quarantined(), math.ceil((S.notbefore - now) / 1000))
  if left > 0 then -- who is first may count on a hand-over, which comes later
    local first = orderly and string.match(head[1], '^%S+ (%S*)') or ''
    if orderly then S.publish(first, string.format('advance %d %s', left, lock)) end
    return S.notifyNextClients(left, first)
  end
  local room, turns, life, to = BATCH, 16 * BATCH, 0, ''
  while head[1] do
    if room == 0 or turns == 0 then -- others go on
      S.told = '*'
      S.publish(string.match(head[1], '^%S+ (%S*)'), string.format('advance 0 %s', lock))
      return S.notifyNextClients(0, '')
    end
    turns = turns - 1
    local entry = head[1]
    local owner, desc = string.match(entry, '^(%S+) (.*)$')
    local client, mode, word, ttl = string.match(desc or '', '^(%S+) (%a) (%S+) (%d+) ')
    local limit, weight = S.share(word or '0')
    ttl = tonumber(ttl)
    if not client or not S.lives(client, ttl, tonumber(head[2])) then
      call('ZREM', queue, entry)
    elseif S.state == 's' and (mode == 'x' or S.agree(limit, S.cap) and not S.fits(limit, weight)) then
      break
    else
      call('ZREM', queue, entry)
      if S.state == 's' and not S.agree(limit, S.cap) then
        S.publish(client, string.format('refuse %s %s', owner, S.cap))
      elseif S.handOff(owner, desc, client, mode, ttl) then
        room, life, to = room - 1, math.min(ttl, GRANT), client
        if mode == 'x' then break end
      elseif S.state == 'foreign' then
        return
      end
    end
    head = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    if not head[1] then S.lined, S.dirty = false, true end
  end
  if room < BATCH then S.notifyNextClients(life, to) end
end

-- ownLease extends what owner holds already, and returns its token and its floor. Last is
-- the index of the oldest shared holder that it looks at, from the newest.
function S.ownLease(owner, mode, ttl, last)
  local own = 'fencelock ' .. owner .. ' '
  if S.state == 'x' and S.starts(S.holder, own) then
    call('PEXPIRE', lock, S.int(ttl))
    local token = string.match(S.holder, '^(%d+)', #own + 1)
    return token, token
  end
  if S.state ~= 's' or mode ~= 's' then return end
  for _, who in ipairs(call('ZREVRANGE', meta, 0, last)) do
    if S.starts(who, owner .. ' ') then
      local token = string.match(who, '^%S+ (%d+)')
      S.prolong(ttl)
      call('ZADD', shared, S.int(ms + ttl), token)
      return token, call('ZRANGE', meta, 0, 0, 'WITHSCORES')[2]
    end
  end
end

-- blockedInfo says in how many milliseconds time alone may change something, why if it
-- is not a holder of ours (f: a foreign one, q: the quarantine, m: a minimum hold),
-- and who holds the lock, and notes that client may sleep for so long. What was
-- handed over is renewed or over soon: that needs no look at the lock.
function S.blockedInfo(client)
  local left, why, text = 0, '-', S.holder
  if S.state == 's' then
    left = math.max(tonumber(call('ZRANGE', shared, 0, 0, 'WITHSCORES')[2] or 0) - ms, 0)
    text = 'fencelock ' .. (call('ZRANGE', meta, 0, 0)[1] or '')
  elseif S.state == 'free' then
    local rest = math.ceil((S.notbefore - now) / 1000)
    left = S.quarantined()
    if left > 0 then why = 'q' elseif rest > 0 then why = 'm' end
    left, text = math.max(left, rest, 0), ''
  else
    if S.state == 'foreign' then why = 'f' end
    if S.state == 'x' and S.grantee ~= '-' then
      local life = math.min(GRANT, tonumber(string.match(S.holder, '^%S+ %S+ %d+ %d+ %S+ %a %S+ (%d+)') or 0))
      left = S.granted > now and 0 or life - math.floor((now - S.granted) / 1000)
    end
    if left <= 0 then left = call('PTTL', lock) end
  end
  if client and (left > GRANT or left < 0) and S.told ~= '*' and S.told ~= client then
    S.told, S.dirty = S.told == '-' and client or '*', true
  end
  return string.format('%d %s %s', left, why, text), left
end

end)()
S.loadLock()
local answer = (function() -- the script itself, up to end.lua
