purge(s)
serve(s)

-- The owner may hold already: an earlier attempt succeeded and its answer was lost, or this one
-- arrived twice. Its lease is extended, and it gets the token that it has.
local token, floor = tokenOf(s, owner, r.entry)
if token then
  extend(s, owner, token, r.ttl)
  floor = floorOf(s, token)
elseif s.mode == 's' and r.mode == 's' and not agrees(s, r) then
  return 'limit ' .. stamp .. ' ' .. s.limit
elseif fits(s, r) and not s.lined then
  local left = quarantined(s)
  if left > 0 and not wait then return string.format('quarantine %s %d', stamp, left) end
  if shut(s) == 0 then token, floor = addHolder(s, r, r.ttl) end
end
if token then
  if r.minhold > 0 then close(s, owner, r.minhold) end
  return 'granted ' .. stamp .. ' ' .. token .. ' ' .. floor
end
if wait then return queueUp(s, r, letters, blocked(s)) end
return held(s, blocked(s))
