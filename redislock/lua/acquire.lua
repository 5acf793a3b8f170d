-- acquire: takes the lock, or joins the queue, or says who is in the way.
-- It asks for w to wait, for p to hear of the place, and for a if an earlier try
-- may have worked: a request that shares is then looked for among all holders, and
-- else among the newest, since the same request may arrive twice. ARGV: 2 owner, 3 desc.
local owner, desc = ARGV[2], ARGV[3]
local wait, place, again = string.find(flags, 'w'), string.find(flags, 'p'), string.find(flags, 'a')
local client, mode, word, ttl, minhold = string.match(desc, '^(%S+) (%a) (%S+) (%d+) (%d+) ')
local limit, weight = S.share(word)
ttl, minhold = tonumber(ttl), tonumber(minhold)
if undone then S.commit(true) end
if S.barred > ms and tonumber(call('ZSCORE', alive, owner) or 0) < 0 then return 'late ' .. S.int(now) end
if wait and S.barred > ms then S.noteAlive(client) end
S.advance()

-- Our own earlier try worked, or was granted just now, and we have not heard of
-- it: the lease begins anew.
local token, floor = S.ownLease(owner, mode, ttl, again and -1 or SEATS - 1)
if not token then
  if S.state == 's' and mode == 's' and not S.agree(S.cap, limit) then return string.format('limit %d %s', now, S.cap) end
  local room = S.state == 'free' or S.state == 's' and mode == 's' and not S.lined and S.fits(limit, weight)
  if room and S.notbefore <= now and not S.lined then
    local left = S.quarantined()
    if left > 0 and not wait then return string.format('quarantine %d %d', now, left) end
    if left == 0 then token, floor = S.addHolder(owner, desc, ttl) end
  end
end
if token then
  if minhold > 0 then S.notbefore, S.dirty = math.max(S.notbefore, now + minhold * 1000), true end
  return string.format('granted %d %d %d', now, token, floor)
end
if not wait then return string.format('held %d %s', now, (S.blockedInfo())) end

local entry = owner .. ' ' .. desc
local ticket = call('ZSCORE', queue, entry)
if not ticket then
  local newest = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  ticket = S.int(math.max(now, (tonumber(newest) or 0) + 1))
  call('ZADD', queue, ticket, entry)
  S.lasting(ttl, not newest)
end
local text, left = S.blockedInfo(client)
if left > GRANT or left < 0 then S.noteAlive(client) end
local position = (place or S.state == 'foreign') and call('ZRANK', queue, entry) + 1 or 0
return string.format('queued %d %s %d %s', now, ticket, position, text)
