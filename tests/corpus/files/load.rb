require 'json'
# Blocks, exceptions, throw and catch, fibers, threads, garbage collection, big numbers.
data = JSON.parse(File.read('in.json'))
puts data.size, data.sum { |r| r['id'] }
text = File.read('in.txt')
words = text.scan(/[a-z]+/).tally.sort_by { |w, n| [-n, w] }.first(8)
p words
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
puts fib(20)
found = catch(:found) { 1000.times { |i| 1000.times { |j| throw :found, [i, j] if i * j == 5040 && i > 60 } }; nil }
p found
errors = 500.times.count { |n| begin; raise ArgumentError, n.to_s if n.odd?; false; rescue ArgumentError; true; ensure; n; end }
puts errors
fiber = Fiber.new { a, b = 0, 1; loop { Fiber.yield a; a, b = b, a + b } }
puts 200.times.map { fiber.resume }.last
puts (2**3000 % (10**40)), 300.downto(1).inject(:*).to_s.size
puts 8.times.map { |n| Thread.new { (1..2000).select { |x| x % (n + 2) == 0 }.sum } }.map(&:value).inspect
GC.start
puts 20000.times.map { |n| "s#{n}" }.group_by(&:size).transform_values(&:size).inspect
