# needs: lua5.4
cat > script.lua <<'LUA'
local t = {}
for i = 1, 2000 do t[i] = ("%d"):format(i * 7 % 1000) end
table.sort(t)
print(#t)
LUA
