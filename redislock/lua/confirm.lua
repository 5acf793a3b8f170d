-- confirm: extends an exclusive or shared acquisition that ended a wait and
-- begins its minimum hold. ARGV: 2 owner, 3 token, 4 mode, 5 ttl, 6 atleast.
local owner, token, mode, ttl, atleast = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local own = owner .. ' ' .. token .. ' '
local state, _, text = look()
if state == 'x' then
  if mode ~= 'x' or not starts(text, 'fencelock ' .. own) then return 'gone' end
  redis.call('PEXPIRE', lock, int(ttl))
else
  local who = state == 's' and mode == 's' and redis.call('ZRANGEBYSCORE', meta, token, token)[1]
  if not who or not starts(who, own) then return 'gone' end
  prolong(token, ttl)
end
recall(redis.call('GET', fence))
notbefore = math.max(notbefore, now + atleast * 1000)
remember()
return 'ok'
