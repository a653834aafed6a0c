// Faults of many kinds, for a checker to find.
#include <cstdio>
#include <string>
#include <vector>

struct Owner {
    int *numbers;
    Owner() { numbers = new int[10]; }
    ~Owner() { delete numbers; }
};

int beyond(int x) {
    int four[4];
    four[x > 3 ? 4 : 0] = 1;
    if (x = 3)
        return four[5];
    char *nothing = 0;
    if (x)
        *nothing = 1;
    return 1 / (x - x);
}

void erased(std::vector<int> &v) {
    for (auto it = v.begin(); it != v.end(); ++it)
        if (*it == 3)
            v.erase(it);
}

template <typename T> T twice(T t) { return t + t; }

const char *gone(FILE *file) {
    std::string text = "gone" + std::to_string(twice(21));
    fclose(file);
    fputs("late", file);
    return text.c_str();
}
