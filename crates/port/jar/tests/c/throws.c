/* What a C++ compiler makes of a throw, by hand. */
extern int _Unwind_RaiseException(void *exception);

int main(int count, char **arguments)
{
    (void)arguments;
    return count > 5 ? _Unwind_RaiseException(0) : 0;
}
