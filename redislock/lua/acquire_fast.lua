-- The way of most acquires, before anything else costs time: an exclusive lock
-- that is free and nobody waits for, without a minimum hold and a quarantine, by
-- a clock that goes forward. ARGV, if the request is such a one: 4 the TTL, 5 how
-- long a fence is kept.
-- It writes first, and looks at what it has replaced: a look of its own would
-- cost all of them more than it costs a few to be undone.
local replaced -- the fence to put back; empty if there was none
if ARGV[4] then
  local call, sub = redis.call, string.sub
  local clock = call('TIME')
  local micros = clock[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end -- string.format takes as long as a command
  local now = clock[1] .. micros
  if call('SET', KEYS[1], 'fencelock ' .. ARGV[2] .. ' ' .. now .. ' ' .. now .. ' ' .. ARGV[3], 'PX', ARGV[4], 'NX') then
    local last = redis.pcall('SET', KEYS[2], now .. ' ' .. now .. ' - 0', 'PX', ARGV[5], 'GET')
    if not last and call('EXISTS', 'queue:' .. sub(KEYS[2], 7)) == 0 or
        type(last) == 'string' and sub(last, -2) == ' 0' and last < now then
      return 'taken ' .. now
    end
    call('DEL', KEYS[1])
    if type(last) ~= 'table' then replaced = last or '' end -- a table is an error: nothing was written
  end
end

