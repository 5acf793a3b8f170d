-- inspect: tries commands of the other scripts on a probe name, and returns a line
-- "COMMAND error" for each that is refused. KEYS: those that the commands may name.
-- ARGV: the commands, a word a line.
local refused = {}
for _, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '[^\n]+') do words[#words + 1] = word end
  local reply = redis.pcall(unpack(words))
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = words[1] .. ' ' .. string.gsub(reply.err, '[\r\n]+', ' ')
  end
end
return table.concat(refused, '\n')
