-- The time as text has 16 digits, and compares as a number does; string.format would
-- take as long as a command.
local clock = redis.call('TIME')
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
