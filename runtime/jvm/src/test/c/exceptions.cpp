// C++ exceptions, containers and streams.
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
struct D {
    ~D() {
        std::cout << "~D\n";
    }
};
struct My : std::runtime_error {
    int k;
    My(int k) : std::runtime_error("my"), k(k) {
    }
};
void f(int n) {
    D d;
    if (n == 0)
        throw My(42);
    f(n - 1);
}

int main() {
    try {
        f(3);
    } catch (My &m) {
        std::cout << m.what() << m.k << "\n";
    }
    try {
        std::vector<int> v;
        v.at(3);
    } catch (std::exception &e) {
        std::cout << e.what() << "\n";
    }
    std::map<std::string, double> m;
    m["a"] = 1.5;
    m["b"] = 2.25;
    for (auto &p : m)
        std::cout << p.first << "=" << p.second << "\n";
    try {
        try {
            throw 1;
        } catch (int i) {
            std::cout << "int\n";
            throw;
        }
    } catch (...) {
        std::cout << "again\n";
    }
    return 3;
}
