-- page: a part of the names in the index, after the cursor of the next one.
-- KEYS: the index. ARGV: cursor.
local page = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', 1000)
local said = { page[1] }
for i = 1, #page[2], 2 do said[#said + 1] = page[2][i] end
return table.concat(said, '\0')
