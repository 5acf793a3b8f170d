-- confirm: extends an exclusive or shared acquisition that ended a wait and
-- begins its minimum hold. ARGV: 2 owner, 3 token, 4 mode, 5 ttl, 6 minhold.
local owner, token, mode, ttl, minhold = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local own = owner .. ' ' .. token .. ' '
if S.state == 'x' then
  if mode ~= 'x' or not S.starts(S.holder, 'fencelock ' .. own) then return 'gone' end
  call('PEXPIRE', lock, S.int(ttl))
else
  local who = S.state == 's' and mode == 's' and S.seated(token)
  if not who or not S.starts(who, own) then return 'gone' end
  S.prolong(ttl)
  call('ZADD', shared, S.int(ms + ttl), token)
  return 'ok'
end
if minhold > 0 then S.notbefore, S.dirty = math.max(S.notbefore, now + minhold * 1000), true end
return 'ok'
