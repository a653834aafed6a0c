# quick
# needs: lua5.4
# instead: --function parse => --function lua_next
# instead: --histogram parse => --histogram luaL_checkinteger
cat > script.lua <<'LUA'
local t = {}
for i = 1, 2000 do t[i] = ("%d"):format(i * 7 % 1000) end
table.sort(t)
print(#t)
LUA
fettle record -q -o old.fettle -- lua5.4 script.lua > /dev/null
fettle record -q -o new.fettle -- lua5.4 script.lua > /dev/null
fettle record -q --lib 'libc.so*' --args 'int open64(const char *path, int flags)' -o run.fettle -- lua5.4 script.lua > /dev/null
