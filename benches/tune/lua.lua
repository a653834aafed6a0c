-- Calls, strings, tables. Takes how many rounds it goes; without an end otherwise.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
io.stdout:setvbuf("no")
local rounds = tonumber(arg[1]) or -1
while rounds ~= 0 do
  rounds = rounds - 1
  local words = {}
  for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do
    words[#words + 1] = word:upper() .. #word
  end
  table.sort(words)
  local object = setmetatable({}, { __index = function(_, k) return k * 2 end })
  local sum = fib(14)
  for i = 1, 300 do sum = sum + object[i] % 7 + (words[i % 9 + 1]:byte() or 0) end
  io.write(string.format("%d %s\n", sum, table.concat(words, ",")))
end
