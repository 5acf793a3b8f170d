-- leave: a request stops waiting; a grant it did not take is given back.
-- ARGV: 2 owner, 3 desc, 4 when its client last heard from us if it waits for
-- nothing else.
local owner, desc, heard = ARGV[2], ARGV[3], tonumber(ARGV[4])
local client = string.match(desc, '^(%S+) ')
local done = 'left'
if redis.call('ZREM', queue, owner .. ' ' .. desc) == 0 then
  done = 'gone'
  local state, _, text = look()
  if state == 'x' and starts(text, 'fencelock ' .. owner .. ' ') then
    redis.call('DEL', lock)
    done = 'released'
  elseif state == 's' then
    for _, who in ipairs(redis.call('ZRANGE', meta, 0, -1)) do
      if starts(who, owner .. ' ') then
        unseat(string.match(who, '^%S+ (%d+)'))
        done = 'released'
      end
    end
  end
end
-- Another request of the client may have joined meanwhile.
local last_word = redis.call('ZSCORE', alive, client)
if last_word and tonumber(last_word) <= heard then redis.call('ZREM', alive, client) end
recall(redis.call('GET', fence))
advance(done == 'released')
return done
