-- ALIVE: a client with waiters counts as alive for GRANT ms after each acquire, touch and touchall.
-- sent is the client's own time of that request; a grant returns it. PEXPIRE comes first: with full
-- memory Redis refuses SET as the first write of a script.
local function speaks(s, client, sent)
  call('PEXPIRE', s.queue, QUEUED)
  call('SET', s.alive .. client, sent, 'PX', GRANT)
end
