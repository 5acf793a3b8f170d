-- FREED is how long, in milliseconds, a node remembers a release: the same release may arrive
-- twice, and so may the request for the lock, later.
local FREED = 5000

-- The fast path for most releases: an exclusive lock without waiters.
if not ARGV[4] then
  local text, own = redis.pcall('GET', KEYS[1]), 'fencelock ' .. ARGV[1] .. ' '
  if ARGV[2] ~= '0' then own = own .. ARGV[2] .. ' ' end
  if type(text) == 'string' and string.sub(text, 1, #own) == own and
    (ARGV[3] == '0' or redis.call('EXISTS', 'queue:{' .. KEYS[1] .. '}') == 0) then
    redis.call('DEL', KEYS[1])
    redis.pcall('SET', 'fence:{' .. KEYS[1] .. '}/' .. ARGV[1], 'freed', 'PX', FREED)
    return 'ok'
  end
end

