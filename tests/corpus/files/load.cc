// Templates, virtual calls, exceptions, containers, threads: input for compilers, and a program.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <variant>
#include <vector>
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
template <int N> struct Polygon : Shape {
  double side; explicit Polygon(double s) : side(s) { if (s < 0) throw std::domain_error("side " + std::to_string(N)); }
  double area() const override { return N * side * side / 4; }
};
template <int... N> std::vector<std::unique_ptr<Shape>> shapes(double s, std::integer_sequence<int, N...>) {
  std::vector<std::unique_ptr<Shape>> v; (v.push_back(std::make_unique<Polygon<N + 3>>(s + N)), ...); return v;
}
int main() {
  auto all = shapes(1.5, std::make_integer_sequence<int, 30>());
  std::cout << std::accumulate(all.begin(), all.end(), 0.0, [](double a, auto &s) { return a + s->area(); }) << '\n';
  int caught = 0;
  for (int n = 0; n < 3000; n++) try { Polygon<5> p(n % 3 - 1); } catch (const std::logic_error &e) { caught += e.what()[5] - '0'; }
  std::cout << caught << '\n';
  std::map<std::string, int> count; std::istringstream in("the quick brown the lazy dog the end"); std::string w;
  while (in >> w) count[w]++;
  for (auto &[k, v] : count) std::cout << k << '=' << v << ' ';
  std::cout << '\n' << std::regex_replace("a1b22c333", std::regex("([a-z])([0-9]+)"), "$2$1") << '\n';
  std::vector<std::thread> threads; std::vector<long> sums(8);
  for (int t = 0; t < 8; t++) threads.emplace_back([&, t] { for (int n = 0; n < 10000; n++) try { if (n % 100 == t) throw n; sums[t] += n; } catch (int) { sums[t]--; } });
  for (auto &t : threads) t.join();
  for (long s : sums) std::cout << s << ' ';
  std::variant<int, std::string, double> x = 2.5;
  std::visit([](auto &v) { std::cout << v << '\n'; }, x);
  std::vector<std::function<int(int)>> f; for (int n = 0; n < 50; n++) f.push_back([n](int y) { return y * 31 % (n + 2) + n; });
  std::cout << std::accumulate(f.begin(), f.end(), 7, [](int a, auto &g) { return g(a); }) << '\n';
}
