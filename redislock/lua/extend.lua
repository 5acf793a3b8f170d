-- RENEWAL: the lease of one acquisition runs for ttl from now. Its token stays.
local function extend(s, owner, token, ttl)
  if s.mode == 'x' then return starts(s.text, FORMAT .. owner .. ' ' .. token .. ' ') and call('PEXPIRE', s.lock, ttl) end
  if s.mode ~= 's' or not starts(seatOf(s, token), owner .. ' ') then return false end
  call('PEXPIRE', s.lock, ttl) -- first: with full memory Redis refuses ZADD as the first write, and allows it after this one
  call('ZADD', s.lock, s.ms + ttl, token)
  settle(s)
  return true
end

-- MINIMUM HOLD: nobody is granted the name before it ends, even if its holder releases earlier.
local function close(s, owner, minhold)
  if minhold > call('PTTL', s.closed) then call('SET', s.closed, owner, 'PX', minhold) end
end
