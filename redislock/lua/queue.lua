-- MESSAGES are not replicated. Returns false if the client does not subscribe any more, which only
-- a server outside of a Cluster knows.
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

-- Asks the clients of up to BATCH waiters, the first ones or the last ones, to touch after so many ms.
local function advise(s, after, told, order)
  for _, entry in ipairs(call(order or 'ZRANGE', s.queue, 0, BATCH - 1)) do
    local client = string.match(entry, '^%S+ (%S+)')
    if client and not told[client] then publish(s, client, string.format('advance %d %s', after, s.lock)) end
    if client then told[client] = true end
  end
end

-- HAND-OVER: makes the waiter the holder for at most GRANT ms and sends it the grant. If its client
-- does not subscribe any more, the grant is undone. The client counts as alive for the length of
-- the grant only, unless it sends an acquire or a touch: a dead client costs the next waiters one
-- grant. A live client that has other waiters sends touch within the grant, or they leave the queue
-- until its next touch.
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

-- QUEUE: grants to the waiters in their order for as long as the next one fits. Waiters of dead
-- clients are removed; a client that was only slow puts them back when it touches. s.lined is the
-- first waiter that is left, if any. orderly: the lock ended earlier than the waiters were told, by
-- a release or a break; if nothing may be granted yet, they are told for how long.
local function advance(s, orderly)
  local given, life, told = 0, 0, {}
  for turn = 1, 16 * BATCH + 1 do
    local entry = (s.mode == 'free' or s.mode == 's') and call('ZRANGE', s.queue, 0, 0)[1]
    s.lined = entry
    if not entry then break end
    if turn > 16 * BATCH then return advise(s, 0, {}, 'ZREVRANGE') end -- so many dead ones: the newest, who are likely to be alive, continue
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
  -- Waiters that sleep for longer than the grant ask again when it may have expired.
  if given > 0 and call('DEL', s.sleeps) == 1 then advise(s, life, told) end
end
