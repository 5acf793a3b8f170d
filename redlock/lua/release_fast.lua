-- The way of most releases: an exclusive lock that nobody waits for.
do
  local text, own = redis.pcall('GET', KEYS[1]), 'fencelock ' .. ARGV[5] .. ' '
  if ARGV[6] ~= '0' then own = own .. ARGV[6] .. ' ' end
  if type(text) == 'string' and string.sub(text, 1, #own) == own and
    (ARGV[7] == '0' or redis.call('EXISTS', 'queue:{' .. KEYS[1] .. '}') == 0) then
    redis.call('DEL', KEYS[1])
    return 'ok'
  end
end

