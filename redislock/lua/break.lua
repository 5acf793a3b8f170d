-- break: ends every acquisition of the name and tells the holders why.
-- ARGV: 2 reason.
local state, _, text = look()
if state == 'free' then return 'gone' end
recall(redis.call('GET', fence))
local holders = {}
if state == 'x' then holders = { string.sub(text, 11) } end
if state == 's' then holders = redis.call('ZRANGE', meta, 0, -1) end
redis.call('DEL', lock, shared, meta)
last, granted, grantee = math.max(last + 1, now), now, '-'
remember()
for _, who in ipairs(holders) do
  local owner, token, client = string.match(who, '^(%S+) (%d+) %d+ (%S+) ')
  if owner then tell(client, string.format('lost %s %s %s', owner, token, ARGV[2])) end
end
local token = last
advance(true)
return 'broken ' .. int(token)
