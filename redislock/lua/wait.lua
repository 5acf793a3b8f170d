-- ALIVE: a client with waiters counts as alive for ALIVE ms after each acquire and touch.
local function speaks(s, client)
  if call('PEXPIRE', s.alive .. client, ALIVE) == 0 then call('SET', s.alive .. client, '', 'PX', ALIVE) end
end

-- The answer to a waiter, which asks again after so many ms (negative: the key in the way has no
-- expiry; it asks after TOUCH). If that is more than GRANT, the key sleeps records that a waiter
-- sleeps longer than a grant lasts, so the next grant must notify it.
local function told(s, left, why, text)
  if left > GRANT or left < 0 then call('SET', s.sleeps, '', 'PX', TOUCH) end
  return string.format('%d %s %s', left, why, text)
end
