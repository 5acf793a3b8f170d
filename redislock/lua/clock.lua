-- The server time in microseconds. As text it has 16 digits, so texts compare like numbers.
local clock = call('TIME')
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
