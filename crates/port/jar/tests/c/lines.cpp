// Reads outside of the program's memory: the test knows the lines.
#include "lines.h"

namespace geo {

struct Shape {
    int corners[4];
    int corner(int index);
};

// Not inlined, so that it has a frame.
__attribute__((noinline)) int Shape::corner(int index) {
    if (index < 0)
        return 0;

    return corner_of(corners, index);
}
} // namespace geo

template <typename T> __attribute__((noinline)) T corner(geo::Shape &shape, T index) {
    return shape.corner(index) * 2;
}

int main(int count, char **) {
    geo::Shape shape = {{1, 2, 3, count}};

    return corner(shape, 3 * count) + 3;
}
