-- ALIVE: a waiting client speaks by joining and touching.
local function speaks(s, client)
  if call('PEXPIRE', s.alive .. client, ALIVE) == 0 then call('SET', s.alive .. client, '', 'PX', ALIVE) end
end

-- A request that waits is told what is in the way, and sleeps for so long.
local function told(s, left, why, text)
  if left > GRANT or left < 0 then call('SET', s.sleeps, '', 'PX', TOUCH) end
  return string.format('%d %s %s', left, why, text)
end
