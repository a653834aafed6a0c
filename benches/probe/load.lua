-- A load for the Lua interpreter that spends its time in many small C functions: calls, table
-- access through metamethods, string building, sorting with a comparison function, closures.
local rounds = tonumber(arg[1]) or 3
local sum = 0
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
for round = 1, rounds do
  sum = sum + fib(21)
  local list = {}
  for n = 1, 6000 do list[n] = (n * 7919 + round) % 6007 end
  table.sort(list, function(a, b) return a < b end)
  local parts = {}
  for n = 1, 6000 do parts[#parts + 1] = tostring(list[n]) .. ":" .. string.format("%x", n) end
  local text = table.concat(parts, ",")
  for word in text:gmatch("%d+:") do sum = sum + #word end
  local object = setmetatable({}, {__index = function(t, k) return k * 2 end})
  for n = 1, 15000 do sum = sum + object[n] end
  local made = coroutine.wrap(function() for n = 1, 8000 do coroutine.yield(n) end end)
  for _ = 1, 8000 do sum = sum + made() end
  for n = 1, 8000 do sum = sum + select("#", pcall(math.max, n, round)) end
end
print(sum)
