-- break: ends every acquisition of the name and its minimum hold, or that of one owner
-- and of nobody else, and tells the holders why.
-- ARGV: 2 reason, 3 that owner.
local only = ARGV[3]
if not both[1] and call('EXISTS', lock) == 1 then S.state = 'foreign' end -- a key of another type
if not only and S.state == 'free' and S.notbefore <= now then return 'gone' end
local holders = S.state == 's' and call('ZRANGE', meta, 0, -1) or S.state == 'x' and { string.sub(S.holder, 11) } or {}
local all = true
if only then
  local chosen = {} -- a request that came twice may have been let in twice
  for _, who in ipairs(holders) do
    if S.starts(who, only .. ' ') then chosen[#chosen + 1] = who end
  end
  if not chosen[1] then return 'gone' end
  all, holders = #holders == #chosen, chosen
end
if all then
  call('DEL', lock, shared, meta)
  S.state, S.stands, S.weighted, S.notbefore = 'free', false, false, 0
end
S.last, S.granted, S.grantee, S.dirty = math.max(S.last + 1, now), now, '-', true
local token = S.last
for _, who in ipairs(holders) do
  local owner, own, client = string.match(who, '^(%S+) (%d+) %d+ (%S+) ')
  if not all then S.removeHolder(own, who) end
  if owner then S.publish(client, string.format('lost %s %s %s', owner, own, ARGV[2])) end
end
S.advance(true)
return 'broken ' .. S.int(token)
