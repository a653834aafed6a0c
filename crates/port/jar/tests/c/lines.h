static inline int corner_of(const int *corners, int index) {
    return corners[index * 100000000];
}
