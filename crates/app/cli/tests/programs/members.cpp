// Locks on the heap, in structures: accounts made at two places, and jobs of C.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

struct Account {
    long id = 0, money = 0;
    std::mutex guard;

    __attribute__((noinline)) void add(long n)
    {
        std::lock_guard<std::mutex> lock(guard);
        money += n;
    }
};

struct job {
    int number;
    struct {
        int done;
        pthread_mutex_t lock;
    } state;
};

__attribute__((noinline)) static void run(job *j)
{
    pthread_mutex_lock(&j->state.lock);
    j->state.done++;
    pthread_mutex_unlock(&j->state.lock);
}

__attribute__((noinline)) static Account *other()
{
    return new Account;
}

int main()
{
    auto one = std::make_unique<Account>();
    std::unique_ptr<Account> two(other());
    job *jobs = static_cast<job *>(calloc(3, sizeof *jobs));
    for (int i = 0; i < 3; i++)
        pthread_mutex_init(&jobs[i].state.lock, nullptr);
    auto work = [&] {
        for (int i = 0; i < 1000; i++) {
            one->add(1);
            two->add(1);
            run(&jobs[i % 3]);
        }
    };
    std::thread a(work), b(work);
    a.join();
    b.join();
    printf("%ld\n", one->money + two->money);
    free(jobs);
}
