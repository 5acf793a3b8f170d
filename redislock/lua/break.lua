-- break: ends all acquisitions of the name, or only those of one owner, with the minimum hold, and
-- sends the holders the reason. KEYS as acquire. ARGV 1 base, 2 settings, 3 reason, 4 the owner

-- All holders, each with its token and "OWNER DESC".
local function holders(s)
  local list = {}
  if s.mode == 's' then
    local seats = call('ZRANGEBYSCORE', s.lock, TOKENS, '+inf', 'WITHSCORES')
    for i = 1, #seats, 2 do list[#list + 1] = { token = seats[i + 1], entry = seats[i] } end
  elseif s.mode == 'x' then
    local owner, token, desc = string.match(s.text, '^%S+ (%S+) (%d+) (.*)$')
    list[1] = owner and { token = token, entry = owner .. ' ' .. desc }
  end
  return list
end

local only, broken = ARGV[4], false
stays(s)
for _, h in ipairs(holders(s)) do
  local owner, client = string.match(h.entry, '^(%S+) (%S+)')
  if not only or only == owner then
    broken = release(s, owner, h.token) or broken
    mark(s, owner, '')
    publish(s, client, string.format('lost %s %s %s', owner, h.token, ARGV[3]))
  end
end
if not only then
  broken = call('DEL', s.lock, s.closed) > 0 or broken -- also a lock of another program
  s.mode = 'free'
elseif broken then
  call('DEL', s.closed) -- that of the owner, or of the one from whom it adopted the lock
end
if not broken then return 'gone' end
local token = mint(s.fence, stamp, s.retention)
serve(s)
return 'broken ' .. token .. ' ' .. s.failure
