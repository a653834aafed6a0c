// An exception that is not caught.
#include <stdexcept>

int main() {
    throw std::runtime_error("boom");
}
