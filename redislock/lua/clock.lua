-- The time as text has 16 digits, so it compares as a number does.
local clock = call('TIME')
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
