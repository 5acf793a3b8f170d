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

-- Those who wait are asked to look again after so many ms: the next ones, or the newest.
local function advise(s, after, told, order)
  for _, entry in ipairs(call(order or 'ZRANGE', s.queue, 0, BATCH - 1)) do
    local client = string.match(entry, '^%S+ (%S+)')
    if client and not told[client] then publish(s, client, string.format('advance %d %s', after, s.lock)) end
    if client then told[client] = true end
  end
end

-- HAND-OVER: the request holds for GRANT at most, and is told. What nobody hears is undone.
-- The client has as long to speak again; then it counts as dead until it does.
local function handOff(s, r, left)
  local life = math.min(r.ttl, GRANT)
  local token, floor = addHolder(s, r, life)
  if publish(s, r.client, string.format('grant %s %s %s %s %d %s %s', r.owner, token, floor, stamp, life, r.mode, s.lock)) then
    if left > life then call('PEXPIRE', s.alive .. r.client, life) end
    return life
  end
  release(s, r.owner, token)
  call('DEL', s.alive .. r.client)
end

-- QUEUE: first come, first served. Dead ones are passed over, and join anew when they speak.
-- lined says that somebody waits still. orderly: those who are next are told how long the name
-- stays shut, since they may count on a hand-over.
local function advance(s, orderly)
  local given, life, told = 0, 0, {}
  for turn = 1, 16 * BATCH + 1 do
    local entry = (s.mode == 'free' or s.mode == 's') and call('ZRANGE', s.queue, 0, 0)[1]
    s.lined = entry
    if not entry then break end
    if turn > 16 * BATCH then return advise(s, 0, {}, 'ZREVRANGE') end -- others go on
    local r = read(entry)
    local left = r and call('PTTL', s.alive .. r.client) or 0
    if left > 0 then
      local wait = given == 0 and shut(s) or 0
      if wait > 0 then return orderly and advise(s, wait, {}) end
      if given == BATCH then return advise(s, 0, {}) end
      if s.mode == 's' and r.mode == 's' and not agrees(s, r) then
        publish(s, r.client, 'refuse ' .. r.owner .. ' ' .. s.limit)
      elseif not fits(s, r) then
        break
      else
        local lasts = handOff(s, r, left)
        if lasts then given, life, told = given + 1, lasts, { [r.client] = true } end
      end
    end
    call('ZREM', s.queue, entry)
  end
  -- Those who sleep for longer look again when the grant may have run out.
  if given > 0 and call('DEL', s.sleeps) == 1 then advise(s, life, told) end
end
