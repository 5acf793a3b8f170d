-- acquire: takes the lock, or joins the queue, or says who is in the way.
-- It asks for w to wait, for p to hear of the place, and for a if an earlier try
-- may have worked. ARGV: 2 owner, 3 desc.
local owner, desc = ARGV[2], ARGV[3]
local wait, place, again = string.find(asks, 'w'), string.find(asks, 'p'), string.find(asks, 'a')
local client, mode, word, ttl, atleast = string.match(desc, '^(%S+) (%a) (%S+) (%d+) (%d+) ')
local limit, weight = share(word)
ttl, atleast = tonumber(ttl), tonumber(atleast)
if undone then
  dirty = true
  commit()
  dirty = false
end
if barred > ms and tonumber(call('ZSCORE', alive, owner) or 0) < 0 then
  commit()
  return 'late ' .. int(now)
end
if wait and barred > ms then hear(client) end
advance()

-- Our own earlier try worked, or was granted just now, and we have not heard of
-- it: the lease begins anew.
local token, floor
if again then token, floor = mine(owner, mode, ttl) end
if token then
  if atleast > 0 then notbefore, dirty = math.max(notbefore, now + atleast * 1000), true end
  commit()
  return string.format('granted %d %s %s', now, token, floor)
end

if state == 's' and mode == 's' and not agree(cap, limit) then
  commit()
  return string.format('limit %d %s', now, cap)
end
local room = state == 'free' or state == 's' and mode == 's' and not lined and fits(limit, weight)
if room and notbefore <= now and not lined then
  local left = quarantined()
  if left > 0 and not wait then
    commit()
    return string.format('quarantine %d %d', now, left)
  end
  if left == 0 then
    token, floor = seat(owner, desc, ttl)
    if token then
      if atleast > 0 then notbefore = now + atleast * 1000 end
      commit()
      return string.format('granted %d %d %d', now, token, floor)
    end
  end
end
if not wait then
  local text = outlook()
  commit()
  return string.format('held %d %s', now, text)
end

local entry = owner .. ' ' .. desc
local ticket = again and call('ZSCORE', queue, entry)
if not ticket then
  local newest = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  ticket = int(math.max(now, (tonumber(newest) or 0) + 1))
  call('ZADD', queue, ticket, entry)
  lasting(ttl, not newest)
end
local text, left = outlook(client)
if left > GRANT or left < 0 then hear(client) end
local position = (place or state == 'foreign') and call('ZRANK', queue, entry) + 1 or 0
commit()
return string.format('queued %d %s %d %s', now, ticket, position, text)
