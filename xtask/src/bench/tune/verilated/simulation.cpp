// A Rocket core with memory behind its two AXI ports, as Verilator has translated it.
//
// simulation FIRMWARE PROGRESS [CYCLES]: runs the firmware, for so many cycles or without an end, and
// keeps in the file PROGRESS how many are done.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "VExampleRocketSystem.h"
#include "verilated.h"

using u64 = uint64_t;
using Model = VExampleRocketSystem;

static const u64 MEMORY = 0x80000000;
static std::vector<u64> memory(1 << 21);

// Where the core begins: addiw t0, zero, 1; slli t0, t0, 31; jr t0
static const u64 BOOT[] = {0x01f292930010029b, 0x0000001300028067};

static u64 load(u64 address) {
  if (address >= MEMORY) return memory[(address - MEMORY) / 8 % memory.size()];
  return BOOT[address / 8 % 2];
}

static void store(u64 address, u64 data, int lanes) {
  if (address < MEMORY) return;
  u64 mask = 0;
  for (int i = 0; i < 8; i++)
    if (lanes >> i & 1) mask |= u64(0xff) << 8 * i;
  u64 &word = memory[(address - MEMORY) / 8 % memory.size()];
  word = (word & ~mask) | (data & mask);
}

struct Read {
  u64 address;
  int left, id;
};

// One port: `set` before the clock rises, `take` what was agreed on when it does.
#define PORT(P)                                                                            \
  struct P {                                                                               \
    std::deque<Read> reads;                                                                \
    std::deque<int> written;                                                               \
    bool writing = false;                                                                  \
    u64 address = 0;                                                                       \
    int id = 0;                                                                            \
    void set(Model &m) {                                                                   \
      m.P##_ar_ready = 1;                                                                  \
      m.P##_aw_ready = !writing;                                                           \
      m.P##_w_ready = writing;                                                             \
      m.P##_r_valid = !reads.empty();                                                      \
      if (!reads.empty()) {                                                                \
        m.P##_r_bits_data = load(reads.front().address);                                   \
        m.P##_r_bits_id = reads.front().id;                                                \
        m.P##_r_bits_last = reads.front().left == 0;                                       \
      }                                                                                    \
      m.P##_b_valid = !written.empty();                                                    \
      if (!written.empty()) m.P##_b_bits_id = written.front();                             \
    }                                                                                      \
    void take(Model &m) {                                                                  \
      if (m.P##_r_valid && m.P##_r_ready) {                                                \
        Read &read = reads.front();                                                        \
        read.address = (read.address & ~u64(7)) + 8;                                       \
        if (read.left-- == 0) reads.pop_front();                                           \
      }                                                                                    \
      if (m.P##_b_valid && m.P##_b_ready) written.pop_front();                             \
      if (m.P##_ar_valid && m.P##_ar_ready)                                                \
        reads.push_back({m.P##_ar_bits_addr, m.P##_ar_bits_len, m.P##_ar_bits_id});        \
      if (m.P##_w_valid && m.P##_w_ready) {                                                \
        store(address, m.P##_w_bits_data, m.P##_w_bits_strb);                              \
        address = (address & ~u64(7)) + 8;                                                 \
        if (m.P##_w_bits_last) {                                                           \
          writing = false;                                                                 \
          written.push_back(id);                                                           \
        }                                                                                  \
      } else if (m.P##_aw_valid && m.P##_aw_ready) {                                       \
        writing = true;                                                                    \
        address = m.P##_aw_bits_addr;                                                      \
        id = m.P##_aw_bits_id;                                                             \
      }                                                                                    \
    }                                                                                      \
  };
PORT(mem_axi4_0)
PORT(mmio_axi4_0)

static void clock(Model &m, int level) {
  m.clock = m.debug_clock = m.debug_clockeddmi_dmiClock = level;
  m.eval();
}

int main(int count, char **arguments) {
  if (count != 3 && count != 4)
    return fprintf(stderr, "usage: simulation FIRMWARE PROGRESS [CYCLES]\n"), 2;
  u64 cycles = count == 4 ? strtoull(arguments[3], nullptr, 10) : ~0ull;
  FILE *firmware = fopen(arguments[1], "rb");
  int progress = open(arguments[2], O_CREAT | O_WRONLY | O_TRUNC, 0644);
  if (!firmware || progress < 0) return perror("simulation"), 2;
  if (fread(memory.data(), 1, memory.size() * 8, firmware) == 0) return 2;
  fclose(firmware);

  Model m;
  mem_axi4_0 main_port;
  mmio_axi4_0 device_port;
  m.debug_dmactiveAck = 1;
  for (u64 cycle = 0; cycle < cycles; cycle++) {
    bool resetting = cycle < 100;
    m.reset = m.debug_reset = m.debug_clockeddmi_dmiReset = resetting;
    main_port.set(m);
    device_port.set(m);
    clock(m, 0);
    if (!resetting) {
      main_port.take(m);
      device_port.take(m);
    }
    clock(m, 1);
    if (cycle % 500 == 0) {
      char line[32];
      int length = snprintf(line, sizeof line, "%016llu\n", (unsigned long long)cycle);
      if (pwrite(progress, line, length, 0) != length) return perror("simulation"), 2;
    }
  }
}
