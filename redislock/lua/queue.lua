-- MESSAGES stay on the master, whose answer says whether anybody listens (not on a Cluster).
local function publish(s, client, text)
  redis.set_repl(redis.REPL_NONE)
  local n = redis.pcall('PUBLISH', s.channel .. client, text)
  redis.set_repl(redis.REPL_ALL)
  if type(n) == 'table' then
    s.failure = n.err
    return true
  end
  return n > 0 or s.counts == '0'
end

local function advise(s, entry, after, except)
  local client = string.match(entry or '', '^%S+ (%S+)')
  if client and client ~= except then publish(s, client, string.format('advance %d %s', after, s.lock)) end
end

-- HAND-OVER: the request holds for GRANT at most, and is told. What nobody hears is undone.
-- The client has GRANT to speak again; then it counts as dead until it does.
local function hand(s, r, left)
  local life = math.min(r.ttl, GRANT)
  local token, floor = give(s, r, life)
  if publish(s, r.client, string.format('grant %s %s %s %s %d %s %s', r.owner, token, floor, stamp, life, r.mode, s.lock)) then
    if left > GRANT then call('PEXPIRE', s.alive .. r.client, GRANT) end
    return life
  end
  take(s, r.owner, token)
  call('DEL', s.alive .. r.client)
end

-- QUEUE: first come, first served. Dead ones are passed over, and join anew when they speak.
-- lined says that somebody waits still. orderly: whoever is next is told how long the name
-- stays shut, since it may count on a hand-over.
local function advance(s, orderly)
  local given, life, to = 0
  for turn = 1, 16 * BATCH + 1 do
    local entry = (s.mode == 'free' or s.mode == 's') and call('ZRANGE', s.queue, 0, 0)[1]
    s.lined = entry
    if not entry then break end
    if turn > 16 * BATCH then return advise(s, call('ZREVRANGE', s.queue, 0, 0)[1], 0) end -- somebody goes on
    local r = read(entry)
    local left = r and call('PTTL', s.alive .. r.client) or 0
    if left > 0 then
      local wait = given == 0 and shut(s) or 0
      if wait > 0 then return orderly and advise(s, entry, wait) end
      if given == BATCH then return advise(s, entry, 0) end
      if s.mode == 's' and r.mode == 's' and not agrees(s, r) then
        publish(s, r.client, 'refuse ' .. r.owner .. ' ' .. s.limit)
      elseif not fits(s, r) then
        break
      else
        local lasts = hand(s, r, left)
        if lasts then given, life, to = given + 1, lasts, r.client end
      end
    end
    call('ZREM', s.queue, entry)
  end
  -- Whoever is next looks again when the grant may have run out.
  if given > 0 and call('EXISTS', s.sleeps) == 1 then advise(s, call('ZRANGE', s.queue, 0, 0)[1], life, to) end
end
