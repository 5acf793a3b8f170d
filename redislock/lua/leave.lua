-- leave: a request stops waiting; a grant it did not take is given back, and the
-- minimum hold that began with it.
-- ARGV: 2 owner, 3 desc, 4 when its client last heard from us if it waits for
-- nothing else, 5 until when a late try of it must not be served.
local owner, desc, heard, late = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local client, minhold = string.match(desc, '^(%S+) %a %S+ %d+ (%d+) ')
local done = 'left'
if call('ZREM', queue, owner .. ' ' .. desc) == 0 then
  done = 'gone'
  if S.state == 'x' and S.starts(S.holder, 'fencelock ' .. owner .. ' ') then
    S.state, done = 'free', 'released'
  elseif S.state == 's' then
    for _, who in ipairs(call('ZRANGE', meta, 0, -1)) do
      if S.starts(who, owner .. ' ') then
        S.removeHolder(string.match(who, '^%S+ (%d+)'), who)
        done = 'released'
      end
    end
  end
  if done == 'released' and tonumber(minhold) > 0 and S.notbefore > now then S.notbefore, S.dirty = 0, true end
end
-- Another request of the client may have joined meanwhile.
local word = tonumber(call('ZSCORE', alive, client) or -1)
if word >= 0 and word <= heard then call('ZREM', alive, client) end
if late > now then S.barOwner(owner, late) end
S.advance(done == 'released')
return done
