-- Calls, closures, tables, strings, coroutines, errors through pcall, metatables, collection.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(24))
local text = io.open("in.txt"):read("a")
local count, order = {}, {}
for word in text:gmatch("%a+") do
  if not count[word] then order[#order + 1] = word end
  count[word] = (count[word] or 0) + 1
end
table.sort(order, function(a, b) if count[a] ~= count[b] then return count[a] > count[b] end return a < b end)
for n = 1, 8 do print(order[n], count[order[n]]) end
local made = coroutine.wrap(function() for n = 1, 20000 do coroutine.yield(n * n % 1009) end end)
local sum = 0
for _ = 1, 20000 do sum = sum + made() end
print(sum)
local failed = 0
for n = 1, 5000 do
  local ok, err = pcall(function() local t = setmetatable({}, {__index = function(_, k) error({k = k}) end}); return t[n] end)
  if not ok and err.k == n then failed = failed + 1 end
end
print(failed)
print(select("#", pcall(string.rep)), (text:gsub("(%w+) (%w+)", "%2 %1")):sub(1, 60))
local function deep(n) if n == 0 then return 0 end return 1 + deep(n - 1) end
print(deep(10000), (pcall(deep, -1)))
collectgarbage()
print(string.format("%10.4f|%-8s|%x|%q", math.pi, "ab", 48879, "line\n"))
