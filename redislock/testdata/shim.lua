-- Runs a script by a clock of the test's, on real keys whose expiries are kept
-- beside them, and with listeners and an incarnation that the test says. Two more
-- arguments: seconds and microseconds. Returns the answer, what was published, and
-- all keys.
local micros = table.remove(ARGV)
local seconds = table.remove(ARGV)
local real, redis = redis, {}
local ms = seconds * 1000 + math.floor(micros / 1000)
local ends, said, ears, server = 'twin:ends', {}, 'twin:ears', 'twin:server'
local function there(key) return real.call('EXISTS', key) == 1 end
local function keep(key, at) real.call('HSET', ends, key, string.format('%d', at)) end
local function delete(key)
  real.call('HDEL', ends, key)
  return real.call('DEL', key)
end
local function tidy(key) if not there(key) then real.call('HDEL', ends, key) end end
local function expire(key, at)
  if not there(key) then return 0 end
  if at <= ms then delete(key) else keep(key, at) end
  return 1
end
local before = real.call('HGETALL', ends)
for i = 1, #before, 2 do if tonumber(before[i + 1]) <= ms then delete(before[i]) end end

local commands = {
  TIME = function() return { seconds, micros } end,
  INFO = function() return real.call('GET', server) end,
  PUBLISH = function(_, channel, text)
    said[#said + 1] = string.gsub(channel, '^fencelock:2:', '') .. ' ' .. text
    return real.call('SISMEMBER', ears, channel)
  end,
  PTTL = function(_, key)
    if not there(key) then return -2 end
    local at = real.call('HGET', ends, key)
    return at and at - ms or -1
  end,
  PEXPIRE = function(_, key, life) return expire(key, ms + life) end,
  PEXPIREAT = function(_, key, at) return expire(key, tonumber(at)) end,
  DEL = function(_, ...)
    local n = 0
    for _, key in ipairs({ ... }) do n = n + delete(key) end
    return n
  end,
  SET = function(call, key, value, ...)
    local plain, at, stays, i, options = {}, nil, false, 1, { ... }
    while options[i] do
      if options[i] == 'PX' then at, i = ms + options[i + 1], i + 1
      elseif options[i] == 'PXAT' then at, i = tonumber(options[i + 1]), i + 1
      elseif options[i] == 'KEEPTTL' then stays = true
      else plain[#plain + 1] = options[i] end
      i = i + 1
    end
    local reply = call('SET', key, value, unpack(plain))
    if plain[1] == 'NX' and not reply then return reply end
    if at and at <= ms then delete(key) elseif at then keep(key, at) elseif not stays then real.call('HDEL', ends, key) end
    return reply
  end,
}
local function run(call, command, ...)
  if commands[command] then return commands[command](call, ...) end
  local reply = call(command, ...)
  if string.find(command, '^ZREM') then tidy((...)) end
  return reply
end
redis.call = function(...) return run(real.call, ...) end
redis.pcall = function(...) return run(real.pcall, ...) end
redis.set_repl, redis.REPL_NONE, redis.REPL_ALL = real.set_repl, real.REPL_NONE, real.REPL_ALL

local answer = (function()
--SCRIPT--
end)()

local dump, keys = {}, real.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  if string.sub(key, 1, 5) ~= 'twin:' then
    local value = ''
    if real.call('TYPE', key).ok == 'string' then
      value = real.call('GET', key)
    else
      local list = real.call('ZRANGE', key, 0, -1, 'WITHSCORES')
      for i = 1, #list, 2 do value = value .. list[i] .. '|' .. list[i + 1] .. ',' end
    end
    dump[#dump + 1] = key .. '=' .. value .. '@' .. (real.call('HGET', ends, key) or '0') .. '\n'
  end
end
return { answer, table.concat(said, '\n'), table.concat(dump) }
