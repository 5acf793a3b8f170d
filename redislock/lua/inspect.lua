-- inspect: tries every command the other scripts use on a probe name, leaves
-- nothing behind, and returns a line "COMMAND error" for each that is refused.
-- KEYS: those of the probe name, and perhaps the marker, which is only read. ARGV: 1 channel, 2 "1" to try INFO.
local refused = {}
local function try(command, ...)
  local reply = redis.pcall(command, ...)
  local failed = type(reply) == 'table' and reply.err
  if failed then table.insert(refused, command .. ' ' .. string.gsub(failed, '[\r\n]+', ' ')) end
  return not failed
end

try('TIME')
if ARGV[2] == '1' then try('INFO', 'server') end
try('PUBLISH', ARGV[1], 'inspect')
local marker = table.remove(KEYS, 7)
if marker then try('GET', marker) end
for i = 1, 2 do
  try('SET', KEYS[i], 'fencelock inspect', 'PX', '1000')
  try('GET', KEYS[i])
  try('PTTL', KEYS[i])
end
try('MGET', KEYS[1], KEYS[2])
try('EXISTS', KEYS[1])
local expires = try('PEXPIREAT', KEYS[1], '9999999999999')
expires = try('PEXPIRE', KEYS[1], '1000') and expires
local deletes = try('DEL', KEYS[1], KEYS[2])

-- A key without an expiry must not stay if the user may not delete it either.
if expires or deletes then
  for i = 3, 6 do
    if try('ZADD', KEYS[i], '1', 'a') then redis.pcall('PEXPIRE', KEYS[i], '1000') end
  end
  local set = KEYS[3]
  try('ZSCORE', set, 'a')
  try('ZRANK', set, 'a')
  try('ZCARD', set)
  try('ZRANGE', set, '0', '-1')
  try('ZREVRANGE', set, '0', '-1')
  try('ZRANGEBYSCORE', set, '-inf', '0')
  try('ZREMRANGEBYSCORE', set, '-inf', '0')
  try('ZREM', set, 'a')
  redis.pcall('DEL', unpack(KEYS))
end
return table.concat(refused, '\n')
