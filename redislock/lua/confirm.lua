-- confirm: extends an exclusive or shared acquisition that ended a wait and
-- begins its minimum hold. ARGV: 2 owner, 3 token, 4 mode, 5 ttl, 6 atleast.
local owner, token, mode, ttl, atleast = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local own = owner .. ' ' .. token .. ' '
if state == 'x' then
  if mode ~= 'x' or not starts(holder, 'fencelock ' .. own) then return 'gone' end
  call('PEXPIRE', lock, int(ttl))
else
  local who = state == 's' and mode == 's' and seated(token)
  if not who or not starts(who, own) then
    commit()
    return 'gone'
  end
  prolong(ttl)
  call('ZADD', shared, int(ms + ttl), token)
end
if atleast > 0 then notbefore, dirty = math.max(notbefore, now + atleast * 1000), true end
commit()
return 'ok'
