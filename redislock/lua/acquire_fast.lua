-- The way of most acquires, before anything else costs time: an exclusive lock
-- that is free and untouched, without a quarantine. ARGV: 4 until when the request
-- is served; and if it is such a one: 5 the TTL, 6 how long a fence is kept; 7 as in
-- acquire_shared.lua. It writes first, and looks at what it has replaced: a look of
-- its own would cost all of them more than it costs a few to be undone.
local both, undone -- lock and fence; whether the fence has to be put back
if ARGV[4] < stamp then return 'late ' .. stamp end
if ARGV[5] and not ARGV[7] and
    redis.call('SET', KEYS[1], 'fencelock ' .. ARGV[2] .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. ARGV[3], 'PX', ARGV[5], 'NX') then
  local last = redis.pcall('SET', KEYS[2], stamp .. ' ' .. stamp .. ' - 0', 'PX', ARGV[6], 'GET')
  undone = type(last) == 'string'
  if (undone or not last) and untouched(last, KEYS[2]) then return 'taken ' .. stamp end
  redis.call('DEL', KEYS[1])
  if not last then redis.call('DEL', KEYS[2]) end
  both = { false, undone and last }
end
both = both or redis.call('MGET', KEYS[1], KEYS[2])
