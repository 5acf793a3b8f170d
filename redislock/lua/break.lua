-- break: ends every acquisition of the name and tells the holders why.
-- ARGV: 2 reason.
if not both[1] and call('EXISTS', lock) == 1 then state = 'foreign' end -- a key of another type
if state == 'free' then
  commit()
  return 'gone'
end
local holders = {}
if state == 'x' then holders = { string.sub(holder, 11) } end
if state == 's' then holders = call('ZRANGE', meta, 0, -1) end
call('DEL', lock, shared, meta)
state, stands, weighted = 'free', false, false
last, granted, grantee, dirty = math.max(last + 1, now), now, '-', true
local token = last
for _, who in ipairs(holders) do
  local owner, own, client = string.match(who, '^(%S+) (%d+) %d+ (%S+) ')
  if owner then tell(client, string.format('lost %s %s %s', owner, own, ARGV[2])) end
end
advance(true)
commit()
return 'broken ' .. int(token)
