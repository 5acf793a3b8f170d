-- The way of most acquires, before anything else costs time: an exclusive lock
-- that is free and nobody waits for, without a minimum hold and a quarantine, by
-- a clock that goes forward. ARGV: 4 until when the request is served; and if it is
-- such a one: 5 the TTL, 6 how long a fence is kept; 7 as in acquire_shared.lua.
-- It writes first, and looks at what it has replaced: a look of its own would
-- cost all of them more than it costs a few to be undone.
local clock, both = redis.call('TIME')
local undone = false -- the fence has to be put back
do
  local call, sub = redis.call, string.sub
  local micros = clock[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end -- string.format takes as long as a command
  local now = clock[1] .. micros
  if ARGV[4] < now then return 'late ' .. now end
  if ARGV[5] and not ARGV[7] and call('SET', KEYS[1], 'fencelock ' .. ARGV[2] .. ' ' .. now .. ' ' .. now .. ' ' .. ARGV[3], 'PX', ARGV[5], 'NX') then
    local last = redis.pcall('SET', KEYS[2], now .. ' ' .. now .. ' - 0', 'PX', ARGV[6], 'GET')
    if not last and call('EXISTS', 'queue:' .. sub(KEYS[2], 7)) == 0 or
        type(last) == 'string' and sub(last, -2) == ' 0' and last < now then
      return 'taken ' .. now
    end
    call('DEL', KEYS[1])
    if not last then call('DEL', KEYS[2]) end
    undone = type(last) == 'string'
    both = { false, undone and last }
  end
end
if not both then both = redis.call('MGET', KEYS[1], KEYS[2]) end
