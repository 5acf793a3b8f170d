-- ALIVE: a waiting client speaks by joining and touching.
local function speaks(s, client)
  if call('PEXPIRE', s.alive .. client, ALIVE) == 0 then call('SET', s.alive .. client, '', 'PX', ALIVE) end
end

-- Everybody who holds: pairs of token and "OWNER DESC".
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

-- What is in the way of a request: in how many ms time alone may change something, what it is
-- (f another program, q the quarantine, m a minimum hold) and who holds.
local function blocked(s)
  if s.mode == 's' then
    local oldest, ends = first(s, TOKENS, '+inf'), first(s, TIMES, TOKENS)[2] or s.ms
    local text = string.gsub(oldest[1] or '', ' ', ' ' .. (oldest[2] or '') .. ' ', 1)
    return ends - s.ms, '-', FORMAT .. text
  elseif s.mode == 'free' then
    local left = shut(s)
    return left, left == 0 and '-' or quarantined(s) > 0 and 'q' or 'm', ''
  end
  return call('PTTL', s.lock), s.mode == 'x' and '-' or 'f', s.text
end

-- A request that waits is told what is in the way, and sleeps for so long.
local function told(s, left, why, text)
  if left > GRANT or left < 0 then call('SET', s.sleeps, '', 'PX', TOUCH) end
  return string.format('%d %s %s', left, why, text)
end
