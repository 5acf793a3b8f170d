-- confirm: a waiter that received a grant extends it to its full TTL and starts its minimum hold.
-- Renewals of shared locks use it too. Returns ok and the floor. KEYS as acquire. ARGV 1 base,
-- 2 settings, 3 owner, 4 token, 5 TTL, 6 minimum hold (0: none), 7 optional: return what was left
local owner, minhold, left = ARGV[3], tonumber(ARGV[6]), ARGV[7] and ' ' .. call('PTTL', s.lock) or ''
if not extend(s, owner, ARGV[4], tonumber(ARGV[5])) then return 'gone' end
if minhold > 0 then
  stays(s)
  close(s, owner, minhold)
end
return 'ok ' .. floorOf(s, ARGV[4]) .. left
