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

-- HAND-OVER: makes the waiter the holder for at most GRANT ms and sends it the grant, with its
-- client's time of the last request that this server has executed: the lease began after it. If
-- the client does not subscribe any more, the grant is undone.
local function handOff(s, r)
  local token, floor = addHolder(s, r, math.min(r.ttl, GRANT))
  local sent = call('GET', s.alive .. r.client) or '0'
  if publish(s, r.client, string.format('grant %s %s %s %s %s', r.owner, token, floor, sent, s.lock)) then return 1 end
  release(s, r.owner, token)
  call('DEL', s.alive .. r.client)
  return 0
end

-- Whether a client counts as alive. A key that lives for longer than GRANT is from before the
-- server's clock was set back.
local function lives(s, client)
  local left = call('PTTL', s.alive .. client)
  if left > GRANT then call('PEXPIRE', s.alive .. client, GRANT) end
  return left > 0
end

-- QUEUE: grants to the waiters in their order for as long as the next one fits. Waiters of dead
-- clients are removed; a client that was only slow puts them back when it touches. s.lined is the
-- first waiter that is left, if any. After BATCH grants the next waiter's client continues: the
-- message saves it the wait for its next touch.
local function serve(s)
  local given = 0
  for turn = 1, 16 * BATCH do
    local entry = (s.mode == 'free' or s.mode == 's') and call('ZRANGE', s.queue, 0, 0)[1]
    s.lined = entry
    local r = entry and read(entry)
    if not entry then return end
    if r and lives(s, r.client) then
      if given == 0 and shut(s) > 0 then return end
      if given == BATCH then return publish(s, r.client, 'advance ' .. s.lock) end
      if s.mode == 's' and r.mode == 's' and not agrees(s, r) then
        publish(s, r.client, 'refuse ' .. r.owner .. ' ' .. s.limit)
      elseif not fits(s, r) then
        return
      else
        given = given + handOff(s, r)
      end
    end
    call('ZREM', s.queue, entry)
  end
end
