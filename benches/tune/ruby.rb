# Calls, blocks, strings, hashes, patterns. Takes how many rounds it goes; without an end otherwise.
$stdout.sync = true
Point = Struct.new(:x, :y) do
  def added(other) = Point.new(x + other.x, y * 0.5 + other.y)
end
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
rounds = (ARGV[0] || -1).to_i
seen = Hash.new(0)
while rounds != 0
  rounds -= 1
  text = "the quick brown fox jumps over the lazy dog #{fib(12)}"
  words = text.scan(/\w+/).map(&:capitalize).sort_by { |word| [word.length, word] }
  point = Point.new(0.0, 1.0)
  words.each_with_index do |word, at|
    seen[word] += 1 if word.match?(/\A[A-Z][aeiou]?/)
    point = point.added(Point.new(at, word.length))
    changed = word.gsub(/[aeiou]/) { |vowel| vowel.upcase + at.to_s }
    seen[changed] = changed.chars.reverse.join(",").length
  end
  seen.delete_if { |word, _| word.length > 6 }
  puts format("%s %05d %p", text[4, 9], seen.size, [point.x, words.first])
end
