-- break: ends every acquisition of the name and its minimum hold, and tells the
-- holders why.
-- ARGV: 2 reason.
if not both[1] and call('EXISTS', lock) == 1 then S.state = 'foreign' end -- a key of another type
if S.state == 'free' and S.notbefore <= now then return 'gone' end
local holders = S.state == 's' and call('ZRANGE', meta, 0, -1) or S.state == 'x' and { string.sub(S.holder, 11) } or {}
call('DEL', lock, shared, meta)
S.state, S.stands, S.weighted = 'free', false, false
S.last, S.granted, S.grantee, S.notbefore, S.dirty = math.max(S.last + 1, now), now, '-', 0, true
local token = S.last
for _, who in ipairs(holders) do
  local owner, own, client = string.match(who, '^(%S+) (%d+) %d+ (%S+) ')
  if owner then S.tell(client, string.format('lost %s %s %s', owner, own, ARGV[2])) end
end
S.advance(true)
return 'broken ' .. S.int(token)
