// An exception that nobody catches.
#include <stdexcept>

int main() {
    throw std::runtime_error("boom");
}
