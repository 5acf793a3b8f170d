-- RENEWAL of one acquisition: its lease begins anew, under the token that it has.
local function extend(s, owner, token, ttl)
  if s.mode == 'x' then return starts(s.text, FORMAT .. owner .. ' ' .. token .. ' ') and call('PEXPIRE', s.lock, ttl) end
  if s.mode ~= 's' or not starts(seatOf(s, token), owner .. ' ') then return false end
  call('PEXPIRE', s.lock, ttl) -- a write that a full memory allows, and so are all after it
  call('ZADD', s.lock, s.ms + ttl, token)
  settle(s)
  return true
end

-- MINIMUM HOLD: the name stays closed, whoever has let go.
local function close(s, owner, minhold)
  if minhold > call('PTTL', s.closed) then call('SET', s.closed, owner, 'PX', minhold) end
end
