-- The same for a shared lock without weights, of whose holders none is over.
if ARGV[3] and not ARGV[4] and string.match(both[1] or '', '^fencelock shared %d+$') and both[2] and string.sub(both[2], -2) ~= ' q' then
  local call, tag, token = redis.call, string.sub(KEYS[2], 7), ARGV[3]
  local shared, meta = 'shared:' .. tag, 'meta:' .. tag
  local first, who = call('ZRANGE', shared, 0, 0, 'WITHSCORES')[2], call('ZRANGEBYSCORE', meta, token, token)[1]
  if first and tonumber(first) > math.floor(stamp / 1000) and who and string.sub(who, 1, #ARGV[2]) == ARGV[2] then
    call('ZREM', meta, who)
    call('ZREM', shared, token)
    local longest = call('ZREVRANGE', shared, 0, 0, 'WITHSCORES')[2]
    if longest then call('PEXPIREAT', KEYS[1], longest) else call('DEL', KEYS[1]) end
    return 'ok '
  end
end
